"""How often printed intervals hold, wrong alarms are raised and changes are found, on simulated runs and nights.

`python -m tests.bench.validity [--quick] [--missed] [TEXT...]` prints the rows alone whose names have one of the texts.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from scipy import stats

from orchestrator.analysis.compare import power
from orchestrator.analysis.compare.regression import NIGHTS_A_YEAR, PointChange, compare
from orchestrator.analysis.stats import levels
from orchestrator.analysis.stats.iterations import interval_note
from orchestrator.analysis.stats.level_steps import steps
from orchestrator.analysis.stats.statistics import Estimate, summarise
from orchestrator.validity import steady
from tests.bench.figure import Figure, Settings, Table
from tests.bench.simulated import LEVEL_S, Day, Floats, Iterations, Measured, Nights, Random, correlated, paired

COVERAGE = "92 to 98 of 100"
PRINTED = 0.05  # a cell in which fewer intervals are printed counts as "no interval"
MARGIN = 0.02  # of a median and a mean; below half of it no night is worse
ALWAYS = 3  # later nights of each baseline that are compared however fast they are
P99_FROM = 100  # iterations of a run


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A line of the table: what came out in a cell, against what goal, and the simulation's own error (95 %).

    `word` is what the product printed in place of a claim, where that is why the goal is reached.
    """

    method: str
    cell: str
    value: float
    unit: str
    goal: str
    reached: bool
    error: float = 0.0
    note: str = ""
    word: str = ""
    tries: int = 0

    @property
    def verdict(self) -> str:
        """Whether the goal was reached, or the word that stands in place of a claim."""
        if not self.reached:
            return "not reached"
        return f"reached: {self.word}" if self.word else "reached"

    @property
    def result(self) -> str:
        """What came out, with the simulation's own error."""
        error = f" ± {self.error:.2g}" if self.error else ""
        return f"{self.value:.3g}{error} {self.unit}" + (f" ({self.note})" if self.note else "")


Cell = Callable[[Settings], Iterable[Row]]


def measure(settings: Settings) -> Iterator[Figure | Table]:
    """Every row as a figure, then all of them as a table."""
    found = []
    for row in rows(settings, CELLS):
        found.append(row)
        yield Figure(
            what=f"{row.method}, {row.cell}",
            unit=row.unit,
            values=(row.value,),
            note=f"goal {row.goal}: {row.verdict}. {row.note}".strip(),
            tabled=True,
        )
    yield table(found)


def rows(settings: Settings, cells: Sequence[Cell]) -> Iterator[Row]:
    """Return the rows of some cells, in their order; as many at once as there are processors, nicely."""
    with ProcessPoolExecutor(initializer=os.nice, initargs=(10,)) as pool:
        for of_cell in pool.map(_rows, cells, [settings] * len(cells)):
            yield from of_cell


def _rows(cell: Cell, settings: Settings) -> list[Row]:
    return list(cell(settings))


def table(found: Sequence[Row]) -> Table:
    """Return a line for each cell: what came out, of how many simulated cases, and whether the goal was reached."""
    lines = tuple((row.method, row.cell, row.result, row.tries, row.goal, row.verdict) for row in found)
    return Table(title="", columns=("method", "cell", "result", "of", "goal", "reached"), rows=lines)


# Wrong alarms


def _fixed(nights: Nights, baseline: int, cell: str, settings: Settings) -> Iterator[Row]:
    """How many wrong alarms a year the nights long after a fixed baseline raise: of each of many baselines."""
    random = np.random.default_rng(3)
    many = nights.points >= 24  # which take long to compare
    tries, later = settings.times(20 if many else 40, 10 if many else 20), 60
    told = _Told()
    found = [_rate(nights, random, baseline, later, told) for _ in range(tries)]
    mean, kept, median, high = _distribution(found)
    yield Row(
        method="wrong alarms, fixed baseline",
        cell=cell,
        value=100 * kept,
        unit="of 100 baselines with one a year at most",
        error=_share_error(kept, tries),
        goal="95 at least",
        reached=kept >= 0.95 - _share_error(0.95, tries) / 100,
        note=f"a year: median {median:.2g}, 95 of 100 below {high:.2g}, mean {mean:.2g}{told.text()}",
        word=told.word(),
        tries=tries * later,
    )


def _distribution(found: Sequence[tuple[float, float]]) -> tuple[float, float, float, float]:
    """Return the mean, the share up to 1, the median and the 95th percentile of rates that are known with an error.

    Rates are taken to be Gamma distributed, with the mean of the estimates and the variance that their errors (squared)
    leave of theirs: an alarm more or less, of the few that each baseline raised, else looks like another baseline.
    """
    rates, errors = np.array(found).T
    mean, variance = float(rates.mean()), float(rates.var(ddof=1) - errors.mean())
    if mean == 0.0 or variance < (0.05 * mean) ** 2:
        return mean, float(mean <= 1), mean, mean
    of = stats.gamma(mean**2 / variance, scale=variance / mean)
    return mean, float(of.cdf(1)), float(of.median()), float(of.ppf(0.95))


