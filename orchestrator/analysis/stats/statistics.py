"""Estimate mean and quantiles of one run's correlated series, with confidence intervals of that run's level.

What such an interval is about is the run alone: where another run would have come out it does not say (levels.py does).
Sample sizes are effective ones (autocorrelation.py). The mean has Student's interval. A quantile has the one between
two order statistics, whose ranks follow from the beta distribution that an order statistic of a uniform sample has
(David and Nagaraja, Order Statistics, section 7.1), at fractions of a rank as in Hutson, "Calculating nonparametric
confidence intervals for quantiles using fractional order statistics", Journal of Applied Statistics 26(3), 1999.

The closer the iterations are to saying too little, the more cautiously their correlation is counted: a run that looks
better than it is would else be the one that gets a narrow interval. No interval is given where a run has no one level
(slow_iterations.py: stretches at another level, periodic slow iterations; steady.py: a trend), and none of the mean
where slow iterations of all lengths decide it. What did not happen in a run no interval knows of: slow iterations that
are rarer than 3 in the run's number of iterations may be missed altogether.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from orchestrator.analysis.stats.autocorrelation import Autocorrelation, autocorrelation, effective_by_blocks
from orchestrator.analysis.stats.slow_iterations import SlowIterations, slow_iterations
from orchestrator.validity.steady import drift

CONFIDENCE = 0.95
TAIL = (1 - CONFIDENCE) / 2
FEWEST = 8  # batches below which no interval is given
FEWEST_EFFECTIVE = 10.0  # independent iterations, cautiously counted, below which no interval is given
CAUTION = 2.0  # standard errors
USUAL_CAUTION = 0.5  # of the width, from AMPLE independent iterations on, cautiously counted
MOST_CAUTION = 3.0  # of the width, at FEWEST_EFFECTIVE
AMPLE = 25.0
FEWEST_OF_MEAN = 100  # iterations below which slow ones that decide the mean are too likely to be missed altogether
FEWEST_SLOW = 2  # slow iterations below which their lengths say nothing of a tail
TREND = 1e-3  # probability of a trend by chance below which there is one
TAIL_INDEX = 2.0  # a Pareto tail of this index or less has no variance

Floats = npt.NDArray[np.float64]


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

    NaN where there are too few samples to know. `slow` are its slow iterations, and `trend` is the growth from its
    beginning to its end as a share of the mean, 0 where chance explains it. `heavy_tail`: slow iterations decide the
    mean, and differ too much to say how slow they get.
    """

    samples: int
    effective: float
    mean: Estimate
    p50: Estimate
    p99: Estimate
    p99_is_maximum: bool  # fewer than 100 samples: the 99th percentile is just the largest one
    slow: SlowIterations
    trend: float
    heavy_tail: bool


