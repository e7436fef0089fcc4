"""Find steps (change points) in a history of nights: where its level moved, and by how much.

Nights follow one another: a bad one is often followed by another, without any step. So the t of a split is divided by
the square root of how often each night repeats what others said (autocorrelation.py), and has the freedom of the nights
that are left. A clear step within either side is taken out before, or it would pass for autocorrelation. The best of
many splits is judged by Bonferroni's inequality, which needs no shuffling: its p is as small as the data make it, also
over a hundred points.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from orchestrator.analysis.stats.autocorrelation import autocorrelation
from orchestrator.analysis.stats.statistics import student_t, tail_of_t
from orchestrator.analysis.stats.variance_moderation import RESOLUTION

Floats = npt.NDArray[np.float64]

FEWEST_NIGHTS = 3  # on either side of a step: one night that stands out is no step
_CLEAR = 0.01
FEWEST_IN_ALL = 8  # with fewer, what nights differ by and how they follow one another is not known
CAUTION = 0.8  # standard errors by which persistence is taken higher than it looks


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A lasting change of a statistic's level: index of its first night, levels in seconds, their ratio, and p."""

    statistic: str
    night: int
    before_s: float
    after_s: float
    p: float

    @property
    def ratio(self) -> float:
        return self.after_s / self.before_s


@dataclass(frozen=True, slots=True, kw_only=True)
class _Split:
    """The best split of some nights: the first night after it, the gap of the levels in logarithms, and its p."""

    cut: int
    gap: float
    p: float


def steps(nights_s: npt.ArrayLike, *, margin: float, alpha: float = 0.05, statistic: str = "p50") -> tuple[Step, ...]:
    """Return the steps in a statistic, of which there is a value a night (seconds; NaN for none), oldest first.

    Binary segmentation (Scott and Knott, 1974) of the logarithms: the split with the largest two-sample t is a step
    when its p is below `alpha` and the levels differ by at least `margin` (a share of 1); both halves are then searched
    in turn. Levels are geometric means.
    """
    places, logs = _logarithms(nights_s)
    cuts = sorted(_cuts(logs, 0, len(logs), margin=margin, alpha=alpha))
    edges = [0, *(cut for cut, _ in cuts), len(logs)]
    return tuple(
        Step(
            statistic=statistic,
            night=int(places[cut]),
            p=p,
            before_s=math.exp(float(np.mean(logs[edges[k] : cut]))),
            after_s=math.exp(float(np.mean(logs[cut : edges[k + 2]]))),
        )
        for k, (cut, p) in enumerate(cuts)
    )


def findable(nights_s: npt.ArrayLike, *, margin: float, alpha: float = 0.05) -> float:
    """Return the smallest step (a share of 1) in the middle of these nights that would be told.

    NaN where none would.
    """
    _, logs = _logarithms(nights_s)
    n = len(logs)
    if n < FEWEST_IN_ALL:
        return math.nan
    cut = _best(logs).cut
    error, freedom = _error(logs, cut, n // 2)
    return max(margin, math.expm1(student_t(1 - alpha / 2 / splits(n), freedom) * error))


def _logarithms(nights_s: npt.ArrayLike) -> tuple[npt.NDArray[np.intp], Floats]:
    values = np.asarray(nights_s, np.float64)
    places = np.flatnonzero(np.isfinite(values) & (values > 0))
    return places, np.log(values[places])


def _cuts(logs: Floats, begin: int, end: int, *, margin: float, alpha: float) -> Iterator[tuple[int, float]]:
    part = logs[begin:end]
    if len(part) < FEWEST_IN_ALL:
        return
    found = _best(part)
    if found.p >= alpha or abs(found.gap) < math.log1p(margin):
        return
    yield begin + found.cut, found.p
    yield from _cuts(logs, begin, begin + found.cut, margin=margin, alpha=alpha)
    yield from _cuts(logs, begin + found.cut, end, margin=margin, alpha=alpha)


def _best(part: Floats) -> _Split:
    cut = best_cut(part)
    gap = float(part[cut:].mean() - part[:cut].mean())
    error, freedom = _error(part, cut, cut)
    return _Split(cut=cut, gap=gap, p=min(1.0, 2 * splits(len(part)) * tail_of_t(abs(gap) / error, freedom)))


def best_cut(part: Floats) -> int:
    """Return the split whose two levels explain most of the variation of nights, which has the largest t."""
    n = len(part)
    sizes = np.arange(FEWEST_NIGHTS, n - FEWEST_NIGHTS + 1)
    sums = np.cumsum(part - part.mean())[sizes - 1]
    return int(sizes[np.argmax(sums**2 / sizes + sums**2 / (n - sizes))])


def _error(part: Floats, cut: int, size: int) -> tuple[float, float]:
    """Return the standard error of the gap between the first `size` nights and the rest, and its degrees of freedom.

    It is estimated from the nights about the split `cut`.
    """
    n = len(part)
    sides = [piece for side in (part[:cut], part[cut:]) for piece in _halved(side)]
    residuals = np.concatenate([side - side.mean() for side in sides])
    effective = autocorrelation(residuals).effective(caution=CAUTION)
    effective = n if math.isnan(effective) else effective
    variance = max(float(residuals @ residuals) / (n - len(sides)), RESOLUTION**2) * n / effective
    return math.sqrt(variance * (1 / size + 1 / (n - size))), max(1.0, effective - 2)


def _halved(side: Floats) -> list[Floats]:
    """Return the parts of a side on either side of a step that is clear by itself, else the side."""
    if len(side) < FEWEST_IN_ALL:
        return [side]
    found = _best(side)
    return [side[: found.cut], side[found.cut :]] if found.p < _CLEAR else [side]


def splits(nights: int) -> int:
    """Return at how many places so many nights can be split."""
    return nights - 2 * FEWEST_NIGHTS + 1
