"""Select the runs that a name stands for, and the valid iterations of each of their points."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from orchestrator.analysis.compare.regression import Pair, RunSeries
from orchestrator.analysis.stats import iterations
from orchestrator.core.errors import ConfigError, StoreError
from orchestrator.core.opendata import AxisValues
from orchestrator.store import baselines, query, rundir, stores
from orchestrator.store.compact.catalogue import RUN_FOLDER
from orchestrator.store.manifests.summaries import Span, WindowSummary
from orchestrator.store.picked import folder_of
from orchestrator.store.rundir import Entry, Listed
from orchestrator.store.stores import Store

E = TypeVar("E", bound=Listed)

if TYPE_CHECKING:
    import pyarrow as pa

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_NUMBERS = ("rank", "iteration", "seconds")
_NONE = (np.zeros(0, np.int64), np.zeros(0))


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowPoint:
    """The point that a window measures, in short too, its values of a sweep's axes, and which repetition it is."""

    key: str
    label: str
    values: AxisValues
    repetition: tuple[str, ...]  # the same for tries of one repetition


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement(Generic[E]):
    """A measured window of a run under the key of its point."""

    entry: E
    record: WindowSummary
    job: str
    key: str
    label: str
    values: AxisValues  # of a sweep's axes
    repetition: tuple[str, ...]  # what tells repetitions of a point apart, and tries of one repetition not


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidMeasurements:
    """Valid measurements: series by point, labels of the points, and when the first of their runs began."""

    points: Mapping[str, tuple[RunSeries, ...]]
    labels: Mapping[str, str]
    began_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen(ValidMeasurements):
    """Valid measurements under a name, with their runs and windows, and what does not count."""

    name: str
    entries: tuple[Entry, ...]
    windows: tuple[Measurement[Entry], ...]
    left_out: tuple[str, ...]  # sentences: which windows are invalid, and why

    @property
    def latest_ns(self) -> int:
        """When the last of its runs began."""
        return max((entry.manifest.began_ns for entry in self.entries), default=0)


