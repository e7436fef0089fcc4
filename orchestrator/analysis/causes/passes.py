"""Split each iteration of a job along its critical path: computing, waiting for a rank, the network.

Collectives queue behind one another on the network: the k-th ends at `end[k] = max(end[k-1], ready[k]) + service[k]`,
where it is ready once the last rank has begun it. Service times follow from what was recorded, so that the recursion
gives the recorded ends again; what a cause costs is by how much an iteration ends earlier without it. So a pass that is
30 ms longer costs less where the network was still busy for 15 of these (slack).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from orchestrator.analysis.causes.sharing import shared
from orchestrator.store.manifests.summaries import Job, Span

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

MOST_COLLECTIVES = 512  # of an iteration, by name; a job with more is read without them


@dataclass(frozen=True, slots=True, kw_only=True)
class Passes:
    """What the ranks of a job did in the iterations that all of them logged.

    Times are seconds since `origin_ns`; arrays are ranks by iterations, `ready` and `done` collectives by ranks by
    iterations, in the order in which they become ready. `computed` is when a rank's backward pass ended. Where ranks
    log `whole` iterations alone, one collective stands for all of it, computing included.
    """

    job: str
    ranks: tuple[int, ...]
    nodes: tuple[str, ...]
    iteration: Ints
    origin_ns: int
    start: Floats
    end: Floats
    computed: Floats
    collectives: tuple[str, ...]
    ready: Floats
    done: Floats
    whole: bool

    @property
    def passes_s(self) -> Floats:
        """Forward and backward pass of each rank, ranks by iterations."""
        return self.computed - self.start


def within(found: Passes, seconds: float, *, until: int | None = None) -> Passes:
    """Return the first iterations that last so many seconds together; with `until`, the last ones up to that number."""
    begins, ends = found.start.min(axis=0), found.end.max(axis=0)
    if until is None:
        kept = ends <= max(begins[0] + seconds, ends[0])
    else:
        last = int(np.searchsorted(found.iteration, until))
        kept = (begins >= min(ends[last] - seconds, begins[last])) & (ends <= ends[last])
    return replace(
        found,
        iteration=found.iteration[kept],
        start=found.start[:, kept],
        end=found.end[:, kept],
        computed=found.computed[:, kept],
        ready=found.ready[:, :, kept],
        done=found.done[:, :, kept],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """The parts of each iteration along its critical path, in seconds; they sum to `total`.

    - `computing`: the passes of the median rank, and the optimizer's step.
    - `between`: what lies between iterations on the median rank: a period that is waited for, evaluation.
    - `behind`: waiting for a rank whose passes took longer than the median rank's (ranks by iterations).
    - `held`: waiting for a rank that was long in its step, or between iterations, likewise.
    - `network`: time in which every rank had computed and collectives were under way.
    - `begun`, `ended`: from when to when that was, in seconds since the passes' origin.
    """

    total: Floats
    computing: Floats
    between: Floats
    behind: Floats
    held: Floats
    network: Floats
    begun: Floats
    ended: Floats


def passes(iterations: Any, spans: Any, job: Job, window: Span) -> Passes | None:
    """Return the passes of a job in a window (tables `iterations` and `spans`, pyarrow); None where nothing is logged.

    An iteration counts where every rank that logs has it. A job without recorded collectives has one, from when its
    backward pass ends until its waiting does.
    """
    rows = _rows(iterations, job.name, window, ("rank", "iteration", "start_ns", "end_ns", "seconds"))
    passed = _rows(iterations, job.name, window, ("forward_s", "backward_s", "wait_s"))
    if not len(rows["rank"]):
        return None
    ranks, numbers = np.unique(rows["rank"]), np.unique(rows["iteration"])
    grid = _Grid(ranks, numbers)
    start_ns = grid.filled(rows, rows["start_ns"])
    whole = ~np.isnan(start_ns).any(axis=0)
    if not whole.any():
        return None
    origin = int(np.nanmin(start_ns))
    start = (start_ns - origin) / 1e9
    end = (grid.filled(rows, rows["end_ns"]) - origin) / 1e9
    took = grid.filled(rows, np.nan_to_num(passed["forward_s"]) + np.nan_to_num(passed["backward_s"]))
    waited = grid.filled(rows, np.nan_to_num(passed["wait_s"]))
    computed = start + took
    names, ready, done = _collectives(spans, job.name, window, grid, origin)
    bare = not names and not np.nansum(took) > 0
    if not names:
        names, ready, done = ("",), computed[None], (end if bare else computed + waited)[None]
    by = np.argsort(np.nanmedian(np.nanmax(ready, axis=1), axis=1), kind="stable")
    whole &= ~np.isnan(ready).any(axis=(0, 1)) & ~np.isnan(done).any(axis=(0, 1))
    if not whole.any():
        return None
    places = {rank.rank: rank.node for rank in job.ranks}
    return Passes(
        job=job.name,
        ranks=tuple(int(rank) for rank in ranks),
        nodes=tuple(places.get(int(rank), "") for rank in ranks),
        iteration=numbers[whole],
        origin_ns=origin,
        start=start[:, whole],
        end=end[:, whole],
        computed=computed[:, whole],
        collectives=tuple(names[place] for place in by),
        ready=ready[by][:, :, whole],
        done=done[by][:, :, whole],
        whole=bare,
    )


def split(found: Passes) -> Split:
    """Return the parts of each iteration of these passes."""
    last = found.end.max(axis=0)
    follows = np.concatenate(([False], np.diff(found.iteration) == 1))
    begin = np.where(follows, np.roll(last, 1), found.start.min(axis=0))
    # A last "collective" without service time: passes may outlast every collective.
    ready = np.concatenate((found.ready, found.computed[None]))
    done = np.concatenate((found.done, found.computed[None]))
    by = np.argsort(ready.max(axis=1).mean(axis=1), kind="stable")
    ready, done = ready[by], done[by]
    all_ready, all_done = ready.max(axis=1), np.maximum.accumulate(done.max(axis=1), axis=0)
    idle = np.concatenate((np.full((1, len(last)), -np.inf), all_done[:-1]))
    service = np.clip(all_done - np.maximum(all_ready, idle), 0, None)
    # What a rank does between its iterations, and after its last collective, beyond what the median rank does.
    between = np.where(follows, found.start - np.roll(found.end, 1, axis=1), 0.0)
    after = found.end - done.max(axis=0)
    more_between, more_after = (np.clip(own - _usual(own), 0, None) for own in (between, after))
    own = ready - found.start
    usual = np.stack([_usual(passes) for passes in own])[:, None]
    ends = _ends(all_ready, service)
    alike = _ends((usual + found.start).max(axis=1), service)
    prompt = (usual + found.start - more_between).max(axis=1)
    evened, computed = _ends(prompt, service), _ends(prompt, None)
    behind, late = np.clip(ends - alike, 0, None), np.clip(np.minimum(ends, alike) - evened, 0, None)
    tail = last - (found.end - more_after).max(axis=0)
    held = _by_excess(more_after, tail) + _by_excess(more_between, late)
    network = np.clip(evened - computed, 0, None)
    total = last - begin
    computing = total - behind - held.sum(axis=0) - network
    idle_between = np.clip(np.median(between, axis=0), 0, np.clip(computing, 0, None))
    return Split(
        total=total,
        computing=computing - idle_between,
        between=idle_between,
        behind=_by_excess(np.clip(own[-1] - _usual(own[-1]), 0, None), behind),
        held=held,
        network=network,
        begun=ends - network,
        ended=ends,
    )


def _ends(ready: Floats, service: Floats | None) -> Floats:
    """Return when the last collective ends in each iteration, of those that are ready then and take so long."""
    end = np.full(ready.shape[1], -np.inf)
    for place in range(len(ready)):
        end = np.maximum(end, ready[place]) + (0 if service is None else service[place])
    return end


def _usual(own: Floats) -> Floats:
    """Return the median over ranks (rows), of an even number the lower one: half of them may be slow."""
    lower: Floats = np.sort(own, axis=0)[(len(own) - 1) // 2]
    return lower


def _by_excess(excess: Floats, amount: Floats) -> Floats:
    """Share the amount of each iteration out to ranks (rows), by what each takes longer than is usual."""
    claims = np.where(excess.max(axis=0) > 0, excess, 1.0)
    found: Floats = shared(claims) * amount / claims.max(axis=0)
    return found


class _Grid:
    """Places of ranks and iterations in arrays."""

    def __init__(self, ranks: Ints, iterations: Ints) -> None:
        self.ranks, self.iterations = ranks, iterations

    def at(self, rows: dict[str, Any]) -> tuple[Ints, Ints, npt.NDArray[np.bool_]]:
        """Return the places of rows, and which of these are of a known rank and iteration."""
        known = np.isin(rows["rank"], self.ranks) & np.isin(rows["iteration"], self.iterations)
        rank, number = rows["rank"][known], rows["iteration"][known]
        return np.searchsorted(self.ranks, rank), np.searchsorted(self.iterations, number), known

    def filled(self, rows: dict[str, Any], values: Any) -> Floats:
        found = np.full((len(self.ranks), len(self.iterations)), np.nan)
        rank, number, known = self.at(rows)
        found[rank, number] = values[known]
        return found


def _collectives(
    spans: Any, job: str, window: Span, grid: _Grid, origin_ns: int
) -> tuple[tuple[str, ...], Floats, Floats]:
    """Return names, begin and end of the collectives that all ranks take part in."""
    names = ("rank", "iteration", "start_ns", "end_ns", "lane", "span", "what", "peer")
    rows = _rows(spans, job, window, names)
    keep = (rows["lane"] == "communication") & (rows["peer"] < 0)
    rows = {name: values[keep] for name, values in rows.items()}
    called = np.array([f"{span} {what}".strip() for span, what in zip(rows["span"], rows["what"], strict=True)])
    found, place = np.unique(called, return_inverse=True) if len(called) else ((), np.zeros(0, np.int64))
    if not 0 < len(found) <= MOST_COLLECTIVES:
        return (), np.zeros(0), np.zeros(0)
    ready = np.full((len(found), len(grid.ranks), len(grid.iterations)), np.nan)
    done = ready.copy()
    rank, number, known = grid.at(rows)
    # Of several of one name in an iteration (accumulated passes) the last begins and ends latest.
    order = np.argsort(rows["start_ns"][known], kind="stable")
    where = place[known][order], rank[order], number[order]
    ready[where] = (rows["start_ns"][known][order] - origin_ns) / 1e9
    done[where] = (rows["end_ns"][known][order] - origin_ns) / 1e9
    usable = ~np.isnan(ready).all(axis=(1, 2))
    return tuple(str(name) for name in np.asarray(found)[usable]), ready[usable], done[usable]


def _rows(table: Any, job: str, window: Span, columns: tuple[str, ...]) -> dict[str, Any]:
    import pyarrow.compute as pc

    inside = pc.and_(pc.greater_equal(table["iteration"], window.first), pc.less_equal(table["iteration"], window.last))
    rows = table.filter(pc.and_(pc.equal(table["job"], job), inside)).select(columns)
    return {name: rows[name].to_numpy(zero_copy_only=False) for name in columns}
