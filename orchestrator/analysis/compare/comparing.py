"""Compare two sets of runs, with the history of the second one, and state the verdict in sentences."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from orchestrator.analysis.compare import nights as of_nights
from orchestrator.analysis.compare import point_histories, regression, repeated_draws, selection, window_settings
from orchestrator.analysis.compare.point_histories import History
from orchestrator.analysis.compare.regression import NIGHTS_A_YEAR, PointChange, Rule, RunSeries, Unit
from orchestrator.analysis.compare.selection import Chosen, Measurement
from orchestrator.analysis.stats.level_steps import FEWEST_IN_ALL
from orchestrator.analysis.stats.levels import Level, level
from orchestrator.analysis.stats.statistics import summarise
from orchestrator.core.errors import ConfigError
from orchestrator.core.exitcodes import Exit
from orchestrator.core.units import bytes_text
from orchestrator.store import rundir, stores
from orchestrator.store.manifests.records import Manifest
from orchestrator.store.rundir import Entry, Listed
from orchestrator.store.tabular import tables

_NOT_SET = "not set"
_DAY_NS = 86_400 * 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class Age:
    """How old the reference is for the candidate: days from its last run, and the nights measured between them.

    These are None where the sides are not of one sweep or experiment.
    """

    days: float
    nights_between: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The result of a comparison: a is the reference, b what is judged."""

    a: Chosen
    b: Chosen
    rule: Rule
    unit: Unit
    changes: tuple[PointChange, ...]
    labels: Mapping[str, str]
    levels: Mapping[str, tuple[Level, Level]]  # of each point's median over the runs of either side
    set_differently: tuple[str, ...]  # which points the sides set differently, and how
    differences: tuple[str, ...]  # what else differs between the sides, in sentences
    drawn_alike: tuple[str, ...]  # which runs of a side are no independent repetitions, in sentences
    histories: tuple[History, ...]
    age: Age | None = None  # of the reference, where nights are compared

    def of(self, verdict: str) -> list[PointChange]:
        """Return the points with this verdict."""
        return [change for change in self.changes if change.verdict == verdict]

    @property
    def status(self) -> Exit:
        """The exit code: WORSE when a point is, INCONCLUSIVE when every point is."""
        if self.of("worse"):
            return Exit.WORSE
        return Exit.INCONCLUSIVE if len(self.of("cannot tell")) == len(self.changes) else Exit.OK


def compare(results: Path, a: str, b: str, *, rule: Rule, settings: bool = False) -> Comparison:
    """Compare the selections of two names (see `selection.choose`).

    Points that the two sides set differently are not compared but told; ConfigError where no other is left. With
    `settings` it is these settings that are compared: all points are, and what was set differently is told.
    """
    reference, candidate = selection.choose(results, a), selection.choose(results, b)
    apart = set_apart(reference, candidate)
    set_differently = _set_differently(reference, apart)
    if not settings and apart:
        if apart.keys() >= reference.points.keys() & candidate.points.keys():
            raise ConfigError(
                f"{a} and {b} were set differently: {set_differently[0]}",
                hint=f"orch compare {a} {b} --settings compares settings",
            )
        reference, candidate = (without(side, apart) for side in (reference, candidate))
        set_differently = [f"not compared: {line}" for line in set_differently]
    name = selection.name_of(candidate)
    if settings or not name:
        return _compared(reference, candidate, rule, set_differently=set_differently)
    nights = point_histories.nights(stores.opened(str(results)), name, most=point_histories.MOST_NIGHTS)
    found = point_histories.histories(nights, rule=rule)
    before = _night_before(results, reference, candidate)
    return _compared(
        reference,
        candidate,
        rule,
        set_differently=set_differently,
        found=found,
        before=before,
        began_ns=_began_ns(results, name),
    )