def summarise(values: npt.ArrayLike, *, fewest_of_mean: int = FEWEST_OF_MEAN) -> Summary:
    """Estimate mean, median and 99th percentile of a series in the order it was measured.

    NaN samples are left out. Intervals are NaN, both bounds, where there are too few samples for their autocorrelation,
    where the series has no one level, and for p99 where no order statistic bounds it: of n independent samples the
    largest one lies below the quantile q with probability q**n, so that an upper bound of p99 needs 368 of them. The
    mean has none below `fewest_of_mean` samples, unless all are equal.
    """
    series = np.asarray(values, np.float64)
    series = series[~np.isnan(series)]
    n = len(series)
    slow = slow_iterations(series)
    if n == 0:
        return Summary(
            samples=0,
            effective=math.nan,
            mean=UNKNOWN,
            p50=UNKNOWN,
            p99=UNKNOWN,
            p99_is_maximum=False,
            slow=slow,
            trend=0.0,
            heavy_tail=False,
        )
    follows, trend = autocorrelation(series), drift(series)
    moves = trend.share if trend.p < TREND else 0.0
    heavy = _is_heavy(slow)
    one_level = slow.kind not in ("levels", "periodic") and not moves
    bears = one_level and _bears(series, follows)
    return Summary(
        samples=n,
        effective=follows.effective(),
        mean=_mean(series, follows, slow, bears=bears and not heavy and (n >= fewest_of_mean or np.ptp(series) == 0.0)),
        p50=_quantile(series, 0.5, follows, bears=bears),
        p99=_quantile(series, 0.99, follows, bears=bears),
        p99_is_maximum=is_maximum(n, 0.99),
        slow=slow,
        trend=moves,
        heavy_tail=heavy,
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


def _mean(series: Floats, follows: Autocorrelation, slow: SlowIterations, *, bears: bool) -> Estimate:
    """Return the mean with Student's interval, moved as its skewness asks for.

    A single stall may be one more than usually comes: then it is not moved, but wider at that end.

    Johnson, "Modified t tests and confidence intervals for asymmetrical populations", Journal of the American
    Statistical Association 73(363), 1978, with the shift of his section 4.
    """
    mean = float(np.mean(series))
    if not bears:
        return Estimate(mean, math.nan, math.nan)
    if np.ptp(series) == 0.0:
        return Estimate(mean, mean, mean)
    size, freedom = _cautious_sizes(series, follows)
    spread = float(np.std(series, ddof=1))
    skewness = float(np.mean((series - mean) ** 3)) / float(np.std(series)) ** 3
    normal = NormalDist().inv_cdf(1 - TAIL)
    shift = skewness * spread * (1 + 2 * normal**2) / (6 * size)
    half = student_t(1 - TAIL, freedom) * spread / math.sqrt(size)
    if slow.kind == "stalls" and len(slow.tail) < FEWEST_SLOW:
        return Estimate(mean, mean - half + min(shift, 0.0), mean + half + max(shift, 0.0))
    return Estimate(mean, min(mean, mean + shift - half), max(mean, mean + shift + half))


def _quantile(series: Floats, q: float, follows: Autocorrelation, *, bears: bool) -> Estimate:
    value = quantile(series, q)
    if not bears:
        return Estimate(value, math.nan, math.nan)
    if np.ptp(series) == 0.0:
        return Estimate(value, value, value)
    # The size is itself estimated, as precisely as the mean's: Student's t over the normal one widens ranks, too.
    size, freedom = _cautious_sizes(series, follows, q)
    wider = student_t(1 - TAIL, freedom) / NormalDist().inv_cdf(1 - TAIL)
    ranks = bounding_ranks(size / wider**2, q)
    if ranks is None:
        return Estimate(value, math.nan, math.nan)
    ordered = np.sort(series)
    low, high = (float(np.interp(rank * (len(series) + 1) - 1, np.arange(len(series)), ordered)) for rank in ranks)
    return Estimate(value, low, high)


def _cautious_sizes(series: Floats, follows: Autocorrelation, q: float | None = None) -> tuple[float, float]:
    """Return the effective size for the mean or the quantile q, and the degrees of freedom with which it is known."""
    ample = min(1.0, max(0.0, (AMPLE - follows.effective(caution=CAUTION)) / (AMPLE - FEWEST_EFFECTIVE)))
    caution = USUAL_CAUTION + (MOST_CAUTION - USUAL_CAUTION) * ample
    of_mean = follows.effective(caution=caution)
    coarser = min(1.0, effective_by_blocks(series) / of_mean)
    return follows.effective(q, caution=caution) * coarser, max(1.0, of_mean - 1)


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


def _is_heavy(slow: SlowIterations) -> bool:
    """Return whether stalls decide the mean and are too unlike to bound it.

    By how far they exceed the usual level: were it a Pareto tail with an index of TAIL_INDEX, the logarithms of its
    values over the least of them would be exponential (Hill, Annals of Statistics 3(5), 1975). A sum that is not
    smaller than these have with a probability of 5 % does not exclude a tail without a variance.
    """
    from scipy import special

    if slow.kind != "stalls" or len(slow.tail) < FEWEST_SLOW:
        return False
    total = float(np.sum(np.log(slow.tail / slow.tail[0])))
    return total * TAIL_INDEX > float(special.gammaincinv(len(slow.tail) - 1, 0.05))


def _rank(samples: int, q: float) -> int:
    # The small step down keeps 0.99 * 100 = 99.00000000000001 from becoming the hundredth.
    above = math.ceil(q * samples - 1e-9)
    return min(samples - 1, max(0, above - 1))