def _rate(nights: Nights, random: Random, baseline: int, later: int, told: _Told) -> tuple[float, float]:
    """Return the rate of wrong alarms a year after one baseline, and its error squared."""
    before = nights.measured(random, nights.levels(random, baseline))
    levels_, weights = nights.later(random, later)
    measured = nights.measured(random, levels_.reshape(2 * later, -1), first=baseline + 90)
    alarms = np.zeros(later)
    for place, (night_before, tonight) in enumerate(zip(measured[::2], measured[1::2], strict=True)):
        if place < ALWAYS or _may_be_worse(before, tonight):
            worse = told.add(compare(paired(before, [tonight], night_before)), always=place < ALWAYS)
            alarms[place] = weights[place] * worse
    return NIGHTS_A_YEAR * float(alarms.mean()), NIGHTS_A_YEAR**2 * float(alarms.var()) / later


def _rolling(nights: Nights, baseline: int, cell: str, settings: Settings) -> Iterator[Row]:
    """How many wrong alarms a year are raised where the baseline is always the last nights but one."""
    random = np.random.default_rng(4)
    years = settings.times(8, 1)
    told, found = _Told(), []
    for _ in range(years):
        measured = nights.measured(random, nights.levels(random, baseline + 1 + NIGHTS_A_YEAR))
        alarms = 0
        for place in range(NIGHTS_A_YEAR):
            *before, night_before, tonight = measured[place : place + baseline + 2]
            if place < ALWAYS or _may_be_worse(before, tonight):
                alarms += told.add(compare(paired(before, [tonight], night_before)), always=place < ALWAYS)
        found.append(alarms)
    rate = float(np.mean(found))
    error = 2 * math.sqrt(max(float(np.var(found)), rate, 1 / years) / years)
    yield Row(
        method="wrong alarms, the last nights as baseline",
        cell=cell,
        value=rate,
        unit="a year",
        error=error,
        goal="1 at most",
        reached=rate <= 1 + error,
        note=f"worst of {years} years {max(found)}{told.text()}",
        word=told.word(),
        tries=years * NIGHTS_A_YEAR,
    )


class _Told:
    """What comparisons told: which statistics raised alarms, and in which words nothing was said."""

    def __init__(self) -> None:
        self.alarms: Counter[str] = Counter()
        self.whys: Counter[str] = Counter()
        self.points = 0

    def add(self, found: Sequence[PointChange], *, always: bool = True) -> bool:
        """Count a comparison, and return whether it raised an alarm; of one that was not chosen count words, too."""
        if always:
            self.points += len(found)
            self.whys.update(point.why for point in found if point.verdict == "cannot tell")
        worse = {change.statistic for point in found for change in point.changes if change.verdict == "worse"}
        self.alarms.update(worse)
        return any(point.verdict == "worse" for point in found)

    def text(self) -> str:
        """Return which statistics raised alarms, and how often "cannot tell" was said."""
        whole = sum(self.alarms.values())
        parts = [f"{100 * count / whole:.0f} of 100 by {name}" for name, count in self.alarms.most_common()]
        unsaid = sum(self.whys.values())
        if unsaid:
            parts.append(f"cannot tell at {100 * unsaid / self.points:.0f} of 100 points")
        return "".join(f"; {part}" for part in parts)

    def word(self) -> str:
        """Return the word that was told at nearly every point, if there is one."""
        unsaid = sum(self.whys.values())
        return f"cannot tell: {self.whys.most_common(1)[0][0]}" if unsaid > 0.95 * self.points else ""


def _may_be_worse(before: Sequence[Measured], tonight: Measured) -> bool:
    """Return whether any point is slower by half a margin: no other night is compared, where p99 is not judged."""
    if len(tonight[0][0].seconds) >= P99_FROM:
        return True
    gaps = _values([tonight])[0] - _values(before).mean(axis=0)
    return bool((gaps > math.log1p(MARGIN) / 2).any())


def _values(nights: Sequence[Measured]) -> Floats:
    """Return the logarithm of mean and median at each point of some nights; shape (nights, points, 2)."""
    times = np.array([[[run.seconds for run in runs] for runs in night] for night in nights])
    found: Floats = np.log(np.stack((times.mean(axis=-1), np.median(times, axis=-1)), axis=-1)).mean(axis=2)
    return found


def _share_error(share: float, tries: int) -> float:
    """Return two standard errors of a share, in points of 100."""
    return 200 * math.sqrt(max(share * (1 - share), 0.25 / tries) / tries)


# Changes


def _found(nights: Nights, baseline: int, cell: str, changed: Iterations | float, settings: Settings) -> Iterator[Row]:
    """How often a change of one point is found by the second night that has it, and by the first one."""
    random = np.random.default_rng(5)
    tries = settings.times(200, 60)
    verdicts: Counter[str] = Counter()
    statistic: Counter[str] = Counter()
    first = 0
    for _ in range(tries):
        levels_ = nights.levels(random, baseline + 3)
        before = nights.measured(random, levels_[: baseline + 1])
        one, two = _changed(nights, random, levels_[-2:], changed, first=baseline + 1)
        first += compare(paired(before[:-1], [one], before[-1]))[0].verdict == "worse"
        point = compare(paired(before[:-1], [two], one))[0]
        verdicts[point.verdict] += 1
        statistic.update(change.statistic for change in point.changes if change.verdict == "worse")
    share = verdicts["worse"] / tries
    by = ", ".join(f"{name} {100 * count / tries:.0f}" for name, count in statistic.most_common())
    yield Row(
        method="a change of one point is found by its second night",
        cell=cell,
        value=100 * share,
        unit="of 100",
        error=_share_error(share, tries),
        goal="95 at least",
        reached=share >= 0.95 - _share_error(0.95, tries) / 100,
        note=f"by the first {100 * first / tries:.0f}; called same in {100 * verdicts['same'] / tries:.0f}"
        + (f"; by {by}" if by else ""),
        tries=tries,
    )


