"""Tell slow iterations of a run apart: stalls here and there, one in every so many, or stretches at another level.

The usual level is the middle of the shortest interval that holds a part of the logarithms (Rousseeuw and Leroy, "A
robust scale estimator based on the shortest half", Statistica Neerlandica 42, 1988), whose width is the usual scatter:
neither moves with what is slow. An iteration far from it is out of the ordinary. Such iterations are periodic when most
of them follow the one before at the same distance, and make a level of their own when they follow one another more
often than chance lets them. A level too near to the usual one to be seen in single iterations is looked for in medians
of several.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

FEWEST = 16  # iterations below which nothing is told
PART = 0.35  # of the iterations, whose shortest interval is the usual level
FAR = 6.0  # standard deviations of the usual scatter
_HALF_WIDTH = 0.4538  # of a normal variable's central part of PART, in standard deviations
_LEAST = 1e-3  # usual scatter, as a share: clocks and rounding
_FEWEST_BLOCKS = 20
_BLOCK = 9  # iterations whose median is looked at for levels
_CHANCE = 0.003
_PERIODIC = 0.8  # of the distances between slow iterations


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowIterations:
    """Iterations far from the usual level: their `share` of all, how many stretches they come in, and their median.

    `every` is the distance of those that are periodic, else 0. `usual` is the median of the others.
    """

    kind: Literal["none", "stalls", "periodic", "levels"]
    usual: float
    other: float
    share: float
    stretches: int
    every: int
    tail: Floats  # values above the usual level, ascending, of those that are far above it


def slow_iterations(values: Floats) -> SlowIterations:
    """Return what slow iterations a series of positive values, in the order it was measured, has."""
    if len(values) < FEWEST or values.min() <= 0:
        return _told("none", values, np.zeros(len(values), np.bool_))
    logs = np.log(values)
    far = _far(logs)
    distances = np.diff(np.flatnonzero(far))
    if (every := _period(distances, len(values))) > 1:
        return _told("periodic", values, far, every=every)
    if _together(far):
        return _told("levels", values, far)
    if len(values) >= _FEWEST_BLOCKS * _BLOCK:
        medians = np.median(np.lib.stride_tricks.sliding_window_view(logs, _BLOCK), axis=1)
        apart = np.pad(_far(medians, independent=len(values) / _BLOCK), _BLOCK // 2, mode="edge")
        if 2 * int(apart.sum()) > 3 * _BLOCK:
            return _told("levels", values, apart)
    return _told("stalls" if far.any() else "none", values, far)


def _told(
    kind: Literal["none", "stalls", "periodic", "levels"], values: Floats, far: Mask, *, every: int = 0
) -> SlowIterations:
    usual = float(np.median(values[~far])) if not far.all() else math.nan
    above = values[far] - usual
    return SlowIterations(
        kind=kind,
        usual=usual,
        other=float(np.median(values[far])) if far.any() else math.nan,
        share=float(far.mean()) if len(far) else 0.0,
        stretches=int(np.sum(np.diff(far.astype(np.int8), prepend=0) == 1)),
        every=every,
        tail=np.sort(above[above > 0]),
    )


def _far(logs: Floats, *, independent: float | None = None) -> Mask:
    """Return which values lie far from the usual level, where so many of them are independent (all by default)."""
    ordered = np.sort(logs)
    size = math.ceil(PART * len(ordered))
    widths = ordered[size:] - ordered[:-size]
    first = int(np.argmin(widths))
    middle = float(np.median(ordered[first : first + size + 1]))
    # The shortest interval of a sample is shorter than that of what it was drawn from, the more so in a small one.
    scatter = float(widths[first]) / (2 * _HALF_WIDTH) * (1 + 8 / (independent or len(ordered)))
    found: Mask = np.abs(logs - middle) > FAR * max(scatter, _LEAST)
    return found


def _period(distances: npt.NDArray[np.intp], samples: int) -> int:
    """Return the distance at which slow iterations recur; 0 where they do not."""
    from scipy import special

    if len(distances) < 2:
        return 0
    sizes, counts = np.unique(distances, return_counts=True)
    most = int(np.argmax(counts))
    every, share = int(sizes[most]), (len(distances) + 1) / samples
    chance = share * (1 - share) ** (every - 1)
    rare = float(special.bdtrc(counts[most] - 1, len(distances), chance)) * samples < _CHANCE * samples / 4
    return every if counts[most] >= _PERIODIC * len(distances) and rare else 0


def _together(far: Mask) -> bool:
    """Return whether far iterations follow one another more often than chance lets them."""
    from scipy import special

    count = int(far.sum())
    follow = int(np.sum(far[1:] & far[:-1]))
    if follow < 2:
        return False
    return float(special.bdtrc(follow - 1, count, count / len(far))) < _CHANCE
