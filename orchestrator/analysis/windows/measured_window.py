"""Compute the figures that a window's gates ask for from the run's tables and manifest, each on first use."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from orchestrator.analysis.stats.iterations import JobSeries, absorbed, interval_note, series, spent
from orchestrator.analysis.traffic import sharedlink, throughput, trust
from orchestrator.analysis.windows import (
    device_counters,
    fabric,
    generated_flows,
    loads,
    paces,
    processors,
    rails,
    timeouts,
    variation,
    warmup,
)
from orchestrator.analysis.windows.loads import Arrivals
from orchestrator.analysis.windows.processors import WindowProcessors
from orchestrator.parts.collectors import nic
from orchestrator.parts.registry import COLLECTOR
from orchestrator.store.manifests.records import Manifest, ProcessorShares, Variation, Window
from orchestrator.store.manifests.summaries import Training
from orchestrator.store.tabular import tables
from orchestrator.validity import registry
from orchestrator.validity.steady import drift
from orchestrator.validity.window import (
    ArrivedLoad,
    Capture,
    GeneratedFlows,
    JobIterations,
    LoadCourse,
    MeteredBytes,
    PortBytes,
    ProcessorUse,
    ProcessorWait,
    RailBytes,
    RailCongestion,
    SwitchPort,
    TimeoutWaits,
)

FIRST_PART = (
    5  # of the first window one part is of the run's first seconds, in which counters are held against captures
)


class MeasuredRun:
    """A run's manifest and its tables in a folder, with what all its windows have in common.

    `unreadable_captures` tells what was wrong with files of captures; `silent_collectors` why a collector (node,
    launch) brought nothing.
    """

    def __init__(
        self,
        folder: Path,
        manifest: Manifest,
        *,
        unreadable_captures: tuple[str, ...],
        silent_collectors: Mapping[tuple[str, str], str],
    ) -> None:
        self.folder = folder
        self.manifest = manifest
        self.unreadable_captures = unreadable_captures
        self.silent_collectors = silent_collectors
        self._tables: dict[str, Any] = {}

    def table(self, name: str) -> Any:
        """Return a table (pyarrow), which is read once."""
        if name not in self._tables:
            self._tables[name] = tables.read(self.folder, name)
        return self._tables[name]

    def counter_rows(self, pattern: str) -> Any:
        """Return the rows of `counters` (a pyarrow Table) whose counter matches a regular expression."""
        import pyarrow.compute as pc

        return tables.read(self.folder, "counters", where=pc.match_substring_regex(pc.field("counter"), pattern))

    @cached_property
    def packets(self) -> throughput.CachedTable:
        """The table `packets`."""
        return throughput.CachedTable(self.table("packets"))

    @cached_property
    def cross_packets(self) -> throughput.CachedTable:
        """The table `cross_packets`."""
        return throughput.CachedTable(self.table("cross_packets"))

    @cached_property
    def counters(self) -> throughput.CachedTable:
        """The table `counters`, as far as windows and their gates need it."""
        import pyarrow.compute as pc

        needed = {
            *device_counters.PORT_COUNTERS,
            *device_counters.RAIL_COUNTERS,
            *device_counters.SWITCH_COUNTERS,
            *processors.NEEDED,
            *rails.NEEDED,
            *registry.counters(),
        }
        wanted = pc.field("counter").isin(sorted(needed))
        wanted |= pc.match_substring_regex(pc.field("counter"), processors.OF_EACH)
        return throughput.CachedTable(tables.read(self.folder, "counters", where=wanted))

    @cached_property
    def queues(self) -> throughput.CachedTable:
        """The table `counters`, as far as it tells of queues."""
        import pyarrow.compute as pc

        where = pc.match_substring_regex(pc.field("counter"), sharedlink.QUEUES)
        return throughput.CachedTable(tables.read(self.folder, "counters", where=where))

    @cached_property
    def jobs(self) -> Mapping[str, JobSeries]:
        """All iterations of each job."""
        return {job.name: series(self.table("iterations"), job.name) for job in self.manifest.jobs}

    @cached_property
    def planned(self) -> tuple[trust.Planned, ...]:
        """Every capture that was to be made."""
        return trust.planned(self.manifest, self.table("captures"), self.table("packets"))

    @cached_property
    def processors(self) -> processors.ProcessorSamples:
        """The samples of processors."""
        return processors.samples(self.counters, self.table("tasks"), self.table("waits"), self.manifest)

    @cached_property
    def timeouts(self) -> timeouts.TcpTimeouts | None:
        """The retransmission time-outs of the run's connections."""
        return timeouts.timed_out(self.table("sockets"))

    @cached_property
    def logged(self) -> variation.Tables:
        """The tables of what ranks did in each iteration."""
        return variation.logged(self.folder, self.table("iterations"))


