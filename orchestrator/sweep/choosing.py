"""Choose which measurements a sweep asks for, from what was measured: all of them, or `until` something is known; pure.

What is asked for follows from the file, the salt and the sealed runs alone, so that a sweep that is cut off at any
moment goes on as it would have. Rules look at the repetitions of a point in their order: a further one is asked for
once all earlier ones are settled, which is measured or given up.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

import numpy as np

from orchestrator.analysis.compare import power
from orchestrator.analysis.stats import stopping
from orchestrator.analysis.stats.onset import RULE
from orchestrator.analysis.stats.statistics import UNKNOWN, Estimate
from orchestrator.core import units
from orchestrator.experiment import plan, scale_limits
from orchestrator.experiment.seeds import PLANNED
from orchestrator.experiment.sweepfile import Definition, Point, label
from orchestrator.experiment.until import Statistic, Until
from orchestrator.store import sweeps
from orchestrator.store.manifests.summaries import WindowSummary
from orchestrator.store.sweeps import Key, MeasuredWindow
from orchestrator.sweep import searching, sweepplan
from orchestrator.sweep.ledger import Ledger
from orchestrator.sweep.searching import Answer, Next, Sample, Search

Logs = Mapping[str, float]  # by job, the logarithm of a statistic of its iteration times (seconds), or of a ratio


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What is known of the level of a point (seconds), or of the ratio of two, after `count` valid repetitions.

    `estimate` is of the job that is known least. `ended` says why no further repetition follows; empty where one does.
    """

    points: tuple[str, ...]
    count: int
    estimate: Estimate
    ended: str = ""

    @property
    def reach(self) -> float:
        """Return how far the interval reaches from the value, as a share of it; infinite or NaN where it has none."""
        return self.estimate.high / self.estimate.value - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Bend:
    """Where a curve bends: what is measured next, or the answer; `curve` are the values that its points share.

    `steps` are the measurements so far, as point and why it was chosen.
    """

    curve: str
    found: Next | Answer
    steps: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The measurements that a sweep asks for so far, in their order, and what is known of each point or pair."""

    keys: tuple[Key, ...]
    standings: tuple[Standing, ...] = ()
    bends: tuple[Bend, ...] = ()


def asked(
    definition: Definition, ledger: Ledger, salt: str = PLANNED, *, points: Collection[str], out: Collection[str] = ()
) -> Asked:
    """Return what a sweep of this salt asks for at these points, after what the ledger has.

    Points in `out` cannot be measured any more, and hold no other up.
    """
    until, budget_s = definition.until, definition.file.budget
    if definition.file.searched:
        return _searched(definition, ledger, points)
    if until is None:
        return Asked(keys=tuple(key for key in sweepplan.in_order(definition, salt) if key[0] in points))
    order = [key for key in sweepplan.in_order(definition, salt, repetitions=until.most) if key[0] in points]
    questions: list[tuple[str, ...]] = [(point.point,) for point in definition.points if point.point in points]
    if definition.sides:
        questions = [pair for pair in definition.sides if set(pair) <= set(points)]
    settled = {key for key in order if ledger.settled(key) or key[0] in out}
    logs = _logs(ledger.found, until.of)
    repetitions = dict.fromkeys(points, until.least)
    while True:
        waiting = {key[0] for key in order if key not in settled and not key[2] and key[1] <= repetitions[key[0]]}
        standings = [
            _standing(of, logs, repetitions[of[0]], until, whole=waiting.isdisjoint(of), out=out) for of in questions
        ]
        # In blocks no point goes on before all have come so far; within a budget each does, after the fewest.
        in_blocks = budget_s is None or any(repetitions[name] == until.least for name in waiting)
        held_up = set(points) if waiting and in_blocks else waiting
        further = {name for one in standings if not one.ended and held_up.isdisjoint(one.points) for name in one.points}
        if not further:
            break
        for name in further:
            repetitions[name] += 1
    keys = tuple(key for key in order if key[2] or key[1] <= repetitions[key[0]])
    so_far = Asked(keys=keys, standings=tuple(standings))
    return so_far if budget_s is None or in_blocks else _within(budget_s, so_far, ledger)


def _logs(found: Sequence[MeasuredWindow], of: Statistic) -> dict[tuple[str, int], Logs]:
    """Return the logarithms of a statistic by point and repetition, of measurements that count."""
    return {(one.point, one.repetition): logs_of(one.window, of) for one in sweeps.chosen(found)}


def logs_of(window: WindowSummary, of: Statistic) -> Logs:
    """Return the logarithm of a statistic of each job of a window, in seconds; jobs without it are left out."""
    values = {one.job: getattr(one, f"{of}_s") for one in window.training}
    return {job: math.log(value) for job, value in values.items() if value}


def _standing(
    points: tuple[str, ...],
    logs: Mapping[tuple[str, int], Logs],
    repetitions: int,
    until: Until,
    *,
    whole: bool,
    out: Collection[str],
) -> Standing:
    """Return what so many repetitions of a point, or of both points of a pair, tell, and whether more may follow.

    `whole` says that all of them are settled.
    """
    series: list[Logs] = []
    for number in range(1, repetitions + 1):
        first, last = (logs.get((name, number), {}) for name in (points[0], points[-1]))
        values = first if len(points) == 1 else {job: last[job] - first[job] for job in first if job in last}
        if values:
            series.append(values)
    found = replace(of_level(series, until) if until.effect is None else of_ratio(series, until), points=points)
    if found.ended:
        return found
    if not set(points).isdisjoint(out):
        return replace(found, ended="it needs a host that is left out")
    return replace(found, ended="no more are allowed") if whole and repetitions >= until.most else found


def of_level(series: Sequence[Logs], until: Until) -> Standing:
    """Return what is known of a level from its repetitions in order; they end at the first interval that is narrow."""
    nominal, width = stopping.nominal_by_width(until.least, until.most), math.log1p(until.interval or 0.0)
    for count in range(until.least, len(series) + 1):
        half, estimate = _widest(series[:count], nominal)
        if half <= width:
            return Standing(points=(), count=count, estimate=estimate, ended="it is known")
    return Standing(points=(), count=len(series), estimate=_widest(series, nominal)[1])


def of_ratio(series: Sequence[Logs], until: Until) -> Standing:
    """Return what is known of a ratio from its repetitions in order; they end once it differs or is the same."""
    nominal, most = stopping.nominal_by_any_rule(until.least, until.most), 1 + (until.effect or 0.0)
    for count in range(until.least, len(series) + 1):
        _, estimate = _widest(series[:count], nominal)
        if estimate.low > 1 or estimate.high < 1:
            return Standing(points=(), count=count, estimate=estimate, ended="they differ")
        if estimate.low >= 1 / most and estimate.high <= most:
            return Standing(points=(), count=count, estimate=estimate, ended="they differ by less than that")
    return Standing(points=(), count=len(series), estimate=_widest(series, nominal)[1])


def _widest(series: Sequence[Logs], nominal: float) -> tuple[float, Estimate]:
    """Return half the widest interval of any job, in logarithms, and that job's estimate."""
    jobs = dict.fromkeys(job for values in series for job in values)
    of_jobs = [[values[job] for values in series if job in values] for job in jobs]
    found = [(stopping.half_width(logs, nominal), logs) for logs in of_jobs]
    half, logs = max(found, key=lambda one: one[0], default=(math.inf, []))
    return half, stopping.level(logs, nominal) if logs else UNKNOWN


