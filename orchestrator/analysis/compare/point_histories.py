"""Follow the points of a sweep or an experiment night by night: their medians, and the steps in them."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from statistics import geometric_mean

import numpy as np

from orchestrator.analysis.compare import selection
from orchestrator.analysis.compare.regression import DEFAULT, Rule, RunSeries
from orchestrator.analysis.compare.selection import Measurement, ValidMeasurements
from orchestrator.analysis.stats.level_steps import Step, findable, steps
from orchestrator.analysis.stats.statistics import quantile
from orchestrator.store import stores
from orchestrator.store.rundir import Listed
from orchestrator.store.stores import Store

MOST_NIGHTS = 90


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """The median of a point, night by night (seconds, NaN where not measured), and the steps in it or that could be."""

    point: str
    label: str
    days: tuple[str, ...]
    p50_s: tuple[float, ...]
    steps: tuple[Step, ...]
    findable: float  # the smallest step in the middle of the nights that would be told, a share of 1; NaN: none


@dataclass(frozen=True, slots=True, kw_only=True)
class Night:
    """The measurements of one night: each point's median in seconds, the points' labels, and the runs' folders."""

    began_ns: int
    p50_s: Mapping[str, float]
    labels: Mapping[str, str]
    folders: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class InBrief:
    """The nights of a sweep or an experiment, oldest first, and the history of each of its points over them."""

    nights: tuple[Night, ...]
    points: tuple[History, ...]


def of_nights(nights: Sequence[Night], *, rule: Rule = DEFAULT) -> tuple[History, ...]:
    """Return the history of every point over these nights; alpha is shared out over the points."""
    labels = {key: label for night in nights for key, label in night.labels.items()}
    keys = sorted({key for night in nights for key in night.p50_s}, key=lambda key: selection.natural(labels[key]))
    days = tuple(day_text(night.began_ns) for night in nights)
    margin, found = rule.margin["p50"], []
    for key in keys:
        values = tuple(night.p50_s.get(key, math.nan) for night in nights)
        alpha = rule.alpha / len(keys)
        found.append(
            History(
                point=key,
                label=labels[key],
                days=days,
                p50_s=values,
                steps=steps(values, margin=margin, alpha=alpha),
                findable=findable(values, margin=margin, alpha=alpha),
            )
        )
    return tuple(found)


def in_brief(entries: Iterable[Listed]) -> dict[str, InBrief]:
    """Return the nights and histories of every sweep and experiment of a store, by name, from manifests alone.

    A name with a single night is left out; of the others the last MOST_NIGHTS nights count.
    """
    of_name: dict[str, dict[str, list[Listed]]] = defaultdict(lambda: defaultdict(list))
    for entry in sorted(entries, key=lambda entry: entry.run):
        if entry.sealed:
            of_name[entry.path.parent.name][stores.instance(entry)].append(entry)
    found = {}
    for name in sorted(of_name):
        nights = sorted(filter(None, map(_night, of_name[name].values())), key=lambda night: night.began_ns)
        if len(nights) > 1:
            last = nights[-MOST_NIGHTS:]
            found[name] = InBrief(nights=tuple(last), points=of_nights(last))
    return found


def _night(entries: Sequence[Listed]) -> Night | None:
    """Return the night of some runs, oldest first; None without a valid window.

    The last valid window of each repetition of a point counts.
    """
    last: dict[tuple[str, tuple[str, ...]], tuple[selection.WindowPoint, str, float]] = {}
    for entry in entries:
        for window in entry.manifest.windows:
            place = selection.point_of_window(entry, window.name)
            if place is None or not window.valid:
                continue
            for row in window.training:
                if row.p50_s and row.p50_s > 0:
                    key = f"{place.key} {row.job}"
                    last[key, place.repetition] = (place, row.job, row.p50_s)
    if not last:
        return None
    several_jobs = len({job for _, job, _ in last.values()}) > 1
    medians, labels = defaultdict(list), {}
    for (key, _), (place, job, p50_s) in last.items():
        medians[key].append(p50_s)
        labels[key] = f"{place.label}, {job}" if several_jobs else place.label
    return Night(
        began_ns=min(entry.manifest.began_ns for entry in entries),
        labels=labels,
        p50_s={key: geometric_mean(values) for key, values in medians.items()},
        folders=tuple(f"{entry.path.parent.name}/{entry.path.name}" for entry in entries),
    )


def day_text(ns: int) -> str:
    """Return the day of an instant, in UTC."""
    return datetime.fromtimestamp(ns / 1e9, tz=timezone.utc).date().isoformat()


def nights(store: Store, name: str, *, most: int | None = None) -> list[ValidMeasurements]:
    """Return every instance of a sweep, or every day of an experiment, that has a valid point; oldest first.

    With `most` the last ones alone. Whole manifests are not read, and of tables only columns of iterations.
    """
    groups: dict[str, list[Listed]] = defaultdict(list)
    for entry in sorted(stores.of_name(store, name), key=lambda entry: entry.run):
        groups[stores.instance(entry)].append(entry)
    found = [(_began_ns(entries), windows) for entries in groups.values() if (windows := _counted(entries))]
    last = sorted(found, key=lambda night: night[0])[-(most or 0) :]
    times = selection.times_of_store(store, selection.unique(window.entry for _, windows in last for window in windows))
    return [selection.measured(windows, times, began_ns=began_ns) for began_ns, windows in last]


def _counted(entries: Sequence[Listed]) -> list[Measurement[Listed]]:
    return selection.last_valid(window for entry in entries for window in selection.windows_of(entry))


def _began_ns(entries: Sequence[Listed]) -> int:
    return min(entry.manifest.began_ns for entry in entries)


def histories(found: Sequence[ValidMeasurements], *, rule: Rule) -> tuple[History, ...]:
    """Return the history of every point over these nights."""
    return of_nights([_medians_of_night(one) for one in found], rule=rule)


def _medians_of_night(measured: ValidMeasurements) -> Night:
    medians = {key: _median(found) for key, found in measured.points.items()}
    return Night(began_ns=measured.began_ns, p50_s=medians, labels=measured.labels)


def _median(series: Sequence[RunSeries]) -> float:
    medians = [math.log(quantile(one.seconds, 0.5)) for one in series if len(one.seconds)]
    return math.exp(float(np.mean(medians))) if medians else math.nan
