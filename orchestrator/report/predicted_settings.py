"""Draw predicted settings as one figure: the terms of each iteration time, and what was measured of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from orchestrator.core.errors import StoreError
from orchestrator.parts.terms import NAMES
from orchestrator.predict.predicttext import PredictedSetting
from orchestrator.report import style

_HEIGHT_IN = 1.3  # without its bars
_BAR_IN = 0.26


def write(found: Sequence[PredictedSetting], stem: Path) -> Path:
    """Draw the settings, the quickest first, as STEM.svg and STEM.pdf; return the first of both."""
    stem = stem.with_suffix("") if stem.suffix in (".svg", ".pdf") else stem
    try:
        with style.look():
            style.save(drawn(found), stem)
    except OSError as error:
        raise StoreError(f"cannot write {stem}.svg: {error.strerror}") from error
    return stem.with_suffix(".svg")


def drawn(found: Sequence[PredictedSetting]) -> Any:
    """Return a bar for each setting, of its terms.

    A line for the interval, a dot for what was measured; within `look()`.
    """
    ordered = sorted(found, key=lambda one: one.prediction.iteration_s)
    drawing, (panel,) = style.figure(height_in=_HEIGHT_IN + _BAR_IN * len(ordered))
    places = np.arange(len(ordered))
    left = np.zeros(len(ordered))
    for number, name in enumerate(NAMES):
        values = np.array([getattr(one.prediction.terms, name) for one in ordered]) * 1e3
        if values.any():
            color = style.SERIES[number] if number < len(style.SERIES) else style.SOFT
            panel.barh(places, values, left=left, color=color, label=name.removesuffix("_s"), height=0.7)
            left += values
    for place, one in zip(places, ordered, strict=True):
        panel.plot([1e3 * end for end in one.prediction.interval_s], [place, place], color=style.INK, lw=1.0)
    dots = [(one.measured.iteration_s * 1e3, place) for place, one in enumerate(ordered) if one.measured is not None]
    if dots:
        panel.plot(*zip(*dots, strict=True), "o", color=style.INK, markersize=5, label="measured", linestyle="none")
    panel.set_yticks(places, [one.label for one in ordered])
    panel.set_ylim(len(ordered) - 0.4, -0.6)
    panel.set(xlabel="iteration (ms); a line is the prediction's interval")
    panel.set_xlim(left=0)
    drawing.legend(loc="outside upper center", ncols=4)  # of the figure: names of settings leave the panel little room
    return drawing
