"""Compares two sets of runs, with the history that the second one belongs to, and says what it comes to."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from orchestrator.analysis.compare import axes, nights, point_histories, regression, selection
from orchestrator.analysis.compare.designs import Unit
from orchestrator.analysis.compare.point_histories import History
from orchestrator.analysis.compare.regression import NIGHTS_A_YEAR, PointChange, Rule, RunSeries
from orchestrator.analysis.compare.selection import Chosen
from orchestrator.analysis.stats.level_steps import FEWEST_IN_ALL
from orchestrator.analysis.stats.levels import Level, level
from orchestrator.analysis.stats.statistics import summarise
from orchestrator.core.errors import ConfigError
from orchestrator.core.exitcodes import Exit
from orchestrator.store import stores
from orchestrator.store.manifests.records import Manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Everything that a comparison found: a is the reference, b what is judged."""

    a: Chosen
    b: Chosen
    rule: Rule
    unit: Unit
    changes: tuple[PointChange, ...]
    labels: Mapping[str, str]
    levels: Mapping[str, tuple[Level, Level]]  # of each point's median over the runs of either side
    set_differently: tuple[str, ...]  # which points the sides set differently, and how
    differences: tuple[str, ...]  # what else differs between the sides, in sentences
    histories: tuple[History, ...]

    def of(self, verdict: str) -> list[PointChange]:
        """The points with this verdict."""
        return [change for change in self.changes if change.verdict == verdict]

    @property
    def status(self) -> Exit:
        """The exit code: WORSE when a point is, INCONCLUSIVE when every point is."""
        if self.of("worse"):
            return Exit.WORSE
        return Exit.INCONCLUSIVE if len(self.of("cannot tell")) == len(self.changes) else Exit.OK


def compare(results: Path, a: str, b: str, *, rule: Rule, settings: bool = False) -> Comparison:
    """Compare what two names stand for (see `selection.choose`).

    Points that the two sides set differently are not compared but told; ConfigError where no other is left. With
    `settings` it is these settings that are compared: all points are, and what was set differently is told.
    """
    reference, candidate = selection.choose(results, a), selection.choose(results, b)
    apart = axes.set_apart(reference, candidate)
    set_differently = _set_differently(reference, apart)
    if not settings and apart:
        if apart.keys() >= reference.points.keys() & candidate.points.keys():
            raise ConfigError(
                f"{a} and {b} were set differently: {set_differently[0]}",
                hint=f"orch compare {a} {b} --settings compares settings",
            )
        reference, candidate = (axes.without(side, apart) for side in (reference, candidate))
        set_differently = [f"not compared: {line}" for line in set_differently]
    name = selection.name_of(candidate)
    found = () if settings or not name else _histories(results, name, rule)
    return _compared(reference, candidate, rule, set_differently=set_differently, found=found)


def _histories(results: Path, name: str, rule: Rule) -> tuple[History, ...]:
    """The history of every point over the last nights."""
    found = nights.nights(stores.opened(str(results)), name, most=point_histories.MOST_NIGHTS)
    return nights.histories(found, rule=rule)


def compare_axis(results: Path, wanted: str, axis: str, values: Sequence[str], *, rule: Rule) -> Comparison:
    """Compare two values of an axis of a sweep (see `axes.by_axis`); the first one is the reference."""
    first, second = axes.by_axis(results, wanted, axis, values)
    set_differently = _set_differently(first, axes.set_apart(first, second))
    return _compared(first, second, rule, set_differently=set_differently, found=())


def _compared(
    a: Chosen, b: Chosen, rule: Rule, *, set_differently: Sequence[str], found: tuple[History, ...]
) -> Comparison:
    pairs, labels = selection.pairs(a, b)
    beside = differences(a, b) + (axes.burst_sizes(a, b) if set_differently else [])
    return Comparison(
        a=a,
        b=b,
        rule=rule,
        unit=regression.unit_of(pairs),
        changes=regression.compare(pairs, rule),
        labels=labels,
        levels={pair.point: (_level(pair.a), _level(pair.b)) for pair in pairs},
        set_differently=tuple(set_differently),
        differences=tuple(beside),
        histories=found,
    )


def _level(series: Sequence[RunSeries]) -> Level:
    return level([summarise(one.seconds).p50 for one in series if len(one.seconds)])


def _set_differently(chosen: Chosen, apart: Mapping[str, str]) -> list[str]:
    """What was set differently in sentences, each with its points."""
    points: dict[str, list[str]] = {}
    for point in sorted(apart, key=lambda point: selection.natural(chosen.labels[point])):
        points.setdefault(apart[point], []).append(chosen.labels[point])
    return [f"{', '.join(labels)}: {how}" for how, labels in points.items()]