def _began_ns(results: Path, name: str) -> list[int]:
    """Return when each night of a sweep or an experiment began."""
    found: dict[str, int] = {}
    for entry in stores.of_name(stores.opened(str(results)), name):
        night, began = stores.instance(entry), entry.manifest.began_ns
        found[night] = min(began, found.get(night, began))
    return list(found.values())


def _night_before(results: Path, reference: Chosen, candidate: Chosen) -> Mapping[str, tuple[RunSeries, ...]]:
    """Return the measurements of the night before a candidate of one night, by point, as far as they were set alike.

    None where that night is one of the reference, or older than it.
    """
    last = {stores.instance(entry) for entry in candidate.entries}
    counted = {stores.instance(entry) for entry in reference.entries}
    if len(last) != 1 or last == counted:
        return {}
    of_night: dict[str, list[Listed]] = defaultdict(list)
    for entry in stores.of_name(stores.opened(str(results)), str(selection.name_of(candidate))):
        if reference.latest_ns < entry.manifest.began_ns < candidate.began_ns:
            of_night[stores.instance(entry)].append(entry)
    for night in sorted(of_night, key=lambda night: -min(entry.manifest.began_ns for entry in of_night[night])):
        if night not in counted | last:
            entries = [found for one in of_night[night] if (found := rundir.entry_at(one.path)) is not None]
            measured = selection.of_entries(entries, name=night)
            if measured.points:
                return without(measured, set_apart(reference, measured)).points
    return {}


def compare_axis(results: Path, wanted: str, axis: str, values: Sequence[str], *, rule: Rule) -> Comparison:
    """Compare two values of an axis of a sweep (see `axes.by_axis`); the first one is the reference."""
    first, second = by_axis(results, wanted, axis, values)
    set_differently = _set_differently(first, set_apart(first, second))
    return _compared(first, second, rule, set_differently=set_differently)


def _compared(
    a: Chosen,
    b: Chosen,
    rule: Rule,
    *,
    set_differently: Sequence[str],
    found: tuple[History, ...] = (),
    before: Mapping[str, tuple[RunSeries, ...]] | None = None,
    began_ns: Sequence[int] | None = None,
) -> Comparison:
    pairs, labels = selection.pairs(a, b)
    pairs = tuple(replace(pair, before=(before or {}).get(pair.point, ())) for pair in pairs)
    beside = differences(a, b) + (burst_sizes(a, b) if set_differently else [])
    unit = regression.unit_of(pairs)
    return Comparison(
        a=a,
        b=b,
        rule=rule,
        unit=unit,
        changes=regression.compare(pairs, rule),
        labels=labels,
        levels={pair.point: (_level(pair.a), _level(pair.b)) for pair in pairs},
        set_differently=tuple(set_differently),
        differences=tuple(beside),
        drawn_alike=tuple(f"{side.name}: {line}" for side in (a, b) for line in repeated_draws.lines(side.entries)),
        histories=found,
        age=_age(a, b, began_ns) if unit == "night" else None,
    )


def _age(a: Chosen, b: Chosen, began_ns: Sequence[int] | None) -> Age | None:
    """Return how old the reference `a` is for `b`; None where it is not the older one.

    `began_ns`: when each night of their name began.
    """
    if not a.entries or not a.latest_ns < b.began_ns:
        return None
    between = None if began_ns is None else sum(a.latest_ns < began < b.began_ns for began in began_ns)
    return Age(days=(b.began_ns - a.latest_ns) / _DAY_NS, nights_between=between)


def age_text(comparison: Comparison) -> str:
    """Return how old the reference is, in a sentence; empty where that says nothing."""
    age = comparison.age
    if age is None:
        return ""
    days = f"{age.days:.0f} days" if round(age.days) != 1 else "1 day"
    told = f"{comparison.a.name} is {days} older than {comparison.b.name}"
    if age.nights_between is None:
        return told
    return f"{told}, with {age.nights_between} night{'' if age.nights_between == 1 else 's'} measured between"


