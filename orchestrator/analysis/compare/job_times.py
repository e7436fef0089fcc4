"""Iteration times of jobs in many runs, read by column: one question for the runs of each store."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from orchestrator.analysis.stats import iterations
from orchestrator.store import stores
from orchestrator.store.compact.catalogue import RUN_FOLDER
from orchestrator.store.manifests.window_records import Span
from orchestrator.store.picked import folder_of
from orchestrator.store.queries import query
from orchestrator.store.rundir import Listed
from orchestrator.store.stores import Store

if TYPE_CHECKING:
    import pyarrow as pa

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_NUMBERS = ("rank", "iteration", "seconds")
_NONE = (np.zeros(0, np.int64), np.zeros(0))


@dataclass(frozen=True, slots=True)
class JobTimes:
    """Of each run's folder and job the iterations that every rank logged, and their seconds."""

    known: Mapping[tuple[str, str], tuple[Ints, Floats]]

    def within(self, entry: Listed, job: str, span: Span) -> Floats:
        """Seconds of a job's iterations in a span of a run, both ends counted in; empty where none was logged."""
        numbers, seconds = self.known.get((str(entry.path), job), _NONE)
        return seconds[(numbers >= span.first) & (numbers <= span.last)]


def of_entries(entries: Iterable[Listed]) -> JobTimes:
    """The times of these sealed runs of this machine, wherever their stores are."""
    roots: dict[str, list[Listed]] = defaultdict(list)
    for entry in entries:
        roots[str(entry.path.parent.parent)].append(entry)
    known: dict[tuple[str, str], tuple[Ints, Floats]] = {}
    for root, found in roots.items():
        known |= of_store(stores.opened(root), found).known
    return JobTimes(known)


def of_store(store: Store, entries: Sequence[Listed]) -> JobTimes:
    """The times of these sealed runs of a store."""
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
    """All rows, without the texts that each of them has."""
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
