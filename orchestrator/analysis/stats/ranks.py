"""Mann and Whitney's test for iterations that are not independent."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from orchestrator.analysis.stats import statistics

Floats = npt.NDArray[np.float64]


class Ranks(NamedTuple):
    """The probability that an iteration of `b` takes longer than one of `a`, and Mann and Whitney's p of it being 1/2.

    `least_p` is the p of sides that do not overlap at all: no data of these sizes gives a lower one.
    """

    superiority: float
    p: float
    least_p: float

    def deny(self, alpha: float) -> bool:
        """Whether the test finds no difference at this level, which it could have found."""
        return not self.p < alpha and not self.least_p >= alpha


def rank_test(a: Sequence[Floats], b: Sequence[Floats]) -> Ranks:
    """Mann and Whitney's test of two sides.

    The variance takes as sizes the numbers of independent iterations: fewer than measured where iterations follow one
    another (Geyer) and where those of a run resemble each other (Kish's design effect, from the variance between runs).
    Both sides are series a run, in seconds; NaN where one has fewer than FEWEST iterations.
    """
    from scipy import stats

    first, second = (np.concatenate([*side, np.zeros(0)]) for side in (a, b))
    if min(len(first), len(second)) < statistics.FEWEST:
        return Ranks(math.nan, math.nan, math.nan)
    u = float(stats.mannwhitneyu(second, first, method="asymptotic").statistic)
    superiority = u / (len(first) * len(second))
    n, m = (_independent(side) for side in (a, b))
    error = math.sqrt((n + m + 1) / (12 * n * m))
    p, least_p = (float(2 * stats.norm.sf(apart / error)) for apart in (abs(superiority - 0.5), 0.5))
    return Ranks(superiority, p, least_p)


def _independent(series: Sequence[Floats]) -> float:
    sizes = [statistics.effective_size(one) for one in series]
    total = math.fsum(sizes)
    if len(series) < 2 or total <= len(series):
        return total
    within = float(np.average([np.var(one) for one in series], weights=sizes))
    between = max(0.0, float(np.var([np.mean(one) for one in series], ddof=1)) - within / (total / len(series)))
    if within + between <= 0.0:
        return total
    alike = between / (within + between)
    return total / (1 + (total / len(series) - 1) * alike)
