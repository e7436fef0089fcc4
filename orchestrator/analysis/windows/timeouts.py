"""Find the retransmission time-outs of TCP in a window, whose they were, and the iterations that waited for them.

A connection's time-outs are those that its kernel counts (tcpi_total_rto, from Linux 6.7 on), else the times at which
it was seen to back off, of which there may be more. Each was between two samples. An iteration waited for one when a
connection of its job timed out within it, and it took longer by the least time-out or more (RFC 6298; Linux: 0.2 s and
a round trip, or less where a route sets it) than the median of those without a time-out, or than the shortest where all
have one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from orchestrator.analysis.stats.iterations import JobSeries
from orchestrator.store.manifests.records import Manifest
from orchestrator.validity.window import TimeoutWaits

LEAST_S = 0.2  # TCP_RTO_MIN of Linux, where no connection says
Ends = tuple[str, int, str, int]  # source address and port, destination address and port


@dataclass(frozen=True, slots=True)
class TimedOut:
    """Time-outs of a connection between two samples, in nanoseconds."""

    ends: Ends
    after_ns: int
    until_ns: int
    count: int


@dataclass(frozen=True, slots=True)
class TcpTimeouts:
    """The time-outs of a run; `least_s` is the shortest one that a connection had set; `exact`: kernels count them."""

    found: tuple[TimedOut, ...]
    least_s: float
    exact: bool


def timed_out(sockets: Any) -> TcpTimeouts | None:
    """Return the time-outs by the table `sockets` (pyarrow); None where it does not tell, as of a run that is older."""
    import pyarrow.compute as pc

    known = sockets.filter(pc.is_valid(sockets["backoff"]))
    if not known.num_rows:
        return None
    exact = pc.all(pc.is_valid(known["timeouts"])).as_py()
    by = [(name, "ascending") for name in ("src", "src_port", "dst", "dst_port", "time_ns")]
    rows = known.sort_by(by)
    ends = list(zip(*(rows[name].to_pylist() for name, _ in by[:4]), strict=True))
    at_ns = rows["time_ns"].to_pylist()
    counts = rows["timeouts" if exact else "backoff"].to_pylist()
    found = []
    for place in np.flatnonzero(np.array(counts) > 0).tolist():
        same = place > 0 and ends[place - 1] == ends[place] and counts[place - 1] <= counts[place]
        grown = counts[place] - (counts[place - 1] if same else 0)
        if grown > 0:
            before = at_ns[place - 1] if same else at_ns[place] - int(LEAST_S * 1e9)
            found.append(TimedOut(ends[place], before, at_ns[place], grown))
    least = pc.min(rows["rto_s"]).as_py()
    return TcpTimeouts(tuple(found), LEAST_S if least is None else float(least), bool(exact))


def waits(
    run: TcpTimeouts | None, series: Sequence[JobSeries], manifest: Manifest, *, flows: Any, captured: Any
) -> tuple[TimeoutWaits, ...]:
    """Return what each job waited for time-outs over its iterations of a window.

    `flows` and `captured` are the tables `flows` and `capture_flows` (pyarrow), which say whose a connection is.
    """
    if run is None:
        return ()
    owner = _owners(flows, captured) if run.found else {}
    return tuple(_waited(run, part, manifest, owner) for part in series if part.span_ns is not None)


def _waited(run: TcpTimeouts, part: JobSeries, manifest: Manifest, owner: Mapping[Ends, str]) -> TimeoutWaits:
    begin, end = part.span_ns or (0, 0)
    names = {rail.address: host.name for host in manifest.topology.hosts for rail in host.rails}
    nodes = set(manifest.job(part.job).nodes)
    whose: dict[str, int] = {}
    mine = []
    for one in run.found:
        if one.until_ns < begin or one.after_ns > end:
            continue
        src, dst = names.get(one.ends[0], one.ends[0]), names.get(one.ends[2], one.ends[2])
        of = owner.get(one.ends) or (part.job if {src, dst} <= nodes else "other connections")
        if of == part.job:
            mine.append(one)
            of = f"{of} {_end(part.job, src, manifest)} to {_end(part.job, dst, manifest)}"
        else:
            of = f"{of} {src} to {dst}"
        whose[of] = whose.get(of, 0) + one.count
    hit = np.zeros(len(part.seconds), bool)
    for one in mine:
        hit |= (part.start_ns <= one.until_ns) & (part.end_ns >= one.after_ns)
    late_s = part.seconds - float(np.min(part.seconds) if hit.all() else np.median(part.seconds[~hit]))
    hit &= late_s >= run.least_s
    return TimeoutWaits(
        job=part.job,
        iterations=len(late_s),
        waited=int(hit.sum()),
        lost=float(late_s[hit].sum() / part.seconds.sum()),
        timeouts=sum(one.count for one in mine),
        whose=dict(sorted(whose.items(), key=lambda item: -item[1])),
        least_s=run.least_s,
        exact=run.exact,
    )


def _owners(flows: Any, captured: Any) -> dict[Ends, str]:
    """Return the job or the source of traffic of each connection, seen from either end."""
    found: dict[Ends, str] = {}
    for table, name in ((captured, "name"), (flows, "source")):
        columns = table.select(["src", "src_port", "dst", "dst_port", name]).to_pydict()
        for src, src_port, dst, dst_port, whose in zip(*columns.values(), strict=True):
            if whose:
                found[src, src_port, dst, dst_port] = found[dst, dst_port, src, src_port] = whose
    return found


def _end(job: str, host: str, manifest: Manifest) -> str:
    """Return the ranks on a host, for people: "rank 1 (h2)"."""
    ranks = [str(rank.rank) for rank in manifest.job(job).ranks if rank.node == host]
    return f"rank {', '.join(ranks)} ({host})" if ranks else host
