"""Judge a night against a baseline of nights: how far equal nights may lie apart, and which of them are odd.

A baseline is fixed and short, and nights follow one another: five quiet nights in a row neither show how far nights
differ nor lie where nights lie on average. So a bound on the standard deviation of nights is *assumed*, until enough
nights show a smaller one, also if they follow one another as strongly as these leave possible. The level of the
baseline may itself be off, by chance and by the more the more points there are of which one may be: a deviation is
judged less an allowance for that, so that the promised rate of wrong alarms holds in 95 of 100 baselines, not on
average over them.

Points share the rate, and the chance that a level is off. Nights of one point say little of how far they differ, nights
of many points say it together: quiet at six points, they do not differ by the bound at all six, but may at one. So
those points alone share that may differ as far as is assumed (`moving`), as many as nights show. The chance of a wrong
alarm grows so fast with the spread of nights that points with half the bound hardly add to it.

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
RESOLUTION = 1e-4  # no night is known better than to 0.01 %
_USUAL = 0.5  # correlation of a night with the next one, for intervals, until nights show more
_KEPT = 0.965  # of baselines keep the rate; 95 are promised, beside what the count of points and spreads misjudge
_KNOWN = 0.03  # probability that nights of any point differ more than by the bound that they show
_POWER = 2.0  # a point counts as moving by this power of its variance, to that of the bound
_TWICE = 2.0  # times what points count together, since of few nights many show little
_FEWEST = 8  # nights that say anything of how they follow one another
_PAIRS = 1.0483  # median distance of two of a Gaussian sample, to its standard deviation (Shamos, 1976)
_EFFICIENCY = 0.8
_APART = math.sqrt((1 - MOST_PERSISTENCE) / (1 + MOST_PERSISTENCE))
_ODD = 5.0  # robust standard deviations from the median beyond which a night is named
_HEAVY = 3.0  # degrees of freedom of heavy tails
_SINGLE = 0.5  # of the wrong alarms may come of a night alone, where the night before it can confirm
_LEVELS = 80_000  # of points are simulated, in 500 baselines at least and 20 000 at most


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """What nights of a baseline show in logarithms: their level, and by how much nights differ at most.

    `seen` is the robust standard deviation of these nights, NaN for one; `spread` the bound that is used, `measured`
    whether nights showed it; `off` the allowance for the level's own error. `follows` is the correlation of a night
    with the next one, as is usual or as these nights show.
    """

    nights: int
    level: float
    seen: float
    spread: float
    off: float
    measured: bool
    follows: float

    def chance(self, deviation: float, noise: float, nights: int) -> float:
        """Return the probability at most that equal nights lie above the level by `deviation`, every one of `nights`.

        `noise` is the standard error of a night by its runs.
        """
        return float(_chance(max(0.0, abs(deviation) - self.off) / math.hypot(self.spread, noise), self._heavy, nights))

    def threshold(self, level: float, noise: float, nights: int) -> float:
        """Return the deviation whose chance is `level`."""
        return self.off + _away(level, self._heavy, nights) * math.hypot(self.spread, noise)

    def error(self, nights: int) -> float:
        """Return the standard error of the difference between the mean of so many nights and the level; NaN of one."""
        if self.nights < 2:
            return math.nan
        share, _ = _within(self.nights, self.follows)
        means = (float(_correlation(count, self.follows).mean()) for count in (self.nights, nights))
        return self.seen * math.sqrt(math.fsum(means) / share)

    @property
    def _heavy(self) -> float:
        """How many scales of Student's t a unit is: a standard deviation is sqrt(3), the robust one of nights 1.25."""
        return 1.25 if self.measured else math.sqrt(3.0)


def baseline(nights: Sequence[float], assumed: float, moving: float, yearly: float) -> Baseline:
    """Return what these nights show (logarithms, oldest first); `assumed` bounds the deviation of nights.

    `moving` points may differ by so much, and `yearly` is the chance of a wrong alarm that a night has over all points.
    """
    values = np.asarray(nights, np.float64)
    seen = robust_spread(values)
    likely, persistence = _persistence(values)
    spread, measured = _spread(seen, len(values), persistence, assumed, _KNOWN / moving)
    error = _level_error(len(values), persistence)
    return Baseline(
        nights=len(values),
        level=float(np.median(values)),
        seen=seen,
        spread=max(spread, RESOLUTION),
        off=_off(moving, round(error, 2), yearly) * error * spread,
        measured=measured,
        follows=likely,
    )