class MeasuredWindow:
    """A measured window of a run as gates use it (`validity.window.MeasuredWindow`), and its other table rows."""

    def __init__(self, run: MeasuredRun, record: Window) -> None:
        self.run = run
        self.record = record
        self.manifest = run.manifest
        self.unreadable_captures = run.unreadable_captures
        self.silent_collectors = run.silent_collectors

    def table(self, name: str) -> Any:
        """Return a table of the whole run (pyarrow)."""
        return self.run.table(name)

    def growth(self, node: str, counter: str, *, port: str = "") -> float:
        """Return the growth of a counter over the window; NaN where it was not sampled throughout."""
        span_ns = self.record.span_ns
        return throughput.counter_growth(self.run.counters, node=node, port=port, counter=counter, span_ns=span_ns)

    @cached_property
    def jobs(self) -> tuple[JobIterations, ...]:
        """The iterations that each job's ranks logged, and the bytes that they sent."""
        return tuple(self._job(name) for name in self._series)

    @cached_property
    def training(self) -> tuple[Training, ...]:
        """The figures of each job's iterations, with the trend of their time."""
        return tuple(self._training(part) for part in self._series.values())

    @cached_property
    def loads(self) -> tuple[ArrivedLoad, ...]:
        """The cross traffic that arrived."""
        return self._arrivals.loads(self.record, generated_flows.sent(self.run.folder, self.record))

    @cached_property
    def courses(self) -> tuple[LoadCourse, ...]:
        """The course of the cross traffic over the window, against its schedule."""
        means = (float(np.mean(part.seconds)) for part in self._series.values() if len(part.seconds))
        return loads.held_courses(
            self._arrivals,
            self.record,
            schedules=generated_flows.schedules(self.run.folder, self.manifest, self.record),
            bursts=generated_flows.bursts(self.run.folder, self.record),
            iteration_s=max(means, default=0),
        )

    @cached_property
    def generated(self) -> tuple[GeneratedFlows, ...]:
        """The flows sent by generators of single flows."""
        return generated_flows.generated(self.run.folder, self.manifest, self.record)

    @cached_property
    def captures(self) -> tuple[Capture, ...]:
        """Every capture that the run was to make."""
        measured_at = {node for job in self.manifest.jobs for node in job.nodes}
        measured_at |= {load.dst for load in self.record.loads}
        return tuple(
            Capture(
                node=one.node,
                port=one.port,
                captured=one.counts["captured"] if one.counts else None,
                received=one.counts["received"] if one.counts else None,
                dropped=one.counts["dropped"] if one.counts else None,
                gap="" if one.state == "complete" else f"{one.state} ({one.why})",
                needed=one.state == "ended early" and one.node in measured_at,
            )
            for one in self._planned
        )

    @cached_property
    def port_bytes(self) -> tuple[PortBytes, ...]:
        """Both directions of each port that was to be captured, beside the port's counters."""
        counting = self.manifest.nodes_running(COLLECTOR + nic.NAME)
        first = min(self.manifest.windows or (self.record,), key=lambda one: one.start_ns)
        return device_counters.port_bytes(
            self.run.packets,
            self.run.counters,
            self._planned,
            self.record.span_ns,
            first_ns=first.start_ns + (first.end_ns - first.start_ns) // FIRST_PART,
            counting=counting,
        )

    @cached_property
    def metered(self) -> tuple[MeteredBytes, ...]:
        """Both directions of each port that was metered beside its capture."""
        return device_counters.metered(
            throughput.CachedTable(self.table("metered")), self.run.packets, self._planned, self.record.span_ns
        )

    @cached_property
    def rails(self) -> tuple[RailBytes, ...]:
        """The bytes that each rail carried of each job."""
        return tuple(
            row
            for name, part in self._series.items()
            for row in rails.carried(
                self.run.packets,
                self.run.counters,
                spans=self.table("spans"),
                iterations=self.table("iterations"),
                manifest=self.manifest,
                part=part,
                window=self.record.name,
                whole=not self._lacks_capture(name),
            )
        )

    @cached_property
    def congestion(self) -> tuple[RailCongestion, ...]:
        """The losses and pauses of each rail whose device counts them."""
        return device_counters.congestion(self.run.counters, self.manifest.topology, self.record.span_ns)

    @cached_property
    def switch_ports(self) -> tuple[SwitchPort, ...]:
        """The counts of switches at the ports that were sampled."""
        return device_counters.switch_ports(self.run.counters, self.record.span_ns)

    @cached_property
    def fabric_links(self) -> tuple[fabric.LinkUse, ...]:
        """The use of each direction of the links of a fabric; nothing where there is one switch."""
        topology = self.manifest.topology
        if topology.fabric is None:
            return ()
        return fabric.links(self.run.queues, self.run.table("paths"), topology, self.record.span_ns)

    @cached_property
    def collisions(self) -> tuple[fabric.Collisions, ...]:
        """Elephants of each leaf of a fabric that shared an uplink while another was idle."""
        topology = self.manifest.topology
        if topology.fabric is None:
            return ()
        return fabric.collisions(self.run.table("paths"), topology, self.record.span_ns)

    @property
    def processor_waits(self) -> tuple[ProcessorWait, ...]:
        """The waiting of each job for processors."""
        return self._processors.waits

    @property
    def processor_use(self) -> tuple[ProcessorUse, ...]:
        """The use of each kernel's processors."""
        return self._processors.use

    @cached_property
    def timeout_waits(self) -> tuple[TimeoutWaits, ...]:
        """The waiting of each job for retransmission time-outs."""
        return timeouts.waits(
            self.run.timeouts,
            list(self._series.values()),
            self.manifest,
            flows=self.table("flows"),
            captured=self.table("capture_flows"),
        )

    @property
    def processor_shares(self) -> tuple[ProcessorShares, ...]:
        """The shares of each node's processor time."""
        return self._processors.rows

    @property
    def variation(self) -> tuple[Variation, ...]:
        """The variation of each rank's iterations."""
        return tuple(row for part in self._series.values() for row in variation.rows(part, self.run.logged))

    @cached_property
    def _series(self) -> Mapping[str, JobSeries]:
        """The counted iterations of each job."""
        spans = self.record.iterations
        return {
            job: whole.within(spans[job].first, spans[job].last) if job in spans else whole.within(0, -1)
            for job, whole in self.run.jobs.items()
        }

    @cached_property
    def _planned(self) -> tuple[trust.Planned, ...]:
        """The captures as they are for a window that ends when this one does."""
        return trust.until(self.run.planned, self.record.end_ns)

    @cached_property
    def _arrivals(self) -> Arrivals:
        return Arrivals(
            manifest=self.manifest,
            packets=self.run.packets,
            capture_flows=self.table("capture_flows"),
            counters=self.run.counters,
            cross_packets=lambda: self.run.cross_packets,
            partial=self._partial,
        )

    @cached_property
    def _processors(self) -> WindowProcessors:
        return self.run.processors.window(self.record)

    @cached_property
    def _sent(self) -> Mapping[str, tuple[float, float]]:
        """The bytes that a rank of each job sent in an iteration, and the share that the window's ends leave open.

        NaN where that is not known: a capture is not whole, or jobs share hosts.
        """
        return {name: self._sent_by(name, part) for name, part in self._series.items()}

    def _sent_by(self, name: str, part: JobSeries) -> tuple[float, float]:
        job, span = self.manifest.job(name), part.span_ns
        mixed = any(name in pair for *pair, _ in self.manifest.shared_hosts)
        if span is None or mixed or self._lacks_capture(name):
            return math.nan, 0.0
        done = spent(self.table("iterations"), name, span)
        usual = sum(done.values()) / len(done)  # of ranks that do not log
        return throughput.sent_bytes(
            self.run.packets,
            job=name,
            nodes=job.nodes,
            ports={node.name: node.devices for node in self.manifest.topology.hosts},
            span_ns=span,
            iterations=[done.get(rank.rank, usual) for rank in job.ranks],
        )

    def _partial(self, node: str, device: str | None) -> bool:
        """Return whether a capture there was to be made (at any device: None) and is not whole."""
        return any(one.node == node and device in (None, one.port) for one in self._planned if one.state != "complete")

    def _lacks_capture(self, job: str) -> bool:
        """Return whether one of the captures at a job's rails is not whole."""
        devices = {host.name: host.devices for host in self.manifest.topology.hosts}
        nodes = self.manifest.job(job).nodes
        return any(self._partial(node, device) for node in nodes for device in devices.get(node) or (None,))

    def _job(self, name: str) -> JobIterations:
        job, part = self.manifest.job(name), self._series[name]
        sent, edges = self._sent[name]
        return JobIterations(
            name=name,
            iterations=len(part.iteration),
            incomplete=part.incomplete,
            ranks=sum(rank.logs for rank in job.ranks),
            ranks_seen=len(part.ranks),
            sent_bytes=sent,
            theory_bytes=job.theory_bytes,
            edges=edges,
        )

    def _training(self, part: JobSeries) -> Training:
        job = self.manifest.job(part.job)
        summary, trend = part.summary(), drift(part.seconds)
        return Training(
            job=part.job,
            ranks=len(job.ranks),
            iterations=len(part.iteration),
            effective_iterations=summary.effective,
            mean_s=summary.mean.value,
            mean_low_s=summary.mean.low,
            mean_high_s=summary.mean.high,
            p50_s=summary.p50.value,
            p50_low_s=summary.p50.low,
            p50_high_s=summary.p50.high,
            p99_s=summary.p99.value,
            p99_low_s=summary.p99.low,
            p99_high_s=summary.p99.high,
            sent_bytes=self._sent[part.job][0],
            theory_bytes=job.theory_bytes,
            left_out=warmup.left_out(self.record, part.job),
            absorbed=absorbed(self.table("iterations"), part),
            drift=trend.share,
            drift_low=trend.low,
            drift_high=trend.high,
            drift_p=trend.p,
            interval_note=interval_note(summary),
            **asdict(paces.kept(job, part, self.run.jobs)),
        )