def _changed(
    nights: Nights, random: Random, levels_: Floats, changed: Iterations | float, *, first: int
) -> list[Measured]:
    """Return nights of these levels whose first point has another level, or iterations of another process."""
    if isinstance(changed, Iterations):
        return nights.measured(random, levels_, first=first, points={0: changed})
    slower = levels_.copy()
    slower[:, 0] += math.log1p(changed)
    return nights.measured(random, slower, first=first)


def _promised(nights: Nights, evidence: int, cell: str, settings: Settings) -> Iterator[Row]:
    """How often a change is found at all points with the effort that `plan --detect` asks for."""
    random = np.random.default_rng(6)
    change, tries = 0.05, settings.times(60, 20)
    one, every, asked = [], [], []
    for _ in range(tries):
        seen = nights.measured(random, nights.levels(random, evidence))
        effort = _planned(seen, change, nights.points)
        if effort is None:
            continue
        asked.append((effort.nights, effort.runs))
        planned = replace(nights, runs=effort.runs)
        worse = [point.verdict == "worse" for point in compare(planned.pairs(random, effort.nights, change=change))]
        one.append(np.mean(worse))
        every.append(all(worse))
    none = tries - len(every)
    method, goal = "+5 % is found at all points, as planned", "92 at least, 95 are promised"
    if not every:
        yield Row(
            method=method,
            cell=cell,
            value=100.0,
            unit="of 100 without a plan",
            goal=goal,
            reached=True,
            word="no plan",
            tries=tries,
        )
        return
    share = float(np.mean(every))
    error = _share_error(share, len(every))
    typical = np.median(asked, axis=0)
    yield Row(
        method=method,
        cell=cell,
        value=100 * share,
        unit="of 100",
        error=error,
        goal=goal,
        reached=share >= 0.92 - error / 100,
        note=f"one of the points {100 * float(np.mean(one)):.0f}; "
        f"asked for {typical[0]:.0f} nights of {typical[1]:.0f} runs"
        + (f", no plan in {100 * none / tries:.0f} of 100" if none else ""),
        tries=tries,
    )


def _planned(seen: Sequence[Measured], change: float, points: int) -> power.Effort | None:
    """Return the effort that a plan asks for: that of the point whose runs and nights differ most."""
    of_points = (
        power.seen([[math.log(float(np.mean(run.seconds))) for run in night[point]] for night in seen])
        for point in range(points)
    )
    known = [one for one in of_points if one is not None]
    worst = max(known, key=lambda one: one.run**2 + one.night**2, default=power.ASSUMED)
    return power.effort(change, worst, points=points)


def _would_be_found(nights: Nights, baseline: int, cell: str, settings: Settings) -> Iterator[Row]:
    """How often the smallest change that "would have been found" is found, at one point that is slower by so much."""
    random = np.random.default_rng(20)
    tries = settings.times(200, 40)
    found: dict[str, list[bool]] = {}
    said: dict[str, list[float]] = {}
    for _ in range(tries):
        levels_ = nights.levels(random, baseline + 4)
        *before, one, two = nights.measured(random, levels_[:-2])
        for change in compare(paired(before, [two], one))[0].changes:
            if math.isfinite(change.detectable):
                slow = _changed(nights, random, levels_[-2:], change.detectable - 1, first=baseline + 2)
                same = compare(paired(before, slow[1:], slow[0]))[0].change(change.statistic)
                found.setdefault(change.statistic, []).append(same.verdict == "worse")
                said.setdefault(change.statistic, []).append(100 * (change.detectable - 1))
    for statistic, of in found.items():
        share = float(np.mean(of))
        error = _share_error(share, len(of))
        yield Row(
            method="the smallest change said to be found is found",
            cell=f"{statistic}, {cell}",
            value=100 * share,
            unit="of 100",
            error=error,
            goal="92 at least, 95 are said",
            reached=share >= 0.92 - error / 100,
            note=f"median of what is said {np.median(said[statistic]):.2g} %",
            tries=len(of),
        )


def _same(nights: Nights, baseline: int, cell: str, changed: Iterations | float, settings: Settings) -> Iterator[Row]:
    """How often a point that is slower by a margin or more is called the same."""
    random = np.random.default_rng(21)
    tries = settings.times(300, 60)
    verdicts: Counter[str] = Counter()
    for _ in range(tries):
        measured = nights.measured(random, nights.levels(random, baseline))
        levels_, _ = nights.later(random, 1, wider=1.0)
        one, two = _changed(nights, random, levels_[0], changed, first=baseline + 90)
        verdicts[compare(paired(measured, [two], one))[0].verdict] += 1
    share = verdicts["same"] / tries
    yield Row(
        method="a point that is slower is called the same",
        cell=cell,
        value=100 * share,
        unit="of 100",
        error=_share_error(share, tries),
        goal="5 at most",
        reached=share <= 0.05 + _share_error(0.05, tries) / 100,
        note=f"worse {100 * verdicts['worse'] / tries:.0f}, cannot tell {100 * verdicts['cannot tell'] / tries:.0f}",
        tries=tries,
    )