def choose(results: Path, wanted: str) -> Chosen:
    """Return the runs of a baseline, a run, its folder, a sweep, NAME@DATE or NAME, or several with commas.

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
    """Return the valid measurements of these runs; the last valid one of each repetition of a point counts."""
    in_order = sorted(entries, key=lambda entry: entry.run)
    return of_windows([window for entry in in_order for window in windows_of(entry)], in_order, name=name)


def of_windows(windows: Sequence[Measurement[Entry]], entries: Sequence[Entry], *, name: str) -> Chosen:
    """Return the valid ones of these windows, which are of these runs, oldest first."""
    counted = last_valid(windows)
    times = times_of_entries(unique(window.entry for window in counted))
    found = measured(counted, times, began_ns=min((entry.manifest.began_ns for entry in entries), default=0))
    left_out = [
        f"{window.label} in {window.entry.run}: {'; '.join(window.record.reasons) or 'not valid'}"
        for window in windows
        if not window.record.valid
    ]
    return Chosen(
        name=name,
        entries=tuple(entries),
        points=found.points,
        labels=found.labels,
        windows=tuple(counted),
        left_out=tuple(left_out),
        began_ns=found.began_ns,
    )


def last_valid(windows: Iterable[Measurement[E]]) -> list[Measurement[E]]:
    """Return of these windows, oldest first, the last valid one of each repetition of a point."""
    return list({(one.key, *one.repetition): one for one in windows if one.record.valid}.values())


def measured(windows: Sequence[Measurement[E]], times: JobTimes, *, began_ns: int) -> ValidMeasurements:
    """Return the measurements of these windows, by the iterations of their jobs that every rank logged."""
    points: dict[str, list[RunSeries]] = {}
    for window in windows:
        points.setdefault(window.key, []).append(_series(window, times))
    several_jobs = len({window.job for window in windows}) > 1
    return ValidMeasurements(
        points={key: tuple(found) for key, found in points.items()},
        labels={w.key: f"{w.label}, {w.job}" if several_jobs else w.label for w in windows},
        began_ns=began_ns,
    )


def unique(entries: Iterable[E]) -> list[E]:
    """Return each run once."""
    return list({entry.path: entry for entry in entries}.values())


def pairs(a: Chosen, b: Chosen) -> tuple[tuple[Pair, ...], dict[str, str]]:
    """Return the points of either side as pairs, in the order of their labels, and these.

    ConfigError when none is common.
    """
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
    """Return a key that sorts numbers within a text by size, so that 8gbit comes before 16gbit."""
    parts = re.split(r"(\d+(?:\.\d+)?)", text)
    return [(0, float(part), "") if place % 2 else (1, 0.0, part) for place, part in enumerate(parts)]


def name_of(chosen: Chosen) -> str | None:
    """Return the one sweep or experiment that all of its runs belong to."""
    names = {entry.path.parent.name for entry in chosen.entries}
    return names.pop() if len(names) == 1 else None


def set_baseline(results: Path, name: str, wanted: Sequence[str]) -> Path:
    """Save the runs that these names stand for as a baseline; it replaces an older baseline of that name."""
    baselines.check_name(name)
    chosen = choose(results, ",".join(wanted))
    if not chosen.points:
        raise StoreError(f"{chosen.name} holds no valid measurement", tail="\n".join(chosen.left_out))
    runs = [str(_relative(entry.path, results)) for entry in chosen.entries]
    return baselines.save(results, name, of=wanted, runs=runs)


# Names


def _entries(results: Path, wanted: str) -> list[Entry]:
    store = stores.opened(str(results))
    found = stores.group(store, wanted)
    if found is not None:
        return [entry for entry in (rundir.entry_at(one.path) for one in found) if entry is not None]
    entry = store.find(wanted)
    if not entry.sealed:
        raise StoreError(f"{entry.run} is not sealed: {entry.outcome}", hint="wait for it, or orch recover")
    return [entry]


# Points


def windows_of(entry: E) -> Iterable[Measurement[E]]:
    """Yield the measured windows of a run, one a job; checks of a sweep's own are left out."""
    for record in entry.manifest.windows:
        place = point_of_window(entry, record.name)
        if place is None:
            continue
        for job in record.iterations:
            yield Measurement(
                entry=entry,
                record=record,
                job=job,
                key=f"{place.key} {job}",
                label=place.label,
                values=place.values,
                repetition=place.repetition,
            )


def point_of_window(entry: Listed, window: str) -> WindowPoint | None:
    """Return the point of a run's window, given by name.

    None for a check of a sweep's own, which is no repetition.
    """
    point = entry.manifest.points.get(window)
    if point is None:
        return WindowPoint(key=window, label=window, values={}, repetition=(entry.run,))
    if point.recheck:
        return None
    return WindowPoint(
        key=point.point,
        label=values_text(point.values),
        values=dict(point.values),
        repetition=(stores.instance(entry), str(point.repetition)),
    )


def values_text(values: AxisValues) -> str:
    """Return axis values in short: the last part of each field's path, or more where two axes end alike."""
    ends = [axis.rpartition(".")[2] for axis in values]
    return ", ".join(
        f"{end if ends.count(end) == 1 else axis} {value}"
        for end, (axis, value) in zip(ends, values.items(), strict=True)
    )


def _series(window: Measurement[E], times: JobTimes) -> RunSeries:
    """Return the iterations of a window's job that every rank logged."""
    seconds = times.within(window.entry, window.job, window.record.iterations[window.job])
    night, block = stores.instance(window.entry), " ".join(window.repetition)
    began_ns = window.record.start_ns
    return RunSeries(run=window.entry.run, seconds=seconds[seconds > 0], night=night, block=block, began_ns=began_ns)


