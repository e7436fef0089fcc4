"""Live metrics of runs for Prometheus: an endpoint while they go on, a text file of what a sweep found."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
    start_http_server,
    write_to_textfile,
)

from orchestrator.core.errors import ConfigError, StoreError
from orchestrator.execution.observers.observing import HostSample, LoggedIteration, Observer
from orchestrator.store.manifests.summaries import Summary
from orchestrator.store.sweeps import MeasuredWindow, Sweep

HERE = "127.0.0.1"
# Iterations last from milliseconds (small models) to minutes (under bursts): about 1.5 between two bounds.
BUCKETS = tuple(round(0.005 * 1.5**power, 6) for power in range(28))


class Metrics(Observer):
    """Counters and gauges of the runs of this process, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._phase_name = ""
        self._phase_began = time.monotonic()
        self._last: dict[str, HostSample] = {}
        registry = self.registry
        self.run = Gauge("orch_run_info", "The run under way", ["run", "experiment", "sweep"], registry=registry)
        self.in_phase = Gauge("orch_phase", "1 for the phase that the run is in", ["phase"], registry=registry)
        self.phases = Counter("orch_phase_seconds", "Time spent in each phase", ["phase"], registry=registry)
        self.iterations = Histogram(
            "orch_iteration_seconds",
            "Iteration times of each rank",
            ["training", "rank"],
            buckets=BUCKETS,
            registry=registry,
        )
        host = ["host"]
        self.requested = Gauge(
            "orch_load_requested_bits_per_second",
            "Cross traffic that a host is to receive, full size",
            host,
            registry=registry,
        )
        self.achieved = Gauge(
            "orch_load_received_bits_per_second", "All that such a host receives, full size", host, registry=registry
        )
        self.received = Gauge(
            "orch_host_receive_bits_per_second", "What a host receives, full size", host, registry=registry
        )
        self.sent = Gauge("orch_host_transmit_bits_per_second", "What a host sends, full size", host, registry=registry)
        self.dropped = Counter(
            "orch_host_dropped_packets", "Packets dropped at a host's device", ["host", "direction"], registry=registry
        )
        self.queue_dropped = Counter(
            "orch_host_queue_dropped_packets",
            "Packets dropped by the queueing discipline of a host's device",
            host,
            registry=registry,
        )
        self.retransmits = Counter(
            "orch_host_retransmits", "TCP segments that a host sent again", host, registry=registry
        )
        self.failures = Counter(
            "orch_failures", "Processes of runs that failed", ["host", "process"], registry=registry
        )
        self.runs = Counter("orch_runs", "Sealed runs", ["outcome"], registry=registry)
        self.windows = Counter("orch_windows", "Measured windows", ["valid"], registry=registry)
        self.capture_drops = Counter("orch_capture_dropped_packets", "Packets that captures dropped", registry=registry)

    @property
    def samples_hosts(self) -> bool:
        return True

    def run_began(self, manifest: Summary) -> None:
        self.run.clear()
        self._last.clear()
        self.run.labels(manifest.run, manifest.experiment, manifest.sweep.id if manifest.sweep else "").set(1)

    def run_ended(self, manifest: Summary) -> None:
        self._leave_phase()
        for gauge in (self.run, self.requested, self.achieved, self.received, self.sent):
            gauge.clear()
        self.runs.labels(manifest.outcome).inc()
        for window in manifest.windows:
            self.windows.labels("true" if window.valid else "false").inc()
        self.capture_drops.inc(manifest.capture.dropped if manifest.capture else 0)

    def phase(self, name: str) -> None:
        self._leave_phase()
        self._phase_name = name
        self.in_phase.labels(name).set(1)

    def _leave_phase(self) -> None:
        now = time.monotonic()
        if self._phase_name:
            self.phases.labels(self._phase_name).inc(now - self._phase_began)
        self._phase_name, self._phase_began = "", now
        self.in_phase.clear()

    def iteration(self, logged: LoggedIteration, *, job: str, rank: int) -> None:
        self.iterations.labels(job, str(rank)).observe(logged.seconds)

    def failure(self, *, node: str, what: str) -> None:
        self.failures.labels(node, what).inc()

    def loads(self, *, requested: Mapping[str, float], received: Mapping[str, float], scale: int) -> None:
        self.requested.clear()
        for host, rate in requested.items():
            self.requested.labels(host).set(rate * scale)
        for host, rate in received.items():
            self.achieved.labels(host).set(rate * scale)

    def hosts(self, samples: Mapping[str, HostSample], *, scale: int) -> None:
        for node, now in samples.items():
            last = self._last.get(node)
            self._last[node] = now
            if last is None or (growth := now.since(last, scale=scale)) is None:
                continue
            self.received.labels(node).set(growth.received_bps)
            self.sent.labels(node).set(growth.sent_bps)
            self.dropped.labels(node, "in").inc(growth.received_dropped)
            self.dropped.labels(node, "out").inc(growth.sent_dropped)
            self.queue_dropped.labels(node).inc(growth.queue_dropped)
            self.retransmits.labels(node).inc(growth.retransmits)