def _odd(nights: Nights, baseline: int, odd: float, settings: Settings) -> Iterator[Row]:
    """How often +10 % is found against a baseline that has one odd night, and how often that night is named."""
    random = np.random.default_rng(7)
    tries = settings.times(200, 40)
    found = named = 0
    for _ in range(tries):
        levels_ = nights.levels(random, baseline + 2)
        which = int(random.integers(0, baseline))
        levels_[which] += math.log1p(odd)
        levels_[-2:, 0] += math.log(1.1)
        *before, one, two = nights.measured(random, levels_)
        told = compare(paired(before, [two], one))
        found += told[0].verdict == "worse"
        named += any(before[which][0][0].night in point.odd for point in told)
    for method, count in (("+10 % is found beside an odd night", found), ("an odd night is named", named)):
        share = count / tries
        yield Row(
            method=method,
            cell=f"{baseline} nights, {nights.night:.1%} apart, one of them {odd:+.0%}",
            value=100 * share,
            unit="of 100",
            error=_share_error(share, tries),
            goal="95 at least",
            reached=share >= 0.95 - _share_error(0.95, tries) / 100,
            tries=tries,
        )


def _equal(nights: Nights, baseline: int, cell: str, settings: Settings) -> Iterator[Row]:
    """What is said of nights in which nothing changed: how often intervals of the ratio hold, and "same" is said."""
    random = np.random.default_rng(8)
    tries = settings.times(200, 30)
    held: dict[str, list[bool]] = {}
    same = printed = 0
    for _ in range(tries):
        for point in compare(nights.pairs(random, baseline)):
            same += point.verdict == "same"
            for change in point.changes:
                held.setdefault(change.statistic, [])
                if not math.isnan(change.low):
                    held[change.statistic].append(change.low <= 1 <= change.high)
    printed = tries * nights.points
    for statistic, of in held.items():
        if of or statistic != "p99" or nights.samples >= P99_FROM:
            note = f"same at {100 * same / printed:.0f} of 100 points" if statistic == "p50" else ""
            yield _coverage(
                "interval of the ratio of nights", f"{statistic}, {cell}", of, printed, clusters=tries, note=note
            )


# One day


def _day(day: Day, cell: str, settings: Settings) -> Iterator[Row]:
    """How often equal sides of one day are called different, and intervals of their ratio hold."""
    random = np.random.default_rng(9)
    tries = settings.times(400, 60)
    told, different = _Told(), 0
    held: list[bool] = []
    for _ in range(tries):
        found = compare(day.pairs(random))
        told.add(found)
        different += any(point.verdict in ("worse", "better") for point in found)
        changes = [change for point in found for change in point.changes if change.statistic == "p50"]
        held += [change.low <= 1 <= change.high for change in changes if not math.isnan(change.low)]
    share = different / tries
    yield Row(
        method="one day, equal sides are called different",
        cell=cell,
        value=100 * share,
        unit="of 100",
        error=_share_error(share, tries),
        goal="5 at most",
        reached=share <= 0.05 + _share_error(0.05, tries) / 100,
        note=told.text().removeprefix("; "),
        word=told.word(),
        tries=tries,
    )
    yield _coverage("one day, interval of the ratio", cell, held, tries * day.points, clusters=tries)


def _day_found(day: Day, cell: str, settings: Settings) -> Iterator[Row]:
    random = np.random.default_rng(10)
    tries = settings.times(300, 60)
    share = float(np.mean([compare(day.pairs(random, change=0.1))[0].verdict == "worse" for _ in range(tries)]))
    yield Row(
        method="one day, +10 % is found",
        cell=cell,
        value=100 * share,
        unit="of 100",
        error=_share_error(share, tries),
        goal="95 at least",
        reached=share >= 0.95 - _share_error(0.95, tries) / 100,
        tries=tries,
    )


# Intervals


def _coverage(
    method: str,
    cell: str,
    held: Sequence[bool],
    tried: int,
    *,
    clusters: int | None = None,
    note: str = "",
    words: Counter[str] | None = None,
) -> Row:
    """Return the row of intervals, of which those that were printed held or not; `clusters`: independent tries.

    `words` are the notes that stood beside or in place of intervals, "" where there was none.
    """
    printed = len(held) / tried
    told = Counter({word: count for word, count in (words or {}).items() if word})
    note = "; ".join([note] * bool(note) + [f"{word}: {100 * n / tried:.0f}" for word, n in told.most_common(2)])
    notes = [f"printed in {100 * printed:.0f} of 100"] + [note] * bool(note)
    if printed < PRINTED:
        return Row(
            method=method,
            cell=cell,
            value=100 * printed,
            unit="of 100 printed",
            goal="none printed",
            reached=True,
            word=told.most_common(1)[0][0] if told else "no interval",
            note=note,
            tries=tried,
        )
    share = float(np.mean(held))
    independent = max(1.0, len(held) * (clusters or tried) / tried)
    slack = _share_error(0.95, int(independent))
    return Row(
        method=method,
        cell=cell,
        value=100 * share,
        unit="of 100 hold",
        error=_share_error(share, int(independent)),
        goal=COVERAGE,
        note="; ".join(notes),
        reached=92 - slack <= 100 * share <= 98 + slack,
        tries=tried,
    )


