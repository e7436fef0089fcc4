"""What a run's windows amount to: loads, training figures and verdicts, from its tables and manifest."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from orchestrator.analysis.stats.iterations import JobSeries, series, spent
from orchestrator.analysis.stats.steady import Drift, drift
from orchestrator.analysis.traffic import throughput, trust
from orchestrator.analysis.windows import (
    clocks,
    conditions,
    course,
    gates,
    generated,
    portcounts,
    serving,
    steadiness,
    variation,
)
from orchestrator.analysis.windows.gates import Evidence, Tolerances
from orchestrator.analysis.windows.judgement import Gate
from orchestrator.parts.rows import TABLES, Columns
from orchestrator.store import tables

Manifest = Mapping[str, Any]
_SWAP = ("swap.in_pages", "swap.out_pages")
_THROTTLES = ("cpu.core_throttles", "cpu.package_throttles")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Columns of the tables that say what windows amount to, and the gates of each window by its id."""

    tables: Mapping[str, Columns]
    gates: Mapping[str, Sequence[Gate]]


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
    one_way: Sequence[Mapping[str, Any]]
    served: serving.Samples

    def partial(self, node: str, device: str | None) -> bool:
        """Whether a capture there was to be made (at any device: None) and is not whole."""
        return any(one.node == node and device in (None, one.port) for one in self.planned if one.state != "complete")


def measure(
    folder: Path, manifest: Manifest, *, tolerances: Mapping[str, Tolerances], problems: Sequence[str] = ()
) -> Outcome:
    """Judge every window of a run whose other tables lie in `folder`; `tolerances` by window.

    Of the manifest it reads seed, topology, jobs, windows (without their verdicts), launches, clocks and, where they
    are there, kernels and free_disk_bytes (of each node, the least seen). `problems` are those of reading captures, and
    count against every window.
    """
    import pyarrow.compute as pc

    iterations = tables.read(folder, "iterations")
    needed = pc.field("counter").isin([*portcounts.NEEDED, *_SWAP, *_THROTTLES, *serving.NEEDED])
    packets = tables.read(folder, "packets")
    counters = throughput.Kept(tables.read(folder, "counters", where=needed))
    data = _Tables(
        throughput.Kept(packets), tables.read(folder, "capture_flows"),
        counters,
        iterations,
        {job["name"]: series(iterations, job["name"]) for job in manifest["jobs"]},
        trust.planned(manifest, tables.read(folder, "captures"), packets),
        tables.read(folder, "delays"),
        tables.read(folder, "one_way").to_pylist(),
        serving.samples(counters, tables.read(folder, "tasks"), manifest),
    )  # fmt: skip
    rows: dict[str, list[Mapping[str, Any]]] = {"windows": [], "loads": [], "generated": [], "training": [],
                                             "variation": [], "processors": []}  # fmt: skip
    moved = tables.read(folder, "spans", where=pc.field("lane") == "communication")
    logged = {"iterations": iterations, "overlaps": tables.read(folder, "overlaps"), "spans": moved}
    verdicts = {}
    for window in manifest["windows"]:
        sent = generated.sent(folder, window)
        loads = _loads(data, manifest, window, sent)
        rows["loads"] += [
            {
                "window_name": window["window"], "source": load.source, "src": load.src, "dst": load.dst,
                "requested_bps": load.requested_bps, "achieved_bps": load.achieved_bps,
            }
            for load in loads
        ]  # fmt: skip
        made = generated.measured(folder, manifest, window)
        rows["generated"] += [{"window_name": window["window"], **asdict(one)} for one in made]
        within = {job: _within(data.jobs[job], window) for job in data.jobs}
        sizes = {job: _sent(data, manifest, job, part) for job, part in within.items()}
        drifts = {job: drift(part.seconds) for job, part in within.items()}
        rows["training"] += [
            _training(manifest, window, part, sent=sizes[job][0], trend=drifts[job]) for job, part in within.items()
        ]
        rows["variation"] += [
            row for part in within.values() for row in variation.rows(part, logged, window=window["window"])
        ]
        jobs = tuple(_job(manifest, part, sizes[job]) for job, part in within.items())
        nodes = {node["name"]: node for node in manifest["topology"]["nodes"]}
        courses = course.courses(
            data.packets, nodes, window, whole=lambda node, port: not data.partial(node, port),
            schedules=generated.schedules(folder, manifest, window),
            iteration_s=max((float(np.mean(part.seconds)) for part in within.values() if len(part.seconds)), default=0),
        )  # fmt: skip
        served = data.served.window(window)
        rows["processors"] += served.rows
        evidence = _evidence(
            data, manifest, window, loads=loads, courses=courses, made=made, jobs=jobs, drifts=drifts, served=served,
            problems=problems,
        )  # fmt: skip
        judged = gates.judge(evidence, tolerances[window["window"]])
        verdicts[window["window"]] = judged
        rows["windows"].append(
            {
                "window_name": window["window"], "start_ns": window["start_ns"], "end_ns": window["end_ns"],
                "valid": gates.valid(judged), "reasons": "\n".join(gates.reasons(judged)),
            }
        )  # fmt: skip
    columns = {name: {column: [row[column] for row in rows[name]] for column in TABLES[name]} for name in rows}
    return Outcome(tables=columns, gates=verdicts)


