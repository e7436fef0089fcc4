"""How much the time of a step varies over iterations and ranks, and how well it hides what it communicates."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from orchestrator.analysis.stats.iterations import JobSeries
from orchestrator.analysis.stats.statistics import quantile
from orchestrator.analysis.windows.ranks.recorded import Tables
from orchestrator.store.manifests.window_records import Variation

Floats = npt.NDArray[np.float64]

ALL_RANKS = -1


def rows(part: JobSeries, tables: Tables) -> list[Variation]:
    """Rows of the table `variation`: the job as a whole, then each rank; `part` is what counts of the job's iterations.

    `tables` has `iterations`, `overlaps` and `spans` (pyarrow Tables). Times are in seconds, shares parts of 1, NaN
    where nothing was recorded that would tell.

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
    seconds = _matrix(part, tables["iterations"], "seconds")
    forward, backward = (_matrix(part, tables["iterations"], name) for name in ("forward_s", "backward_s"))
    idle = np.all(forward + backward == 0, axis=1)[:, None]
    behind = _behind(np.where(idle, math.nan, forward + backward))
    parts = {
        name: np.where(idle, math.nan, _matrix(part, tables["overlaps"], name))
        for name in ("compute_s", "communication_s", "overlap_s")
    }
    orders = _orders(part, tables["spans"])
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
    """A column as ranks by iterations; NaN where the table has no row."""
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
    """By how much the slowest rank computes longer than each; NaN where that is unknown, or nobody else computes."""
    known = ~np.isnan(compute)
    slowest: Floats = np.max(np.where(known, compute, -math.inf), axis=0, initial=-math.inf)
    behind: Floats = np.where(known & (known.sum(axis=0) > 1), slowest - compute, math.nan)
    return behind


def _longest(behind: Floats) -> Floats:
    longest: Floats = np.max(np.where(np.isnan(behind), -math.inf, behind), axis=0, initial=-math.inf)
    longest[np.isneginf(longest)] = math.nan
    return longest


def _overlap(parts: Mapping[str, Floats], seconds: Floats) -> tuple[float, float]:
    """Efficiency of scheduling, and the share of communication that overlapped with computing."""
    compute, communication = parts["compute_s"], parts["communication_s"]
    spare = np.minimum(compute, communication)
    efficiency = _share(compute + communication - seconds, spare)
    return efficiency, _share(parts["overlap_s"], communication)


def _share(part: Floats, whole: Floats) -> float:
    """Sum over sum, of where both are known."""
    known = ~(np.isnan(part) | np.isnan(whole))
    total = float(np.sum(whole[known]))
    return float(np.sum(part[known])) / total if total > 0 else math.nan


def _orders(part: JobSeries, spans: Any) -> dict[int, int]:
    """Of each rank how many different orders its communications began in."""
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
