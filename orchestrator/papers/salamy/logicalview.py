"""Draw senders, receivers and links from a capture, with flows 1, 2 and 3 (Fig 3-9)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from orchestrator.analysis.traffic import traffic
from orchestrator.papers.salamy.flows import Seen
from orchestrator.report.style import INK, SERIES, SOFT, Picture, figure, legend, look, save

TITLE = "Hosts and flows of the shared link (as in Fig 3-9)"
CAPTION = (
    "Every pair of hosts that carries at least a hundredth of the bytes of two iterations, as captured, drawn from the "
    "sender to the receiver past the switch that joins them. Colours are those of flows 1, 2 and 3."
)
LEAST = 0.01  # of the bytes of all pairs: acknowledgements are less


def draw(found: Sequence[Seen], folder: Path) -> list[Picture]:
    """Draw the first of the windows; nothing without one."""
    if not found:
        return []
    with look():
        drawing, (panel,) = figure(height_in=3.4)
        _hosts(panel, found[0])
        saved = save(drawing, folder / "logical-view")
        return [Picture(name="logical-view", title=TITLE, caption=CAPTION, saved=saved)]


def pairs(one: Seen) -> list[tuple[str, str, str]]:
    """Return sender, receiver, and their flow, empty where it is none of the three; the biggest pair first."""
    bytes_of = traffic.matrix(one.two, np.ones(len(one.two), bool))
    order = np.argsort(-bytes_of, axis=None, kind="stable")
    big = [divmod(int(place), len(bytes_of)) for place in order if bytes_of.flat[place] >= LEAST * bytes_of.sum()]
    return [(one.two.hosts[src], one.two.hosts[dst], _flow(one, src, dst)) for src, dst in big]


def _flow(one: Seen, src: int, dst: int) -> str:
    """Return the flow with most bytes between two hosts."""
    mine = (one.two.src == src) & (one.two.dst == dst)
    carried = {share.label: int(one.two.wire_bytes[mine & share.flows].sum()) for share in one.shares}
    label = max(carried, key=lambda name: carried[name])
    return label if carried[label] > 0 else ""


def _hosts(panel: Any, one: Seen) -> None:
    found = pairs(one)
    names = sorted({host for src, dst, _ in found for host in (src, dst)})
    colors = {share.label: SERIES[number] for number, share in enumerate(one.shares)}
    turn = 2 * math.pi / len(names)
    at = {
        name: (2 * math.cos(math.pi - turn * place), math.sin(math.pi - turn * place))
        for place, name in enumerate(names)
    }
    for src, dst, label in found:
        arrow = {
            "arrowstyle": "-|>",
            "color": colors.get(label, SOFT),
            "shrinkA": 16,
            "shrinkB": 16,
            "linewidth": 1.6,
            "connectionstyle": "arc3,rad=0.15",
        }
        panel.annotate("", at[dst], at[src], arrowprops=arrow)
    for label in dict.fromkeys(label for _, _, label in found if label):
        panel.plot([], [], color=colors[label], label=label)
    for name, place in at.items():
        panel.text(
            *place,
            name,
            ha="center",
            va="center",
            color=INK,
            bbox={"boxstyle": "round", "facecolor": "none", "edgecolor": SOFT},
        )
    panel.set(xlim=(-2.6, 2.6), ylim=(-1.35, 1.35))
    panel.set_axis_off()
    legend(panel, columns=3)
