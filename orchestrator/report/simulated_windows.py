"""Draw simulated windows as one figure: the mean iteration, its interval, its tail, and what was measured of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from orchestrator.core.errors import StoreError
from orchestrator.predict.foreseentext import ForeseenSetting
from orchestrator.report import style

_HEIGHT_IN = 1.3  # without its bars
_BAR_IN = 0.26


def write(found: Sequence[ForeseenSetting], stem: Path) -> Path:
    """Draw the windows in their order as STEM.svg and STEM.pdf; return the first of both."""
    stem = stem.with_suffix("") if stem.suffix in (".svg", ".pdf") else stem
    try:
        with style.look():
            style.save(drawn(found), stem)
    except OSError as error:
        raise StoreError(f"cannot write {stem}.svg: {error.strerror}") from error
    return stem.with_suffix(".svg")


def drawn(found: Sequence[ForeseenSetting]) -> Any:
    """Return a bar for each job in each window, computing and waiting; within `look()`.

    A line for the interval of the mean, a tick for the 99th percentile, a dot for the measured mean.
    """
    rows = [(one.label, *row) for one in found for row in one.rows()]
    drawing, (panel,) = style.figure(height_in=_HEIGHT_IN + _BAR_IN * len(rows))
    places = np.arange(len(rows))
    computing = np.array([job.compute_s for _, _, job, _ in rows]) * 1e3
    waiting = np.array([job.waiting_s for _, _, job, _ in rows]) * 1e3
    panel.barh(places, computing, color=style.SERIES[0], label="computing", height=0.7)
    panel.barh(places, waiting, left=computing, color=style.SERIES[1], label="waiting", height=0.7)
    for place, (_, _, job, _) in zip(places, rows, strict=True):
        if job.mean.interval is not None:
            panel.plot([end * 1e3 for end in job.mean.interval], [place, place], color=style.INK, lw=1.0)
    tails = [job.p99.value * 1e3 for _, _, job, _ in rows]
    panel.plot(tails, places, "|", color=style.INK, markersize=9, label="99th percentile")
    dots = [(one.mean_s * 1e3, place) for place, (*_, one) in enumerate(rows) if one is not None]
    if dots:
        panel.plot(*zip(*dots, strict=True), "o", color=style.INK, markersize=5, label="measured", linestyle="none")
    names = [
        ", ".join(part for part in (label, window.window, " + ".join(window.traffic)) if part) or job.job
        for label, window, job, _ in rows
    ]
    panel.set_yticks(places, names)
    panel.set_ylim(len(rows) - 0.4, -0.6)
    panel.set(xlabel="iteration (ms); a line is the mean's interval of 90 %")
    panel.set_xlim(left=0)
    drawing.legend(loc="outside upper center", ncols=4)
    return drawing