def _some(chosen: Chosen) -> str:
    labels = list(dict.fromkeys(chosen.labels.values()))
    return ", ".join(labels[:4]) + (" ..." if len(labels) > 4 else "") if labels else "nothing valid"


def _relative(path: Path, results: Path) -> Path:
    resolved = path.resolve()
    return resolved.relative_to(results.resolve()) if resolved.is_relative_to(results.resolve()) else resolved


@dataclass(frozen=True, slots=True)
class JobTimes:
    """Iterations that every rank of a job logged, by run folder and job, with their times in seconds."""

    known: Mapping[tuple[str, str], tuple[Ints, Floats]]

    def within(self, entry: Listed, job: str, span: Span) -> Floats:
        """Return a job's iteration times (s) in a span of a run, both ends counted in; empty where none was logged."""
        numbers, seconds = self.known.get((str(entry.path), job), _NONE)
        return seconds[(numbers >= span.first) & (numbers <= span.last)]


def times_of_entries(entries: Iterable[Listed]) -> JobTimes:
    """Return the times of these sealed runs of this machine, wherever their stores are."""
    roots: dict[str, list[Listed]] = defaultdict(list)
    for entry in entries:
        roots[str(entry.path.parent.parent)].append(entry)
    known: dict[tuple[str, str], tuple[Ints, Floats]] = {}
    for root, found in roots.items():
        known |= times_of_store(stores.opened(root), found).known
    return JobTimes(known)


def times_of_store(store: Store, entries: Sequence[Listed]) -> JobTimes:
    """Return the times of these sealed runs of a store."""
    paths = {folder_of(entry): str(entry.path) for entry in entries}
    rows = _taken(query.columns(store, "iterations", ("job", *_NUMBERS), list(paths)))
    return JobTimes({(paths[folder], job): times for folder, job, times in _in_step(rows)})


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows of some runs in order, each run and job by its place in `of`."""

    of: Sequence[tuple[str, str]]
    place: Ints
    rank: Ints
    iteration: Ints
    seconds: Floats


def _taken(table: pa.Table) -> _Rows:
    """Read all rows as columns of numbers, run and job by their place."""
    of: dict[tuple[str, str], int] = {}
    parts = [_batch(batch, of) for batch in table.to_batches()]
    place, rank, iteration, seconds = (
        np.concatenate([part[column] for part in parts]) if parts else np.zeros(0, kind)
        for column, kind in enumerate((np.int64, np.int64, np.int64, np.float64))
    )
    return _Rows(list(of), place, rank, iteration, seconds)


def _batch(batch: pa.RecordBatch, of: dict[tuple[str, str], int]) -> tuple[Ints, Ints, Ints, Floats]:
    folders, jobs = (batch.column(column).dictionary_encode() for column in (RUN_FOLDER, "job"))
    names = jobs.dictionary.to_pylist()
    pair = folders.indices.to_numpy().astype(np.int64) * len(names) + jobs.indices.to_numpy()
    pairs, inverse = np.unique(pair, return_inverse=True)
    known = folders.dictionary.to_pylist()
    places = [of.setdefault((known[one // len(names)], names[one % len(names)]), len(of)) for one in pairs.tolist()]
    rank, iteration, seconds = (batch.column(column).to_numpy(zero_copy_only=False) for column in _NUMBERS)
    return np.array(places)[inverse], rank.astype(np.int64), iteration.astype(np.int64), seconds


def _in_step(rows: _Rows) -> Iterator[tuple[str, str, tuple[Ints, Floats]]]:
    order, counts = np.argsort(rows.place, kind="stable"), np.bincount(rows.place, minlength=len(rows.of))
    for (folder, job), end, count in zip(rows.of, np.cumsum(counts), counts, strict=True):
        mine = order[end - count : end]
        yield folder, job, iterations.in_step(rows.rank[mine], rows.iteration[mine], rows.seconds[mine])
