"""Points of the study: settings, iteration times, rings and overlap from captures and logs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from orchestrator.analysis.compare import points
from orchestrator.analysis.compare.points import MeasuredPoint
from orchestrator.analysis.stats.levels import one_a_run
from orchestrator.analysis.stats.statistics import Estimate
from orchestrator.analysis.traffic import hidden, pattern, traffic
from orchestrator.analysis.traffic.hidden import Hidden
from orchestrator.analysis.traffic.traffic import of_job
from orchestrator.analysis.windows.time_to_accuracy import Learning
from orchestrator.report.run import accuracy
from orchestrator.report.study.captured_windows import CapturedWindow, captured_windows
from orchestrator.store.rundir import Entry

LIBRARIES = {"gloo": "Gloo", "mpi": "Open MPI"}  # by what `controller` calls them
PARAMETER_BYTES = 4  # Horovod averages float32; what `compression` halves is left out


@dataclass(frozen=True, slots=True, kw_only=True)
class Ring:
    """The pattern of a window's payload between hosts: shape, hosts in the order of sending, score.

    `run` is the run's name. `order` says how it runs against the launch order, empty where it is no ring; `reverse` is
    the payload on the same edges the other way, as a share.
    """

    run: str
    shape: str
    hosts: tuple[str, ...]
    score: float
    order: str
    reverse: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """A rank: shares of the collectives' time, and of what its host sent, while it computed; NaN where unknown."""

    rank: int
    of_time: float
    of_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """A point; sizes in bytes at full size, times in seconds, rates in bit/s, payload an iteration of all workers."""

    model: str
    controller: str  # gloo or mpi: Horovod's, and so the communication library
    workers: int
    timeline: bool
    emulated: bool
    crowded: bool  # in some window the run itself kept the processors busy (gate own-processors)
    scale: int
    model_bytes: float
    link_bps: float
    batch: int | None
    computing_s: float
    seconds: Estimate
    run_seconds: tuple[float, ...]  # the mean of each run
    runs: int
    payloads: tuple[float, ...]  # of each captured run
    theory: float
    flows: int
    big_flows: int
    launched: tuple[str, ...]
    rings: tuple[Ring, ...]
    overlaps: tuple[Overlap, ...]
    lanes: tuple[frozenset[str], ...]  # of the spans that ranks recorded, of each captured run
    learned: tuple[Learning, ...]  # of each run whose model was judged by held-out images

    @property
    def payload(self) -> float:
        """Payload an iteration of all workers, mean over captured runs."""
        return float(np.mean(self.payloads))

    @property
    def label(self) -> str:
        """The settings, for people."""
        batch = "" if self.batch is None else f", {self.batch} samples"
        learns = "" if self.emulated else ", real compute"
        return f"{self.model} over {LIBRARIES[self.controller]}, {self.link_bps / 1e9:g} Gbit/s{batch}{learns}"


def trainings(entries: Sequence[Entry]) -> list[Training]:
    """Return every point of these runs that trains with Horovod, uncompressed, and was captured."""
    return [
        _training(point, found)
        for point in points.pooled(entries)
        if point.job.workload == "horovod"
        and point.value("workload.*.compression", "none") == "none"
        and point.job.theory is not None
        and (found := list(captured_windows(point)))
    ]


def _training(point: MeasuredPoint, found: Sequence[CapturedWindow]) -> Training:
    theory = point.job.theory
    if theory is None:
        raise AssertionError("a point without theory was left out")
    volumes = [one.volume for one in found]
    runs = {one.window.entry.run: one.run for one in found}
    launched = tuple(rank.node for rank in sorted(point.job.ranks, key=lambda rank: rank.rank))
    return Training(
        model=str(point.value("workload.*.model", "")),
        controller=str(point.value("workload.*.controller", "gloo")),
        workers=len(launched),
        timeline=bool(point.value("workload.*.timeline", False)),
        emulated=point.job.compute != "real",
        crowded=any(
            gate.name == "own-processors" and gate.passed is False for one in point.windows for gate in one.record.gates
        ),
        scale=point.scale,
        model_bytes=float(theory.parameters * PARAMETER_BYTES * point.scale),
        link_bps=min(link.rate for link in point.manifest.topology.links if link.host in launched),
        batch=point.value("workload.*.batch"),
        computing_s=float(np.mean([window.iterations(point.job.name).compute_s.mean() for window in point.windows])),
        seconds=point.mean_s,
        run_seconds=tuple(point.run_means_s),
        runs=len(point.windows),
        payloads=tuple(payload.value for payload in one_a_run(_payload(one) for one in found)),
        theory=theory.bytes_per_iteration * len(launched) * point.scale,
        flows=round(np.mean([volume.flows for volume in volumes])),
        big_flows=round(np.mean([len(volume.big) for volume in volumes])),
        launched=launched,
        rings=tuple(ring(one, launched) for one in found),
        overlaps=_overlaps(found[0]),
        learned=tuple(of[point.job.name] for one in found if point.job.name in (of := accuracy.learned(one.run))),
        lanes=tuple(frozenset(run.table("spans")["lane"].unique().to_pylist()) for run in runs.values()),
    )


def _payload(one: CapturedWindow) -> tuple[str, Estimate]:
    """Return a window's run and its payload an iteration."""
    return one.window.entry.run, Estimate(one.volume.step_payload, math.nan, math.nan)


def ring(one: CapturedWindow, launched: Sequence[str]) -> Ring:
    """Infer the ring of a window's training payload, its direction against the launch order, and the payload back."""
    hosts = one.traffic.hosts
    bytes_of = traffic.matrix(one.traffic, of_job(one.traffic, one.window.manifest.jobs[0].name))
    found = pattern.infer(bytes_of)
    ahead = sum(bytes_of[edge] for edge in found.edges)
    back = sum(bytes_of[after, before] for before, after in found.edges)
    alone = len(set(launched)) == len(launched)
    return Ring(
        run=one.window.entry.run,
        shape=found.shape,
        hosts=_from(launched[0], tuple(hosts[host] for host in found.hosts)),
        score=found.score,
        order=pattern.order_among(found, [hosts.index(host) for host in launched]) if alone else "",
        reverse=float(back / ahead) if ahead else float("nan"),
    )


def _from(first: str, hosts: tuple[str, ...]) -> tuple[str, ...]:
    """Rotate a ring to begin with this host, where it is on it."""
    start = hosts.index(first) if first in hosts else 0
    return hosts[start:] + hosts[:start]


def _overlaps(one: CapturedWindow) -> tuple[Overlap, ...]:
    """Return both shares of every rank that has one, in a window."""
    job = one.window.manifest.jobs[0]
    nothing = float("nan")
    timed = {
        row.rank: nothing if row.overlapped is None else row.overlapped
        for row in one.window.record.variation
        if row.job == job.name and row.rank >= 0
    }
    hosts = {rank.rank: rank.node for rank in job.ranks}
    sent: dict[int, Hidden] = {
        row.rank: row for row in hidden.hidden(one.traffic, one.run.table("iterations"), job=job.name, hosts=hosts)
    }
    return tuple(
        Overlap(rank=rank, of_time=timed.get(rank, nothing), of_bytes=sent[rank].share if rank in sent else nothing)
        for rank in sorted(hosts)
    )
