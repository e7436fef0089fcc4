"""Estimate the level of a point over its runs, with the run as the unit."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import NormalDist, geometric_mean

import numpy as np

from orchestrator.analysis.stats.statistics import TAIL, Estimate, student_t


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """The geometric mean over `runs` runs with its 95 % interval, in the unit of the values; NaN for a single run.

    `between` is the standard deviation by which runs differ, as a share of the level, and `within` the share of that
    variance that the iterations of a run explain by themselves: NaN where runs have no intervals of their own.
    """

    estimate: Estimate
    runs: int
    between: float
    within: float


def level(runs: Sequence[Estimate]) -> Level:
    """Estimate the level of runs, each given by one statistic of it with its interval within the run.

    A run whose statistic or its interval is not above 0, as of times that were rounded to nothing, has no logarithm.
    """
    runs = [run for run in runs if run.value > 0 and not run.low <= 0]
    logs = np.log([run.value for run in runs])
    middle = float(np.mean(logs)) if len(logs) else math.nan
    if len(logs) < 2:
        return Level(
            estimate=Estimate(math.exp(middle), math.nan, math.nan), runs=len(logs), between=math.nan, within=math.nan
        )
    between = float(np.std(logs, ddof=1))
    half = student_t(1 - TAIL, len(logs) - 1) * between / math.sqrt(len(logs))
    own = np.log([run.high / run.low for run in runs]) / (2 * NormalDist().inv_cdf(1 - TAIL))
    within = float(np.minimum(1.0, np.mean(own**2) / between**2)) if between > 0 else math.nan  # NaN stays NaN
    estimate = Estimate(*(math.exp(middle + shift) for shift in (0.0, -half, half)))
    return Level(estimate=estimate, runs=len(logs), between=between, within=within)


def one_a_run(found: Iterable[tuple[str, Estimate]]) -> list[Estimate]:
    """Combine the windows of each run: their geometric mean, without an interval where there are several.

    Return one estimate a run, by its name.
    """
    by_run: dict[str, list[Estimate]] = defaultdict(list)
    for run, one in found:
        by_run[run].append(one)
    return [estimates[0] if len(estimates) == 1 else _mean(estimates) for estimates in by_run.values()]


def _mean(estimates: Sequence[Estimate]) -> Estimate:
    above = all(one.value > 0 for one in estimates)
    return Estimate(geometric_mean(one.value for one in estimates) if above else math.nan, math.nan, math.nan)
