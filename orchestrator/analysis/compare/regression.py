"""Test whether iteration times of two sets of runs differ: ratios, intervals and verdicts, by point.

Iterations of one run share whatever was particular to it (where processes were placed, a busy neighbour, how switches
hashed its flows), and runs of one night what was particular to the night. So the unit is never the iteration but the
largest that tells the sides apart: the night, where the sides were measured in different ones; the block, where both
were measured in turn within each; else the run. A unit's value is the mean of the logarithms of its runs' quantiles.
Variances are moderated over points (variance_moderation.py), and as many tests are allowed for as points that vary by
themselves amount to.

Where sides come from different nights, verdicts are those of a year: each night may raise a wrong alarm with the
probability that makes ALARMS_A_YEAR of them expected in a year of nights. Where they come from the same nights it is
`alpha`, over all points and statistics.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from orchestrator.analysis.stats import statistics
from orchestrator.analysis.stats.statistics import student_t, tail_of_t
from orchestrator.analysis.stats.variance_moderation import ModeratedVariance, ModeratedVariances, Spread, moderate

Floats = npt.NDArray[np.float64]
Verdict = Literal["worse", "better", "same", "cannot tell"]

STATISTICS = ("p50", "p99")
QUANTILES = {"p50": 0.5, "p99": 0.99}
FEWEST = {"p50": statistics.FEWEST, "p99": 100}  # iterations of a run; below 100 its p99 is its maximum
NIGHTS_A_YEAR = 365
POWER = 0.95  # a change that "would have been found" is found in so many of such nights
_SHARE = {"p50": 0.9, "p99": 0.1}  # of the wrong alarms

Unit = Literal["block", "run", "night"]

ENOUGH_FREEDOM = 4  # five nights in a baseline: from here on what nights differ by is taken from them alone


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """The decision rule of a comparison, fixed before the data is seen.

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
        """Return the two-sided level of a statistic's tests, over all points."""
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
    """The measurements of one point on both sides: the reference `a` and the candidate `b`."""

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
        """Return the change of one statistic."""
        (found,) = (change for change in self.changes if change.statistic == statistic)
        return found


def compare(pairs: Sequence[Pair], rule: Rule = DEFAULT) -> tuple[PointChange, ...]:
    """Return the verdict on every point, in the order given."""
    unit = unit_of(pairs)
    by_statistic = {statistic: _changes(pairs, statistic, unit, rule) for statistic in STATISTICS}
    return tuple(_point(pair, [by_statistic[statistic][pair.point] for statistic in STATISTICS]) for pair in pairs)


def unit_of(pairs: Sequence[Pair]) -> Unit:
    """Return the unit that tells the sides of these points apart."""
    return _unit_of_sides([_sides(pair, "p50") for pair in pairs])


