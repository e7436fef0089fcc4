"""What one rank recorded of collectives that all ranks carry out, held against what each of them computed.

Horovod writes its Timeline on the coordinator, rank 0, and on no other rank, also when it is started while training
(`horovod_start_timeline` and `BackgroundThreadLoop` of horovod/common/operations.cc, 0.28.1). Each operation in it is a
collective: no rank begins it before rank 0 has told all of them that everybody is ready, and around a ring no rank ends
it more than a step before or after another. So the instants of rank 0 are those of every rank, but for a message of
control and a step of the ring; when the others computed, their own iteration logs say.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from orchestrator.core import intervals
from orchestrator.store.tabular import tables

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Tables = Mapping[str, Any]  # of a run, by name: pyarrow Tables

_COLUMNS = ("job", "rank", "iteration", "compute_s", "communication_s", "overlap_s")


def logged(folder: Path, iterations: Any) -> Tables:
    """The tables (pyarrow Tables) that say what the ranks of a run did in each iteration, by name."""
    import pyarrow.compute as pc

    moved = tables.read(folder, "spans", where=pc.field("lane") == "communication")
    overlaps = of_all_ranks(iterations, tables.read(folder, "overlaps"), moved)
    return {"iterations": iterations, "overlaps": overlaps, "spans": moved}


def of_all_ranks(iterations: Any, overlaps: Any, spans: Any) -> Any:
    """The columns of `overlaps` that say how much overlapped, with rows for ranks that recorded nothing themselves.

    The arguments are tables of a run (pyarrow Tables); `spans` holds communication alone. Rows are added to a job in
    which a single rank recorded, and nothing but collectives: a send or a receive is between two ranks, and says
    nothing of the others.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    recorded = overlaps.select(_COLUMNS)
    parts = [recorded]
    for job in pc.unique(overlaps["job"]).to_pylist():
        mine = spans.filter(pc.equal(spans["job"], job))
        recorders = pc.unique(overlaps.filter(pc.equal(overlaps["job"], job))["rank"]).to_pylist()
        if len(recorders) == 1 and mine.num_rows and pc.all(pc.equal(mine["peer"], -1)).as_py():
            others = pc.and_(pc.equal(iterations["job"], job), pc.not_equal(iterations["rank"], recorders[0]))
            rows = _held(iterations.filter(others), mine)
            parts.append(pa.table({"job": [job] * len(rows["rank"]), **rows}, schema=recorded.schema))
    return pa.concat_tables(parts)


def _held(logged: Any, spans: Any) -> dict[str, Ints | Floats]:
    """How long each logged iteration computed, and how much of that lay within the collectives of its number."""
    rank, iteration, begin = (_ints(logged, name) for name in ("rank", "iteration", "start_ns"))
    passes = sum(logged[name].to_numpy(zero_copy_only=False) for name in ("forward_s", "backward_s"))
    end = begin + np.nan_to_num(passes * 1e9).astype(np.int64)
    of_span = _ints(spans, "iteration")
    communication, overlap = (np.full(len(rank), np.nan) for _ in range(2))
    for number in np.unique(of_span):
        inside = of_span == number
        moved = intervals.merged(
            zip(_ints(spans, "start_ns")[inside].tolist(), _ints(spans, "end_ns")[inside].tolist(), strict=True)
        )
        rows = np.flatnonzero(iteration == number)
        communication[rows] = intervals.length_s(moved)
        overlap[rows] = _common_s(begin[rows], end[rows], np.array(moved, np.int64))
    known = ~np.isnan(communication)
    return {
        "rank": rank[known],
        "iteration": iteration[known],
        "compute_s": (end - begin)[known] / 1e9,
        "communication_s": communication[known],
        "overlap_s": overlap[known],
    }


def _common_s(begin: Ints, end: Ints, moved: Ints) -> Floats:
    """Seconds that each span from `begin` to `end` shares with disjoint intervals, an (n, 2) array."""
    both = np.minimum(end[:, None], moved[:, 1]) - np.maximum(begin[:, None], moved[:, 0])
    found: Floats = np.clip(both, 0, None).sum(axis=1) / 1e9
    return found


def _ints(table: Any, column: str) -> Ints:
    values: Ints = table[column].to_numpy().astype(np.int64)
    return values
