"""Whether iteration times of one set of runs differ from another's: ratios, intervals and verdicts, point by point.

The unit is the run, the block or the night, never the iteration (designs.py); variances steady one another over points
(moderation.py), and as many tests are allowed for as points that vary by themselves amount to.

Where sides come from different nights, verdicts are those of a year: each night may raise a wrong alarm with the
probability that makes ALARMS_A_YEAR of them expected in a year of nights. Where they come from the same nights it is
`alpha`, over all points and statistics.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from orchestrator.analysis.compare import designs
from orchestrator.analysis.compare.designs import Contrast, Error, Sides, Unit, Value
from orchestrator.analysis.stats import statistics
from orchestrator.analysis.stats.statistics import student_t, tail_of_t

Floats = npt.NDArray[np.float64]
Verdict = Literal["worse", "better", "same", "cannot tell"]

STATISTICS = ("p50", "p99")
QUANTILES = {"p50": 0.5, "p99": 0.99}
FEWEST = {"p50": statistics.FEWEST, "p99": 100}  # iterations of a run; below 100 its p99 is its maximum
NIGHTS_A_YEAR = 365
POWER = 0.95  # a change that "would have been found" is found in so many of such nights
_SHARE = {"p50": 0.9, "p99": 0.1}  # of the wrong alarms


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """When a difference counts: fixed before the data is seen.

    `alpha` bounds the chance that equal sides of the same nights are called worse or better, over all points and
    statistics; `alarms_a_year` is how many nights of a year may be called worse wrongly. A change is one of at least
    `margin` (share of 1, by statistic), and two sides are the same when their ratio is known to lie within it.
    `night_spread`: by what standard deviation nights are assumed to differ at most, where too few were measured.
    """

    alpha: float = 0.05
    margin: Mapping[str, float] = field(default_factory=lambda: {"p50": 0.02, "p99": 0.1})
    alarms_a_year: float = 1.0
    night_spread: float = 0.02

    def level(self, statistic: str, unit: Unit) -> float:
        """The two-sided level of a statistic's tests, over all points."""
        return _SHARE[statistic] * (2 * self.alarms_a_year / NIGHTS_A_YEAR if unit == "night" else self.alpha)