def _within(whole: JobSeries, window: Mapping[str, Any]) -> JobSeries:
    span = window["iterations"].get(whole.job)
    return whole.within(span["first"], span["last"]) if span else whole.within(0, -1)


def _loads(
    data: _Tables, manifest: Manifest, window: Mapping[str, Any], sent: Mapping[tuple[str, str], Mapping[str, float]]
) -> tuple[gates.Load, ...]:
    nodes = {node["name"]: node for node in manifest["topology"]["nodes"]}
    begin, end = window["start_ns"], window["end_ns"]
    found = []
    for load in window["loads"]:
        source, src, dst = load["source"], load["src"], load["dst"]
        port = nodes[dst].get("device") or None
        achieved = throughput.achieved_bps(
            data.packets, data.capture_flows, source=source, dst=dst, port=port,
            src_address=nodes[src]["address"], begin_ns=begin, end_ns=end,
            sent=sent.get((source, nodes[dst]["address"])),
        )  # fmt: skip
        if data.partial(dst, port):
            achieved = math.nan
        arrived = throughput.bins(
            data.packets, {"node": dst, "port": port, "direction": "in", "kind": "cross", "name": source}
        )
        found.append(
            gates.Load(
                source=source, src=src, dst=dst, requested_bps=load["requested_bps"], achieved_bps=achieved,
                longest_gap_s=arrived.longest_gap_s(begin, end),
            )
        )  # fmt: skip
    return tuple(found)


def _sent(data: _Tables, manifest: Manifest, name: str, part: JobSeries) -> tuple[float, float]:
    """What a rank sent in an iteration, and the share of it that the window's ends leave open; NaN when not known."""
    ranks = _planned_job(manifest, name)["ranks"]
    nodes = [rank["node"] for rank in ranks]
    devices = {node["name"]: node["device"] for node in manifest["topology"]["nodes"] if node.get("device")}
    span = part.span_ns
    mixed = any(name in pair for *pair, _ in trust.shared_hosts(manifest["jobs"]))
    if span is None or mixed or any(data.partial(node, devices.get(node)) for node in nodes):
        return math.nan, 0.0
    done = spent(data.iterations, name, span)
    usual = sum(done.values()) / len(done)  # of ranks that do not log
    return throughput.sent_bytes(
        data.packets, job=name, nodes=nodes, ports=devices, span_ns=span,
        iterations=[done.get(rank["rank"], usual) for rank in ranks],
    )  # fmt: skip


def _planned_job(manifest: Manifest, name: str) -> Mapping[str, Any]:
    (job,) = (job for job in manifest["jobs"] if job["name"] == name)
    found: Mapping[str, Any] = job
    return found


def _theory(job: Mapping[str, Any]) -> float:
    return float((job.get("theory") or {}).get("bytes_per_iteration", math.nan))


def _job(manifest: Manifest, part: JobSeries, sent: tuple[float, float]) -> gates.Job:
    job = _planned_job(manifest, part.job)
    logging = sum(rank.get("logs", True) for rank in job["ranks"])
    return gates.Job(
        name=part.job, iterations=len(part.iteration), incomplete=part.incomplete, ranks=logging,
        ranks_seen=len(part.ranks), sent_bytes=sent[0], theory_bytes=_theory(job), edges=sent[1],
    )  # fmt: skip


