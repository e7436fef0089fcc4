"""Whether iteration times of one set of runs differ from another's: ratios, intervals and verdicts, point by point.

The unit is the run, not the iteration. Iterations of one run share whatever was particular to it (where processes were
placed, a busy neighbour, how switches hashed its flows), so that thousands of them say little of the next run. Every
run gives the logarithm of its median and of its 99th percentile; a side is the mean over its runs. The standard error
has two sources:

- within runs, from the circular block bootstrap (statistics.py), which respects autocorrelation;
- between runs, from the spread of the runs of each side, moderated by that of the other points, which counts like
  PRIOR_RUNS further runs (the idea of Smyth, "Linear models and empirical Bayes methods", Statistical Applications in
  Genetics and Molecular Biology 3(1), 2004, with a fixed weight).

Where no side of any point has two runs, the spread between runs is not known. There is no interval then, no test, and
no verdict.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
import numpy.typing as npt

from orchestrator.analysis.stats import statistics
from orchestrator.analysis.stats.ranks import Ranks, rank_test

Floats = npt.NDArray[np.float64]
Verdict = Literal["worse", "better", "same", "cannot tell"]

STATISTICS = ("p50", "p99")
PRIOR_RUNS = 4.0
FEWEST_FOR_P99 = 100  # iterations of a run; below, its 99th percentile is its maximum


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """When a difference counts: fixed before the data is seen.

    `alpha` bounds the chance that equal runs raise any alarm at all, over all points and statistics (Holm). A change is
    one of at least `margin` (share of 1, by statistic), and two sides are the same when their ratio is known to lie
    within it.
    """

    alpha: float = 0.05
    margin: Mapping[str, float]


DEFAULT = Rule(margin={"p50": 0.02, "p99": 0.1})


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSeries:
    """Iteration times of one measured window in seconds, in order, and the run that it belongs to."""

    run: str
    seconds: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """What was measured of one point on both sides: the reference `a` and the candidate `b`."""

    point: str
    a: tuple[RunSeries, ...]
    b: tuple[RunSeries, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One statistic of one point: `ratio` is b over a, `low` and `high` its interval at 1 - alpha, NaN when unknown.

    `p` is that of the t test before, `p_holm` after the adjustment; `a_s` and `b_s` are the sides' values in seconds.
    """

    statistic: str
    a_s: float
    b_s: float
    ratio: float
    low: float
    high: float
    p: float
    p_holm: float
    verdict: Verdict
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PointChange:
    """The verdict on a point, its changes, what both sides hold, and Mann and Whitney's test of the iterations."""

    point: str
    verdict: Verdict
    why: str
    changes: tuple[Change, ...]
    runs: tuple[int, int]
    iterations: tuple[int, int]
    superiority: float  # probability that an iteration of b takes longer than one of a
    p_rank: float

    def change(self, statistic: str) -> Change:
        """The change of one statistic."""
        (found,) = (change for change in self.changes if change.statistic == statistic)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class _Side:
    """One statistic of one side, in logarithms."""

    mean: float
    runs: int
    spread: float  # sum of squares between runs
    within: float  # variance of the mean that iterations alone explain

    @property
    def freedom(self) -> int:
        return self.runs - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Test:
    """`error` and `freedom` are NaN where the spread between runs is not known."""

    log_ratio: float
    error: float
    freedom: float

    @property
    def p(self) -> float:
        from scipy import stats

        return float(2 * stats.t.sf(abs(self.log_ratio) / self.error, self.freedom)) if self.error else math.nan

    def half(self, alpha: float) -> float:
        from scipy import stats

        return float(stats.t.isf(alpha / 2, self.freedom)) * self.error


