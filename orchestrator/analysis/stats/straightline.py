"""A straight line through points by ordinary least squares, with Student's intervals of its slope and intercept."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from orchestrator.analysis.stats.statistics import TAIL, Estimate, student_t


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """y = intercept + slope x, with 95 % intervals of the points' own scatter, and the R2 of so many points."""

    slope: Estimate
    intercept: Estimate
    r2: float
    points: int

    def at(self, x: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """The line's y."""
        found: npt.NDArray[np.float64] = self.intercept.value + self.slope.value * np.asarray(x, np.float64)
        return found


def line(x: npt.ArrayLike, y: npt.ArrayLike) -> Line | None:
    """The line through points whose coordinates are known; None with fewer than three different x.

    R2 is NaN where y does not vary: there is nothing to explain then.
    """
    from scipy import stats

    xs, ys = np.asarray(x, np.float64), np.asarray(y, np.float64)
    known = ~(np.isnan(xs) | np.isnan(ys))
    xs, ys = xs[known], ys[known]
    if len(np.unique(xs)) < 3:
        return None
    fit = stats.linregress(xs, ys)
    half = student_t(1 - TAIL, len(xs) - 2)
    slope, intercept = float(fit.slope), float(fit.intercept)
    return Line(
        slope=Estimate(slope, slope - half * fit.stderr, slope + half * fit.stderr),
        intercept=Estimate(intercept, intercept - half * fit.intercept_stderr, intercept + half * fit.intercept_stderr),
        r2=float(fit.rvalue) ** 2 if np.ptp(ys) > 0 else math.nan,
        points=len(xs),
    )  # fmt: skip
