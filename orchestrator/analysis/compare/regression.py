"""Test whether iteration times of two sets of runs differ: ratios, intervals and verdicts, by point.

Judged are the mean, which is total time and so throughput, the median, and the tail. A point is worse if one of them
is, and the same only if mean and median are both known to lie within their margins.

Iterations of one run share whatever was particular to it (where processes were placed, a busy neighbour, how switches
hashed its flows), and runs of one night what was particular to the night. So the unit is never the iteration but the
largest that tells the sides apart: the night, where the sides were measured in different ones (nights.py); the session,
where one side was measured before the other on one day, which is judged as two nights are; else, where the sides were
interleaved, the block (a repetition that measured both) or the run. A unit's value is the mean of the logarithms of its
runs' means or medians.

Mean and median of a point are a family of two, and points are a family (Hochberg, "A sharper Bonferroni procedure for
multiple tests of significance", Biometrika 75(4), 1988): if everything is slower, each test needs the level of one;
tests that move together count once. Where sides come from different nights, verdicts are those of a year: at most
ALARMS_A_YEAR of a year's nights are called worse wrongly, in 95 of 100 baselines, and points count as far as their
nights may move. Else it is `alpha`, over all points and statistics.

The tail is judged by counts, pooled over runs: of iterations that last longer than the reference's 99th percentile by
more than the margin, which are one of a hundred if the candidate's 99th percentile lies there.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from orchestrator.analysis.compare import nights as of_nights
from orchestrator.analysis.compare.nights import RESOLUTION
from orchestrator.analysis.stats import statistics
from orchestrator.analysis.stats.statistics import student_t, tail_of_t

Floats = npt.NDArray[np.float64]
Verdict = Literal["worse", "better", "same", "cannot tell"]

LEVELS = ("mean", "p50")
STATISTICS = (*LEVELS, "p99")
NIGHTS_A_YEAR = 365
POWER = 0.95  # a change that "would have been found" is found in so many of such nights
_FEWEST = {"mean": statistics.FEWEST, "p50": statistics.FEWEST, "p99": 100}  # iterations of a run
_TAILS = 0.1  # of the wrong alarms may come of p99
_TAIL = 0.01
_LEAST = 1e-300  # p-values below are as good as 0
_SWITCHES = 3  # of side, in the order of begin times, that interleaved runs have at least
_APART = 0.25  # of all places, by which mean places of the sides may differ in that order

Unit = Literal["block", "run", "session", "night"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """The decision rule of a comparison, fixed before the data is seen.

    `alpha` bounds the chance that equal sides of the same nights are called worse or better, over all points and
    statistics; `alarms_a_year` is how many nights of a year may be called worse wrongly. A change is one of at least
    `margin` (share of 1, by statistic), and two sides are the same when their ratio is known to lie within it.
    `night_spread`: by what standard deviation nights are assumed to differ at most, until nights show less.
    """

    alpha: float = 0.05
    margin: Mapping[str, float] = field(default_factory=lambda: {"mean": 0.02, "p50": 0.02, "p99": 0.1})
    alarms_a_year: float = 1.0
    night_spread: float = 0.02

    def level(self, statistic: str, unit: Unit) -> float:
        """Return the one-sided level of a statistic's tests, over all points; mean and median share one."""
        share = _TAILS if statistic == "p99" else 1 - _TAILS
        return share * (self.alarms_a_year / NIGHTS_A_YEAR if unit == "night" else self.alpha / 2)