def _run(process: Iterations, samples: int, of: Sequence[str], cell: str, settings: Settings) -> Iterator[Row]:
    """How often the intervals of a single run hold the truth of the process.

    Runs that happen to have none of the slow iterations that a process makes at random cannot show them: they have rows
    of their own.
    """
    tries = settings.times(600, 80)
    truth = process.truth()
    drawn = process.drawn(np.random.default_rng(11), tries, samples)
    rare = min(process.slower if process.slow else 9.0, process.stall if process.stalls else 9.0)
    shown = (drawn > (1 + rare) / 2).any(axis=1) if rare < 9.0 else np.ones(tries, bool)
    for told, runs in ((cell, drawn[shown]), (f"{cell}, of runs that had none", drawn[~shown])):
        if len(runs) < tries / 20:
            continue
        held: dict[str, list[bool]] = {name: [] for name in of}
        words: Counter[str] = Counter()
        for values in runs:
            found = summarise(LEVEL_S * values)
            words[_word(interval_note(found))] += 1
            for name in of:
                estimate = getattr(found, name)
                if not math.isnan(estimate.low):
                    held[name].append(estimate.low <= LEVEL_S * truth[name] <= estimate.high)
        for name in of:
            yield _coverage("interval of one run", f"{name}, n {samples}, {told}", held[name], len(runs), words=words)


def _word(note: str) -> str:
    """Return the reason of a note without what it found here and what to do."""
    return re.split(r"[;,(]| \S*\d", note, maxsplit=1)[0].rstrip(": ")


def _printed(process: Iterations, samples: int, cell: str, settings: Settings) -> Iterator[Row]:
    tries = settings.times(300, 60)
    drawn = process.drawn(np.random.default_rng(12), tries, samples)
    share = float(np.mean([not math.isnan(summarise(LEVEL_S * values).mean.low) for values in drawn]))
    yield Row(
        method="an interval of one run is printed",
        cell=f"mean, n {samples}, {cell}",
        value=100 * share,
        unit="of 100",
        error=_share_error(share, tries),
        goal="80 at least",
        reached=share >= 0.8 - _share_error(0.8, tries) / 100,
        tries=tries,
    )


def _levels(runs: int, spread: float, tails: bool, settings: Settings) -> Iterator[Row]:
    """How often the interval of a level over runs holds."""
    random, tries = np.random.default_rng(13), settings.times(4000, 400)
    logs = spread * (random.standard_t(3, (tries, runs)) / math.sqrt(3) if tails else random.normal(size=(tries, runs)))
    found = (levels.level([Estimate(math.exp(log), math.nan, math.nan) for log in of]).estimate for of in logs)
    held = [one.low <= 1 <= one.high for one in found if not math.isnan(one.low)]
    cell = f"{runs} runs, {spread:.1%} apart" + (", heavy tails" if tails else "")
    yield _coverage("interval over runs", cell, held, tries)


def _batches(runs: int, settings: Settings) -> Iterator[Row]:
    """How often the interval of a mean over several runs holds."""
    random, tries = np.random.default_rng(14), settings.times(600, 100)
    held = []
    for _ in range(tries):
        series = Iterations().drawn(random, runs, 300) * np.exp(random.normal(0, 0.01, (runs, 1)))
        means = [Estimate(float(values.mean()), math.nan, math.nan) for values in series]
        found = levels.level(means).estimate
        if not math.isnan(found.low):
            held.append(found.low <= 1 <= found.high)
    yield _coverage("interval of a mean rate over runs", f"{runs} run{'s' * (runs > 1)}, 1.0% apart", held, tries)


def _drifts(process: Iterations, samples: int, cell: str, settings: Settings) -> Iterator[Row]:
    """How often the interval of a run's drift holds where there is none."""
    tries = settings.times(600, 100)
    drawn = process.drawn(np.random.default_rng(16), tries, samples)
    found = [steady.drift(LEVEL_S * values) for values in drawn]
    held = [one.low <= 0 <= one.high for one in found if not math.isnan(one.low)]
    yield _coverage("interval of a run's drift", f"n {samples}, {cell}", held, tries)


# Steps


def _steps(
    nights: int, cell: str, settings: Settings, *, ar: float = 0.0, tails: bool = False, year: float = 0.0
) -> Iterator[Row]:
    """How often a step is told in a history that has none."""
    tries = settings.times(600, 100)
    drawn = Nights(points=1, persistence=ar, tails=tails, year=year).levels
    random = np.random.default_rng(18)
    share = float(
        np.mean([bool(steps(LEVEL_S * np.exp(drawn(random, nights)[:, 0]), margin=0.002)) for _ in range(tries)])
    )
    yield Row(
        method="false steps in a history",
        cell=f"{nights} nights, {cell}",
        value=100 * share,
        unit="of 100",
        error=_share_error(share, tries),
        goal="5 at most",
        reached=share <= 0.05 + _share_error(0.05, tries) / 100,
        tries=tries,
    )


