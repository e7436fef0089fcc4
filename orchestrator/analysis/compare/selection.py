"""What a comparison is about: the runs that a name stands for, and the valid iterations of each point in them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timezone
from pathlib import Path
from typing import Any

from orchestrator.analysis.compare.regression import Pair, RunSeries
from orchestrator.analysis.stats.iterations import JobSeries, series
from orchestrator.core import safepath
from orchestrator.core.errors import ConfigError, StoreError, UnsafePath
from orchestrator.store import baselines, rundir, tables
from orchestrator.store.rundir import Entry, Listed
from orchestrator.store.window_records import Window


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The point that a window measures, in short too, its values of a sweep's axes, and which repetition it is."""

    key: str
    label: str
    values: Mapping[str, Any]
    repetition: tuple[str, ...]  # the same for tries of one repetition


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """A measured window of a run under the key of its point."""

    entry: Entry
    record: Window
    job: str
    key: str
    label: str
    values: Mapping[str, Any]  # of a sweep's axes
    repetition: tuple[str, ...]  # what tells repetitions of a point apart, and tries of one repetition not


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """Valid measurements under a name: series by point, labels of the points, and what does not count."""

    name: str
    entries: tuple[Entry, ...]
    points: Mapping[str, tuple[RunSeries, ...]]
    labels: Mapping[str, str]
    windows: tuple[Measurement, ...]
    left_out: tuple[str, ...]  # sentences: which windows are invalid, and why
    began_ns: int


def choose(results: Path, wanted: str) -> Chosen:
    """What `wanted` stands for: a baseline, a run, its folder, a sweep, NAME@DATE or NAME, or several with commas.

    NAME is a sweep's (its newest instance) or an experiment's (its runs of the newest day); DATE is a day in UTC,
    YYYY-MM-DD or "today". StoreError when there is no such thing.
    """
    found: dict[Path, Entry] = {}
    for part in filter(None, (part.strip() for part in wanted.split(","))):
        found |= {entry.path: entry for entry in _entries(results, part)}
    if not found:
        raise StoreError(f"{wanted!r} names no run", hint="orch ls")
    return of_entries(list(found.values()), name=wanted)


def of_entries(entries: Sequence[Entry], *, name: str) -> Chosen:
    """The valid measurements of these runs; the last valid one of each repetition of a point counts."""
    in_order = sorted(entries, key=lambda entry: entry.run)
    return of_windows([window for entry in in_order for window in windows_of(entry)], in_order, name=name)


def of_windows(windows: Sequence[Measurement], entries: Sequence[Entry], *, name: str) -> Chosen:
    """The valid ones of these windows, which are of these runs, oldest first."""
    last: dict[tuple[str, ...], Measurement] = {}
    left_out = []
    for window in windows:
        if window.record.valid:
            place = (window.key, *window.repetition)
            last[place] = window
        else:
            why = "; ".join(window.record.reasons) or "not valid"
            left_out.append(f"{window.label} in {window.entry.run}: {why}")
    points: dict[str, list[RunSeries]] = {}
    known: dict[tuple[Path, str], JobSeries] = {}
    for window in last.values():
        points.setdefault(window.key, []).append(_series(window, known))
    several_jobs = len({window.job for window in last.values()}) > 1
    return Chosen(
        name=name, entries=tuple(entries), points={key: tuple(found) for key, found in points.items()},
        labels={w.key: f"{w.label}, {w.job}" if several_jobs else w.label for w in last.values()},
        windows=tuple(last.values()), left_out=tuple(left_out),
        began_ns=min((entry.manifest.began_ns for entry in entries), default=0),
    )  # fmt: skip


def pairs(a: Chosen, b: Chosen) -> tuple[tuple[Pair, ...], dict[str, str]]:
    """The points of either side, in the order of their labels, and these; ConfigError when none is common."""
    if not set(a.points) & set(b.points):
        raise ConfigError(
            f"{a.name} and {b.name} have no validly measured point in common: "
            f"{_some(a)} against {_some(b)}; accepted: runs of the same sweep, or with windows of the same names"
        )
    labels = {**b.labels, **a.labels}
    keys = sorted({*a.points, *b.points}, key=lambda key: natural(labels[key]))
    found = tuple(Pair(point=key, a=a.points.get(key, ()), b=b.points.get(key, ())) for key in keys)
    return found, labels


def natural(text: str) -> list[tuple[int, float, str]]:
    """A key that sorts numbers within a text by size, so that 8gbit comes before 16gbit."""
    parts = re.split(r"(\d+(?:\.\d+)?)", text)
    return [(0, float(part), "") if place % 2 else (1, 0.0, part) for place, part in enumerate(parts)]


def nights(results: Path, name: str) -> list[Chosen]:
    """Every instance of a sweep, or every day of an experiment, that has a valid point; oldest first."""
    groups: dict[str, list[Entry]] = {}
    for entry in _named(results, name):
        groups.setdefault(instance(entry), []).append(entry)
    found = [of_entries(entries, name=f"{name}@{_day(entries[0])}") for entries in groups.values()]
    return sorted((one for one in found if one.points), key=lambda one: one.began_ns)


def name_of(chosen: Chosen) -> str | None:
    """The one sweep or experiment that all of its runs belong to."""
    names = {entry.path.parent.name for entry in chosen.entries}
    return names.pop() if len(names) == 1 else None


