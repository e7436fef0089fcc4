"""Estimate the autocorrelation of a series, and the effective sample sizes of its mean and its quantiles.

Iteration times are not independent: a slow one is often followed by another. The persistence is the lag-one
correlation of a stationary Gaussian AR(1) process that the series resembles once its values are replaced by normal
scores of their ranks (van der Waerden), which no outlier and no heavy tail moves. An event of probability q in such a
process, such as "below the median", is correlated over lags as Plackett's identity says ("A reduction formula for
normal multivariate integrals", Biometrika 41, 1954), and the sum over lags gives the effective sample size of that
quantile.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

_MOST = 0.999  # more persistence than this is not told from a drift
_TABLED = 0.98  # beyond it, repeats of a quantile grow as those of the mean
_STEP = 0.01
_COARSER = 4  # times as long are the blocks of each coarser look
_FEWEST_BLOCKS = 25
_SHORTEST = 4
_LAGS = 800
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(24)


@dataclass(frozen=True, slots=True)
class Autocorrelation:
    """The persistence of a series of `samples` and its standard error; NaN where there are too few of them."""

    samples: int
    persistence: float
    error: float

    def effective(self, q: float | None = None, *, caution: float = 0.5) -> float:
        """Return the effective sample size of the series for its mean, or for its quantile q.

        `caution` is by how many standard errors the persistence is taken higher than it was estimated.
        """
        if math.isnan(self.persistence):
            return math.nan
        level = min(max(self.persistence + caution * self.error, 0.0), _MOST)
        of_mean = (1 + level) / (1 - level)
        if q is None:
            return self.samples / of_mean
        beyond = max(1.0, of_mean * (1 - _TABLED) / (1 + _TABLED))
        return self.samples / (float(np.interp(min(level, _TABLED), *_repeats(q))) * beyond)


def autocorrelation(values: Floats) -> Autocorrelation:
    """Estimate the autocorrelation of a series in the order it was measured.

    The larger of two estimates: the lag-one correlation, freed of its bias (Marriott and Pope, Biometrika 41, 1954),
    and the one that sums correlations as long as pairs of them are positive (Geyer, Statistical Science 7(4), 1992,
    section 3.3), which sees what lasts longer than the first lag shows.
    """
    n = len(values)
    if n < _SHORTEST or np.ptp(values) == 0.0:
        return Autocorrelation(n, math.nan, math.nan)
    scores = _normal_scores(values)
    spectrum = np.abs(np.fft.rfft(scores, 1 << (2 * n - 1).bit_length())) ** 2
    correlation = np.fft.irfft(spectrum)[: n - n % 2] / float(np.sum(scores**2))
    first = float(correlation[1]) * n / (n - 1)
    first += (1 + 4 * first) / n
    pairs = correlation[0::2] + correlation[1::2]
    positive = pairs[: int(np.argmax(pairs <= 0))] if (pairs <= 0).any() else pairs
    repeats = max(2 * float(np.sum(positive)) - 1, 1.0)
    level = min(max(first, (repeats - 1) / (repeats + 1)), _MOST)
    return Autocorrelation(n, level, math.sqrt((1 - level**2) / n))


def effective_by_blocks(values: Floats, *, caution: float = 0.5) -> float:
    """Return the effective sample size for the mean of a series that varies, as coarser and coarser blocks show it.

    What lasts long is hidden under noise of single samples, and stands out of means of many. The smallest of the sizes
    that means of blocks of 4, 16, 64 ... samples lead to, while there are blocks enough; infinite for a short series.
    """
    found, size = math.inf, _COARSER
    while (count := len(values) // size) >= _FEWEST_BLOCKS:
        blocks = values[len(values) - count * size :].reshape(count, size).mean(axis=1)
        variance = float(np.var(blocks, ddof=1))
        if variance > 0:
            independent = autocorrelation(blocks).effective(caution=caution)
            found = min(found, independent * float(np.var(values, ddof=1)) / variance)
        size *= _COARSER
    return found


def _normal_scores(values: Floats) -> Floats:
    """Return the normal scores of the values' ranks (equal values share their mean rank), centred."""
    from scipy import special

    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(count) - (count - 1) / 2)[place]
    scores = special.ndtri(ranks / (len(values) + 1))
    centred: Floats = scores - scores.mean()
    return centred


@lru_cache
def _repeats(q: float) -> tuple[Floats, Floats]:
    """Return persistences, and the factor by which each divides the number of samples for the quantile q."""
    levels = np.arange(0.0, _TABLED + _STEP / 2, _STEP)
    powers = levels[:, None] ** np.arange(1, _LAGS)
    return levels, 1 + 2 * _event_correlation(powers, q).sum(axis=1)


def _event_correlation(correlation: Floats, q: float) -> Floats:
    """Return the correlation of "at most the quantile q" between two Gaussian variables of this correlation."""
    squared = NormalDist().inv_cdf(q) ** 2
    total = np.zeros_like(correlation)
    angle = np.arcsin(correlation)
    for node, weight in zip(_NODES, _WEIGHTS, strict=True):
        total += weight * np.exp(-squared / (1 + np.sin(angle * (node + 1) / 2)))
    found: Floats = total * angle / 2 / (2 * math.pi) / (q * (1 - q))
    return found