def _sides(pair: Pair, statistic: str) -> _Sides:
    """Return the values of both sides; windows with too few iterations for the statistic do not count."""
    first, second = (
        [
            _Value(
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
    found = _contrasts(sides, unit, night_spread=rule.night_spread)
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


def _change(statistic: str, sides: _Sides, contrast: _Contrast | None, level: float, rule: Rule) -> Change:
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


def _ways(contrast: _Contrast) -> list[_Error]:
    """Return the errors by which a change is tested: as observed, and as assumed where there are few nights."""
    return [way for way in (contrast.known, contrast.assumed) if way is not None]


def _p_values(contrast: _Contrast) -> tuple[float, float]:
    """Return the two-sided p of this point alone, and of all points: the smallest over the ways, times their number."""
    ways = _ways(contrast)
    alone = [2 * tail_of_t(abs(contrast.log_ratio) / way.error, way.freedom) for way in ways]
    together = [p * way.tests for p, way in zip(alone, ways, strict=True)]
    return min(1.0, len(ways) * min(alone)), min(1.0, len(ways) * min(together))


def _half(contrast: _Contrast, tails: float) -> float:
    """Return half the width of the interval that leaves out so much; NaN where the units' spread is not known."""
    known = contrast.known
    return math.nan if known is None else student_t(1 - tails / 2, known.freedom) * known.error


def _detectable(contrast: _Contrast, level: float, bound: float) -> float:
    """Return the smallest log ratio, of at least `bound`, that is found in a share POWER of such comparisons."""
    ways = _ways(contrast)
    return min(
        max(student_t(1 - level / len(ways) / way.tests / 2, way.freedom) * way.error, bound)
        + student_t(POWER, way.freedom) * way.error
        for way in ways
    )


def _verdict(statistic: str, contrast: _Contrast, p_adjusted: float, level: float, rule: Rule) -> tuple[Verdict, str]:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Value:
    """The logarithm of a run's quantile, and where the run stands."""

    run: str
    night: str
    block: str
    log: float


_Sides = tuple[Sequence[_Value], Sequence[_Value]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Error:
    """A standard error with its degrees of freedom, and how many independent tests the points amount to."""

    error: float
    freedom: float
    tests: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Contrast:
    """The logarithm of b over a with its standard error, None where it is not known.

    `assumed` is the error if nights differ by what is assumed of them at most: what a verdict rests on where nights are
    too few to say what they differ by.
    """

    log_ratio: float
    known: _Error | None
    assumed: _Error | None = None


def _unit_of_sides(sides: Sequence[_Sides]) -> Unit:
    """Return the unit that tells the two sides of these points apart."""
    nights, blocks = (
        [{getattr(value, what) for pair in sides for value in pair[side]} for side in (0, 1)]
        for what in ("night", "block")
    )
    if nights[0] != nights[1]:
        return "night"
    return "block" if len(blocks[0] & blocks[1]) >= 2 else "run"


def _contrasts(points: Mapping[str, _Sides], unit: Unit, *, night_spread: float) -> dict[str, _Contrast]:
    """Return the contrast of every point that both sides have, by this unit.

    `night_spread` is the standard deviation by which nights are assumed to differ at most, as a share of 1.
    """
    whole = {point: pair for point, pair in points.items() if pair[0] and pair[1]}
    if unit == "night":
        return _of_nights(whole, night_spread)
    return _of_blocks(whole) if unit == "block" else _of_runs(whole)


def _of_blocks(points: Mapping[str, _Sides]) -> dict[str, _Contrast]:
    differences: dict[str, dict[str, float]] = {}
    for point, (a, b) in points.items():
        first, second = _means(a, "block"), _means(b, "block")
        differences[point] = {block: second[block] - first[block] for block in sorted(first.keys() & second.keys())}
    whole = {point: found for point, found in differences.items() if found}
    moderated = moderate({point: _spread(found) for point, found in whole.items()})
    return {
        point: _Contrast(log_ratio=_mean(found), known=_error(moderated, point, 1 / len(found)))
        for point, found in whole.items()
    }


def _of_runs(points: Mapping[str, _Sides]) -> dict[str, _Contrast]:
    sides = {point: (_means(a, "run"), _means(b, "run")) for point, (a, b) in points.items()}
    moderated = moderate({point: _spread(*pair) for point, pair in sides.items()})
    return {
        point: _Contrast(log_ratio=_mean(b) - _mean(a), known=_error(moderated, point, 1 / len(a) + 1 / len(b)))
        for point, (a, b) in sides.items()
    }


def _of_nights(points: Mapping[str, _Sides], night_spread: float) -> dict[str, _Contrast]:
    nights = {point: (_means(a, "night"), _means(b, "night")) for point, (a, b) in points.items()}
    moderated = moderate({point: _spread(*pair) for point, pair in nights.items()})
    within = moderate({point: _within_nights(pair) for point, pair in points.items()})
    found = {}
    for point, (a, b) in nights.items():
        counts = (len(a), len(b))
        shares = (_share_of_runs(points[point][0]), _share_of_runs(points[point][1]))
        of_runs = within.points.get(point)
        known = _known_nights(moderated, point, counts, shares, of_runs)
        assumed = None
        if sum(counts) - 2 < ENOUGH_FREEDOM and of_runs is not None:
            seen = moderated.points.get(point)
            assumed = _assumed_nights(math.log1p(night_spread) ** 2, seen, counts, shares, of_runs, tests=len(nights))
        found[point] = _Contrast(log_ratio=_mean(b) - _mean(a), known=known, assumed=assumed)
    return found


def _known_nights(
    moderated: ModeratedVariances,
    point: str,
    counts: tuple[int, int],
    shares: tuple[float, float],
    of_runs: ModeratedVariance | None,
) -> _Error | None:
    """Return the error by the observed spread of nights; a night of fewer runs is less certain than those seen."""
    found = _error(moderated, point, sum(1 / count for count in counts))
    if found is None or of_runs is None:
        return found
    usual = _usual_share(counts, shares)
    beyond = math.fsum(max(0.0, share - usual) / count for share, count in zip(shares, counts, strict=True))
    return replace(found, error=math.sqrt(found.error**2 + of_runs.variance * beyond))


def _assumed_nights(
    assumed: float,
    seen: ModeratedVariance | None,
    counts: tuple[int, int],
    shares: tuple[float, float],
    of_runs: ModeratedVariance,
    *,
    tests: int,
) -> _Error:
    """Return the error if nights have the assumed variance, or the observed one where that is larger."""
    if seen is not None and seen.own:
        assumed = max(assumed, seen.variance - of_runs.variance * _usual_share(counts, shares))
    nightly = assumed * sum(1 / count for count in counts)
    runs = of_runs.variance * math.fsum(share / count for share, count in zip(shares, counts, strict=True))
    # Satterthwaite's freedom: what is assumed is known exactly.
    freedom = of_runs.freedom * ((nightly + runs) / runs) ** 2
    return _Error(error=math.sqrt(nightly + runs), freedom=freedom, tests=float(tests))


def _usual_share(counts: tuple[int, int], shares: tuple[float, float]) -> float:
    """Return the mean over both sides of one over a night's runs, weighted by nights less one."""
    weights = [count - 1 for count in counts]
    return float(np.average(shares, weights=weights)) if sum(weights) else 0.0


def _error(moderated: ModeratedVariances, point: str, factor: float) -> _Error | None:
    of = moderated.points.get(point)
    if of is None:
        return None
    return _Error(error=math.sqrt(of.variance * factor), freedom=of.freedom, tests=moderated.tests)


def _means(values: Sequence[_Value], what: Unit) -> dict[str, float]:
    """Return the mean of each unit's runs; several windows of a run count as one."""
    runs: dict[tuple[str, str], list[float]] = defaultdict(list)
    for value in values:
        runs[getattr(value, what), value.run].append(value.log)
    units: dict[str, list[float]] = defaultdict(list)
    for (unit, _), logs in runs.items():
        units[unit].append(math.fsum(logs) / len(logs))
    return {unit: math.fsum(logs) / len(logs) for unit, logs in units.items()}


def _spread(*groups: Mapping[str, float]) -> Spread:
    """Return how units differ within their groups; a unit's name holds over points, a group's number over sides."""
    residuals: dict[str, float] = {}
    for number, group in enumerate(groups):
        middle = _mean(group)
        residuals |= {f"{number} {unit}": value - middle for unit, value in group.items()}
    return Spread(freedom=sum(len(group) - 1 for group in groups), residuals=residuals)


def _within_nights(pair: _Sides) -> Spread:
    nights: dict[str, list[_Value]] = defaultdict(list)
    for value in (value for side in pair for value in side):
        nights[value.night].append(value)
    return _spread(*(_means(values, "run") for _, values in sorted(nights.items())))


def _share_of_runs(side: Sequence[_Value]) -> float:
    """Return the mean over nights of one over a night's runs."""
    runs: dict[str, set[str]] = defaultdict(set)
    for value in side:
        runs[value.night].add(value.run)
    return math.fsum(1 / len(found) for found in runs.values()) / len(runs)


def _mean(found: Mapping[str, float]) -> float:
    return math.fsum(found.values()) / len(found)
