"""Judge a night against a baseline of nights: how far equal nights may lie apart, and which of them are odd.

A baseline is fixed and short, and nights follow one another: five quiet nights in a row neither show how far nights
differ nor lie where nights lie on average. So a bound on the standard deviation of nights is *assumed*, until enough
nights show a smaller one, also if they follow one another as strongly as these leave possible. The level of the
baseline may itself be off: a deviation is judged less LEVEL_OFF standard errors of it, so that the promised rate of
wrong alarms holds in 95 of 100 baselines, not on average over them.

One night may be odd (heavy tails: Student's t with three degrees of freedom). So a single night has to lie as far away
as such a night rarely does, and two nights in a row as far as two rarely do: independent ones with heavy tails, or
Gaussian ones that follow one another (correlation MOST_PERSISTENCE).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from orchestrator.analysis.stats.autocorrelation import autocorrelation

Floats = npt.NDArray[np.float64]

MOST_PERSISTENCE = 0.8  # correlation of a night with the next one, up to which the promise holds
LEVEL_OFF = 1.5  # 93 of 100 baselines lie no further off on either side; a level of two tests leaves room
RESOLUTION = 1e-4  # no night is known better than to 0.01 %
_KNOWN = 0.05  # probability that nights differ more than by the bound that they show
_FEWEST = 8  # nights that say anything of how they follow one another
_PAIRS = 1.0483  # median distance of two of a Gaussian sample, to its standard deviation (Shamos, 1976)
_EFFICIENCY = 0.8
_ODD = 5.0  # robust standard deviations from the median beyond which a night is named
_HEAVY = 3.0  # degrees of freedom of heavy tails
_SINGLE = 0.2  # of the wrong alarms may come of a night alone, where the night before it can confirm


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """What nights of a baseline show in logarithms: their level, and by how much nights differ at most.

    `seen` is the robust standard deviation of these nights, NaN for one; `spread` the bound that is used, `measured`
    whether nights showed it; `off` the allowance for the level's own error.
    """

    nights: int
    level: float
    seen: float
    spread: float
    off: float
    measured: bool

    def chance(self, deviation: float, noise: float, nights: int) -> float:
        """Return the probability at most that equal nights lie above the level by `deviation`, every one of `nights`.

        `noise` is the standard error of a night by its runs.
        """
        return float(_chance(max(0.0, abs(deviation) - self.off) / math.hypot(self.spread, noise), self._heavy, nights))

    def threshold(self, level: float, noise: float, nights: int) -> float:
        """Return the deviation whose chance is `level`."""
        return self.off + _away(level, self._heavy, nights) * math.hypot(self.spread, noise)

    @property
    def _heavy(self) -> float:
        """How many scales of Student's t a unit is: a standard deviation is sqrt(3), the robust one of nights 1.25."""
        return 1.25 if self.measured else math.sqrt(3.0)


def baseline(nights: Sequence[float], assumed: float) -> Baseline:
    """Return what these nights show (logarithms, oldest first); `assumed` bounds the deviation of nights."""
    values = np.asarray(nights, np.float64)
    level = float(np.median(values))
    seen = robust_spread(values)
    persistence = _persistence(values)
    shown = seen * _widening(len(values), round(persistence, 2))
    measured = shown < max(assumed, seen)
    spread = shown if measured else max(assumed, 0.0 if math.isnan(seen) else seen)
    return Baseline(
        nights=len(values),
        level=level,
        seen=seen,
        spread=max(spread, RESOLUTION),
        off=LEVEL_OFF * spread * _level_error(len(values), round(persistence, 2)),
        measured=measured,
    )


def robust_spread(values: Floats) -> float:
    """Return the standard deviation by the median distance of two nights, which one odd night of five does not move.

    The ordinary one of two or three nights; NaN of one. RESOLUTION at least.
    """
    n = len(values)
    if n < 2:
        return math.nan
    if n < 4:
        return max(float(values.std(ddof=1)), RESOLUTION)
    first, second = np.triu_indices(n, 1)
    return max(_PAIRS * float(np.median(np.abs(values[first] - values[second]))) / (1 + 0.5 / n), RESOLUTION)


def odd(nights: Sequence[float], margin: float) -> list[int]:
    """Return the places of nights that stand out of at least four by more than `margin` and by _ODD deviations."""
    values = np.asarray(nights, np.float64)
    if len(values) < 4:
        return []
    away = np.abs(values - np.median(values))
    return [int(place) for place in np.flatnonzero(away > max(margin, _ODD * robust_spread(values)))]


def shares(nights: int) -> tuple[float, float]:
    """Return the shares of a level that a night alone and a row of so many nights have."""
    return (_SINGLE, 1 - _SINGLE) if nights > 1 else (1.0, 0.0)


def _chance(x: float, heavy: float, nights: int) -> float:
    from scipy import special

    gaussian, tail = float(special.ndtr(-x)), float(special.stdtr(_HEAVY, -heavy * x))
    if nights < 2:
        return max(gaussian, tail)
    # Both of two Gaussian variables beyond x, by Owen's T (Owen, Annals of Mathematical Statistics 27(4), 1956).
    apart = math.sqrt((1 - MOST_PERSISTENCE) / (1 + MOST_PERSISTENCE))
    return max(gaussian - 2 * float(special.owens_t(x, apart)), tail**2)


@lru_cache
def _away(level: float, heavy: float, nights: int) -> float:
    """Return at how many standard deviations the chance is `level`."""
    low, high = 0.0, 1e4
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _chance(middle, heavy, nights) > level else (low, middle)
    return high


def _persistence(values: Floats) -> float:
    """Return the correlation of a night with the next that these nights leave possible."""
    if len(values) < _FEWEST:
        return MOST_PERSISTENCE
    found = autocorrelation(values)
    if math.isnan(found.persistence):
        return MOST_PERSISTENCE
    return min(max(0.0, found.persistence + 1.645 * found.error), 0.95)


@lru_cache
def _widening(nights: int, persistence: float) -> float:
    """Return by how much the deviation of nights may exceed the one that is seen among them (Box, 1954)."""
    from scipy import special

    if nights < 2:
        return math.inf
    correlation = _correlation(nights, persistence)
    centred = correlation - correlation.mean(axis=0) - correlation.mean(axis=1)[:, None] + correlation.mean()
    trace = float(np.trace(centred))
    freedom = _EFFICIENCY * trace**2 / float(np.sum(centred * centred.T))
    least = float(special.chdtri(freedom, 1 - _KNOWN)) / freedom
    return 1 / math.sqrt(least * trace / (nights - 1))


@lru_cache
def _level_error(nights: int, persistence: float) -> float:
    """Return the standard error of the median of nights, in standard deviations of a night."""
    mean = float(_correlation(nights, persistence).mean())
    return math.sqrt(min(1.0, mean * (1 + 0.5 * (1 - persistence))))


def _correlation(nights: int, persistence: float) -> Floats:
    places = np.arange(nights)
    found: Floats = persistence ** np.abs(places[:, None] - places).astype(np.float64)
    return found