DEFAULT = Rule()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSeries:
    """Iteration times of one measured window in seconds, in order, and where they belong.

    `night` is the night of the run, and `block` the repetition within which points were measured one after the other.
    """

    run: str
    seconds: Floats
    night: str = ""
    block: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """What was measured of one point on both sides: the reference `a` and the candidate `b`."""

    point: str
    a: tuple[RunSeries, ...]
    b: tuple[RunSeries, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One statistic of one point: `ratio` is b over a, `low` and `high` its interval at 1 - alpha, NaN when unknown.

    `p` is that of this point's test, `p_adjusted` that of all points together; `detectable` is the smallest ratio above
    1 that would have been found in POWER of such comparisons. `a_s` and `b_s` are the sides' values in seconds.
    """

    statistic: str
    a_s: float
    b_s: float
    ratio: float
    verdict: Verdict
    why: str
    low: float = math.nan
    high: float = math.nan
    p: float = math.nan
    p_adjusted: float = math.nan
    detectable: float = math.nan


@dataclass(frozen=True, slots=True, kw_only=True)
class PointChange:
    """The verdict on a point, its changes, and what both sides hold."""

    point: str
    verdict: Verdict
    why: str
    changes: tuple[Change, ...]
    nights: tuple[int, int]
    runs: tuple[int, int]
    iterations: tuple[int, int]

    def change(self, statistic: str) -> Change:
        """The change of one statistic."""
        (found,) = (change for change in self.changes if change.statistic == statistic)
        return found


def compare(pairs: Sequence[Pair], rule: Rule = DEFAULT) -> tuple[PointChange, ...]:
    """The verdict on every point, in the order given."""
    unit = unit_of(pairs)
    by_statistic = {statistic: _changes(pairs, statistic, unit, rule) for statistic in STATISTICS}
    return tuple(_point(pair, [by_statistic[statistic][pair.point] for statistic in STATISTICS]) for pair in pairs)


def unit_of(pairs: Sequence[Pair]) -> Unit:
    """The unit that tells the sides of these points apart."""
    return designs.unit_of([_sides(pair, "p50") for pair in pairs])


def _sides(pair: Pair, statistic: str) -> Sides:
    """The values of both sides; windows with too few iterations for the statistic do not count."""
    first, second = (
        [
            Value(
                run=one.run,
                night=one.night,
                block=one.block,
                log=math.log(statistics.quantile(one.seconds, QUANTILES[statistic])),
            )
            for one in side
            if len(one.seconds) >= FEWEST[statistic]
        ]
        for side in (pair.a, pair.b)
    )
    return first, second


def _changes(pairs: Sequence[Pair], statistic: str, unit: Unit, rule: Rule) -> dict[str, Change]:
    sides = {pair.point: _sides(pair, statistic) for pair in pairs}
    found = designs.contrasts(sides, unit, night_spread=rule.night_spread)
    level = rule.level(statistic, unit)
    return {pair.point: _change(statistic, sides[pair.point], found.get(pair.point), level, rule) for pair in pairs}


def _point(pair: Pair, changes: Sequence[Change]) -> PointChange:
    telling = next((c for verdict in ("worse", "better") for c in changes if c.verdict == verdict), changes[0])
    why = telling.why
    if not pair.a or not pair.b:
        why = "nothing valid was measured " + ("on either side" if not (pair.a or pair.b) else "here on one side")
    return PointChange(
        point=pair.point,
        verdict=telling.verdict,
        why=why,
        changes=tuple(changes),
        nights=(len({one.night for one in pair.a}), len({one.night for one in pair.b})),
        runs=(len({one.run for one in pair.a}), len({one.run for one in pair.b})),
        iterations=(sum(len(one.seconds) for one in pair.a), sum(len(one.seconds) for one in pair.b)),
    )


def _change(statistic: str, sides: Sides, contrast: Contrast | None, level: float, rule: Rule) -> Change:
    a_s, b_s = (math.exp(math.fsum(v.log for v in side) / len(side)) if side else math.nan for side in sides)
    if contrast is None:
        why = f"a side lacks runs of at least {FEWEST[statistic]} iterations"
        return Change(statistic=statistic, a_s=a_s, b_s=b_s, ratio=math.nan, verdict="cannot tell", why=why)
    ratio = math.exp(contrast.log_ratio)
    if all(len({value.run for value in side}) == 1 for side in sides) or not _ways(contrast):
        why = "one run a side: the spread between runs is not known"
        return Change(statistic=statistic, a_s=a_s, b_s=b_s, ratio=ratio, verdict="cannot tell", why=why)
    p, p_adjusted = _p_values(contrast)
    half = _half(contrast, rule.alpha)
    verdict, why = _verdict(statistic, contrast, p_adjusted, level, rule)
    return Change(
        statistic=statistic,
        a_s=a_s,
        b_s=b_s,
        ratio=ratio,
        low=math.exp(contrast.log_ratio - half),
        high=math.exp(contrast.log_ratio + half),
        p=p,
        p_adjusted=p_adjusted,
        detectable=math.exp(_detectable(contrast, level, math.log1p(rule.margin[statistic]))),
        verdict=verdict,
        why=why,
    )


def _ways(contrast: Contrast) -> list[Error]:
    """The errors by which a change can be tested: by what was seen, and by what is assumed of few nights."""
    return [way for way in (contrast.known, contrast.assumed) if way is not None]


def _p_values(contrast: Contrast) -> tuple[float, float]:
    """Two-sided: of this point alone, and of all points; the smallest of each over the ways, times their number."""
    ways = _ways(contrast)
    alone = [2 * tail_of_t(abs(contrast.log_ratio) / way.error, way.freedom) for way in ways]
    together = [p * way.tests for p, way in zip(alone, ways, strict=True)]
    return min(1.0, len(ways) * min(alone)), min(1.0, len(ways) * min(together))


def _half(contrast: Contrast, tails: float) -> float:
    """Half the width of the interval that leaves out so much; NaN where the units' spread is not known."""
    known = contrast.known
    return math.nan if known is None else student_t(1 - tails / 2, known.freedom) * known.error


def _detectable(contrast: Contrast, level: float, bound: float) -> float:
    """The smallest logarithm of a ratio, of at least `bound`, that is found in POWER of such comparisons."""
    ways = _ways(contrast)
    return min(
        max(student_t(1 - level / len(ways) / way.tests / 2, way.freedom) * way.error, bound)
        + student_t(POWER, way.freedom) * way.error
        for way in ways
    )


def _verdict(statistic: str, contrast: Contrast, p_adjusted: float, level: float, rule: Rule) -> tuple[Verdict, str]:
    margin = rule.margin[statistic]
    bound = math.log1p(margin)
    log_ratio = contrast.log_ratio
    assumed = contrast.known is None
    # Two one-sided tests at alpha each are an interval at 1 - 2 alpha within the margin (Schuirmann, 1987).
    if abs(log_ratio) + _half(contrast, 2 * rule.alpha) < bound:
        return "same", f"within {margin:.0%} with confidence"
    if abs(log_ratio) >= bound and p_adjusted < level:
        assumption = f", if nights differ by {rule.night_spread:.0%} at most" if assumed else ""
        return (
            ("worse", f"{statistic} slower{assumption}")
            if log_ratio > 0
            else ("better", f"{statistic} faster{assumption}")
        )
    if abs(log_ratio) < bound:
        return "cannot tell", f"a change of {margin:.0%} cannot be excluded"
    what = "nights are assumed to differ by" if assumed else "equal sides may differ by"
    return "cannot tell", f"the difference is no larger than what {what}"
