"""Find the link that training and cross traffic share: its rate, and its queue in a window (backlog, use, drops)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from orchestrator.analysis.traffic import throughput
from orchestrator.parts.topology import Topology, carried_bps

Floats = npt.NDArray[np.float64]

_BACKLOG = re.compile(r"qdisc\.[^.@]+\.backlog_bytes")  # of the root: children stand in it


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedLink:
    """The egress queue in which most bytes waited, at full size.

    `waiting_s` is the mean backlog as time on the link, `sent_bps` what left it (layer 2), `drops` packets a second.
    """

    port: str
    waiting_s: float
    sent_bps: float
    drops_per_s: float


def capacity_bps(topology: Topology) -> float:
    """Return the rate of the slowest link (bit/s, in the unit of loads): cross traffic and training meet on one.

    The rate of a real link counts what stands between frames; the buckets of a local testbed count frames.
    """
    rate = min(link.rate for link in topology.links)
    return rate if topology.kind == "local" else carried_bps(rate, mtu=topology.mtu)


def shared_link(counters: Any, topology: Topology, *, span_ns: tuple[int, int], scale: int) -> SharedLink | None:
    """Return the fullest queue of a window by the samples of its counters (a pyarrow Table); None without any sample.

    Where cross traffic and training meet, bytes wait. Counters are sampled where they change, so that a mean of the
    backlog weighs each value by how long it stood.
    """
    kept = counters if isinstance(counters, throughput.CachedTable) else throughput.CachedTable(counters)
    found = [
        (mean, place)
        for place in kept.once("queues", _queues)
        if (mean := _mean(*_samples(kept, place, "backlog_bytes"), span_ns)) is not None
    ]
    if not found:
        return None
    backlog, place = max(found)
    node, port, _ = place
    rate_bps = _rate_bps(topology, node, port)
    seconds = (span_ns[1] - span_ns[0]) / 1e9
    return SharedLink(
        port=f"{node}:{port}",
        waiting_s=backlog * 8 / rate_bps * scale,
        sent_bps=_grown(*_samples(kept, place, "bytes"), span_ns) * 8 / seconds * scale,
        drops_per_s=_grown(*_samples(kept, place, "drops"), span_ns) / seconds,
    )


def _queues(table: Any) -> list[tuple[str, str, str]]:
    """Return node, port and name ("qdisc.tbf") of every root queue that was sampled."""
    keys = table.group_by(["node", "port", "counter"]).aggregate([]).to_pylist()
    return sorted(
        (key["node"], key["port"], key["counter"].rpartition(".")[0])
        for key in keys
        if _BACKLOG.fullmatch(key["counter"])
    )


def _samples(kept: throughput.CachedTable, place: tuple[str, str, str], what: str) -> tuple[Any, Floats]:
    node, port, name = place
    return throughput.samples(kept, node=node, port=port, counter=f"{name}.{what}")


def _mean(time_ns: Any, value: Floats, span_ns: tuple[int, int]) -> float | None:
    """Return the mean over the span of a value that stands until the next sample."""
    if not len(time_ns) or time_ns[0] > span_ns[1]:
        return None
    begin, end = span_ns
    edges = np.clip(np.append(time_ns, max(end, int(time_ns[-1]))), begin, end)
    lasted = np.diff(edges)
    return float(value @ lasted) / float(lasted.sum()) if lasted.sum() > 0 else None


def _grown(time_ns: Any, value: Floats, span_ns: tuple[int, int]) -> float:
    """Return the growth of a counter in the span, in a straight line between its samples; 0 without any."""
    if not len(time_ns):
        return 0.0
    origin = int(time_ns[0])
    at = np.interp([span_ns[0] - origin, span_ns[1] - origin], (time_ns - origin).astype(np.float64), value)
    return float(at[1] - at[0])


def _rate_bps(topology: Topology, node: str, port: str) -> float:
    """Return the rate of the link behind a port at full size; of the slowest one where the port is not known."""
    link = topology.link_at(node, port)
    return link.rate if link else min(link.rate for link in topology.links)
