"""Compute how step times vary over iterations and ranks, and how well they hide communication (TicTac)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from orchestrator.analysis.stats.iterations import JobSeries
from orchestrator.analysis.stats.statistics import quantile
from orchestrator.core import intervals
from orchestrator.store.manifests.records import Variation
from orchestrator.store.tabular import tables

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Tables = Mapping[str, Any]  # of a run, by name: pyarrow Tables

_OVERLAP_COLUMNS = ("job", "rank", "iteration", "compute_s", "communication_s", "overlap_s")

ALL_RANKS = -1


def rows(part: JobSeries, run: Tables) -> list[Variation]:
    """Return rows of the table `variation`: the job as a whole, then each rank.

    `part` is what counts of the job's iterations. `run` has `iterations`, `overlaps` and `spans` (pyarrow Tables).
    Times are in seconds, shares parts of 1, NaN where nothing was recorded that would tell.

    - `cv`: standard deviation (n - 1) over mean. Hashemi et al. report how much less a step's time varies.
    - `straggler_share`: of a rank, the time by which the slowest rank's passes are longer than its own, over the
      iteration's; of the job, that of the rank that waits longest in each iteration: after the straggler time of
      Hashemi et al., TicTac (MLSys 2019), taken from what ranks compute. Ranks that compute nothing do not count, here
      and below.
    - `efficiency`: TicTac's scheduling efficiency (U - m) / (U - L): m is the iteration's time, U computing plus
      communicating one after the other, L the longer of both. 1: the shorter one is hidden; 0: nothing is; below 0:
      the rank also did neither. A communication counts from its beginning, also while it waits for the other end.
    - `overlapped`: share of the time of communication in which the rank computed.
    - `orders`: how many different orders its communications began in, sends left out; 0 where none was recorded.
    """
    seconds = _matrix(part, run["iterations"], "seconds")
    forward, backward = (_matrix(part, run["iterations"], name) for name in ("forward_s", "backward_s"))
    idle = np.all(forward + backward == 0, axis=1)[:, None]
    behind = _behind(np.where(idle, math.nan, forward + backward))
    parts = {
        name: np.where(idle, math.nan, _matrix(part, run["overlaps"], name))
        for name in ("compute_s", "communication_s", "overlap_s")
    }
    orders = _orders(part, run["spans"])
    found = [
        _variation(
            part.job,
            ALL_RANKS,
            part.seconds,
            straggler_share=_share(_longest(behind), part.seconds),
            overlap=_overlap(parts, seconds),
            orders=max(orders.values(), default=0),
        )
    ]
    for place, rank in enumerate(part.ranks):
        own = {name: values[place] for name, values in parts.items()}
        found.append(
            _variation(
                part.job,
                rank,
                seconds[place],
                straggler_share=_share(behind[place], seconds[place]),
                overlap=_overlap(own, seconds[place]),
                orders=orders.get(rank, 0),
            )
        )
    return found


def _variation(
    job: str, rank: int, seconds: Floats, *, straggler_share: float, overlap: tuple[float, float], orders: int
) -> Variation:
    n = len(seconds)
    mean = float(np.mean(seconds)) if n else math.nan
    return Variation(
        job=job,
        rank=rank,
        iterations=n,
        mean_s=mean,
        cv=float(np.std(seconds, ddof=1)) / mean if n > 1 and mean > 0 else math.nan,
        p50_s=quantile(seconds, 0.5) if n else math.nan,
        p95_s=quantile(seconds, 0.95) if n else math.nan,
        p99_s=quantile(seconds, 0.99) if n else math.nan,
        max_s=float(np.max(seconds)) if n else math.nan,
        straggler_share=straggler_share,
        efficiency=overlap[0],
        overlapped=overlap[1],
        orders=orders,
    )


def _matrix(part: JobSeries, table: Any, column: str) -> Floats:
    """Return a column as ranks by iterations; NaN where the table has no row."""
    import pyarrow.compute as pc

    found = np.full((len(part.ranks), len(part.iteration)), math.nan)
    mine = table.filter(pc.equal(table["job"], part.job))
    if not mine.num_rows or not found.size:
        return found
    rank, iteration = mine["rank"].to_numpy(), mine["iteration"].to_numpy()
    value = mine[column].to_numpy(zero_copy_only=False).astype(np.float64)
    inside = np.isin(iteration, part.iteration) & np.isin(rank, part.ranks)
    at = np.searchsorted(part.ranks, rank[inside]), np.searchsorted(part.iteration, iteration[inside])
    found[at] = value[inside]
    return found


def _behind(compute: Floats) -> Floats:
    """Return how much longer the slowest rank computes than each; NaN where unknown, or nobody else computes."""
    known = ~np.isnan(compute)
    slowest: Floats = np.max(np.where(known, compute, -math.inf), axis=0, initial=-math.inf)
    behind: Floats = np.where(known & (known.sum(axis=0) > 1), slowest - compute, math.nan)
    return behind


def _longest(behind: Floats) -> Floats:
    longest: Floats = np.max(np.where(np.isnan(behind), -math.inf, behind), axis=0, initial=-math.inf)
    longest[np.isneginf(longest)] = math.nan
    return longest


def _overlap(parts: Mapping[str, Floats], seconds: Floats) -> tuple[float, float]:
    """Return the scheduling efficiency, and the share of communication that overlapped with computing."""
    compute, communication = parts["compute_s"], parts["communication_s"]
    spare = np.minimum(compute, communication)
    efficiency = _share(compute + communication - seconds, spare)
    return efficiency, _share(parts["overlap_s"], communication)


def _share(part: Floats, whole: Floats) -> float:
    """Return sum over sum, of where both are known."""
    known = ~(np.isnan(part) | np.isnan(whole))
    total = float(np.sum(whole[known]))
    return float(np.sum(part[known])) / total if total > 0 else math.nan


def _orders(part: JobSeries, spans: Any) -> dict[int, int]:
    """Return of each rank how many different orders its communications began in."""
    import pyarrow.compute as pc

    wanted = pc.and_(pc.equal(spans["job"], part.job), pc.equal(spans["lane"], "communication"))
    mine = spans.filter(pc.and_(wanted, pc.not_equal(spans["span"], "send")))
    if not mine.num_rows:
        return {}
    rank, iteration, sequence = (mine[name].to_numpy() for name in ("rank", "iteration", "sequence"))
    what = mine["what"].combine_chunks().dictionary_encode().indices.to_numpy()
    keep = np.isin(iteration, part.iteration)
    rank, iteration, sequence, what = (values[keep] for values in (rank, iteration, sequence, what))
    by = np.lexsort((sequence, iteration, rank))
    rank, iteration, what = rank[by], iteration[by], what[by]
    edges = np.flatnonzero((np.diff(rank) != 0) | (np.diff(iteration) != 0)) + 1
    seen: dict[int, set[bytes]] = {}
    for owner, group in zip(np.split(rank, edges), np.split(what, edges), strict=True):
        if len(group):
            seen.setdefault(int(owner[0]), set()).add(group.tobytes())
    return {owner: len(different) for owner, different in seen.items()}


def logged(folder: Path, iterations: Any) -> Tables:
    """Return the tables (pyarrow Tables) that say what the ranks of a run did in each iteration, by name."""
    import pyarrow.compute as pc

    moved = tables.read(folder, "spans", where=pc.field("lane") == "communication")
    overlaps = of_all_ranks(iterations, tables.read(folder, "overlaps"), moved)
    return {"iterations": iterations, "overlaps": overlaps, "spans": moved}


def of_all_ranks(iterations: Any, overlaps: Any, spans: Any) -> Any:
    """Return the columns of `overlaps` on overlap, with rows for ranks that recorded nothing themselves.

    The arguments are tables of a run (pyarrow Tables); `spans` holds communication alone. Rows are added to a job in
    which a single rank recorded, and nothing but collectives: a send or a receive is between two ranks, and says
    nothing of the others.

    Horovod writes its Timeline on the coordinator, rank 0, and on no other rank, also when it is started while training
    (`horovod_start_timeline` and `BackgroundThreadLoop` of horovod/common/operations.cc, 0.28.1). Each operation in it
    is a collective: no rank begins it before rank 0 has told all of them that everybody is ready, and around a ring no
    rank ends it more than a step before or after another. So the instants of rank 0 are those of every rank, but for a
    message of control and a step of the ring; when the others computed, their own iteration logs say.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    recorded = overlaps.select(_OVERLAP_COLUMNS)
    parts = [recorded]
    for job in pc.unique(overlaps["job"]).to_pylist():
        mine = spans.filter(pc.equal(spans["job"], job))
        recorders = pc.unique(overlaps.filter(pc.equal(overlaps["job"], job))["rank"]).to_pylist()
        if len(recorders) == 1 and mine.num_rows and pc.all(pc.equal(mine["peer"], -1)).as_py():
            others = pc.and_(pc.equal(iterations["job"], job), pc.not_equal(iterations["rank"], recorders[0]))
            rows = _within_collectives(iterations.filter(others), mine)
            parts.append(pa.table({"job": [job] * len(rows["rank"]), **rows}, schema=recorded.schema))
    return pa.concat_tables(parts)


def _within_collectives(logged: Any, spans: Any) -> dict[str, Ints | Floats]:
    """Return how long each logged iteration computed, and how much of it lay within its number's collectives."""
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
    """Return the seconds that each span from `begin` to `end` shares with disjoint intervals, an (n, 2) array."""
    both = np.minimum(end[:, None], moved[:, 1]) - np.maximum(begin[:, None], moved[:, 0])
    found: Floats = np.clip(both, 0, None).sum(axis=1) / 1e9
    return found


def _ints(table: Any, column: str) -> Ints:
    values: Ints = table[column].to_numpy().astype(np.int64)
    return values
