"""What a run's windows amount to: loads, training figures and verdicts, from its tables and manifest."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from orchestrator.analysis.stats.iterations import JobSeries, series, spent
from orchestrator.analysis.stats.steady import Drift, drift
from orchestrator.analysis.traffic import throughput, trust
from orchestrator.analysis.windows.judging import (
    capture_gates,
    clock_gates,
    conditions,
    congested,
    course,
    gates,
    railbytes,
    steadiness,
    switchports,
    transports,
)
from orchestrator.analysis.windows.judging.gates import Evidence, Tolerances
from orchestrator.analysis.windows.judging.load_gates import Load
from orchestrator.analysis.windows.ranks import recorded, variation
from orchestrator.analysis.windows.readings import generated, hostevents, portcounts, serving
from orchestrator.analysis.windows.readings.arrivals import Arrivals
from orchestrator.parts.collectors import cpu, nic, processor
from orchestrator.parts.registry import COLLECTOR
from orchestrator.parts.rows import TABLES, Columns, Row
from orchestrator.store.manifests import window_records
from orchestrator.store.manifests.records import Manifest
from orchestrator.store.manifests.window_records import Training, Window
from orchestrator.store.tabular import tables

NOTHING: Mapping[tuple[str, str], str] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What the windows of a run amount to, as its manifest and as its tables say it."""

    windows: tuple[Window, ...]
    tables: Mapping[str, Columns]


@dataclass(frozen=True, slots=True)
class _Tables:
    """The tables that a verdict needs, as pyarrow Tables or what keeps one."""

    packets: throughput.Kept
    capture_flows: Any
    counters: throughput.Kept
    iterations: Any
    jobs: Mapping[str, JobSeries]
    planned: tuple[trust.Planned, ...]
    delays: Any
    one_way: Sequence[Row]
    served: serving.Samples
    spans: Any
    transports: tuple[transports.Transport, ...]

    def partial(self, node: str, device: str | None) -> bool:
        """Whether a capture there was to be made (at any device: None) and is not whole."""
        return any(one.node == node and device in (None, one.port) for one in self.planned if one.state != "complete")

    def lacks(self, manifest: Manifest, job: str) -> bool:
        """Whether one of the captures at a job's rails is not whole."""
        devices = {host.name: host.devices for host in manifest.topology.hosts}
        nodes = manifest.job(job).nodes
        return any(self.partial(node, device) for node in nodes for device in devices.get(node) or (None,))


