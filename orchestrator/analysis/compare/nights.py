"""The nights of a sweep or an experiment: each with its valid measurements, all from one question to the store."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from orchestrator.analysis.compare import job_times, point_histories, selection
from orchestrator.analysis.compare.point_histories import History, Night
from orchestrator.analysis.compare.regression import Rule, RunSeries
from orchestrator.analysis.compare.selection import Measured, Measurement
from orchestrator.analysis.stats.statistics import quantile
from orchestrator.store import stores
from orchestrator.store.rundir import Listed
from orchestrator.store.stores import Store


def nights(store: Store, name: str, *, most: int | None = None) -> list[Measured]:
    """Every instance of a sweep, or every day of an experiment, that has a valid point; oldest first.

    With `most` the last ones alone. Whole manifests are not read, and of tables only columns of iterations.
    """
    groups: dict[str, list[Listed]] = defaultdict(list)
    for entry in sorted(stores.of_name(store, name), key=lambda entry: entry.run):
        groups[stores.instance(entry)].append(entry)
    found = [(_began_ns(entries), windows) for entries in groups.values() if (windows := _counted(entries))]
    last = sorted(found, key=lambda night: night[0])[-(most or 0) :]
    times = job_times.of_store(store, selection.unique(window.entry for _, windows in last for window in windows))
    return [selection.measured(windows, times, began_ns=began_ns) for began_ns, windows in last]


def _counted(entries: Sequence[Listed]) -> list[Measurement[Listed]]:
    return selection.last_valid(window for entry in entries for window in selection.windows_of(entry))


def _began_ns(entries: Sequence[Listed]) -> int:
    return min(entry.manifest.began_ns for entry in entries)


def histories(found: Sequence[Measured], *, rule: Rule) -> tuple[History, ...]:
    """The history of every point over these nights."""
    return point_histories.of_nights([_night(one) for one in found], rule=rule)


def _night(measured: Measured) -> Night:
    medians = {key: _median(found) for key, found in measured.points.items()}
    return Night(began_ns=measured.began_ns, p50_s=medians, labels=measured.labels)


def _median(series: Sequence[RunSeries]) -> float:
    medians = [math.log(quantile(one.seconds, 0.5)) for one in series if len(one.seconds)]
    return math.exp(float(np.mean(medians))) if medians else math.nan
