"""Overlap of communication with computing, by rank: from Horovod's Timeline, and from bytes sent meanwhile."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from orchestrator.papers.farhat.published import Farhat
from orchestrator.papers.farhat.trainings import Training
from orchestrator.report.study.content import NOTHING, Comparison, Rows, Section, Table, counted
from orchestrator.report.style import SERIES, Picture, figure, legend, look, save

TITLE = "Overlap of communication with computing, all ranks"
TEXT = (
    "The paper names this overlap as what a profile has to show, and prints no value. Horovod writes its Timeline on "
    "rank 0 alone; its collectives, which all ranks carry out together, are held against the passes that each rank "
    "logged: the share of their time during which the rank computed. Beside it, from captures and needing no Timeline, "
    "the share of the payload that left a rank's host while that rank computed. The two differ where a rank waits "
    "within a collective without sending."
)


def section(found: Sequence[Training], printed: Farhat, folder: Path) -> Section:
    """Compare the overlap of every rank, and what a Timeline displays."""
    timed = [one for one in found if one.timeline]
    return Section(
        title=TITLE,
        text=TEXT,
        pictures=(_drawn(timed, folder),) if timed else (),
        comparisons=(displays(timed, printed),),
        tables=(_table(found),),
    )


def displays(timed: Sequence[Training], printed: Farhat) -> Comparison:
    """Compare the lanes of Horovod's Timeline with what the paper says it displays."""
    finding = printed.finding("timeline")
    return counted(
        printed.check("timeline"),
        "what Horovod's Timeline displays",
        [[lanes == {"compute"} for lanes in one.lanes if lanes] for one in timed],
        ours=", ".join(sorted({lane for one in timed for lanes in one.lanes for lane in lanes})),
        printed=finding.text,
        source=finding.source,
    )


def _table(found: Sequence[Training]) -> Table:
    rows: Rows = [
        (
            one.label + (", Timeline" if one.timeline else ""),
            *_shares([row.of_time for row in one.overlaps]),
            *_shares([row.of_bytes for row in one.overlaps]),
        )
        for one in sorted(found, key=lambda one: (not one.timeline, one.model_bytes, one.link_bps, one.batch or 0))
    ]
    caption = (
        "Share of the collectives' time, by the Timeline, and of the bytes that a host sent, by its capture, while the "
        "rank computed: mean over ranks, and the lowest and highest rank."
    )
    return Table(TITLE, caption, ("training", "of time", "ranks", "of bytes", "ranks"), rows)


def _shares(of: Sequence[float]) -> tuple[str, str]:
    known = [value for value in of if not math.isnan(value)]
    if not known:
        return NOTHING, NOTHING
    return f"{np.mean(known):.1%}", f"{min(known):.1%} to {max(known):.1%}, {len(known)} ranks"


def _drawn(timed: Sequence[Training], folder: Path) -> Picture:
    with look():
        drawing, panels = figure(len(timed), height_in=1.2 + 1.6 * len(timed))
        for panel, one in zip(panels, timed, strict=True):
            _ranks(panel, one)
        panels[-1].set_xlabel("rank")
        legend(panels[0])
        caption = "Share of the collectives' time and of the bytes sent that fell into each rank's own passes."
        return Picture(name="overlap", title=TITLE, caption=caption, saved=save(drawing, folder / "overlap"))


def _ranks(panel: Any, one: Training) -> None:
    ranks = np.array([row.rank for row in one.overlaps])
    panel.bar(ranks - 0.2, [row.of_time for row in one.overlaps], 0.4, color=SERIES[0], label="of time (Timeline)")
    panel.bar(ranks + 0.2, [row.of_bytes for row in one.overlaps], 0.4, color=SERIES[1], label="of bytes (capture)")
    panel.set(ylabel="while computing", ylim=(0, 1), xticks=ranks)
    panel.set_title(one.label, pad=16 if panel.get_subplotspec().is_first_row() else 4)
