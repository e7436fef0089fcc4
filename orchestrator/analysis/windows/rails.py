"""Compute what each rail carried of a job's training, by captures and counters, and what it should have carried.

How a framework spreads its messages over rails is one of `parts.theory.Spread`: gloo has a context a device, and lets
collective after collective take the next one (ProcessGroupGloo::getContext, by the tag modulo the number of devices);
NCCL's channels share the devices equally. Where gloo's turn stands when a window begins is not known: of the possible
turns that which fits the captures best counts, one number for all rails and hosts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from orchestrator.analysis.stats.iterations import JobSeries, spent
from orchestrator.analysis.traffic import throughput
from orchestrator.parts.rows import Row
from orchestrator.parts.theory import Theory
from orchestrator.store.manifests.records import Manifest
from orchestrator.store.manifests.summaries import Job
from orchestrator.validity.window import RailBytes

# InfiniBand counts octets of data divided by four (PortXmitData; Linux's ABI/stable/sysfs-class-infiniband).
WORD_BYTES = 4
RDMA_WORDS, RDMA_PACKETS = "rdma.port_xmit_data", "rdma.port_xmit_packets"
# Of a packet at most: Ethernet 18, IPv6 40, UDP 8, BTH 12, RETH 16, ICRC 4, or LRH 8 and GRH 40 in place of the first.
RDMA_HEADER_BYTES = 98
NEEDED = (RDMA_WORDS, RDMA_PACKETS)

Floats = npt.NDArray[np.float64]


def carried(
    packets: throughput.CachedTable,
    counters: throughput.CachedTable,
    *,
    spans: Any,
    iterations: Any,
    manifest: Manifest,
    part: JobSeries,
    window: str,
    whole: bool,
) -> tuple[RailBytes, ...]:
    """Return every rail of every host of a job; `spans` and `iterations` are the run's tables (pyarrow)."""
    job, span = manifest.job(part.job), part.span_ns
    if span is None:
        return ()
    done = spent(iterations, part.job, span)
    each = sum(done.values()) / len(done)
    measured = [
        _measured(packets, counters, manifest, job.name, host, span_ns=span, iterations=each, whole=whole)
        for host in (host.name for host in manifest.topology.hosts if host.name in job.nodes)
    ]
    sent = np.array([[rail.sent_bytes for rail in host] for host in measured])
    due = _due(job, spans, [host[0].host for host in measured], sent, window=window)
    return tuple(
        replace(rail, theory_bytes=float(due[row, rail.rail])) for row, host in enumerate(measured) for rail in host
    )


def _measured(
    packets: throughput.CachedTable,
    counters: throughput.CachedTable,
    manifest: Manifest,
    job: str,
    name: str,
    *,
    span_ns: tuple[int, int],
    iterations: float,
    whole: bool,
) -> list[RailBytes]:
    found = []
    for rail, device in enumerate(manifest.topology.node(name).devices):
        there = whole and throughput.captured(packets, node=name, port=device)
        out = {"node": name, "port": device, "direction": "out"}
        payload = throughput.bins(packets, {**out, "kind": "training", "name": job}, column="payload_bytes")
        amount = payload.within(*span_ns)
        words, frames = (_grown(counters, name, device, counter, span_ns) for counter in NEEDED)
        found.append(
            RailBytes(
                job=job,
                host=name,
                rail=rail,
                device=device,
                captured_bytes=throughput.bins(packets, out).within(*span_ns) if there else math.nan,
                counted_bytes=_grown(counters, name, device, "tx_bytes", span_ns),
                sent_bytes=amount / iterations if there else math.nan,
                rdma_bytes=words * WORD_BYTES / iterations,
                theory_bytes=math.nan,
                headers=frames * RDMA_HEADER_BYTES / iterations,
                edges=payload.busiest(*span_ns) / amount if amount else 0.0,
            )
        )
    return found


def _grown(counters: throughput.CachedTable, node: str, device: str, counter: str, span_ns: tuple[int, int]) -> float:
    return throughput.counter_growth(counters, node=node, port=device, counter=counter, span_ns=span_ns)


def _due(job: Job, spans: Any, hosts: Sequence[str], sent: Floats, *, window: str) -> Floats:
    """Return the bytes that each rail should carry an iteration, shape (hosts, rails); NaN where no theory says."""
    nothing = np.full(sent.shape, math.nan)
    if job.theory is None or not job.theory.spread or not sent.size:
        return nothing
    total = _of_hosts(job, job.theory, hosts)
    count = sent.shape[1]
    if job.theory.spread == "first":
        return np.outer(total, np.eye(count)[0])
    if job.theory.spread == "even" or count == 1:
        return np.outer(total, np.full(count, 1 / count))
    sizes = _collectives(spans, job.name, window)
    if not len(sizes) or np.isnan(sizes).any():  # of some no file told the size
        return nothing
    turns = [np.outer(total, _turn(sizes, count, first)) for first in range(count)]
    misses = [float(np.nansum(np.abs(one - sent))) for one in turns]
    return turns[int(np.argmin(misses))]


def _of_hosts(job: Job, theory: Theory, hosts: Sequence[str]) -> Floats:
    """Return the bytes that each host sends over the network in an iteration."""
    if theory.pairs:
        return np.array([sum(size for src, _, size in theory.pairs if src == host) for host in hosts])
    return np.array([theory.bytes_per_iteration * job.nodes.count(host) for host in hosts])


def _collectives(spans: Any, job: str, window: str) -> Floats:
    """Return the sizes of a window's collectives in the order in which rank 0 began them."""
    import pyarrow.compute as pc

    mine = pc.and_(pc.equal(spans["job"], job), pc.equal(spans["window_name"], window))
    mine = pc.and_(mine, pc.and_(pc.equal(spans["rank"], 0), pc.equal(spans["lane"], "communication")))
    rows = spans.filter(mine).sort_by("start_ns")
    return np.asarray(rows["bytes"].to_numpy(zero_copy_only=False), np.float64)


def _turn(sizes: Floats, rails: int, first: int) -> Floats:
    """Return the share of the bytes that each rail carries where the first message takes the rail `first`."""
    amounts = np.bincount((np.arange(len(sizes)) + first) % rails, sizes, rails)
    return np.asarray(amounts / amounts.sum() if amounts.sum() else np.full(rails, 1 / rails), np.float64)


def rows(carried: Iterable[RailBytes], window: str) -> list[Row]:
    """Return rows of the table `rails`."""
    return [{"window_name": window, **asdict(one)} for one in carried]
