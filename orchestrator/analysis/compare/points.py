"""Group windows into points: those that measured the same thing, by all that their experiments set."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from orchestrator.analysis.compare import window_settings
from orchestrator.analysis.compare.window_settings import Flat
from orchestrator.analysis.stats.iterations import JobSeries, series
from orchestrator.analysis.stats.levels import level, one_a_run
from orchestrator.analysis.stats.statistics import Estimate
from orchestrator.core.where import Fields
from orchestrator.store.manifests import records
from orchestrator.store.manifests.records import Manifest
from orchestrator.store.manifests.summaries import Job
from orchestrator.store.rundir import Entry
from orchestrator.store.tabular import tables

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class PointWindow:
    """A valid window of a run; `set_to` is the experiment as it was set for it (`window_settings.set_to`)."""

    entry: Entry
    record: records.Window
    set_to: Fields

    @property
    def manifest(self) -> Manifest:
        return self.entry.manifest

    def iterations(self, job: str) -> JobSeries:
        """Return the iterations of a job that count."""
        span = self.record.iterations[job]
        return series(tables.read(self.entry.path / "tables", "iterations"), job).within(span.first, span.last)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredPoint:
    """Windows that measured the same, of one run or of many."""

    windows: tuple[PointWindow, ...]

    @property
    def set_to(self) -> Fields:
        """The settings that all windows share."""
        return self.windows[0].set_to

    @property
    def manifest(self) -> Manifest:
        return self.windows[0].manifest

    @property
    def job(self) -> Job:
        """The first training."""
        return self.manifest.jobs[0]

    @property
    def scale(self) -> int:
        return self.manifest.scale

    def value(self, path: str, default: Any = None) -> Any:
        """Return the setting at a path such as "workload.horovod.model"; a step "*" is any key or place of a list.

        `default` where nothing was set there.
        """
        return next(_found(self.set_to, path.split(".")), default)

    @property
    def seconds(self) -> tuple[Floats, ...]:
        """Iteration times of the first training in each window (s)."""
        return tuple(window.iterations(self.job.name).seconds for window in self.windows)

    @property
    def mean_s(self) -> Estimate:
        """The mean iteration time with its interval over runs, NaN of a single run: what sets runs apart it lacks."""
        return level(self._runs()).estimate

    @property
    def run_means_s(self) -> list[float]:
        """The mean iteration time of each run (s)."""
        return [run.value for run in self._runs()]

    def _runs(self) -> list[Estimate]:
        means = (Estimate(float(np.mean(seconds)), math.nan, math.nan) for seconds in self.seconds)
        return one_a_run(zip((window.entry.run for window in self.windows), means, strict=True))


def pooled(entries: Iterable[Entry]) -> tuple[MeasuredPoint, ...]:
    """Return every point in these runs, in the order of their settings; checks of a sweep's own windows are left out.

    Windows are one point where everything is equal that their experiments set, loads too, but what says how often and
    how long one measures and what counts: so runs of several days, sweeps and names are pooled.
    """
    found: dict[Flat, list[PointWindow]] = defaultdict(list)
    for entry in entries:
        for window in _valid(entry):
            found[tuple(window_settings.flat(dict(window.set_to)))].append(window)
    return tuple(MeasuredPoint(windows=tuple(found[key])) for key in sorted(found))


def where(points: Sequence[MeasuredPoint], settings: Fields) -> tuple[MeasuredPoint, ...]:
    """Return the points at which each of these paths has this value (None: nothing is set there)."""
    return tuple(point for point in points if all(point.value(path) == value for path, value in settings.items()))


def _valid(entry: Entry) -> Iterator[PointWindow]:
    if not entry.manifest.jobs or not any(record.valid for record in entry.manifest.windows):
        return
    settings = window_settings.set_to(entry)
    for record in entry.manifest.windows:
        point = entry.manifest.points.get(record.name)
        if record.valid and not (point is not None and point.recheck):
            yield PointWindow(entry=entry, record=record, set_to=settings[record.name])


def _found(value: Any, steps: Sequence[str]) -> Iterator[Any]:
    """Return every value that a path leads to; a step that is a number is a place in a list."""
    if not steps:
        yield value
        return
    step, rest = steps[0], steps[1:]
    if isinstance(value, Mapping):
        below = list(value.values()) if step == "*" else [value[step]] if step in value else []
    elif isinstance(value, list):
        below = value if step == "*" else value[int(step) : int(step) + 1] if step.isdigit() else []
    else:
        below = []
    for one in below:
        yield from _found(one, rest)