def _level(series: Sequence[RunSeries]) -> Level:
    return level([summarise(one.seconds).p50 for one in series if len(one.seconds)])


def _set_differently(chosen: Chosen, apart: Mapping[str, str]) -> list[str]:
    """Return the settings that differ in sentences, each with its points."""
    points: dict[str, list[str]] = {}
    for point in sorted(apart, key=lambda point: selection.natural(chosen.labels[point])):
        points.setdefault(apart[point], []).append(chosen.labels[point])
    return [f"{', '.join(labels)}: {how}" for how, labels in points.items()]


def differences(a: Chosen, b: Chosen) -> list[str]:
    """Return what else differs between the sides (versions, hosts), which may explain a change."""
    found = []
    for what, of in _FACTS.items():
        found += _differs(what, _values(a, of), _values(b, of))
    for name in sorted({name for side in (a, b) for entry in side.entries for name in entry.manifest.versions}):
        version = partial(_version, name)
        found += _differs(name, _values(a, version), _values(b, version))
    return found


_FACTS: Mapping[str, Callable[[Manifest], object]] = {
    "commit": lambda manifest: manifest.git.commit if manifest.git else None,
    "scale": lambda manifest: manifest.scale * manifest.dilation,
    "dilation": lambda manifest: manifest.dilation,
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
    """Return a ratio as a change in per cent."""
    return "-" if math.isnan(ratio) else f"{(ratio - 1) * 100:+.1f} %"


def headline(comparison: Comparison) -> str:
    """Return the verdict in a sentence or two."""
    counts = {verdict: comparison.of(verdict) for verdict in ("worse", "better", "same", "cannot tell")}
    verdicts = ", ".join(f"{len(points)} {verdict}" for verdict, points in counts.items() if points)
    lines = [f"{comparison.b.name} against {comparison.a.name}: {verdicts} (of {len(comparison.changes)} points)"]
    lines += [f"set differently: {line}" for line in comparison.set_differently]
    lines.append(basis(comparison))
    for verdict in ("worse", "better"):
        by_size = sorted(counts[verdict], key=lambda c: -abs(math.log(telling(c).ratio)))
        lines += [f"{verdict}: {comparison.labels[c.point]}: {change_text(c)}" for c in by_size]
    return "\n".join(lines)


def basis(comparison: Comparison) -> str:
    """Return the basis of the verdicts (unit, numbers of nights and runs), and the expected rate of false alarms."""
    rule = comparison.rule
    of_equals = f"{100 * rule.alpha:g} of 100 comparisons of equals"
    if comparison.unit == "session":
        return (
            "judged as two nights, since one side was measured before the other: if such sessions differ by "
            f"{rule.night_spread:.0%} at most, {of_equals} are called worse or better wrongly; interleave both sides "
            "(repetitions of a sweep do) to compare runs"
        )
    if comparison.unit != "night":
        what = (
            "pairs that were measured in turn" if comparison.unit == "block" else "interleaved runs of the same night"
        )
        return f"judged by {what}: {of_equals} are called worse or better wrongly, over all points"
    a, b = (max(side) for side in zip(*(change.nights for change in comparison.changes), strict=True))
    often = f"one night in {NIGHTS_A_YEAR / rule.alarms_a_year:.0f}"
    lines = [
        f"judged by nights ({a} against {b}): of equal nights {often} at most is called worse wrongly, over all "
        f"points, in 95 of 100 baselines, if nights differ by {rule.night_spread:.0%} at most or as these nights show",
        _alarms(len(comparison.changes), a, rule),
    ]
    if age := age_text(comparison):
        lines.append(age)
    odd = sorted({night for change in comparison.changes for night in change.odd})
    if odd:
        lines.append(f"odd nights of {comparison.a.name}, which do not move its level: {', '.join(odd)}")
    return "\n".join(lines)


def _alarms(points: int, baseline: int, rule: Rule) -> str:
    """Return how many wrong alarms a year baselines raise where nights differ as far as is assumed, as text."""
    rates = NIGHTS_A_YEAR * of_nights.alarms(points, baseline, rule.level("mean", "night"))
    half, most, nearly_all = (f"{rate:.2g}" for rate in np.quantile(rates, (0.5, 0.95, 0.99)))
    where, nights = ("each point" if points > 1 else "the point"), f"{baseline} night{'s' * (baseline > 1)}"
    return (
        f"wrong alarms a year ({points} point{'s' * (points > 1)}, mean and median) if nights of {where} differ so far "
        f"and follow one another (correlation {of_nights.MOST_PERSISTENCE:g}): {half} after half of all baselines of "
        f"{nights}, up to {most} after 95 of 100, up to {nearly_all} after 99"
    )


def detectable(point: PointChange) -> str:
    """Return the smallest change of the mean that would have been found, as text."""
    return percent(point.change("mean").detectable)


def change_text(point: PointChange) -> str:
    """Return the change that a point's verdict rests on, with its interval where that is known."""
    change = telling(point)
    if math.isnan(change.ratio):
        return point.why
    interval = "interval unknown" if math.isnan(change.low) else f"{percent(change.low)} to {percent(change.high)}"
    sides = f"{change.a_s * 1e3:.1f} to {change.b_s * 1e3:.1f} ms"
    return f"{change.statistic} {percent(change.ratio)} ({interval}), {sides}"


def telling(point: PointChange) -> regression.Change:
    """Return the change that a point's verdict rests on."""
    return next(
        (c for c in point.changes if c.verdict == point.verdict and c.verdict in ("worse", "better")), point.changes[0]
    )


def step_lines(found: Sequence[History]) -> list[str]:
    """Return every step of the histories in words, and what could not be searched for lack of nights."""
    lines = [
        f"{history.label}: since {history.days[step.night]} {step.statistic} {percent(step.ratio)} "
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
        lines.append(
            f"{len(smallest)} points without a step: one of {ends} of mean and median in the middle of the nights "
            "would be told"
        )
    return lines


def history_lines(found: Sequence[History]) -> list[str]:
    """Return the steps, and the verdicts on points without one: their later nights against their earlier ones."""
    lines = step_lines(found)
    still = [one for one in found if not one.steps and len(one.days) >= FEWEST_IN_ALL]
    if same := [one.label for one in still if one.verdict == "same"]:
        lines.append(f"the same in mean, median and tail, later nights against earlier ones: {', '.join(same)}")
    lines += [f"{one.label}: {one.verdict}: {one.why}" for one in still if one.verdict != "same"]
    return lines


def set_apart(a: Chosen, b: Chosen) -> dict[str, str]:
    """Return how each common point was set differently on the two sides; points that were set alike are left out."""
    first, second = _of_points(a), _of_points(b)
    return {
        point: differences
        for point in first.keys() & second.keys()
        if (differences := "; ".join(_differences(first[point], second[point])))
    }


def burst_sizes(a: Chosen, b: Chosen) -> list[str]:
    """Return a sentence on flow sizes where only one side has bursts, since bursts hold no large flows."""
    (with_a, largest_a), (with_b, largest_b) = _bursts(a), _bursts(b)
    if with_a == with_b or math.isnan(largest_a + largest_b):
        return []
    name, least, most = (a.name, largest_a, largest_b) if with_a else (b.name, largest_b, largest_a)
    return [
        f"sizes of flows: a period of the bursts of {name} holds none larger than {bytes_text(least)}, the other side "
        f"has up to {bytes_text(most)}: what differs is not the bursts alone"
    ]


def _bursts(chosen: Chosen) -> tuple[bool, float]:
    """Return whether generated flows came in bursts, and the bytes of the largest that could be drawn (full size)."""
    wanted: dict[Path, set[str]] = defaultdict(set)
    scales: dict[Path, int] = {}
    for window in chosen.windows:
        wanted[window.entry.path].add(window.record.name)
        scales[window.entry.path] = window.entry.manifest.scale
    rows = [
        (row["burst_height"] is not None, row["largest_bytes"] * scales[path])
        for path, names in wanted.items()
        for row in tables.read(path / "tables", "schedules").to_pylist()
        if row["window_name"] in names and row["largest_bytes"] is not None
    ]
    return any(burst for burst, _ in rows), float(max((size for _, size in rows), default=math.nan))


def without(chosen: Chosen, points: Mapping[str, str]) -> Chosen:
    """Return the measurements without these points."""
    return replace(chosen, points={key: found for key, found in chosen.points.items() if key not in points})


def by_axis(results: Path, wanted: str, axis: str, values: Sequence[str]) -> tuple[Chosen, Chosen]:
    """Return the measurements with each of two values of a sweep's axis; points are matched by their other values.

    `axis` is a field's path or its end, `values` are two of its values, or none where it has two. ConfigError where
    there is no such axis, or it has other values.
    """
    chosen = selection.choose(results, wanted)
    windows = [window for entry in chosen.entries for window in selection.windows_of(entry)]
    axes = {path for window in windows for path in window.values}
    found = sorted(path for path in axes if path == axis or path.endswith(f".{axis}"))
    if len(found) != 1:
        raise ConfigError(
            f"{axis!r} names {len(found) or 'no'} axes of {wanted}; accepted: {', '.join(sorted(axes)) or 'no axis'}"
        )
    of_value: dict[str, list[Measurement[Entry]]] = defaultdict(list)
    for window in windows:
        if found[0] in window.values:
            of_value[str(window.values[found[0]])].append(_elsewhere(window, found[0]))
    names = list(values) or list(of_value)
    if len(names) != 2 or not of_value.keys() >= set(names):
        raise ConfigError(f"{found[0]}: two values are compared; accepted: two of {', '.join(of_value)}")
    end = found[0].rpartition(".")[2]
    first, second = (
        selection.of_windows(of_value[name], chosen.entries, name=f"{wanted} with {end} {name}") for name in names
    )
    return first, second


def _elsewhere(window: Measurement[Entry], axis: str) -> Measurement[Entry]:
    """Return the window under the key of its values on all other axes."""
    others = {path: value for path, value in window.values.items() if path != axis}
    key = f"{json.dumps(others, sort_keys=True, default=str)} {window.job}"
    return replace(window, key=key, label=selection.values_text(others) or "all")


def _of_points(chosen: Chosen) -> dict[str, dict[str, set[str]]]:
    """Return all that was set for each point: a path below the experiment, and the values there over its windows."""
    known: dict[Path, dict[str, window_settings.WindowSetting]] = {}
    found: dict[str, list[dict[str, str]]] = defaultdict(list)
    for window in chosen.windows:
        run = window.entry
        if run.path not in known:
            known[run.path] = window_settings.of_windows(run)
        setting = known[run.path][window.record.name].setting
        found[window.key].append({**dict(setting.shared), **dict(setting.traffic), "requested load": _load(window)})
    return {point: _together(mine) for point, mine in found.items()}


def _together(found: Sequence[Mapping[str, str]]) -> dict[str, set[str]]:
    paths = {path for one in found for path in one}
    return {path: {one.get(path, _NOT_SET) for one in found} for path in paths}


def _load(window: Measurement[Entry]) -> str:
    requested = math.fsum(load.requested_bps for load in window.record.loads) * window.entry.manifest.scale
    return f"{requested / 1e9:g} Gbit/s"


def _differences(a: Mapping[str, set[str]], b: Mapping[str, set[str]]) -> list[str]:
    return [
        f"{path} {', '.join(sorted(a.get(path, {_NOT_SET})))} against {', '.join(sorted(b.get(path, {_NOT_SET})))}"
        for path in sorted({*a, *b})
        if a.get(path, {_NOT_SET}) != b.get(path, {_NOT_SET})
    ]
