"""Gather what was measured of a job in a window, on one axis of time, for what names causes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from orchestrator.analysis.causes import ports as measured
from orchestrator.analysis.causes.fabric import Away, away, uplinks
from orchestrator.analysis.causes.passes import Passes, Split
from orchestrator.analysis.causes.ports import STEP_NS, Axis, Edge, Port
from orchestrator.store.manifests.records import Manifest, Window
from orchestrator.store.manifests.summaries import Job

Floats = npt.NDArray[np.float64]

DISKS = r"^io\.waited_s$"
CROWDED, OFTENER = 0.5, 2.0  # of the window for which threads wait for processors, and times as long as elsewhere
QUIET_STEPS = 3  # without a packet before and after, and a rank that logs whole iterations computes


class Source(Protocol):
    """A run whose tables can be read by name (pyarrow Tables); one that was never written is empty."""

    @property
    def manifest(self) -> Manifest: ...

    def table(self, name: str) -> Any: ...

    def counter_rows(self, pattern: str) -> Any: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """A cause, its place, its seconds in each iteration, the part of the time that these are of, and the evidence."""

    cause: str
    place: str
    hosts: tuple[str, ...]
    seconds: Floats
    of: str
    evidence: tuple[str, ...]
    strength: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """All that was measured of a job in a window.

    `waits` is the share of the window for which threads of a host's ranks waited for processors, `others_wait` that for
    which they did since others computed. `disks` are the seconds for which some process of a host waited for a disk, by
    time in seconds since the passes' origin. `away` is when flows of a fabric went another way than before. `full` are
    the ports whose queues training waits for, and `idle` the seconds of each iteration in which the network is waited
    for though the links are idle; both are empty until queues were looked at.
    """

    job: Job
    manifest: Manifest
    passes: Passes
    split: Split
    axis: Axis
    ports: tuple[Port, ...]
    edges: tuple[Edge, ...]
    waits: Mapping[str, float]
    others_wait: Mapping[str, float]
    disks: Mapping[str, tuple[Floats, Floats]]
    away: tuple[Away, ...]
    mtu: int
    full: tuple[Port, ...] = ()
    idle: Floats = field(default_factory=lambda: np.zeros(0))

    def seconds(self, steps: Floats | npt.NDArray[np.bool_]) -> Floats:
        """Return what these shares of exposed steps amount to in each iteration, in seconds."""
        inside = self.axis.iteration >= 0
        weight = (self.axis.exposed * steps)[inside] * (STEP_NS / 1e9)
        found: Floats = np.bincount(self.axis.iteration[inside], weight, len(self.passes.iteration)).astype(np.float64)
        return found

    def used(self) -> Floats:
        """Return the share of each step for which full ports queued or sent; of all ports where none is full."""
        known = [(port, share_of_rate(port, port.carried)) for port in self.full or self.ports if port.own is not None]
        rates = [np.maximum(rate, port.queued(self.mtu)) if port in self.full else rate for port, rate in known]
        return np.max(rates, axis=0) if rates else np.zeros(self.axis.steps)

    def crowded(self, host: str) -> tuple[str, ...]:
        """Return that threads of a host wait for its processors, and others' seldom; nothing where that is not so."""
        waited = self.waits.get(host, 0.0)
        elsewhere = [share for other, share in self.waits.items() if other != host]
        usual = float(np.median(elsewhere)) if elsewhere else math.nan
        if waited < CROWDED or math.isnan(usual) or waited < OFTENER * usual:
            return ()
        return (f"threads of its ranks waited {waited:.0%} of the window for its processors, elsewhere {usual:.0%}",)

    def missing(self) -> tuple[str, ...]:
        """Return the collectors without which causes cannot be named."""
        found = []
        if not any(port.own is not None for port in self.ports):
            found.append("tcpdump")
        if not any(port.backlog is not None for port in self.ports):
            found.append("qdisc")
        if not any(not math.isnan(edge.rtt_s) for edge in self.edges):
            found.append("tcp")
        return tuple(found)


def gathered(run: Source, window: Window, job: Job, found: Passes, split: Split) -> Evidence:
    """Return what was measured of a job in a window, of its passes and their split."""
    topology = run.manifest.topology
    span_ns = window.start_ns, window.end_ns
    begin_ns, end_ns = (found.origin_ns + round(at * 1e9) for at in (found.start.min(), found.end.max()))
    over = measured.axis(begin_ns, end_ns, split.begun, split.ended, found.origin_ns)
    captured = run.table("capture_flows")
    counters = run.counter_rows(measured.QUEUES)
    hosts = {rank.node for rank in job.ranks}
    ports = measured.ports(
        topology, job.name, captured=captured, packets=run.table("flow_packets"), counters=counters, over=over
    )
    ports = tuple(port for port in ports if port.host in hosts)
    if topology.fabric is not None:
        packets, paths = run.table("flow_packets"), run.table("paths")
        ports += uplinks(
            topology, job.name, captured=captured, packets=packets, paths=paths, counters=counters, over=over
        )
    waits, others_wait = (
        {host: share for host, share in shares if share is not None and not math.isnan(share)}
        for shares in (
            [(one.host, one.wait_share) for one in window.processors],
            [(one.host, one.others_wait_share) for one in window.processors],
        )
    )
    if found.whole:
        over, split = _moving(over, split, ports)
    return Evidence(
        job=job,
        manifest=run.manifest,
        passes=found,
        split=split,
        axis=over,
        ports=ports,
        edges=measured.edges(topology, job.name, captured=captured, sockets=run.table("sockets"), span_ns=span_ns),
        waits=waits,
        others_wait=others_wait,
        disks=dict(_disks(run.counter_rows(DISKS), found.origin_ns)),
        away=tuple(away(run.table("paths"))) if topology.fabric is not None else (),
        mtu=topology.mtu,
    )


def _disks(counters: Any, origin_ns: int) -> Iterator[tuple[str, tuple[Floats, Floats]]]:
    """Yield host, instants and what `io.waited_s` had counted then."""
    for (node,), mine in measured.grouped(counters, ("node",)):
        times = counters["time_ns"].to_numpy()[mine]
        order = np.argsort(times, kind="stable")
        yield node, ((times[order] - origin_ns) / 1e9, counters["value"].to_numpy()[mine][order])


def _moving(over: Axis, split: Split, ports: Sequence[Port]) -> tuple[Axis, Split]:
    """Return the axis and the split of ranks that log whole iterations: what moves no packets counts as computing."""
    known = [port.own for port in ports if port.own is not None]
    near = np.ones(2 * QUIET_STEPS + 1)
    moving = np.convolve(np.sum(known, axis=0), near, "same") > 0 if known else np.zeros(over.steps)
    axis = replace(over, exposed=over.exposed * moving)
    inside = axis.iteration >= 0
    weight = axis.exposed[inside] * (STEP_NS / 1e9)
    network = np.minimum(np.bincount(axis.iteration[inside], weight, len(split.network)), split.network)
    return axis, replace(split, computing=split.computing + split.network - network, network=network)


def share_of_rate(port: Port, bytes_of_step: Floats | None) -> Floats:
    """Return bytes of steps as shares of what a port's link carries in a step, at most 1."""
    if bytes_of_step is None:
        return np.zeros(0)
    return np.clip(bytes_of_step * (8e9 / STEP_NS) / port.rate_bps, 0, 1)
