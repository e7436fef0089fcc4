"""Stop repeating by a rule that keeps its confidence: intervals of a mean that is looked at after every repetition.

Whoever looks again and again at a 95 % interval, and stops when he likes it, has less than 95 %. Two rules, both for
values that are independent and normal (logarithms of runs' levels), looked at from `least` to `most` of them:

- Stopping by width alone, as Chow and Robbins ("On the asymptotic theory of fixed-width sequential confidence intervals
  for the mean", Annals of Mathematical Statistics 36, 1965) do. The width follows from the sample variance, which is
  independent of the mean, so that all that is lost comes from variances that are small by chance (Starr, "The
  performance of a sequential procedure for the fixed-width interval estimation of the mean", same volume 37, 1966).
- Stopping by anything, such as by whether the interval holds 0: repeated confidence intervals hold at all looks at once
  (Jennison and Turnbull, "Interim analyses: the repeated confidence interval approach", Journal of the Royal
  Statistical Society B 51(3), 1989), here with the same nominal level at each look (Pocock, Biometrika 64(2), 1977).

Each look's interval is Student's t interval at a nominal level that makes up for the looks. Levels are found by drawing
standard normal values with a fixed seed: both rules depend on neither the mean nor, but for its ratio to the width that
is asked for, the variance. Of that ratio the worst one counts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from orchestrator.analysis.stats.statistics import CONFIDENCE, Estimate, student_t

Floats = npt.NDArray[np.float64]

PATHS = 20_000
_FEWER = 4_000  # are enough where the law of the mean itself gives each path's share
_SEED = 1
_HALVINGS = 12
_RATIOS = 12  # widths that are tried, from what the fewest to what the most repetitions give


def half_width(values: Sequence[float], nominal: float) -> float:
    """Return half the width of Student's interval of the mean, at an error of `nominal`; infinite below 2 values."""
    count = len(values)
    if count < 2:
        return math.inf
    return student_t(1 - nominal / 2, count - 1) * float(np.std(values, ddof=1)) / math.sqrt(count)


def level(logs: Sequence[float], nominal: float) -> Estimate:
    """Return the level of values from their logarithms, with its interval at an error of `nominal`; NaN of none."""
    if not logs:
        return Estimate(math.nan, math.nan, math.nan)
    middle, half = float(np.mean(logs)), half_width(logs, nominal)
    return Estimate(math.exp(middle), math.exp(middle - half), math.exp(middle + half) if half < math.inf else math.inf)


@lru_cache
def nominal_by_width(least: int, most: int) -> float:
    """Return the nominal error of each look's interval where repetitions end as soon as it is narrow enough.

    The first interval that is narrow enough, else that of `most` values, then holds the mean in 95 of 100 cases at
    least, whatever the variance. `least` is 2 or more.
    """
    spread, counts = _spreads(least, most)
    standard_errors = spread[:_FEWER] / np.sqrt(counts)
    ratios = np.geomspace(0.6, 8.0, _RATIOS) / math.sqrt(most)
    ratios = np.unique(np.append(ratios, ratios * math.sqrt(most / least)))

    low, high = 0.0, 1 - CONFIDENCE
    for _ in range(_HALVINGS):
        nominal = (low + high) / 2
        halves = _t_quantiles(nominal, counts) * standard_errors
        if all(_held(halves, counts, ratio) >= CONFIDENCE for ratio in ratios):
            low = nominal
        else:
            high = nominal
    return low


@lru_cache
def nominal_by_any_rule(least: int, most: int) -> float:
    """Return the nominal error of each look's interval where repetitions may end for any reason.

    The intervals of all looks together then hold the mean in 95 of 100 cases. `least` is 2 or more.
    """
    from scipy import special

    spread, counts = _spreads(least, most)
    means = np.cumsum(_drawn(most), axis=1)[:, least - 1 :] / counts
    tails = 2 * special.stdtr(counts - 1, -np.abs(means) * np.sqrt(counts) / spread)
    return float(np.quantile(tails.min(axis=1), 1 - CONFIDENCE))


def expected(spread: float, width: float, least: int, most: int) -> int:
    """Return after how many repetitions the interval is narrow enough, if values vary by `spread`.

    Both are differences of logarithms; `width` is half the interval's.
    """
    nominal = nominal_by_width(least, most)
    counts = range(least, most)
    return next((n for n in counts if student_t(1 - nominal / 2, n - 1) * spread / math.sqrt(n) <= width), most)


@lru_cache(maxsize=1)
def _drawn(most: int) -> Floats:
    return np.random.Generator(np.random.PCG64(_SEED)).standard_normal((PATHS, most))


def _spreads(least: int, most: int) -> tuple[Floats, Floats]:
    """Return the sample standard deviations of drawn values at each look, and how many values each look has."""
    drawn, counts = _drawn(most), np.arange(1, most + 1, dtype=np.float64)
    totals, squares = np.cumsum(drawn, axis=1), np.cumsum(drawn**2, axis=1)
    looks = counts[least - 1 :]
    variance = (squares - totals**2 / counts)[:, least - 1 :] / (looks - 1)
    return np.sqrt(variance).astype(np.float64), looks


def _held(halves: Floats, counts: Floats, ratio: float) -> float:
    """Return how often the interval holds the mean at which repetitions end by a width of `ratio`.

    The mean is independent of the variances that have decided when they end, so that its own law gives each share.
    """
    from scipy import special

    narrow = halves <= ratio
    ends = np.where(narrow.any(axis=1), narrow.argmax(axis=1), len(counts) - 1)
    at_end = halves[np.arange(len(halves)), ends] * np.sqrt(counts[ends])
    return float(np.mean(special.erf(at_end / math.sqrt(2))))


def _t_quantiles(nominal: float, counts: Floats) -> Floats:
    from scipy import special

    return np.asarray(special.stdtrit(counts - 1, 1 - nominal / 2), np.float64)
