"""Drawings of the thesis that no common kind draws: bars to the 99th percentile, fits, and printed marks."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from orchestrator.questions.rows import Rows, grouped
from orchestrator.report.style import LINES, SERIES, WIDTH_IN, from_zero, legend

HEIGHT_IN = 2.7  # of a panel


def _panels(rows: Rows, drawing: Any, column: str) -> list[tuple[Any, Rows]]:
    """Return a panel for each value of a column, with its rows: two beside each other, one without a column."""
    found = grouped(rows, [column] if column else [])
    wide = min(2, len(found))
    high = math.ceil(len(found) / wide)
    drawing.set_size_inches(WIDTH_IN, HEIGHT_IN * high + 0.3)
    spots = drawing.subplots(high, wide, squeeze=False).ravel()
    for spot in spots[len(found) :]:
        spot.axis("off")
    for spot, names in zip(spots, found, strict=False):
        if column:
            spot.set_title(str(names[0]))
    return list(zip(spots, found.values(), strict=False))


def over_load(
    rows: Rows, drawing: Any, *, x: str, xlabel: str, panels: str = "", joined: bool = False, logarithmic: bool = True
) -> None:
    """Draw iteration times over a column: `kind` ours are points, fit and line are lines, printed hollow marks."""
    colors = {name: place for place, (name,) in enumerate(grouped(rows, ["curve"]))}
    drawn = _panels(rows, drawing, panels)
    for panel, mine in drawn:
        for (curve, kind), of in grouped(mine, ["curve", "kind"]).items():
            color, style = SERIES[colors[curve] % len(SERIES)], LINES[colors[curve] // len(SERIES) % len(LINES)]
            if kind in ("fit", "line"):
                label = curve if kind == "line" else "_"
                panel.plot([row[x] for row in of], [row["seconds"] for row in of], style, color=color, label=label)
            elif kind == "printed":
                marks = {"marker": "D", "markersize": 5, "markerfacecolor": "none", "linestyle": "none"}
                panel.plot([row[x] for row in of], [row["seconds"] for row in of], color=color, **marks)
            else:
                _points(panel, of, x, color=color, label=curve, style=style if joined else "none")
        if logarithmic:
            _logarithmic(panel)
        else:
            from_zero(panel)
        panel.set(xlabel=xlabel, ylabel="iteration time (s)")
    legend(*(panel for panel, _ in drawn), columns=4)


def _points(panel: Any, of: Rows, x: str, *, color: str, label: str, style: str) -> None:
    places = sorted(grouped(of, [x]).items())
    means = np.array([np.mean([row["seconds"] for row in at]) for _, at in places])
    highest = np.array([np.mean([row["p99_s"] for row in at]) for _, at in places])
    above = np.clip(highest - means, 0, None)
    panel.errorbar(
        [place for (place,), _ in places],
        means,
        yerr=[np.zeros_like(above), above],
        color=color,
        marker="o",
        markersize=4,
        linestyle=style,
        linewidth=1.1,
        elinewidth=0.9,
        label=label,
    )


def _logarithmic(panel: Any) -> None:
    """Make the axis of times logarithmic with plain numbers, also where it spans less than a decade."""
    panel.set_yscale("log")
    panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    panel.yaxis.set_major_locator(LogLocator(subs=(1.0, 1.5, 2.0, 3.0, 5.0, 7.0)))
    panel.yaxis.set_minor_formatter(NullFormatter())


def over_time(rows: Rows, drawing: Any, *, panels: str) -> None:
    """Draw rates of flows over time, a line each."""
    drawn = _panels(rows, drawing, panels)
    for panel, mine in drawn:
        for place, ((flow,), of) in enumerate(grouped(mine, ["flow"]).items()):
            style = ":" if flow == "flow 3" else "-"
            panel.plot(
                [row["time_ms"] for row in of],
                [row["gbps"] for row in of],
                style,
                color=SERIES[place],
                linewidth=1.1,
                label=flow,
            )
        panel.set(xlabel="time (ms)", ylabel="Gbit/s")
        from_zero(panel)
    legend(*(panel for panel, _ in drawn), columns=3)
