"""Say which cause forms while a window is measured: `orch why`, asked about the last iterations that ranks logged.

These tell of computing and of waiting for ranks. What the network's share is due to is told by captures, queues and
sockets, which come home when the run is over.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from orchestrator.analysis.causes import naming, passes, words
from orchestrator.analysis.causes.explanation import Explanation
from orchestrator.core.screen import alike
from orchestrator.core.units import span_text
from orchestrator.store.live import FEWEST_PASSES, Live, LiveJob, LivePasses
from orchestrator.store.manifests.records import Job, Manifest, Span, Window
from orchestrator.store.tabular import tables

WAITED_FOR = 0.05  # of an iteration, by which a rank makes others wait, to be named
NETWORK = 0.2  # of an iteration: with less, nobody asks what the network's share is due to
_NETWORK = "network, no cause seen"  # as `naming` calls that part
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


def causes(manifest: Manifest, live: Live) -> tuple[str, ...]:
    """Return what makes the iterations of each job slow by what is logged of a window so far, and who waits for whom."""
    if live.phase != "window" or live.window is None:
        return ()
    return tuple(line for job in live.jobs for line in _of_job(manifest, live.window.name, job))


def _of_job(manifest: Manifest, window: str, live: LiveJob) -> Iterator[str]:
    found = [job for job in manifest.jobs if job.name == live.name]
    if live.passes is None or not found or live.measured < FEWEST_PASSES:
        return
    last = max(live.passes.iteration, default=0)
    span = Span(first=max(0, last - live.measured + 1), last=last)
    logged = live.passes
    if not logged.rank or not 0 < max(logged.end_ns) - min(logged.start_ns) < _LONGEST_S * 1e9:
        return
    run = _Logged(manifest, _table(logged, live.name))
    known = passes.passes(run.iterations, run.table("spans"), found[0], span)
    if known is None or known.whole or len(known.iteration) < FEWEST_PASSES:
        return
    yield from _waits(known)
    about = Window(
        name=window,
        start_ns=min(logged.start_ns),
        end_ns=max(logged.end_ns),
        iterations={live.name: span},
        valid=False,
        reasons=(),
    )
    explained = naming.explain(run, about, found[0])
    if explained is not None:
        yield from _explained(explained)


def _waits(known: passes.Passes) -> Iterator[str]:
    """Yield whom the others wait for, by when the passes of each rank end and its next ones begin."""
    split = passes.split(known)
    if len(known.ranks) < 2:
        return
    late = (split.behind + split.held).mean(axis=1)
    most, total = int(late.argmax()), float(split.total.mean())
    if late[most] >= WAITED_FOR * total:
        others = [f"rank {rank}" for rank in known.ranks if rank != known.ranks[most]]
        who = alike.names(others) if len(others) == 1 else f"{len(others)} ranks"
        where = f" on {known.nodes[most]}" if known.nodes[most] else ""
        verb = "waits" if len(others) == 1 else "wait"
        yield (
            f"{known.job}: {who} {verb} for rank {known.ranks[most]}{where}, {span_text(float(late[most]))} of "
            f"{span_text(total)} an iteration"
        )


def _explained(found: Explanation) -> Iterator[str]:
    """Yield the largest finding with its interval, and who will tell what the network's share is due to."""
    last = f"by the last {len(found.iterations)} iterations"
    if found.findings:
        yield f"{found.job}: {words.headline(found.findings[0])}, {last}"
    network = sum(part.share for part in found.parts if part.name == _NETWORK)
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