# Searches


def _searched(definition: Definition, ledger: Ledger, points: Collection[str]) -> Asked:
    """Return what was measured of each curve on which something is found, and the next place of each."""
    (axis,) = definition.file.searched
    asked_for = definition.file.axes[axis]
    curves: dict[str, list[Point]] = {}
    for point in definition.points:
        if point.point in points:
            rest = {key: value for key, value in point.values.items() if key != axis}
            curves.setdefault(label(rest), []).append(point)
    keys: list[Key] = []
    bends = []
    logs = _logs(ledger.found, "mean")
    for curve, of_curve in curves.items():
        places = tuple(_amount(point.values[axis], asked_for.unit) for point in of_curve)
        search = Search(
            places=places,
            knee=asked_for.find == "knee",
            slower=RULE.above - 1 if asked_for.find == "knee" else asked_for.slower,
            within=asked_for.within or math.inf,
            most=asked_for.most,
            start=_predicted(of_curve, places, asked_for.unit) if asked_for.find == "knee" else None,
        )
        samples: dict[int, Sample] = {}
        steps = []
        while isinstance(found := searching.step(search, samples), Next):
            name = of_curve[found.place].point
            before = samples.get(found.place, Sample())
            key = (name, before.tried + 1, False)
            keys.append(key)
            if not ledger.settled(key):
                break
            steps.append((name, found.why))
            samples[found.place] = before.with_measured(list(logs.get(key[:2], {}).values())[:1])
        bends.append(Bend(curve=curve, found=found, steps=tuple(steps)))
    return Asked(keys=tuple(keys), bends=tuple(bends))


def is_found(bend: Bend) -> bool:
    """Return whether it is known where a curve bends."""
    return isinstance(bend.found, Answer) and not math.isnan(bend.found.where.value)