def set_baseline(results: Path, name: str, wanted: Sequence[str]) -> Path:
    """Remember what these stand for now under a name; it replaces an older baseline of that name."""
    baselines.check_name(name)
    chosen = choose(results, ",".join(wanted))
    if not chosen.points:
        raise StoreError(f"{chosen.name} holds no valid measurement", tail="\n".join(chosen.left_out))
    runs = [str(_relative(entry.path, results)) for entry in chosen.entries]
    return baselines.save(results, name, of=wanted, runs=runs)


# Names


def _entries(results: Path, wanted: str) -> list[Entry]:
    if baselines.exists(results, wanted):
        return baselines.entries(results, wanted)
    name, at, day = wanted.rpartition("@")
    if at and name:
        return _of_day(results, name, day)
    named = list(_named(results, wanted)) if "/" not in wanted else []
    if named:
        newest = instance(max(named, key=lambda entry: entry.run))
        return [entry for entry in named if instance(entry) == newest]
    of_sweep = [path for path in results.glob("sweeps/*/*") if path.name == wanted]
    if of_sweep:
        return [entry for entry in _named(results, of_sweep[0].parent.name) if _sweep_id(entry) == wanted]
    entry = rundir.find(results, wanted)
    if not entry.sealed:
        raise StoreError(f"{entry.run} is not sealed: {entry.outcome}", hint="wait for it, or orch recover")
    return [entry]


def _of_day(results: Path, name: str, day: str) -> list[Entry]:
    try:
        wanted = datetime.now(tz=timezone.utc).date() if day == "today" else date.fromisoformat(day)
    except ValueError:
        raise ConfigError(
            f"{name}@{day}: not a day; accepted: YYYY-MM-DD (UTC), such as 2026-11-20, or today"
        ) from None
    found = [entry for entry in _named(results, name) if _day(entry) == wanted.isoformat()]
    if not found:
        days = sorted({_day(entry) for entry in _named(results, name)})
        known = f"it has {', '.join(days[-5:])}" if days else f"there is no sweep or experiment {name!r}"
        raise StoreError(f"{name}@{day}: no run in {results}; {known}", hint="orch ls")
    newest = instance(max(found, key=lambda entry: entry.run))
    return [entry for entry in found if instance(entry) == newest]


def _named(results: Path, name: str) -> Iterable[Entry]:
    """The sealed runs in the folder of a sweep or an experiment."""
    try:
        safepath.segment(name)
    except UnsafePath:
        return
    for path in sorted((results / name).glob(f"*/{rundir.MANIFEST}")):
        entry = rundir.entry_at(path.parent)
        if entry is not None and entry.sealed:
            yield entry


def _sweep_id(entry: Listed) -> str:
    """The sweep that a run is of; empty for one of none."""
    return entry.manifest.sweep.id if entry.manifest.sweep else ""


def instance(entry: Listed) -> str:
    """What belongs together: the runs of one sweep instance, else those of one day."""
    return _sweep_id(entry) or _day(entry)


def _day(entry: Listed) -> str:
    """The day on which the run began, or its sweep: a night does not end at midnight."""
    of_sweep = re.match(r"(\d{4})(\d{2})(\d{2})T", _sweep_id(entry))
    if of_sweep:
        return "-".join(of_sweep.groups())
    return datetime.fromtimestamp(entry.manifest.began_ns / 1e9, tz=timezone.utc).date().isoformat()


# Points


def windows_of(entry: Entry) -> Iterable[Measurement]:
    """The measured windows of a run, one a job; checks of a sweep's own are left out."""
    for record in entry.manifest.windows:
        place = place_of(entry, record.name)
        if place is None:
            continue
        for job in record.iterations:
            yield Measurement(entry=entry, record=record, job=job, key=f"{place.key} {job}", label=place.label,
                              values=place.values, repetition=place.repetition)  # fmt: skip


def place_of(entry: Listed, window: str) -> Place | None:
    """Which point a window of a run is, by its name; None for a check of a sweep's own, which is no repetition."""
    point = entry.manifest.points.get(window)
    if point is None:
        return Place(key=window, label=window, values={}, repetition=(entry.run,))
    if point.recheck:
        return None
    return Place(key=point.point, label=values_text(point.values), values=dict(point.values),
                 repetition=(instance(entry), str(point.repetition)))  # fmt: skip


def values_text(values: Mapping[str, Any]) -> str:
    """Axis values in short: the last part of each field's path, or more where two axes end alike."""
    ends = [axis.rpartition(".")[2] for axis in values]
    return ", ".join(
        f"{end if ends.count(end) == 1 else axis} {value}"
        for end, (axis, value) in zip(ends, values.items(), strict=True)
    )


def _series(window: Measurement, known: dict[tuple[Path, str], JobSeries]) -> RunSeries:
    """The iterations of a window's job that every rank logged."""
    run = window.entry.path
    if (run, window.job) not in known:
        known[run, window.job] = series(tables.read(run / "tables", "iterations"), window.job)
    span = window.record.iterations[window.job]
    seconds = known[run, window.job].within(span.first, span.last).seconds
    night, block = instance(window.entry), " ".join(window.repetition)
    return RunSeries(run=window.entry.run, seconds=seconds, night=night, block=block)


def _some(chosen: Chosen) -> str:
    labels = list(dict.fromkeys(chosen.labels.values()))
    return ", ".join(labels[:4]) + (" ..." if len(labels) > 4 else "") if labels else "nothing valid"


def _relative(path: Path, results: Path) -> Path:
    resolved = path.resolve()
    return resolved.relative_to(results.resolve()) if resolved.is_relative_to(results.resolve()) else resolved
