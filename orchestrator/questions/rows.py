"""The answer to a question: rows, and what it is asked of.

A row is a mapping from columns to values: one a point and repetition. The column `repetition` counts the runs of a
point by time, from 1 on, so that what needs all points (a fit, a correlation) is worked out once a repetition.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

from orchestrator.analysis.compare import points
from orchestrator.analysis.compare.points import MeasuredPoint
from orchestrator.store.rundir import Entry

REPETITION = "repetition"
RUN = "run"

Cell = str | int | float | bool | None
Row = dict[str, Any]
Rows = list[Row]
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Runs that questions are asked of."""

    entries: tuple[Entry, ...]
    _kept: dict[object, Any] = field(default_factory=dict, repr=False)

    @cached_property
    def points(self) -> tuple[MeasuredPoint, ...]:
        """Every point of the valid windows of these runs, in the order of their settings."""
        return points.pooled(self.entries)

    def once(self, key: object, make: Callable[[], T]) -> T:
        """Return what `make` gives, which is called once for a key: figures share what takes long to read."""
        if key not in self._kept:
            self._kept[key] = make()
        found: T = self._kept[key]
        return found


def by_run(point: MeasuredPoint, values: Iterable[tuple[str, Mapping[str, Any]]], keys: Mapping[str, Any]) -> Rows:
    """Return a row a run of a point: `keys`, the run, its repetition, and means over the run's windows.

    `values` are the numbers of each window beside its run's name; what is no number is that of the run's first window.
    """
    of_runs: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for run, value in values:
        of_runs[run].append(value)
    order = {run: place for place, run in enumerate(dict.fromkeys(one.entry.run for one in point.windows), 1)}
    return [
        {**keys, RUN: run, REPETITION: order[run], **{name: _mean([one[name] for one in found]) for name in found[0]}}
        for run, found in sorted(of_runs.items(), key=lambda pair: order[pair[0]])
    ]


def _mean(values: Sequence[Any]) -> Any:
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    return sum(values) / len(values) if numbers and len(values) > 1 else values[0]


def grouped(rows: Iterable[Row], by: Sequence[str]) -> dict[tuple[Any, ...], Rows]:
    """Return rows by their values of some columns, in the order in which these come first."""
    found: dict[tuple[Any, ...], Rows] = {}
    for row in rows:
        found.setdefault(tuple(row.get(name) for name in by), []).append(row)
    return found


def meets(row: Mapping[str, Any], where: Mapping[str, Any]) -> bool:
    """Return whether a row has these values, each one or one of several."""
    return all(
        row.get(name) in wanted if isinstance(wanted, tuple | list) else row.get(name) == wanted
        for name, wanted in where.items()
    )