def _steps_found(nights: int, step: float, points: int, settings: Settings) -> Iterator[Row]:
    tries, random = settings.times(600, 100), np.random.default_rng(19)
    found = 0
    for _ in range(tries):
        values = LEVEL_S * np.exp(0.005 * correlated(random, 0.0, (nights,)))
        values[nights // 2 :] *= 1 + step
        found += bool(steps(values, margin=0.02, alpha=0.05 / points))
    share = found / tries
    yield Row(
        method="a step is found",
        cell=f"+{step:.0%} in {nights} nights 0.5% apart, one of {points} points",
        value=100 * share,
        unit="of 100",
        error=_share_error(share, tries),
        goal="80 at least",
        reached=share >= 0.8 - _share_error(0.8, tries) / 100,
        tries=tries,
    )


# Cells


def _alarm_cells() -> Iterator[tuple[str, Cell]]:
    """Every row of wrong alarms: method and cell as text, and what makes it."""
    usual = [
        (Nights(night=night, together=together), baseline, f"{night:.1%} apart, {how}")
        for night in (0.0, 0.005, 0.01, 0.02)
        for together, how in ((0.0, "each point by itself"), (1.0, "together"))
        for baseline in (5,)
    ]
    usual += [(Nights(night=0.01), baseline, "1.0% apart, each point by itself") for baseline in (1, 3, 10)]
    usual += [
        (
            Nights(points=points, night=0.01, together=0.5),
            5,
            f"{points} point{'s' * (points > 1)}, 1.0% apart, half together",
        )
        for points in (1, 24, 40)
    ]
    usual += [
        (Nights(persistence=ar, together=together), baseline, f"1.0% apart, AR {ar:g}, {how}")
        for ar in (0.6, 0.8)
        for together, how in ((0.0, "each point by itself"), (1.0, "together"))
        for baseline in (5, 10)
    ]
    usual += [
        (Nights(persistence=0.95, together=1.0), 5, "1.0% apart, AR 0.95, together"),
        (Nights(tails=True), 5, "1.0% apart, heavy tails"),
        (Nights(tails=True), 10, "1.0% apart, heavy tails"),
        (Nights(night=0.02, persistence=0.8), 5, "2.0% apart, AR 0.8, each point by itself"),
        (Nights(night=0.02, persistence=0.8, together=1.0), 5, "2.0% apart, AR 0.8, together"),
        (Nights(night=0.02, tails=True), 5, "2.0% apart, heavy tails"),
        (Nights(points=1, night=0.02, persistence=0.8), 5, "1 point, 2.0% apart, AR 0.8"),
        (Nights(points=40, night=0.02, persistence=0.6), 5, "40 points, 2.0% apart, AR 0.6"),
        (Nights(night=0.005, week=0.01, together=0.5), 5, "0.5% apart, a week's season of 1%"),
        (Nights(night=0.005, year=0.02, together=0.5), 5, "0.5% apart, a year's season of 2%"),
        (Nights(noisy=0.08), 5, "1.0% apart, one point with runs 8% apart"),
        (Nights(night=0.005, bad=0.02), 5, "0.5% apart, one run in 50 takes 10% longer"),
        (Nights(persistence=0.8), 20, "1.0% apart, AR 0.8, each point by itself"),
        (Nights(points=40, night=0.01), 5, "40 points, 1.0% apart, each point by itself"),
        (Nights(unlike=6.0), 5, "1.0% apart in the middle, one point six times as far as another"),
    ]
    stalling = Iterations(stalls=0.001, stall=1.5)
    usual += [
        (Nights(night=0.005, samples=100, iterations=stalling), 5, "6 points, 0.5% apart, n 100, stalls 0.1% x1.5"),
        (Nights(night=0.005, samples=400, iterations=stalling), 5, "6 points, 0.5% apart, n 400, stalls 0.1% x1.5"),
        (
            Nights(points=24, night=0.005, samples=100, iterations=replace(stalling, stalls=0.002)),
            5,
            "24 points, 0.5% apart, n 100, stalls 0.2% x1.5",
        ),
        (
            Nights(night=0.005, samples=100, iterations=Iterations(stalls=0.01, stall=1.5, pareto=1.5)),
            5,
            "6 points, 0.5% apart, n 100, stalls 1% of Pareto length",
        ),
        (
            Nights(night=0.005, samples=200, iterations=Iterations(persistence=0.5, slow=0.15)),
            5,
            "6 points, 0.5% apart, n 200, slow regimes x1.3",
        ),
    ]
    for nights, baseline, cell in usual:
        told = f"{baseline} night{'s' * (baseline > 1)}, {cell}"
        yield f"wrong alarms, fixed baseline, {told}", partial(_fixed, nights, baseline, told)
    for nights, cell in (
        (Nights(persistence=0.6), "AR 0.6, each point by itself"),
        (Nights(persistence=0.8), "AR 0.8, each point by itself"),
        (Nights(persistence=0.95, together=1.0), "AR 0.95, together"),
        (Nights(tails=True), "heavy tails"),
        (Nights(night=0.005, week=0.01, together=0.5), "0.5% apart, a week's season of 1%"),
        (Nights(night=0.005, year=0.02, together=0.5), "0.5% apart, a year's season of 2%"),
        (Nights(night=0.002, drift=0.001), "0.2% apart, each night 0.1% slower"),
    ):
        told = f"7 nights, {cell}"
        yield f"wrong alarms, the last nights as baseline, {told}", partial(_rolling, nights, 7, told)


def _change_cells() -> Iterator[tuple[str, Cell]]:
    nights = Nights(night=0.005, samples=100)
    for baseline in (5, 10):
        for what, usual, changed in (
            ("+10% of each iteration", Iterations(), 0.1),
            ("+5% of each iteration", Iterations(), 0.05),
            ("every fifth x1.5 (+10%)", Iterations(), Iterations(every=5, longer=1.5)),
            (
                "every sixth x2 where it was every 33rd (+13%)",
                Iterations(every=33, longer=2),
                Iterations(every=6, longer=2),
            ),
            ("stalls 5% x3 (+10%)", Iterations(), Iterations(stalls=0.05, stall=3)),
            ("stalls 2% x6 (+10%)", Iterations(), Iterations(stalls=0.02, stall=6)),
            ("stalls 5% of Pareto length (+10%)", Iterations(), Iterations(stalls=0.05, stall=2.2, pareto=2.5)),
            (
                "stalls 8% x2.25 where they were 0.5% (+10%)",
                Iterations(stalls=0.005, stall=2.25),
                Iterations(stalls=0.085, stall=2.25),
            ),
        ):
            cell = f"{what}, {baseline} nights 0.5% apart, 3 runs of 100"
            chosen = replace(nights, iterations=usual)
            yield f"a change of one point is found, {cell}", partial(_found, chosen, baseline, cell, changed)
    for baseline, odd in ((5, 0.05), (7, 0.05), (10, 0.05), (5, 0.02)):
        yield f"an odd night, {baseline}", partial(_odd, Nights(night=0.005), baseline, odd)
    for points in (1, 6, 40):
        for evidence in (2, 5, 10):
            nights = Nights(points=points, night=0.005)
            cell = f"{points} point{'s' * (points > 1)}, after {evidence} nights 0.5% apart"
            yield f"as planned, {cell}", partial(_promised, nights, evidence, cell)
    for nights, cell in (
        (Nights(night=0.005), "5 nights 0.5% apart"),
        (Nights(night=0.005, together=1.0), "5 nights 0.5% apart, together"),
        (
            Nights(night=0.005, samples=100, iterations=Iterations(stalls=0.02, stall=2)),
            "5 nights 0.5% apart, n 100, stalls 2%",
        ),
        (Nights(tails=True), "5 nights 1.0% apart, heavy tails"),
    ):
        yield f"the smallest change said to be found, {cell}", partial(_would_be_found, nights, 5, cell)
    plain = Nights(night=0.005, samples=100)
    for nights, changed, cell in (
        (plain, 0.02, "+2% of each iteration, 5 nights 0.5% apart"),
        (replace(plain, persistence=0.8), 0.02, "+2% of each iteration, 5 nights 0.5% apart, AR 0.8"),
        (replace(plain, tails=True), 0.02, "+2% of each iteration, 5 nights 0.5% apart, heavy tails"),
        (plain, Iterations(every=20, longer=1.5), "every 20th x1.5 (+2.5%), 5 nights 0.5% apart"),
        (plain, Iterations(every=5, longer=1.5), "every fifth x1.5 (+10%), 5 nights 0.5% apart"),
        (plain, Iterations(stalls=0.02, stall=3), "stalls 2% x3 (+4%), 5 nights 0.5% apart"),
        (plain, Iterations(slow=0.15), "slow regimes x1.3 (+4.5%), 5 nights 0.5% apart"),
    ):
        yield f"a point that is slower is called the same, {cell}", partial(_same, nights, 5, cell, changed)
    for nights, cell in (
        (Nights(night=0.005, together=1.0), "6 points together"),
        (Nights(night=0.005, persistence=0.6), "6 points, AR 0.6"),
        (Nights(night=0.005, tails=True), "6 points, heavy tails"),
        (Nights(night=0.01), "6 points, 1.0% apart"),
    ):
        told = f"{cell}, after 5 nights"
        yield f"as planned, {told}", partial(_promised, nights, 5, told)
    for nights, cell in (
        (Nights(night=0.005), "5 nights 0.5% apart"),
        (
            Nights(night=0.005, samples=100, iterations=Iterations(stalls=0.01)),
            "5 nights 0.5% apart, n 100, stalls 1% x1.5",
        ),
        (Nights(persistence=0.6), "5 nights 1.0% apart, AR 0.6"),
        (Nights(persistence=0.8), "5 nights 1.0% apart, AR 0.8"),
        (Nights(tails=True), "5 nights 1.0% apart, heavy tails"),
        (Nights(together=1.0), "5 nights 1.0% apart, together"),
    ):
        yield f"interval of the ratio of nights, {cell}", partial(_equal, nights, 5, cell)


def _day_cells() -> Iterator[tuple[str, Cell]]:
    for runs in (2, 3, 6):
        for day, how in (
            (Day(runs=runs), "in turn"),
            (Day(runs=runs, order="one after the other"), "A then B"),
            (Day(runs=runs, persistence=0.6), "in turn, AR 0.6"),
            (Day(runs=runs, persistence=0.6, order="one after the other"), "A then B, AR 0.6"),
            (Day(runs=runs, run=0.004, drift=0.01), "in turn, drift of 1% a run"),
            (Day(runs=runs, run=0.004, drift=0.01, order="one after the other"), "A then B, drift of 1% a run"),
            (Day(runs=runs, together=1.0), "in turn, together"),
        ):
            cell = f"{runs} runs a side {day.run:.1%} apart, {how}"
            yield f"one day, {cell}", partial(_day, day, cell)
    for runs in (3, 6):
        cell = f"{runs} runs a side 1.0% apart, in turn"
        yield f"one day, +10 % is found, {cell}", partial(_day_found, Day(runs=runs), cell)


def _interval_cells() -> Iterator[tuple[str, Cell]]:
    both = ("mean", "p50")
    regimes = Iterations(slow=0.15, slower=1.3)
    cells: list[tuple[Iterations, int, tuple[str, ...], str]] = [
        (Iterations(persistence=ar), n, both, f"AR {ar:g}")
        for n, ars in (
            (20, (0.0, 0.5)),
            (50, (0.0, 0.5, 0.8)),
            (100, (0.0, 0.5, 0.8, 0.95)),
            (400, (0.5, 0.8, 0.95, 0.98)),
        )
        for ar in ars
    ]
    cells += [
        (Iterations(shape=shape, persistence=0.5), 100, both, f"AR 0.5, {shape}")
        for shape in ("skewed", "sum", "drift")
    ]
    cells += [(Iterations(persistence=ar), 1000, ("p99",), f"AR {ar:g}") for ar in (0.0, 0.5, 0.8)]
    cells += [(regimes, n, both, "slow regimes x1.3") for n in (50, 100, 200, 400)]
    cells += [(replace(regimes, slower=1.08), n, both, "slow regimes x1.08") for n in (100, 400)]
    cells += [(replace(regimes, regime=60), n, both, "slow regimes x1.3 of 60") for n in (200, 400)]
    cells += [
        (Iterations(stalls=0.05, pareto=a), n, both, f"stalls 5% of Pareto {a:g} length")
        for a in (1.5, 2.5)
        for n in (100, 400)
    ]
    cells += [(Iterations(stalls=0.02, stall=3), n, both, "stalls 2% x3") for n in (20, 50, 100, 400)]
    cells += [(Iterations(every=6, longer=2), n, both, "every sixth x2") for n in (50, 100, 400)]
    cells += [(Iterations(stalls=0.02, stall=3), 1000, ("p99",), "stalls 2% x3")]
    for process, n, of, cell in cells:
        yield f"interval of one run, n {n}, {cell}", partial(_run, process, n, of, cell)
    for n, ar in ((100, 0.0), (100, 0.5), (400, 0.8)):
        yield "an interval of one run is printed", partial(_printed, Iterations(persistence=ar), n, f"AR {ar:g}")
    for runs in (2, 3, 6):
        for spread, tails in ((0.002, False), (0.04, False), (0.01, True)):
            yield "interval over runs", partial(_levels, runs, spread, tails)
    for runs in (1, 3, 10):
        yield "interval of a mean rate over runs", partial(_batches, runs)
    for process, n, cell in (
        (Iterations(), 20, "AR 0"), (Iterations(persistence=0.5), 40, "AR 0.5"),
        (Iterations(persistence=0.5), 100, "AR 0.5"), (Iterations(persistence=0.8), 100, "AR 0.8"),
        (Iterations(persistence=0.95), 400, "AR 0.95"), (Iterations(stalls=0.02, stall=3), 100, "stalls 2% x3"),
        (regimes, 200, "slow regimes x1.3"),
    ):  # fmt: skip
        yield "interval of a run's drift", partial(_drifts, process, n, cell)


def _step_cells() -> Iterator[tuple[str, Cell]]:
    for nights in (8, 20, 60):
        for ar in (0.0, 0.3, 0.6, 0.8):
            yield "false steps in a history", partial(_steps, nights, f"AR {ar:g}", ar=ar)
        yield "false steps in a history", partial(_steps, nights, "heavy tails", tails=True)
    for nights, step, points in ((8, 0.5, 6), (20, 0.05, 6), (20, 0.05, 100)):
        yield "a step is found", partial(_steps_found, nights, step, points)


NAMED: tuple[tuple[str, Cell], ...] = tuple(
    cell for of in (_alarm_cells, _change_cells, _day_cells, _interval_cells, _step_cells) for cell in of()
)
CELLS: tuple[Cell, ...] = tuple(cell for _, cell in NAMED)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print some rows, in their order."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.validity", description=__doc__)
    parser.add_argument("texts", nargs="*", metavar="TEXT")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--missed", action="store_true", help="print rows alone that are not reached")
    given = parser.parse_args(arguments)
    cells = [cell for name, cell in NAMED if not given.texts or any(text in name for text in given.texts)]
    began = time.monotonic()
    for row in rows(Settings(quick=given.quick, scratch=Path("/tmp")), cells):
        if not (given.missed and row.reached):
            print(f"{row.verdict:<12} {row.method}, {row.cell}: {row.result}, goal {row.goal}", flush=True)
    print(f"took {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
