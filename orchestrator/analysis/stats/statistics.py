"""Estimate mean and quantiles of one run's correlated series, with confidence intervals of that run's level.

What such an interval is about is the run alone: where another run would have come out it does not say (levels.py does).
Sample sizes are effective ones (autocorrelation.py). The mean has Student's interval. A quantile has the one between
two order statistics, whose ranks follow from the beta distribution that an order statistic of a uniform sample has
(David and Nagaraja, Order Statistics, section 7.1), at fractions of a rank as in Hutson, "Calculating nonparametric
confidence intervals for quantiles using fractional order statistics", Journal of Applied Statistics 26(3), 1999.

The mean of several runs is by batch means: each run cut into windows whose means are taken for independent (Law,
Simulation Modeling and Analysis, 5th edition, section 9.5.3; Zerwas et al. take 30 samples of ten runs).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from orchestrator.analysis.stats.autocorrelation import Autocorrelation, autocorrelation

CONFIDENCE = 0.95
TAIL = (1 - CONFIDENCE) / 2
FEWEST = 8  # batches below which no interval is given
FEWEST_EFFECTIVE = 10.0  # independent iterations, cautiously counted, below which no interval is given
CAUTION = 2.0  # standard errors

Floats = npt.NDArray[np.float64]

SAMPLES = 30  # of all runs together


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value and its confidence interval, in the unit of the samples; NaN where there is too little data."""

    value: float
    low: float
    high: float


UNKNOWN = Estimate(math.nan, math.nan, math.nan)


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Estimates of a series of `samples`; `effective` is its effective sample size for the mean.

    NaN where there are too few samples to know.
    """

    samples: int
    effective: float
    mean: Estimate
    p50: Estimate
    p99: Estimate
    p99_is_maximum: bool  # fewer than 100 samples: the 99th percentile is just the largest one


def summarise(values: npt.ArrayLike) -> Summary:
    """Estimate mean, median and 99th percentile of a series in the order it was measured.

    NaN samples are left out. Intervals are NaN, both bounds, where there are too few samples for their autocorrelation,
    and for p99 where no order statistic bounds it: of n independent samples the largest one lies below the quantile q
    with probability q**n, so that an upper bound of p99 needs 368 of them.
    """
    series = np.asarray(values, np.float64)
    series = series[~np.isnan(series)]
    n = len(series)
    if n == 0:
        return Summary(samples=0, effective=math.nan, mean=UNKNOWN, p50=UNKNOWN, p99=UNKNOWN, p99_is_maximum=False)
    follows = autocorrelation(series)
    return Summary(
        samples=n,
        effective=follows.effective(),
        mean=_mean(series, follows),
        p50=_quantile(series, 0.5, follows),
        p99=_quantile(series, 0.99, follows),
        p99_is_maximum=is_maximum(n, 0.99),
    )


def quantile(values: Floats, q: float) -> float:
    """Return the smallest sample that at least the share `q` of the samples does not exceed (no interpolation)."""
    rank = _rank(len(values), q)
    return float(np.partition(values, rank)[rank])


def is_maximum(samples: int, q: float) -> bool:
    """Return whether the quantile of so many samples is their largest one."""
    return samples > 0 and _rank(samples, q) == samples - 1


def student_t(probability: float, freedom: float) -> float:
    """Return the quantile of Student's t; NaN without freedom."""
    from scipy import special

    return float(special.stdtrit(freedom, probability)) if freedom > 0 else math.nan


def tail_of_t(value: float, freedom: float) -> float:
    """Return the probability that Student's t exceeds a value."""
    from scipy import special

    return float(special.stdtr(freedom, -value))


def _mean(series: Floats, follows: Autocorrelation) -> Estimate:
    mean = float(np.mean(series))
    if not _bears(series, follows):
        return Estimate(mean, math.nan, math.nan)
    if np.ptp(series) == 0.0:
        return Estimate(mean, mean, mean)
    size = follows.effective()
    half = student_t(1 - TAIL, size - 1) * float(np.std(series, ddof=1)) / math.sqrt(size)
    return Estimate(mean, mean - half, mean + half)


def _quantile(series: Floats, q: float, follows: Autocorrelation) -> Estimate:
    value = quantile(series, q)
    if not _bears(series, follows):
        return Estimate(value, math.nan, math.nan)
    if np.ptp(series) == 0.0:
        return Estimate(value, value, value)
    # The size is itself estimated, as precisely as the mean's: Student's t over the normal one widens ranks, too.
    wider = student_t(1 - TAIL, follows.effective() - 1) / NormalDist().inv_cdf(1 - TAIL)
    ranks = bounding_ranks(follows.effective(q) / wider**2, q)
    if ranks is None:
        return Estimate(value, math.nan, math.nan)
    ordered = np.sort(series)
    low, high = (float(np.interp(rank * (len(series) + 1) - 1, np.arange(len(series)), ordered)) for rank in ranks)
    return Estimate(value, low, high)


def bounding_ranks(size: float, q: float) -> tuple[float, float] | None:
    """Return the order statistics of `size` independent samples that bound their quantile q, as rank / (size + 1).

    None where no order statistic is high or low enough.
    """
    from scipy import optimize, special

    def beyond(rank: float, tail: float) -> float:  # probability that this order statistic lies below the quantile
        return float(special.betainc(rank, size + 1 - rank, q)) - tail

    last = size - 1e-9
    if beyond(last, TAIL) > 0 or beyond(1.0, 1 - TAIL) < 0:
        return None
    low, high = (optimize.brentq(beyond, 1.0, last, args=(tail,), xtol=1e-6) for tail in (1 - TAIL, TAIL))
    return low / (size + 1), high / (size + 1)


def _bears(series: Floats, follows: Autocorrelation) -> bool:
    """Return whether there are enough samples for an interval, by a cautious estimate of their autocorrelation."""
    if np.ptp(series) == 0.0:
        return len(series) >= FEWEST
    return follows.effective(caution=CAUTION) >= FEWEST_EFFECTIVE


def _rank(samples: int, q: float) -> int:
    # The small step down keeps 0.99 * 100 = 99.00000000000001 from becoming the hundredth.
    above = math.ceil(q * samples - 1e-9)
    return min(samples - 1, max(0, above - 1))


def batch_means(series: Sequence[Floats], *, wanted: int = SAMPLES) -> Floats:
    """Return means of about `wanted` windows of equal length, each within one series, as many of each series.

    What is left over at a series' end belongs to no window. A series with fewer values than windows gives one a value.
    """
    if not series:
        return np.zeros(0)
    of_each = max(1, round(wanted / len(series)))
    found = []
    for values in series:
        count = min(of_each, len(values))
        if count:
            size = len(values) // count
            found.append(np.asarray(values[: size * count], np.float64).reshape(count, size).mean(axis=1))
    return np.concatenate(found) if found else np.zeros(0)


def mean_of_batches(series: Sequence[Floats], *, wanted: int = SAMPLES) -> Estimate:
    """Return the mean of several runs' series with Student's 95 % interval over their batch means.

    No bounds of one sample.

    The interval is about these runs' level as far as windows of a run are independent.
    """
    means = batch_means(series, wanted=wanted)
    if not len(means):
        return Estimate(math.nan, math.nan, math.nan)
    middle = float(means.mean())
    if len(means) < 2:
        return Estimate(middle, math.nan, math.nan)
    half = student_t(1 - TAIL, len(means) - 1) * float(means.std(ddof=1)) / math.sqrt(len(means))
    return Estimate(middle, middle - half, middle + half)