def compare(pairs: Sequence[Pair], rule: Rule = DEFAULT, *, seed: int = 1) -> tuple[PointChange, ...]:
    """The verdict on every point, in the order given; the same seed gives the same result."""
    sides = {
        (pair.point, statistic): (_side(pair.a, statistic, seed), _side(pair.b, statistic, seed))
        for pair in pairs
        for statistic in STATISTICS
    }
    tests = {
        statistic: _tests({pair.point: sides[pair.point, statistic] for pair in pairs}) for statistic in STATISTICS
    }
    flat = {
        (point, statistic): test.p
        for statistic, of_points in tests.items()
        for point, test in of_points.items()
        if test is not None and not math.isnan(test.p)
    }
    adjusted = dict(zip(flat, holm(list(flat.values())), strict=True))
    return tuple(_point(pair, {s: tests[s][pair.point] for s in STATISTICS}, sides, adjusted, rule) for pair in pairs)


def holm(p_values: Sequence[float]) -> list[float]:
    """P-values adjusted so that comparing each with alpha bounds the chance of any false one (Holm, 1979)."""
    order = sorted(range(len(p_values)), key=lambda place: p_values[place])
    adjusted = [0.0] * len(p_values)
    highest = 0.0
    for rank, place in enumerate(order):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = highest
    return adjusted


def _side(series: Sequence[RunSeries], statistic: str, seed: int) -> _Side | None:
    """Windows of one run count as one run, those with too few iterations for the statistic not at all.

    None where nothing is left.
    """
    fewest = FEWEST_FOR_P99 if statistic == "p99" else statistics.FEWEST
    runs: dict[str, list[tuple[float, float]]] = {}
    for one in series:
        if len(one.seconds) < fewest:
            continue
        runs.setdefault(one.run, []).append(_logarithms(one.seconds.tobytes(), seed)[statistic])
    if not runs:
        return None
    means = [math.fsum(value for value, _ in found) / len(found) for found in runs.values()]
    noise = [math.fsum(variance for _, variance in found) / len(found) ** 2 for found in runs.values()]
    mean = math.fsum(means) / len(means)
    return _Side(
        mean=mean, runs=len(means), spread=math.fsum((value - mean) ** 2 for value in means),
        within=math.fsum(noise) / len(noise) ** 2,
    )  # fmt: skip


@lru_cache(maxsize=4096)
def _logarithms(seconds: bytes, seed: int) -> Mapping[str, tuple[float, float]]:
    """The logarithm of each quantile of a series and the variance of that."""
    series = np.frombuffer(seconds)
    _, medians, tails = statistics.resampled(series, block=statistics.block_length(series), seed=seed)
    return {
        name: (math.log(statistics.quantile(series, q)), float(np.var(np.log(drawn), ddof=1)))
        for name, q, drawn in (("p50", 0.5, medians), ("p99", 0.99, tails))
    }


def _tests(sides: Mapping[str, tuple[_Side | None, _Side | None]]) -> dict[str, _Test | None]:
    """A t test a point, its variance between runs moderated by that of all points."""
    whole = {point: (a, b) for point, (a, b) in sides.items() if a is not None and b is not None}
    freedom = sum(a.freedom + b.freedom for a, b in whole.values())
    found: dict[str, _Test | None] = dict.fromkeys(sides)
    for point, (a, b) in whole.items():
        own = a.freedom + b.freedom
        # The runs of a night are the same at every point, so that other points tell little more than so many runs.
        prior = min(PRIOR_RUNS, float(freedom - own))
        if own + prior > 0:
            others = [pair for other, pair in whole.items() if other != point]
            spread = math.fsum(x.spread + y.spread for x, y in others) / max(1, freedom - own)
            variance = (a.spread + b.spread + prior * spread) / (own + prior)
            error = math.sqrt(max(variance * (1 / a.runs + 1 / b.runs), a.within + b.within))
            found[point] = _Test(log_ratio=b.mean - a.mean, error=error, freedom=own + prior)
        else:
            found[point] = _Test(log_ratio=b.mean - a.mean, error=math.nan, freedom=math.nan)
    return found


