"""Moderate the variances of several points by empirical Bayes, so that noisy estimates do not spoil the rest.

A variance from few units is itself uncertain. Each is drawn towards the middle of all (Smyth, "Linear models and
empirical Bayes methods", Statistical Applications in Genetics and Molecular Biology 3(1), 2004), by as much as they are
alike. Middle and likeness are a median and a median deviation, and a point that is too noisy to belong to the others
keeps its own variance (the idea of Phipson, Lee, Majewski, Alexander and Smyth, "Robust hyperparameter estimation
protects against hypervariable genes", Annals of Applied Statistics 10(2), 2016).

Units may move all points at once: a night or a run in which everything is slow. The variances of such points are one
variance seen several times and tell nothing of each other, and the tests of such points are one test. The correlation
between points says how far that is so: its mean square decides how many variances, and how many tests, the points
amount to (tried on simulated nights: tests/bench/validity.py).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

RESOLUTION = 1e-4  # no unit is known better than to 0.01 %: iterations are timed in microseconds on busy machines
_STRANGER = 0.01  # a point whose variance is as large by chance with a smaller probability keeps its own
_LENT = 0.25  # of the freedom of the other points: variances that are not quite alike would else alarm too often


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """The residuals of a point's units (runs, nights, pairs) about the fitted levels, in logarithms."""

    freedom: int
    residuals: Mapping[str, float]

    @property
    def variance(self) -> float:
        """At least RESOLUTION squared; NaN without freedom."""
        if not self.freedom:
            return math.nan
        squares = math.fsum(value**2 for value in self.residuals.values())
        return max(squares / self.freedom, RESOLUTION**2)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeratedVariance:
    """A variance of one unit with its degrees of freedom; `own` are those that the point has by itself."""

    variance: float
    freedom: float
    own: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeratedVariances:
    """The variances of points, and how many independent tests the tests of all of them amount to."""

    points: Mapping[str, ModeratedVariance]
    tests: float


def moderate(spreads: Mapping[str, Spread]) -> ModeratedVariances:
    """Return the variance of every point that has any freedom, or borrows some; others are left out."""
    from scipy import special

    known = {point: spread for point, spread in spreads.items() if spread.freedom}
    if not known:
        return ModeratedVariances(points={}, tests=float(len(spreads)))
    freedoms = np.array([spread.freedom for spread in known.values()], np.float64)
    variances = np.array([spread.variance for spread in known.values()])
    usual = float(np.median(freedoms))
    middle = float(np.median(variances / (special.chdtri(freedoms, 0.5) / freedoms)))
    common = _common(known, usual)
    pooled = usual * len(known) / (1 + (len(known) - 1) * common)
    alike = special.fdtrc(freedoms, pooled, variances / middle) > _STRANGER
    most = _LENT * (len(known) - 1) * usual
    weights = dict(
        zip(known, np.where(alike, min(_alike_freedom(np.log(variances[alike]), usual), most), 0.0), strict=True)
    )
    found = {}
    for point, spread in spreads.items():
        own, lent = spread.freedom, float(weights.get(point, most))
        if own + lent <= 0:
            continue
        mine = own / (own + lent)
        shared = mine**2 / max(own, 1) + (1 - mine**2) / pooled
        found[point] = ModeratedVariance(
            variance=(mine * spread.variance if own else 0.0) + (1 - mine) * middle,
            freedom=min(own + lent, 1 / shared),
            own=own,
        )
    return ModeratedVariances(points=found, tests=1 + (len(spreads) - 1) * (1 - common))


def _alike_freedom(logarithms: Floats, freedom: float) -> float:
    """Return the prior's degrees of freedom that explain the scatter of log variances (Smyth's estimate).

    Infinite where chance explains all of it.
    """
    from scipy import special

    if len(logarithms) < 2:
        return 0.0
    excess = float(np.var(logarithms, ddof=1)) - float(special.polygamma(1, freedom / 2))
    return 2 * _trigamma_inverse(excess) if excess > 0 else math.inf


def _trigamma_inverse(value: float) -> float:
    """Return the x at which the trigamma function has a value."""
    from scipy import optimize, special

    if value > 1e6:
        return 1 / math.sqrt(value)
    return float(optimize.brentq(lambda x: float(special.polygamma(1, x)) - value, 1e-4, 1e8))


def _common(spreads: Mapping[str, Spread], freedom: float) -> float:
    """Return the mean squared correlation of two points' residuals, in 0 to 1, corrected for chance."""
    if len(spreads) < 2 or freedom <= 1:
        return 1.0
    units = sorted({unit for spread in spreads.values() for unit in spread.residuals})
    matrix = np.array([[spread.residuals.get(unit, 0.0) for unit in units] for spread in spreads.values()])
    lengths = np.sqrt(np.sum(matrix**2, axis=1))
    matrix = matrix[lengths > 0] / lengths[lengths > 0, None]
    if len(matrix) < 2:
        return 1.0
    squares = (matrix @ matrix.T) ** 2
    mean = (float(squares.sum()) - len(matrix)) / (len(matrix) * (len(matrix) - 1))
    return min(max((mean - 1 / freedom) / (1 - 1 / freedom), 0.0), 1.0)