def _amount(value: object, unit: str) -> float:
    """Return the number of an axis's value, in its unit."""
    found, of_one = units.quantity(str(value)), units.quantity(f"1{unit}")
    return float(str(value)) if found is None or of_one is None else found[1] / of_one[1]


def _predicted(curve: Sequence[Point], places: Sequence[float], unit: str) -> int | None:
    """Return the place from which on training and cross traffic fill a link, as fluids; None where theory says none."""
    one = units.quantity(f"1{unit}")
    if one is None or one[0] != "rate":
        return None
    knees = scale_limits.knees(plan.single(curve[-1].experiment, 1)).values()
    return next((at for at, place in enumerate(places) if place * one[1] >= min(knees)), None) if knees else None


# Budgets


def _within(budget_s: float, found: Asked, ledger: Ledger) -> Asked:
    """Return what still fits in a budget, those measurements first that narrow an interval most for their time."""
    left_s = budget_s - ledger.spent_s
    known = [key for key in found.keys if ledger.settled(key)]
    chosen: list[Key] = []
    gains = {one.points[0]: narrowing(one) / ledger.cost_s(one.points[0]) for one in found.standings if not one.ended}
    following = [key for key in found.keys if not ledger.settled(key) and not key[2]]
    for key in sorted(following, key=lambda key: -gains.get(key[0], 0.0)):
        left_s -= ledger.cost_s(key[0])
        if left_s >= 0:
            chosen.append(key)
    checks = [key for key in found.keys if key[2] and key not in known]
    beyond = {key[0] for key in following} - {key[0] for key in chosen}
    over = "a further repetition is beyond the budget"
    standings = (
        replace(one, ended=over) if not one.ended and beyond & set(one.points) else one for one in found.standings
    )
    return Asked(keys=(*known, *chosen, *checks), standings=tuple(standings))


def narrowing(one: Standing) -> float:
    """Return by how much another repetition narrows an interval, as a share of the value."""
    half = math.log1p(one.reach) if math.isfinite(one.reach) else 1.0
    return half * (1 - math.sqrt(one.count / (one.count + 1)))


# What is to be expected


def expected(
    definition: Definition, salt: str, found: Sequence[MeasuredWindow], *, points: Collection[str]
) -> tuple[list[Key], float | None]:
    """Return the measurements that a sweep is likely to make, and how far runs differ, as these measured windows show.

    That is the median over points of the standard deviation between runs of one sweep, as a share; None where nothing
    shows it, and it is assumed (`power.ASSUMED`). Of a ratio nothing is expected: as many repetitions as there may be;
    of a search its first measurements.
    """
    until = definition.until
    if definition.file.searched:
        return list(asked(definition, Ledger(attempts=1, quarantine=1), salt, points=points).keys), None
    if until is None:
        return [key for key in sweepplan.in_order(definition, salt) if key[0] in points], None
    by_point = _spreads(found, until.of)
    usual = median(by_point.values()) if by_point else None
    width = math.log1p(until.interval or 0.0)
    repetitions = {
        name: until.most
        if until.effect is not None
        else stopping.expected(by_point.get(name, usual or power.ASSUMED.run), width, until.least, until.most)
        for name in points
    }
    order = sweepplan.in_order(definition, salt, repetitions=until.most)
    return [key for key in order if key[0] in points and (key[2] or key[1] <= repetitions[key[0]])], usual


def likely(definition: Definition, salt: str, found: Sequence[MeasuredWindow], so_far: Asked) -> list[Key]:
    """Return what a sweep has asked for so far, and what it is likely to ask for at points that need more."""
    if definition.file.searched:
        return list(so_far.keys)
    going = {name for one in so_far.standings if not one.ended for name in one.points}
    have = set(so_far.keys)
    further, _ = expected(definition, salt, found, points=going)
    return [*so_far.keys, *(key for key in further if key not in have)]


def _spreads(found: Sequence[MeasuredWindow], of: Statistic) -> dict[str, float]:
    """Return by point how far runs of a sweep differ (standard deviation of logarithms), where a sweep has several."""
    series: dict[tuple[str, str, str], list[float]] = {}
    for one in found:
        if one.valid and not one.recheck and one.manifest.sweep is not None:
            for job, value in logs_of(one.window, of).items():
                series.setdefault((one.point, one.manifest.sweep.id, job), []).append(value)
    variances: dict[str, list[float]] = {}
    for (point, _, _), values in series.items():
        if len(values) > 1:
            variances.setdefault(point, []).append(float(np.var(values, ddof=1)))
    return {point: math.sqrt(sum(values) / len(values)) for point, values in variances.items()}