def measure(
    folder: Path,
    manifest: Manifest,
    *,
    tolerances: Mapping[str, Tolerances],
    problems: Sequence[str] = (),
    lost: Mapping[tuple[str, str], str] = NOTHING,
) -> Outcome:
    """Judge every window of a run whose other tables lie in `folder`; `tolerances` by window.

    What the manifest says of a window's verdict is not looked at. `problems` are those of reading captures, and `lost`
    says why a collector (node, launch) brought nothing; both count against every window.
    """
    import pyarrow.compute as pc

    iterations = tables.read(folder, "iterations")
    named = (portcounts.NEEDED, hostevents.SWAP, hostevents.THROTTLES, serving.NEEDED)
    needed = pc.field("counter").isin([*chain(*named, railbytes.NEEDED, congested.NEEDED, switchports.NEEDED)])
    packets = tables.read(folder, "packets")
    counters = throughput.Kept(tables.read(folder, "counters", where=needed))
    whole = _Tables(
        throughput.Kept(packets),
        tables.read(folder, "capture_flows"),
        counters,
        iterations,
        {job.name: series(iterations, job.name) for job in manifest.jobs},
        trust.planned(manifest, tables.read(folder, "captures"), packets),
        tables.read(folder, "delays"),
        tables.read(folder, "one_way").to_pylist(),
        serving.samples(counters, tables.read(folder, "tasks"), manifest),
        tables.read(folder, "spans"),
        transports.found(manifest, tables.read(folder, "nccl_connections"), tables.read(folder, "unread")),
    )
    logged = recorded.logged(folder, iterations)
    measured: list[Window] = []
    # Rows of these tables.
    more: dict[str, list[Row]] = {"generated": [], "rails": [], "congestion": [], "switch_ports": []}
    for window in manifest.windows:
        data = replace(whole, planned=trust.until(whole.planned, window.end_ns))
        arrived = Arrivals(
            manifest=manifest,
            packets=data.packets,
            capture_flows=data.capture_flows,
            counters=counters,
            partial=data.partial,
        )
        loads = arrived.loads(window, generated.sent(folder, window))
        made = generated.measured(folder, manifest, window)
        more["generated"] += [{"window_name": window.name, **asdict(one)} for one in made]
        within = {job: _within(data.jobs[job], window) for job in data.jobs}
        sizes = {job: _sent(data, manifest, job, part) for job, part in within.items()}
        drifts = {job: drift(part.seconds) for job, part in within.items()}
        jobs = tuple(_job(manifest, part, sizes[job]) for job, part in within.items())
        courses = course.courses(
            manifest.topology,
            window,
            arrived=partial(arrived.course, window),
            schedules=generated.schedules(folder, manifest, window),
            iteration_s=max((float(np.mean(part.seconds)) for part in within.values() if len(part.seconds)), default=0),
        )
        served = data.served.window(window)
        carried = tuple(rail for part in within.values() for rail in _carried(data, manifest, part, window))
        more["rails"] += railbytes.rows(carried, window.name)
        congestion = congested.found(data.counters, manifest.topology, window.span_ns)
        more["congestion"] += [{"window_name": window.name, **one.row} for one in congestion]
        ports = switchports.found(data.counters, window.span_ns)
        more["switch_ports"] += [{"window_name": window.name, **one.row} for one in ports]
        evidence = _evidence(
            data,
            manifest,
            window,
            loads=loads,
            courses=courses,
            made=made,
            jobs=jobs,
            drifts=drifts,
            served=served,
            carried=carried,
            congestion=congestion,
            switch_ports=ports,
            problems=problems,
            lost=lost,
        )
        judged = gates.judge(evidence, tolerances[window.name])
        measured.append(
            replace(
                window,
                loads=_loads(window, loads),
                training=tuple(
                    _training(manifest, window, part, sent=sizes[job][0], trend=drifts[job])
                    for job, part in within.items()
                ),
                variation=tuple(row for part in within.values() for row in variation.rows(part, logged)),
                processors=served.rows,
                gates=tuple(judged),
                valid=gates.valid(judged),
                reasons=tuple(gates.reasons(judged)),
            )
        )
    return Outcome(windows=tuple(measured), tables=_columns(measured, more))


def _columns(measured: Sequence[Window], more: Mapping[str, list[Row]]) -> dict[str, Columns]:
    """The columns of the tables that say what windows amount to."""
    rows: dict[str, list[Row]] = {
        "windows": [
            {
                "window_name": window.name,
                "start_ns": window.start_ns,
                "end_ns": window.end_ns,
                "valid": window.valid,
                "reasons": "\n".join(window.reasons),
            }
            for window in measured
        ],
        **more,
    }
    for name in ("loads", "training", "variation", "processors"):
        rows[name] = [
            {"window_name": window.name, **asdict(row)} for window in measured for row in getattr(window, name)
        ]
    return {name: {column: [row[column] for row in found] for column in TABLES[name]} for name, found in rows.items()}


def _within(whole: JobSeries, window: Window) -> JobSeries:
    span = window.iterations.get(whole.job)
    return whole.within(span.first, span.last) if span else whole.within(0, -1)


def _loads(window: Window, found: Sequence[Load]) -> tuple[window_records.Load, ...]:
    """The loads that a window asks for with what arrived of each; NaN of one that was seen together with others."""
    achieved = {(load.source, load.src, load.dst, load.rail): load.achieved_bps for load in found}
    keys = [(load.source, load.src, load.dst, load.rail) for load in window.loads]
    return tuple(
        replace(load, achieved_bps=achieved.get(key, math.nan)) for key, load in zip(keys, window.loads, strict=True)
    )


def _sent(data: _Tables, manifest: Manifest, name: str, part: JobSeries) -> tuple[float, float]:
    """What a rank sent in an iteration, and the share of it that the window's ends leave open; NaN when not known."""
    job = manifest.job(name)
    devices = {node.name: node.devices for node in manifest.topology.hosts}
    span = part.span_ns
    mixed = any(name in pair for *pair, _ in trust.shared_hosts(manifest.jobs))
    if span is None or mixed or data.lacks(manifest, name):
        return math.nan, 0.0
    done = spent(data.iterations, name, span)
    usual = sum(done.values()) / len(done)  # of ranks that do not log
    return throughput.sent_bytes(
        data.packets,
        job=name,
        nodes=job.nodes,
        ports=devices,
        span_ns=span,
        iterations=[done.get(rank.rank, usual) for rank in job.ranks],
    )