def moving(moves: Sequence[float]) -> float:
    """Return how many points, one at least, may have nights that differ as far as is assumed, or by their own bound.

    Of each point there is how far it `moves`; the sum over points is taken _TWICE, since that of few may be small.
    """
    return min(max(1.0, _TWICE * math.fsum(moves)), max(1.0, float(len(moves))))


def moves(nights: Sequence[float], assumed: float) -> float:
    """Return how far a point counts as one whose nights (logarithms) differ as far as is assumed: 1 at most.

    It is a power of their variance, whose mean would be 1 if they did and all of it counted. 1 of a single night.
    Odd nights are left out: one that all points share says nothing of how far nights usually differ.
    """
    from scipy import special

    values = np.delete(np.asarray(nights, np.float64), odd(nights, assumed))
    n = len(values)
    if n < 2:
        return 1.0
    seen, (_, persistence) = robust_spread(values), _persistence(values)
    spread, _ = _spread(seen, n, persistence, assumed, _KNOWN)
    share, freedom = _within(n, persistence)
    half = freedom / 2
    usual = float(special.poch(half, _POWER)) / math.pow(half, _POWER)  # the mean of this power of a chi-square
    return min(1.0, math.pow(seen**2 / (share * max(spread, RESOLUTION) ** 2), _POWER) / usual)


def _spread(seen: float, nights: int, persistence: float, assumed: float, known: float) -> tuple[float, bool]:
    """Return the bound on the deviation of nights, and whether they show it, wrongly with probability `known`."""
    if math.isnan(seen):
        return assumed, False
    shown, most = seen * _widening(nights, persistence, known), max(assumed, seen)
    return (shown, True) if shown < most else (most, False)


def robust_spread(values: Floats) -> float:
    """Return the standard deviation by the median distance of two nights, which one odd night of five does not move.

    The ordinary one of two or three nights; NaN of one. RESOLUTION at least.
    """
    n = len(values)
    if n < 2:
        return math.nan
    if n < 4:
        return max(float(values.std(ddof=1)), RESOLUTION)
    first, second = _pairs(n)
    return max(_PAIRS * float(np.median(np.abs(values[first] - values[second]))) / (1 + 0.5 / n), RESOLUTION)