DEFAULT = Rule()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSeries:
    """Iteration times of one measured window in seconds, in order, and where they belong.

    `night` is the night of the run, `block` the repetition within which points were measured one after the other, and
    `began_ns` when the window began (since the epoch), None where that is not known.
    """

    run: str
    seconds: Floats
    night: str = ""
    block: str = ""
    began_ns: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """The measurements of one point on both sides: the reference `a` and the candidate `b`.

    `before` is the night before a candidate of one night: a change that it has too is confirmed by it.
    """

    point: str
    a: tuple[RunSeries, ...]
    b: tuple[RunSeries, ...]
    before: tuple[RunSeries, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One statistic of one point: `ratio` is b over a, `low` and `high` its interval at 1 - alpha, NaN when unknown.

    The interval takes runs for independent, and nights for following one another as nights may. `p` is one-sided, of
    this test alone, `p_adjusted` that of all tests together; `detectable` is the smallest ratio above 1 that would have
    been found in POWER of such comparisons. `a_s` and `b_s` are the sides' values in seconds.
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
    """The verdict on a point, its changes, and what both sides hold; `odd` are nights of `a` that stand out."""

    point: str
    verdict: Verdict
    why: str
    changes: tuple[Change, ...]
    nights: tuple[int, int]
    runs: tuple[int, int]
    iterations: tuple[int, int]
    odd: tuple[str, ...] = ()

    def change(self, statistic: str) -> Change:
        """Return the change of one statistic."""
        (found,) = (change for change in self.changes if change.statistic == statistic)
        return found


def compare(pairs: Sequence[Pair], rule: Rule = DEFAULT) -> tuple[PointChange, ...]:
    """Return the verdict on every point, in the order given."""
    unit = unit_of(pairs)
    count = _moving(pairs, rule) if unit in ("night", "session") else float(max(1, len(pairs)))
    tests = {(pair.point, of): _test(pair, of, unit, count, rule) for pair in pairs for of in LEVELS}
    level = rule.level("p50", unit)
    told = {key: test.p for key, test in tests.items() if test is not None and not math.isnan(test.p)}
    adjusted = _adjusted(told, count)
    found = []
    for pair in pairs:
        changes = [
            _change(
                pair,
                of,
                tests[pair.point, of],
                p_adjusted=adjusted.get((pair.point, of), math.nan),
                level=level,
                count=count,
                rule=rule,
            )
            for of in LEVELS
        ]
        tail = _tail_change(pair, unit, rule.level("p99", unit) / len(pairs), rule)
        found.append(_point(pair, (*changes, tail), unit, rule))
    return tuple(found)


def unit_of(pairs: Sequence[Pair]) -> Unit:
    """Return the unit that tells the sides of these points apart."""
    nights, blocks = (
        [{getattr(one, what) for pair in pairs for one in side(pair)} for side in (_a, _b)]
        for what in ("night", "block")
    )
    if nights[0] != nights[1]:
        return "night"
    several = [pair for pair in pairs if all(len({one.run for one in side}) > 1 for side in (pair.a, pair.b))]
    in_blocks = [pair for pair in pairs if len({one.block for one in pair.a} & {one.block for one in pair.b}) > 1]
    if not all(map(interleaved, several or in_blocks)):
        return "session"
    return "block" if len((blocks[0] & blocks[1]) - {""}) >= 2 else "run"


def interleaved(pair: Pair) -> bool:
    """Return whether both sides were measured in turn, so that no drift of the day passes for a difference."""
    windows = [(one.began_ns, side) for side, of in enumerate((pair.a, pair.b)) for one in of]
    if any(began is None for began, _ in windows):
        return False
    sides = np.array([side for _, side in sorted(windows)])
    places = np.arange(len(sides))
    apart = abs(float(places[sides == 1].mean() - places[sides == 0].mean())) / len(sides)
    return int(np.abs(np.diff(sides)).sum()) >= _SWITCHES and apart <= _APART


# Tests of levels: mean and median


@dataclass(frozen=True, slots=True, kw_only=True)
class _Test:
    """A test of one statistic of one point: log ratio b over a, and its one-sided p; NaN where there is none.

    `error` and `freedom` are of the ratio if units are independent, NaN where their spread is not known; `threshold`
    gives the log ratio that is found at a level; `assumed` is what the test rests on, and `why` what is missing.
    """

    log_ratio: float
    p: float
    threshold: Callable[[float], float]
    error: float = math.nan
    freedom: float = math.nan
    assumed: str = ""
    why: str = ""


def _moving(pairs: Sequence[Pair], rule: Rule) -> float:
    """Return how many points may have nights that differ as far as is assumed."""
    assumed, moves = math.log1p(rule.night_spread), []
    for pair in pairs:
        of_both = [values for of in LEVELS if (values := _values(pair.a, of))]
        if of_both and pair.b:
            moves += [np.mean([of_nights.moves(_in_order(of, _means(of, "night")), assumed) for of in of_both])]
    return of_nights.moving([float(one) for one in moves])


def _test(pair: Pair, of: str, unit: Unit, moving: float, rule: Rule) -> _Test | None:
    a, b, before = (_values(side, of) for side in (pair.a, pair.b, pair.before))
    if not a or not b:
        return None
    if unit in ("night", "session"):
        return _of_nights(a, b, before, rule, moving=moving, of_one_day=unit == "session")
    return _of_blocks(a, b) if unit == "block" else _of_runs(a, b)


def _of_blocks(a: Sequence[_Value], b: Sequence[_Value]) -> _Test | None:
    first, second = _means(a, "block"), _means(b, "block")
    differences = np.array([second[block] - first[block] for block in sorted(first.keys() & second.keys())])
    if not len(differences):
        return None
    variance = float(differences.var(ddof=1)) / len(differences) if len(differences) > 1 else math.nan
    return _student(float(differences.mean()), variance, len(differences) - 1)


def _of_runs(a: Sequence[_Value], b: Sequence[_Value]) -> _Test:
    first, second = (np.array(list(_means(side, "run").values())) for side in (a, b))
    freedom = len(first) + len(second) - 2
    squares = float(((first - first.mean()) ** 2).sum() + ((second - second.mean()) ** 2).sum())
    variance = squares / freedom * (1 / len(first) + 1 / len(second)) if freedom else math.nan
    return _student(float(second.mean() - first.mean()), variance, freedom)


def _student(log_ratio: float, variance: float, freedom: int) -> _Test:
    if math.isnan(variance):
        return _untold(log_ratio)
    error = max(math.sqrt(variance), RESOLUTION)
    return _Test(
        log_ratio=log_ratio,
        p=tail_of_t(abs(log_ratio) / error, freedom),
        threshold=lambda level: student_t(1 - level, freedom) * error,
        error=error,
        freedom=freedom,
    )


def _untold(log_ratio: float) -> _Test:
    why = "one run a side: the spread between runs is not known"
    return _Test(log_ratio=log_ratio, p=math.nan, threshold=lambda _: math.nan, why=why)


def _of_nights(
    a: Sequence[_Value], b: Sequence[_Value], before: Sequence[_Value], rule: Rule, *, moving: float, of_one_day: bool
) -> _Test:
    reference, candidate, confirming = (_means(side, "night") for side in (a, b, before))
    level = float(np.median(list(reference.values())))
    log_ratio = math.fsum(candidate.values()) / len(candidate) - level
    runs, freedom = _within_nights(a, (*b, *before))
    fewest = min(_runs_of_nights(b).values())
    if math.isnan(runs) and len(reference) < 2:
        return _untold(log_ratio)
    yearly = rule.level("p50", "night")
    shown = of_nights.baseline(_in_order(a, reference), math.log1p(rule.night_spread), moving, yearly)
    # What runs of a night differ by is itself uncertain: Student's t over the normal one, at two standard errors.
    runs = 0.0 if math.isnan(runs) else runs * student_t(0.977, freedom) / 2
    noise = math.hypot(runs, _drift(a, b)) if of_one_day else runs / math.sqrt(fewest)
    row = [*candidate.values(), *confirming.values()]
    away = [value - level for value in row]
    together = min(map(abs, away)) if len({value > 0 for value in away}) == 1 else 0.0
    alone_share, row_share = of_nights.shares(len(row))
    p = min(
        shown.chance(log_ratio, noise, 1) / alone_share,
        shown.chance(together, noise, 2) / row_share if row_share else 1.0,
    )

    def threshold(of_test: float) -> float:
        alone = shown.threshold(of_test * alone_share, noise, 1)
        return min(alone, shown.threshold(of_test * row_share, noise, 2)) if row_share else alone

    n = len(reference)
    known = math.hypot(shown.error(len(candidate)), _beyond(a, b, runs))
    assumed = ""
    if not shown.measured:
        assumed = f", if {'sessions' if of_one_day else 'nights'} differ by {rule.night_spread:.0%} at most"
    why = ""
    if len(row) == 1 and shown.chance(log_ratio, noise, 2) < rule.level("p50", "session" if of_one_day else "night"):
        why = "one night more that is like it decides, since one alone may be odd"
    if of_one_day:
        why = "one side was measured before the other: interleave them (repetitions of a sweep do)"
    return _Test(
        log_ratio=log_ratio,
        p=min(1.0, p),
        threshold=threshold,
        error=known,
        freedom=max(1.0, 0.86 * (n - 1)) if n > 1 else math.nan,
        assumed=assumed,
        why=why,
    )


def _drift(a: Sequence[_Value], b: Sequence[_Value]) -> float:
    """Return what a steady drift within the sides amounts to from one side to the other (a difference of logarithms).

    Runs are taken to follow one another evenly, in the order of begin times as far as these are known.
    """
    sides = [np.array([one.log for one in sorted(side, key=lambda one: one.began_ns or 0)]) for side in (a, b)]
    places = [np.arange(len(side)) - (len(side) - 1) / 2 for side in sides]
    squares = math.fsum(float(place @ place) for place in places)
    slope = (
        math.fsum(float(place @ side) for place, side in zip(places, sides, strict=True)) / squares if squares else 0
    )
    return abs(slope) * (len(a) + len(b)) / 2


def _beyond(a: Sequence[_Value], b: Sequence[_Value], runs: float) -> float:
    """Return the error of a candidate's night that has fewer runs than the reference's nights, beyond theirs."""
    usual = np.mean([1 / count for count in _runs_of_nights(a).values()])
    most = max(1 / count for count in _runs_of_nights(b).values())
    return runs * math.sqrt(max(0.0, float(most - usual)))


def _adjusted(of_tests: Mapping[tuple[str, str], float], count: float) -> dict[tuple[str, str], float]:
    """Return p-values of all tests of points and statistics, adjusted for both.

    A point's p is the least that Hochberg's procedure leaves of its statistics; points count as `count` at most.
    """
    of_points: dict[str, dict[str, float]] = defaultdict(dict)
    for (point, statistic), p in of_tests.items():
        of_points[point][statistic] = p
    within = {point: _hochberg(tests, len(tests)) for point, tests in of_points.items()}
    points = _hochberg({point: min(tests.values()) for point, tests in within.items()}, count)
    return {
        (point, statistic): min(1.0, points[point] * p / max(min(tests.values()), _LEAST))
        for point, tests in within.items()
        for statistic, p in tests.items()
    }


def _hochberg(of_tests: Mapping[str, float], count: float) -> dict[str, float]:
    """Return p-values of a family of tests, adjusted by Hochberg's step-up procedure; tests count as `count`."""
    found: dict[str, float] = {}
    least = 1.0
    for place, (key, p) in enumerate(sorted(of_tests.items(), key=lambda item: -item[1])):
        least = min(least, min(place + 1, count) * p)
        found[key] = least
    return found


def _change(
    pair: Pair, of: str, test: _Test | None, *, p_adjusted: float, level: float, count: float, rule: Rule
) -> Change:
    """Return the change of one level, of one of `count` points that share the one-sided `level`."""
    a_s, b_s = (_level_s(side, of) for side in (pair.a, pair.b))
    if test is None:
        why = f"a side lacks runs of at least {_FEWEST[of]} iterations"
        return Change(statistic=of, a_s=a_s, b_s=b_s, ratio=math.nan, verdict="cannot tell", why=why)
    ratio = math.exp(test.log_ratio)
    found = Change(statistic=of, a_s=a_s, b_s=b_s, ratio=ratio, verdict="cannot tell", why=test.why)
    if math.isnan(test.p):
        return found
    bound = math.log1p(rule.margin[of])
    half = student_t(1 - rule.alpha / 2, test.freedom) * test.error
    verdict, why = _verdict(of, test, p_adjusted, level, rule)
    spread = student_t(POWER, test.freedom) * test.error
    away = 0.0 if math.isnan(spread) else spread
    return replace(
        found,
        low=math.exp(test.log_ratio - half),
        high=math.exp(test.log_ratio + half),
        p=test.p,
        p_adjusted=p_adjusted,
        detectable=math.exp(max(test.threshold(level / count), bound) + away),
        verdict=verdict,
        why=why,
    )


def _verdict(of: str, test: _Test, p_adjusted: float, level: float, rule: Rule) -> tuple[Verdict, str]:
    margin = rule.margin[of]
    bound = math.log1p(margin)
    size = abs(test.log_ratio)
    if size >= bound and p_adjusted < level:
        return (
            ("worse", f"{of} slower{test.assumed}") if test.log_ratio > 0 else ("better", f"{of} faster{test.assumed}")
        )
    # Two one-sided tests at alpha each are an interval at 1 - 2 alpha within the margin (Schuirmann, 1987).
    if size + student_t(1 - rule.alpha, test.freedom) * test.error < bound:
        return "same", f"within {margin:.0%} with confidence"
    if size < bound:
        return "cannot tell", f"a change of {margin:.0%} cannot be excluded"
    return "cannot tell", f"the difference is no larger than equal sides may have; {test.why}".removesuffix("; ")


# The tail


def _tail_change(pair: Pair, unit: Unit, level: float, rule: Rule) -> Change:
    """Return the change of p99; `level` is one-sided."""
    a, b, before = (
        [one for one in side if len(one.seconds) >= _FEWEST["p99"]] for side in (pair.a, pair.b, pair.before)
    )
    a_s, b_s = (_level_s(side, "p99") for side in (pair.a, pair.b))
    if not a or not b:
        why = f"a side lacks runs of at least {_FEWEST['p99']} iterations"
        return Change(statistic="p99", a_s=a_s, b_s=b_s, ratio=math.nan, verdict="cannot tell", why=why)
    found = Change(statistic="p99", a_s=a_s, b_s=b_s, ratio=b_s / a_s, verdict="cannot tell", why="")
    if unit == "session":
        return replace(found, why="one side was measured before the other")
    if unit == "night" and len({one.night for one in (*b, *before)}) < 2:
        return replace(found, why="one night does not say how stalls gather in nights: one night more decides")
    if unit != "night" and min(len({one.run for one in side}) for side in (a, b)) < 2:
        return replace(found, why="one run a side: the spread between runs is not known")
    groups = _by_night((*b, *before)) if unit == "night" else [b]
    slower = max(longer_tail(a, group, rule.margin["p99"]) for group in groups)
    faster = max(longer_tail(group, a, rule.margin["p99"]) for group in groups)
    p = min(slower, faster)
    told = replace(found, p=p, p_adjusted=min(1.0, p * max(1.0, rule.level("p99", unit) / level)))
    if p >= level:
        return replace(told, why=f"a change of {rule.margin['p99']:.0%} is not shown by counts of long iterations")
    return (
        replace(told, verdict="worse", why="p99 slower")
        if slower < faster
        else replace(told, verdict="better", why="p99 faster")
    )


def longer_tail(
    reference: Sequence[RunSeries],
    candidate: Sequence[RunSeries],
    margin: float,
    *,
    most: bool = False,
    least_wider: float = 1.0,
) -> float:
    """Return the p of the candidate's p99 lying within the margin of the reference's, by pooled counts.

    Counts of runs that differ by more than chance does widen the test (quasi-binomial; Wedderburn, Biometrika 61(3),
    1974), by `least_wider` at least, and so does a reference whose own share above is not known to be one of a hundred.
    Every run (`most`: two of three) has to have more of them, or the p is 1: a stall that one run met says nothing of
    the others.
    """
    from scipy import special

    ends = [statistics.quantile(one.seconds, 1 - _TAIL) for one in reference]
    whole = statistics.quantile(np.concatenate([one.seconds for one in reference]), 1 - _TAIL)
    bound = (1 + margin) * max(whole, float(np.median(ends)))
    above, sizes = (
        np.array(counts, np.float64)
        for counts in zip(
            *((np.count_nonzero(one.seconds > bound), len(one.seconds)) for one in candidate), strict=True
        )
    )
    if np.mean(above > _TAIL * sizes) < (2 / 3 if most else 1):
        return 1.0
    seen = sum(int(np.count_nonzero(one.seconds > bound)) for one in reference)
    of = sum(len(one.seconds) for one in reference)
    usual = max(_TAIL, float(special.betaincinv(seen + 1, of - seen, 0.95)))
    share = float(above.sum() / sizes.sum())
    scatter = float((((above - share * sizes) ** 2) / (share * (1 - share) * sizes)).sum()) if share < 1 else 0.0
    wider = max(least_wider, scatter / max(1, len(sizes) - 1))
    # The exact binomial tail, of as many independent iterations as scatter leaves.
    return float(special.betainc(above.sum() / wider, max((sizes - above).sum() / wider, 0.0) + 1, usual))


def _by_night(series: Sequence[RunSeries]) -> list[list[RunSeries]]:
    found: dict[str, list[RunSeries]] = defaultdict(list)
    for one in series:
        found[one.night].append(one)
    return list(found.values())


# Points


def _point(pair: Pair, changes: Sequence[Change], unit: Unit, rule: Rule) -> PointChange:
    verdict, why = _of_point(changes)
    if not pair.a or not pair.b:
        why = "nothing valid was measured " + ("on either side" if not (pair.a or pair.b) else "here on one side")
    return PointChange(
        point=pair.point,
        verdict=verdict,
        why=why,
        changes=tuple(changes),
        nights=(len({one.night for one in pair.a}), len({one.night for one in pair.b})),
        runs=(len({one.run for one in pair.a}), len({one.run for one in pair.b})),
        iterations=(sum(len(one.seconds) for one in pair.a), sum(len(one.seconds) for one in pair.b)),
        odd=_odd(pair, rule) if unit == "night" else (),
    )


def _of_point(changes: Sequence[Change]) -> tuple[Verdict, str]:
    """Return the verdict on a point and why: worse before better, and the same only by every level."""
    for telling in ("worse", "better"):
        for change in changes:
            if change.verdict == telling:
                return change.verdict, change.why
    levels = [change for change in changes if change.statistic in LEVELS]
    for change in levels:
        if change.verdict != "same":
            return "cannot tell", f"{change.statistic}: {change.why}" if change.p == change.p else change.why
    return "same", f"mean and median {levels[0].why}"


def _odd(pair: Pair, rule: Rule) -> tuple[str, ...]:
    names: dict[str, None] = {}
    for of in LEVELS:
        means = _means(_values(pair.a, of), "night")
        nights = list(means)
        names |= {nights[place]: None for place in of_nights.odd(list(means.values()), math.log1p(rule.margin[of]))}
    return tuple(names)


# Values of runs


@dataclass(frozen=True, slots=True, kw_only=True)
class _Value:
    """The logarithm of a run's statistic, and where the run stands."""

    run: str
    night: str
    block: str
    began_ns: int | None
    log: float


def _values(side: Sequence[RunSeries], of: str) -> list[_Value]:
    """Return the values of a side; windows with too few iterations for the statistic do not count."""
    return [
        _Value(run=one.run, night=one.night, block=one.block, began_ns=one.began_ns, log=math.log(_value(one, of)))
        for one in side
        if len(one.seconds) >= _FEWEST[of]
    ]


def _value(series: RunSeries, of: str) -> float:
    if of == "mean":
        return float(np.mean(series.seconds))
    return statistics.quantile(series.seconds, {"p50": 0.5, "p99": 1 - _TAIL}[of])


def _level_s(side: Sequence[RunSeries], of: str) -> float:
    found = _values(side, of)
    return math.exp(math.fsum(value.log for value in found) / len(found)) if found else math.nan


def _means(values: Sequence[_Value], what: Literal["block", "run", "night"]) -> dict[str, float]:
    """Return the mean of each unit's runs; several windows of a run count as one."""
    runs: dict[tuple[str, str], list[float]] = defaultdict(list)
    for value in values:
        runs[getattr(value, what), value.run].append(value.log)
    units: dict[str, list[float]] = defaultdict(list)
    for (unit, _), logs in runs.items():
        units[unit].append(math.fsum(logs) / len(logs))
    return {unit: math.fsum(logs) / len(logs) for unit, logs in units.items()}


def _in_order(values: Sequence[_Value], nights: Mapping[str, float]) -> list[float]:
    """Return the values of nights, oldest first as far as begin times are known."""
    began: dict[str, int] = {}
    for value in values:
        began[value.night] = min(began.get(value.night, value.began_ns or 0), value.began_ns or 0)
    return [nights[night] for night in sorted(nights, key=lambda night: began[night])]


def _within_nights(*sides: Sequence[_Value]) -> tuple[float, int]:
    """Return the standard deviation of a night's runs with its degrees of freedom; NaN without any."""
    of_night: dict[tuple[int, str], list[_Value]] = defaultdict(list)
    for side, value in ((side, value) for side, values in enumerate(sides) for value in values):
        of_night[side, value.night].append(value)
    logs = [np.array(list(_means(found, "run").values())) for found in of_night.values()]
    freedom = sum(len(of) - 1 for of in logs)
    squares = math.fsum(float(((of - of.mean()) ** 2).sum()) for of in logs)
    return (max(math.sqrt(squares / freedom), RESOLUTION) if freedom else math.nan), freedom


def _runs_of_nights(values: Sequence[_Value]) -> dict[str, int]:
    runs: dict[str, set[str]] = defaultdict(set)
    for value in values:
        runs[value.night].add(value.run)
    return {night: len(found) for night, found in runs.items()}


def _a(pair: Pair) -> tuple[RunSeries, ...]:
    return pair.a


def _b(pair: Pair) -> tuple[RunSeries, ...]:
    return pair.b