def _carried(data: _Tables, manifest: Manifest, part: JobSeries, window: Window) -> tuple[railbytes.Carried, ...]:
    return railbytes.carried(
        data.packets,
        data.counters,
        spans=data.spans,
        iterations=data.iterations,
        manifest=manifest,
        part=part,
        window=window.name,
        whole=not data.lacks(manifest, part.job),
    )


def _job(manifest: Manifest, part: JobSeries, sent: tuple[float, float]) -> gates.Job:
    job = manifest.job(part.job)
    return gates.Job(
        name=part.job,
        iterations=len(part.iteration),
        incomplete=part.incomplete,
        ranks=sum(rank.logs for rank in job.ranks),
        ranks_seen=len(part.ranks),
        sent_bytes=sent[0],
        theory_bytes=job.theory_bytes,
        edges=sent[1],
    )


def _training(manifest: Manifest, window: Window, part: JobSeries, *, sent: float, trend: Drift) -> Training:
    job = manifest.job(part.job)
    summary = part.summary()
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
        sent_bytes=sent,
        theory_bytes=job.theory_bytes,
        left_out=steadiness.left_out(window, part.job),
        drift=trend.share,
        drift_low=trend.low,
        drift_high=trend.high,
        drift_p=trend.p,
    )


def _evidence(
    data: _Tables,
    manifest: Manifest,
    window: Window,
    *,
    loads: tuple[Load, ...],
    courses: tuple[course.Course, ...],
    made: tuple[gates.Generated, ...],
    jobs: tuple[gates.Job, ...],
    drifts: Mapping[str, Drift],
    served: serving.Served,
    carried: tuple[railbytes.Carried, ...],
    congestion: tuple[congested.Congestion, ...],
    switch_ports: tuple[switchports.SwitchPort, ...],
    problems: Sequence[str],
    lost: Mapping[tuple[str, str], str],
) -> Evidence:
    span = window.span_ns
    return Evidence(
        window=window.name,
        scale=manifest.scale,
        loads=loads,
        courses=courses,
        generated=made,
        captures=capture_gates.captures(data.planned, manifest, window),
        port_bytes=portcounts.ports(
            data.packets, data.counters, data.planned, span, counting=_nodes_of(manifest, nic.NAME)
        ),
        jobs=jobs,
        drifts=tuple(steadiness.found(window, job, trend) for job, trend in drifts.items()),
        shared_hosts=tuple(trust.shared_hosts(manifest.jobs)),
        clocks=clock_gates.known(manifest),
        one_way=tuple(clock_gates.OneWay(**{key: row[key] for key in TABLES["one_way"]}) for row in data.one_way),
        swapped_pages=tuple(hostevents.swapped_pages(data.counters, manifest, span)),
        counting_swap=_nodes_of(manifest, cpu.NAME),
        throttles=tuple(hostevents.throttles(data.counters, manifest, span)),
        free_disk_bytes=tuple((node, float(free)) for node, free in manifest.free_disk_bytes.items()),
        failed_collectors=tuple(
            (f"{launch.name} on {launch.node}", launch.failed, launch.required)
            for launch in manifest.launches
            if launch.role == "collector" and launch.failed
        ),
        lost_evidence=tuple(
            (f"{launch} on {node}", why, (node, launch) in _asked(manifest)) for (node, launch), why in lost.items()
        ),
        problems=tuple(problems),
        hits=tuple(
            conditions.Hits(name=one.name, share=one.share, seen=one.seen, hit=one.hit) for one in manifest.hits
        ),
        held=tuple(
            conditions.Held(
                node=row["node"],
                requested_s=row["requested_s"],
                packets=row["packets"],
                dropped=row["dropped"],
                p50_s=row["held_p50_s"],
                p99_s=row["held_p99_s"],
            )
            for row in data.delays.to_pylist()
        ),
        rails=carried,
        transports=data.transports,
        congestion=congestion,
        switch_ports=switch_ports,
        waiting=served.waiting,
        processors=served.processors,
    )


def _nodes_of(manifest: Manifest, collector: str) -> frozenset[str]:
    """The nodes on which a collector was to run."""
    return frozenset(one.node for one in manifest.launches if one.part == COLLECTOR + collector)


def _asked(manifest: Manifest) -> frozenset[tuple[str, str]]:
    """Node and launch of the collectors that an experiment asks for; every run has that of processors besides."""
    usual = COLLECTOR + processor.NAME
    return frozenset((one.node, one.name) for one in manifest.launches if one.role == "collector" and one.part != usual)