@lru_cache
def _pairs(count: int) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Return the places of the first and of the second of every two of so many nights."""
    return np.triu_indices(count, 1)


def odd(nights: Sequence[float], margin: float) -> list[int]:
    """Return the places of nights that stand out of at least four by more than `margin` and by _ODD deviations."""
    values = np.asarray(nights, np.float64)
    if len(values) < 4:
        return []
    away = np.abs(values - np.median(values))
    return [int(place) for place in np.flatnonzero(away > max(margin, _ODD * robust_spread(values)))]


def shares(nights: int) -> tuple[float, float]:
    """Return the shares of a level that a night alone and a row of so many nights have.

    Together they exceed 1, but do not raise more alarms: where nights have heavy tails, the limit of a row is further
    away than their rate asks for, and where they have none, a night alone never lies beyond its limit.
    """
    return (_SINGLE, 1.0) if nights > 1 else (1.0, 0.0)


def _chance(x: float, heavy: float, nights: int) -> float:
    from scipy import special

    gaussian, tail = float(special.ndtr(-x)), float(special.stdtr(_HEAVY, -heavy * x))
    if nights < 2:
        return max(gaussian, tail)
    # Both of two Gaussian variables beyond x, by Owen's T (Owen, Annals of Mathematical Statistics 27(4), 1956).
    return max(gaussian - 2 * float(special.owens_t(x, _APART)), tail**2)


@lru_cache
def _away(level: float, heavy: float, nights: int) -> float:
    """Return at how many standard deviations the chance is `level`."""
    low, high = 0.0, 1e4
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _chance(middle, heavy, nights) > level else (low, middle)
    return high


def _persistence(values: Floats) -> tuple[float, float]:
    """Return the correlation of a night with the next that is likely, and the largest that these nights leave possible.

    Both are rounded: what follows of them is kept.
    """
    if len(values) < _FEWEST:
        return _USUAL, MOST_PERSISTENCE
    found = autocorrelation(values)
    if math.isnan(found.persistence):
        return _USUAL, MOST_PERSISTENCE
    most = min(max(0.0, found.persistence + 1.645 * found.error), 0.95)
    return min(max(_USUAL, round(found.persistence, 2)), 0.95), round(most, 2)


@lru_cache
def _widening(nights: int, persistence: float, known: float) -> float:
    """Return by how much the deviation of nights may exceed the one that is seen among them."""
    from scipy import special

    if nights < 2:
        return math.inf
    share, freedom = _within(nights, persistence)
    return 1 / math.sqrt(share * float(special.chdtri(freedom, 1 - known)) / freedom)


@lru_cache
def _within(nights: int, persistence: float) -> tuple[float, float]:
    """Return what share of their variance nights in a row show, and its degrees of freedom (Box, 1954)."""
    correlation = _correlation(nights, persistence)
    centred = correlation - correlation.mean(axis=0) - correlation.mean(axis=1)[:, None] + correlation.mean()
    trace = float(np.trace(centred))
    return trace / (nights - 1), _EFFICIENCY * trace**2 / float(np.sum(centred * centred.T))


@lru_cache
def _level_error(nights: int, persistence: float) -> float:
    """Return the standard error of the median of nights, in standard deviations of a night."""
    mean = float(_correlation(nights, persistence).mean())
    return math.sqrt(min(1.0, mean * (1 + 0.5 * (1 - persistence))))


def _correlation(nights: int, persistence: float) -> Floats:
    places = np.arange(nights)
    found: Floats = persistence ** np.abs(places[:, None] - places).astype(np.float64)
    return found


# The promise: how many wrong alarms baselines raise, of which some lie off their level


def alarms(points: int, nights: int, yearly: float) -> Floats:
    """Return the chances of a wrong alarm that a night has after each of many simulated baselines, in ascending order.

    At every one of `points` nights differ as far as is assumed, by themselves, and follow one another with
    MOST_PERSISTENCE; `yearly` is the chance that is promised.
    """
    error = _level_error(nights, MOST_PERSISTENCE)
    random = np.random.default_rng(1)
    draws = _draws(points)
    counts = np.full(draws, float(points))
    if nights > 1:
        _, freedom = _within(nights, MOST_PERSISTENCE)
        shown = (random.chisquare(freedom, (draws, points)) / freedom) ** _POWER
        moved = np.minimum(1.0, shown / float(shown.mean())).sum(axis=1)
        counts = np.clip(_TWICE * moved, 1.0, float(points))
    grid = np.geomspace(1.0, points, 8)
    limits = [
        _off(float(count), round(error, 2), yearly) * error + _away(yearly / count, math.sqrt(3.0), 2) for count in grid
    ]
    limit = np.interp(np.log(counts), np.log(grid), limits)[:, None]
    found: Floats = np.sort(_two_beyond(limit - error * random.normal(size=(draws, points))).sum(axis=1))
    return found


def _draws(points: int) -> int:
    return min(max(_LEVELS // points, 500), 20_000)


def _off(moving: float, error: float, yearly: float) -> float:
    """Return by how many of its standard errors the level of a baseline is taken to be off, where `moving` points are.

    `error` is that standard error, in standard deviations of a night.
    """
    octave = math.log2(moving)
    below = int(octave)
    ends = [_off_of(2**place, error, yearly) for place in (below, below + 1)]
    return ends[0] + (octave - below) * (ends[1] - ends[0])


@lru_cache(maxsize=1024)
def _off_of(points: int, error: float, yearly: float) -> float:
    errors = np.random.default_rng(0).normal(size=(_draws(points), points))
    limit = _away(yearly / points, math.sqrt(3.0), 2)
    low, high = 0.0, 4.0
    for _ in range(12):
        middle = (low + high) / 2
        chances = _two_beyond(limit + error * (middle - errors)).sum(axis=1)
        low, high = (middle, high) if float(np.quantile(chances, _KEPT)) > yearly else (low, middle)
    return high


def _two_beyond(limits: Floats) -> Floats:
    """Return the chances that two Gaussian nights in a row lie beyond limits, in standard deviations; 0.5 below 0."""
    places, logarithms = _tabled()
    return np.exp(np.interp(limits, places, logarithms))


@lru_cache
def _tabled() -> tuple[Floats, Floats]:
    from scipy import special

    places = np.linspace(0.0, 9.0, 901)
    return places, np.log(special.ndtr(-places) - 2 * special.owens_t(places, _APART))