def differences(a: Chosen, b: Chosen) -> list[str]:
    """What else differs between the sides, so that nobody blames the network for a new version of a framework."""
    found = []
    for what, of in _FACTS.items():
        found += _differs(what, _values(a, of), _values(b, of))
    for name in sorted({name for side in (a, b) for entry in side.entries for name in entry.manifest.versions}):
        version = partial(_version, name)
        found += _differs(name, _values(a, version), _values(b, version))
    return found


_FACTS: Mapping[str, Callable[[Manifest], object]] = {
    "commit": lambda manifest: manifest.git.commit if manifest.git else None,
    "scale": lambda manifest: manifest.scale,
    "testbed": lambda manifest: manifest.topology.kind,
    "MTU": lambda manifest: manifest.topology.mtu,
}


def _version(name: str, manifest: Manifest) -> object:
    return manifest.versions.get(name)


def _differs(what: str, a: set[str], b: set[str]) -> list[str]:
    return [] if a == b else [f"{what}: {', '.join(sorted(a)) or 'none'} against {', '.join(sorted(b)) or 'none'}"]


def _values(side: Chosen, of: Callable[[Manifest], object]) -> set[str]:
    return {str(value) for entry in side.entries if (value := of(entry.manifest)) is not None}


def percent(ratio: float) -> str:
    """A ratio as a change in per cent."""
    return "-" if math.isnan(ratio) else f"{(ratio - 1) * 100:+.1f} %"


def headline(comparison: Comparison) -> str:
    """The verdict in a sentence or two."""
    counts = {verdict: comparison.of(verdict) for verdict in ("worse", "better", "same", "cannot tell")}
    verdicts = ", ".join(f"{len(points)} {verdict}" for verdict, points in counts.items() if points)
    lines = [f"{comparison.b.name} against {comparison.a.name}: {verdicts} (of {len(comparison.changes)} points)"]
    lines += [f"set differently: {line}" for line in comparison.set_differently]
    lines.append(basis(comparison))
    for verdict in ("worse", "better"):
        by_size = sorted(counts[verdict], key=lambda c: -abs(math.log(_telling(c).ratio)))
        lines += [f"{verdict}: {comparison.labels[c.point]}: {change_text(c)}" for c in by_size]
    return "\n".join(lines)


def basis(comparison: Comparison) -> str:
    """What the verdicts rest on, and how often a wrong alarm is expected."""
    rule = comparison.rule
    if comparison.unit != "night":
        what = "pairs that were measured in turn" if comparison.unit == "block" else "runs of the same night"
        of_equals = f"{100 * rule.alpha:g} of 100 comparisons of equals"
        return f"judged by {what}: {of_equals} are called worse or better wrongly, over all points"
    a, b = (max(side) for side in zip(*(change.nights for change in comparison.changes), strict=True))
    often = f"one night in {NIGHTS_A_YEAR / rule.alarms_a_year:.0f}"
    return f"judged by nights ({a} against {b}): of equal nights {often} is called worse wrongly, over all points"


def detectable(point: PointChange) -> str:
    """The smallest change of the median that would have been found."""
    return percent(point.change("p50").detectable)


def change_text(point: PointChange) -> str:
    """The change that a point's verdict rests on, with its interval where that is known."""
    change = _telling(point)
    if math.isnan(change.ratio):
        return point.why
    interval = "interval unknown" if math.isnan(change.low) else f"{percent(change.low)} to {percent(change.high)}"
    sides = f"{change.a_s * 1e3:.1f} to {change.b_s * 1e3:.1f} ms"
    return f"{change.statistic} {percent(change.ratio)} ({interval}), {sides}"


def _telling(point: PointChange) -> regression.Change:
    return next(
        (c for c in point.changes if c.verdict == point.verdict and c.verdict in ("worse", "better")), point.changes[0]
    )


def step_lines(found: Sequence[History]) -> list[str]:
    """Every step in words; what could not be searched for lack of nights."""
    lines = [
        f"{history.label}: since {history.days[step.night]} {percent(step.ratio)} "
        f"({step.before_s * 1e3:.1f} to {step.after_s * 1e3:.1f} ms, p = {step.p:.2g})"
        for history in found
        for step in history.steps
    ]
    short = [h for h in found if sum(not math.isnan(value) for value in h.p50_s) < FEWEST_IN_ALL]
    if short:
        lines.append(f"{len(short)} of {len(found)} points have fewer than {FEWEST_IN_ALL} nights: no step can be told")
    smallest = [history.findable for history in found if not history.steps and not math.isnan(history.findable)]
    if smallest:
        ends = " to ".join(dict.fromkeys(percent(1 + share) for share in (min(smallest), max(smallest))))
        lines.append(f"{len(smallest)} points without a step: one of {ends} in the middle of the nights would be told")
    return lines