@contextmanager
def served(address: str) -> Iterator[Metrics]:
    """Metrics that are to be had over HTTP while entered, at PORT for this machine alone or at ADDRESS:PORT."""
    match = re.fullmatch(r"(?:(.+):)?([0-9]{1,5})", address)
    if match is None or int(match[2]) > 65535:
        raise ConfigError(f"--metrics {address}: accepted: a port (9469), or an address and a port (0.0.0.0:9469)")
    metrics = Metrics()
    try:
        server, thread = start_http_server(int(match[2]), addr=match[1] or HERE, registry=metrics.registry)
    except OSError as error:
        raise ConfigError(f"--metrics {address}: {error.strerror}; accepted: a port that is free") from None
    try:
        yield metrics
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def exposition(metrics: Metrics) -> str:
    """Return what the endpoint says."""
    return generate_latest(metrics.registry).decode()


POINT = ("sweep", "point", "values")
FIGURES = ("mean_s", "p50_s", "p99_s")


def result_gauges(registry: CollectorRegistry) -> dict[str, Gauge]:
    """Return what is written of a sweep, by what each gauge has: a figure of a point, or of the sweep."""
    status = "Exit status of the sweep: 0 valid, 1 failed, 3 invalid, 4 slower than its baseline, 130 interrupted"
    made = {
        key: Gauge(
            f"orch_point_{key[:-2]}_seconds",
            f"Iteration time of a point ({key[:-2]})",
            [*POINT, "training"],
            registry=registry,
        )
        for key in FIGURES
    }
    for key, name, meaning, labels in (
        ("valid", "orch_point_valid_repetitions", "Valid measurements of a point", POINT),
        ("load", "orch_point_load_bits_per_second", "Achieved cross traffic of a point", POINT),
        ("ended", "orch_sweep_ended_timestamp_seconds", "When the sweep ended", POINT[:1]),
        ("status", "orch_sweep_status", status, POINT[:1]),
    ):
        made[key] = Gauge(name, meaning, labels, registry=registry)
    return made


def write_results(path: Path, sweep: Sweep, found: Sequence[MeasuredWindow], *, status: int) -> None:
    """Write what a sweep found for the text-file collector of a node exporter; whole or not at all.

    Of each point the mean over its valid repetitions of each figure; loads at full size.
    """
    registry = CollectorRegistry()
    gauges = result_gauges(registry)
    gauges["ended"].labels(sweep.name).set(time.time())
    gauges["status"].labels(sweep.name).set(status)
    for point in sweep.plan.points:
        mine = [one for one in found if one.point == point.point]
        who = (sweep.name, point.point, ", ".join(f"{axis}={value}" for axis, value in point.values.items()))
        gauges["valid"].labels(*who).set(len(mine))
        rates = [rate for rate in (one.achieved_bps for one in mine) if rate is not None]
        if rates:
            gauges["load"].labels(*who).set(sum(rates) / len(rates))
        rows = [row for one in mine for row in one.window.training]
        for job in dict.fromkeys(row.job for row in rows):
            for key in FIGURES:
                values = [getattr(row, key) for row in rows if row.job == job]
                known = [value for value in values if value is not None]
                if known:
                    gauges[key].labels(*who, job).set(sum(known) / len(known))
    try:
        write_to_textfile(str(path), registry)
    except OSError as error:
        raise StoreError(f"{path}: cannot be written: {error.strerror}") from None
