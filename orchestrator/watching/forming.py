"""Say which cause forms while a window is measured: `orch why`, asked about the last iterations that ranks logged.

These tell of computing and of waiting for ranks. What the network's share is due to is told by captures, queues and
sockets, which come home when the run is over.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from orchestrator.analysis.causes import naming, passes, words
from orchestrator.analysis.causes.explanation import UNSEEN, Explanation
from orchestrator.core.screen import alike
from orchestrator.store.live import FEWEST_PASSES, Live, LiveJob, LivePasses
from orchestrator.store.manifests.records import Manifest, Window
from orchestrator.store.manifests.summaries import Job, Span
from orchestrator.store.tabular import tables
from orchestrator.watching.view import WAITED_FOR, waiting_text

NETWORK = 0.2  # of an iteration: with less, nobody asks what the network's share is due to
_LONGEST_S = 3600.0  # that the iterations of a live file may take together


@dataclass(frozen=True, slots=True)
class _Logged:
    """What ranks of a job logged, as a run's tables; all else that a run measures is not home yet."""

    manifest: Manifest
    iterations: Any

    def table(self, name: str) -> Any:
        return self.iterations if name == "iterations" else tables.schema(name).empty_table()

    def counter_rows(self, pattern: str) -> Any:  # noqa: ARG002 - the protocol's
        return tables.schema("counters").empty_table()


@dataclass(frozen=True, slots=True)
class _Known:
    """The passes of a job in the last iterations of a window, which are a span of them."""

    run: _Logged
    job: Job
    span: Span
    passes: passes.Passes


@dataclass(frozen=True, slots=True)
class Forming:
    """Who waits for whom in each job, and what makes its iterations slow, by the last passes of its ranks."""

    waits: Mapping[str, str] = field(default_factory=dict)
    causes: tuple[str, ...] = ()


def formed(manifest: Manifest, live: Live) -> Forming:
    """Return what is told of a window by what is logged so far; nothing where that is too little."""
    if live.phase != "window" or live.window is None:
        return Forming()
    waits: dict[str, str] = {}
    causes: list[str] = []
    for job in live.jobs:
        known = _passes(manifest, job)
        if known is not None:
            waits[job.name] = _waits(known)
            causes += _causes(live.window.name, known)
    return Forming(waits, tuple(causes))


def _passes(manifest: Manifest, live: LiveJob) -> _Known | None:
    """Return the passes of a job in the window that is measured; None where they are too few, or ranks log none."""
    jobs = [job for job in manifest.jobs if job.name == live.name]
    logged = live.passes
    if logged is None or not logged.rank or not jobs or live.measured < FEWEST_PASSES:
        return None
    if not 0 < max(logged.end_ns) - min(logged.start_ns) < _LONGEST_S * 1e9:
        return None
    last = max(logged.iteration)
    span = Span(first=max(0, last - live.measured + 1), last=last)
    run = _Logged(manifest, _table(logged, live.name))
    found = passes.passes(run.iterations, run.table("spans"), jobs[0], span)
    if found is None or found.whole or len(found.iteration) < FEWEST_PASSES:
        return None
    return _Known(run, jobs[0], span, found)


def _waits(known: _Known) -> str:
    """Return whom the others wait for, by when passes of each rank end and its next ones begin; empty for nobody."""
    found = known.passes
    split = passes.split(found)
    late = (split.behind + split.held).mean(axis=1)
    most, total = int(late.argmax()), float(split.total.mean())
    others = [rank for rank in found.ranks if rank != found.ranks[most]]
    if not others or late[most] < WAITED_FOR * total:
        return ""
    rank, node = found.ranks[most], found.nodes[most]
    return waiting_text(found.job, others, rank, node, wait_s=float(late[most]), iteration_s=total)


def _causes(window: str, known: _Known) -> Iterator[str]:
    about = Window(
        name=window,
        start_ns=known.passes.origin_ns,
        end_ns=known.passes.origin_ns + round(float(known.passes.end.max()) * 1e9),
        iterations={known.job.name: known.span},
        valid=False,
        reasons=(),
    )
    explained = naming.explain(known.run, about, known.job)
    if explained is not None:
        yield from _explained(explained)


def _explained(found: Explanation) -> Iterator[str]:
    """Yield the largest finding with its interval, and who will tell what the network's share is due to."""
    last = f"by the last {len(found.iterations)} iterations"
    if found.findings:
        yield f"{found.job}: {words.headline(found.findings[0])}, {last}"
    network = sum(part.share for part in found.parts if part.name == UNSEEN)
    if network >= NETWORK:
        tells = alike.names(found.missing)
        yield f"{found.job}: the network takes {network:.0%} of the time, {last}; what of it, {tells} tell in the end"


def _table(logged: LivePasses, job: str) -> Any:
    import pyarrow as pa

    rows = len(logged.rank)
    columns = {
        "job": [job] * rows,
        "rank": logged.rank,
        "iteration": logged.iteration,
        "start_ns": logged.start_ns,
        "end_ns": logged.end_ns,
        "seconds": [(end - start) / 1e9 for start, end in zip(logged.start_ns, logged.end_ns, strict=True)],
        "forward_s": logged.passes_s,
        "backward_s": [0.0] * rows,
        "wait_s": logged.wait_s,
    }
    schema = tables.schema("iterations")
    filled = {name: columns.get(name, [None] * rows) for name in schema.names}
    return pa.table(filled, schema=schema)