def _point(
    pair: Pair, tests: Mapping[str, _Test | None], sides: Mapping[tuple[str, str], tuple[_Side | None, _Side | None]],
    adjusted: Mapping[tuple[str, str], float], rule: Rule,
) -> PointChange:  # fmt: skip
    ranks = rank_test([one.seconds for one in pair.a], [one.seconds for one in pair.b])
    changes = tuple(
        _change(
            statistic, tests[statistic], sides[pair.point, statistic],
            p_holm=adjusted.get((pair.point, statistic), math.nan), ranks=ranks, rule=rule,
        )
        for statistic in STATISTICS
    )  # fmt: skip
    median = changes[0]
    telling = next((c for verdict in ("worse", "better") for c in changes if c.verdict == verdict), median)
    why = telling.why
    if not pair.a or not pair.b:
        why = "nothing valid was measured " + ("on either side" if not (pair.a or pair.b) else "here on one side")
    return PointChange(
        point=pair.point, verdict=telling.verdict, why=why, changes=changes,
        runs=(len({one.run for one in pair.a}), len({one.run for one in pair.b})),
        iterations=(sum(len(one.seconds) for one in pair.a), sum(len(one.seconds) for one in pair.b)),
        superiority=ranks.superiority, p_rank=ranks.p,
    )  # fmt: skip


def _change(
    statistic: str, test: _Test | None, sides: tuple[_Side | None, _Side | None], *, p_holm: float, ranks: Ranks,
    rule: Rule,
) -> Change:  # fmt: skip
    a_s, b_s = (math.exp(side.mean) if side is not None else math.nan for side in sides)
    if test is None:
        fewest = FEWEST_FOR_P99 if statistic == "p99" else statistics.FEWEST
        why = f"a side lacks runs of at least {fewest} iterations"
        return Change(
            statistic=statistic, a_s=a_s, b_s=b_s, ratio=math.nan, low=math.nan, high=math.nan, p=math.nan,
            p_holm=math.nan, verdict="cannot tell", why=why,
        )  # fmt: skip
    ratio, half = math.exp(test.log_ratio), test.half(rule.alpha)
    verdict, why = _verdict(statistic, test, p_holm=p_holm, ranks=ranks, rule=rule)
    return Change(
        statistic=statistic, a_s=a_s, b_s=b_s, ratio=ratio, low=math.exp(test.log_ratio - half),
        high=math.exp(test.log_ratio + half), p=test.p, p_holm=p_holm, verdict=verdict, why=why,
    )  # fmt: skip


def _verdict(statistic: str, test: _Test, *, p_holm: float, ranks: Ranks, rule: Rule) -> tuple[Verdict, str]:
    """A change needs size, significance and, for the median, no ranks that deny it; sameness two one-sided tests."""
    if math.isnan(test.error):
        return "cannot tell", "one run a side: the spread between runs is not known"
    margin = rule.margin[statistic]
    bound = math.log1p(margin)
    # Two one-sided tests at alpha each are an interval at 1 - 2 alpha within the margin (Schuirmann, 1987).
    reach = abs(test.log_ratio) + test.half(2 * rule.alpha)
    if reach < bound:
        return "same", f"within {margin:.0%} with confidence"
    large = abs(test.log_ratio) >= bound
    # Where runs differ more than iterations do, two runs a side are two values a side, of which no ranks give p < 0.05.
    denied = statistic == "p50" and ranks.deny(rule.alpha)
    if large and p_holm < rule.alpha and not denied:
        how = "slower" if test.log_ratio > 0 else "faster"
        return ("worse" if test.log_ratio > 0 else "better"), f"{statistic} {how}"
    if large:
        return "cannot tell", "the difference is no larger than what runs differ by"
    if p_holm < rule.alpha:
        return "cannot tell", f"a change, which may or may not reach {margin:.0%}"
    return "cannot tell", f"the runs cannot exclude a change of {margin:.0%}"