def _training(
    manifest: Manifest, window: Mapping[str, Any], part: JobSeries, *, sent: float, trend: Drift
) -> dict[str, Any]:
    job = _planned_job(manifest, part.job)
    summary = part.summary(seed=manifest["seed"])
    row: dict[str, Any] = {
        "window_name": window["window"], "job": part.job, "ranks": len(job["ranks"]), "iterations": len(part.iteration),
        "sent_bytes": sent, "theory_bytes": _theory(job), **steadiness.columns(window, part.job, trend),
    }  # fmt: skip
    for key, estimate in (("mean", summary.mean), ("p50", summary.p50), ("p99", summary.p99)):
        row |= {f"{key}_s": estimate.value, f"{key}_low_s": estimate.low, f"{key}_high_s": estimate.high}
    return row


def _evidence(
    data: _Tables, manifest: Manifest, window: Mapping[str, Any], *, loads: tuple[gates.Load, ...],
    courses: tuple[course.Course, ...],
    made: tuple[gates.Generated, ...], jobs: tuple[gates.Job, ...], drifts: Mapping[str, Drift],
    served: serving.Served, problems: Sequence[str],
) -> Evidence:  # fmt: skip
    span = (window["start_ns"], window["end_ns"])
    taking_part = sorted({launch["node"] for launch in manifest["launches"]})
    return Evidence(
        window=window["window"],
        loads=loads,
        courses=courses,
        generated=made,
        captures=_captures(data, manifest, window),
        port_bytes=portcounts.ports(data.packets, data.counters, data.planned, span),
        jobs=jobs,
        drifts=tuple(steadiness.found(window, job, trend) for job, trend in drifts.items()),
        shared_hosts=tuple(trust.shared_hosts(manifest["jobs"])),
        clocks=clocks.known(manifest),
        one_way=tuple(clocks.OneWay(**{key: row[key] for key in TABLES["one_way"]}) for row in data.one_way),
        swapped_pages=tuple((node, _growth(data, node, _SWAP, span)) for node in taking_part),
        throttles=tuple((node, _growth(data, node, _THROTTLES, span)) for node in taking_part),
        free_disk_bytes=tuple((node, float(free)) for node, free in manifest.get("free_disk_bytes", {}).items()),
        failed_collectors=tuple(
            (f"{launch['name']} on {launch['node']}", launch["failed"], launch.get("required", True))
            for launch in manifest["launches"]
            if launch["role"] == "collector" and launch.get("failed")
        ),
        problems=tuple(problems),
        hits=tuple(
            conditions.Hits(name=one["name"], share=one["share"], seen=one["seen"], hit=one["hit"])
            for one in manifest.get("hits", [])
        ),
        held=tuple(
            conditions.Held(
                node=row["node"], requested_s=row["requested_s"], packets=row["packets"], dropped=row["dropped"],
                p50_s=row["held_p50_s"], p99_s=row["held_p99_s"],
            )
            for row in data.delays.to_pylist()
        ),
        waiting=served.waiting,
        processors=served.processors,
    )  # fmt: skip


def _captures(data: _Tables, manifest: Manifest, window: Mapping[str, Any]) -> tuple[gates.Capture, ...]:
    measured_at = {rank["node"] for job in manifest["jobs"] for rank in job["ranks"]}
    measured_at |= {load["dst"] for load in window["loads"]}
    found = []
    for one in data.planned:
        counts = one.counts or {}
        found.append(
            gates.Capture(
                node=one.node, port=one.port, captured=counts.get("captured"), received=counts.get("received"),
                dropped=counts.get("dropped"), gap="" if one.state == "complete" else f"{one.state} ({one.why})",
                needed=one.state == "ended early" and one.node in measured_at,
            )
        )  # fmt: skip
    return tuple(found)


def _growth(data: _Tables, node: str, counters: Sequence[str], span: tuple[int, int]) -> float:
    """By how much counters of a node as a whole grew together; NaN when none of them was sampled."""
    grown = [
        throughput.counter_growth(data.counters, node=node, port="", counter=counter, span_ns=span)
        for counter in counters
    ]
    known = [value for value in grown if not math.isnan(value)]
    return math.fsum(known) if known else math.nan
