"""Metrics of a run in which everything happened, and what the dashboard asks for."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

from orchestrator.execution.observers import metrics
from orchestrator.execution.observers.observing import HostSample, LoggedIteration
from orchestrator.store.manifests.summaries import CaptureCounts, Point
from orchestrator.store.sweeps import MeasuredWindow, Plan, PlannedPoint, Sweep
from tests.helpers import manifests
from tests.helpers.sweep_files import window

DASHBOARD = Path(__file__).parents[2] / "playbooks" / "grafana" / "orch.json"
MANIFEST = manifests.made(scale=10, sweep={"id": "s1", "name": "nightly", "points": {}})


def sample(node="h1", *, second=0, grown=0, queue_bytes=0):
    return HostSample(
        node=node,
        wall_ns=10**18 + second * 10**9,
        received_bytes=grown,
        sent_bytes=2 * grown,
        received_dropped=grown,
        sent_dropped=0,
        queue_dropped=grown,
        retransmits=grown,
        queue_bytes=queue_bytes,
        busy_ticks=25 * second,
        total_ticks=100 * second,
    )


def logged(number, seconds, **more):
    """Return an iteration of so many seconds as a rank logs it; iterations follow one another."""
    start_ns = round(number * seconds * 1e9)
    return LoggedIteration(number=number, start_ns=start_ns, end_ns=start_ns + round(seconds * 1e9), **more)


def a_run(live: metrics.Metrics, *, ended=True) -> None:
    """Tell of a run; without its end it goes on."""
    live.run_began(MANIFEST)
    live.phase("window")
    for rank in (0, 1):
        live.iteration(logged(7, 0.2), job="training", rank=rank)
    live.loads(requested={"h1": 10e6}, received={"h1": 9e6}, scale=10)
    live.hosts({"h1": sample()}, scale=10)
    live.hosts({"h1": sample(second=1, grown=1000)}, scale=10)
    live.failure(node="h2", what="collector.nic")
    if ended:
        captured = CaptureCounts(captured=9, received=12, dropped=3)
        live.run_ended(replace(MANIFEST, windows=(manifests.window(**window("w1")),), capture=captured))


def results(path: Path) -> Path:
    """The text file of a sweep with one point that was measured, and one that was not."""
    values = [{"traffic.0.iperf.load": load} for load in ("1gbit", "2gbit")]
    points = tuple(PlannedPoint(point=f"p{number}", values=value) for number, value in enumerate(values))
    sweep = Sweep(path.parent, Plan(id="s1", name="nightly", began_ns=0, definition="d", points=points))
    found = [
        MeasuredWindow(
            path=path,
            manifest=MANIFEST,
            window=manifests.window(**window("w1", mean_s=seconds)),
            measurement=Point(point="p0", values=values[0], repetition=n, recheck=False),
        )
        for n, seconds in ((1, 0.1), (2, 0.2))
    ]
    metrics.write_results(path, sweep, found, status=3)
    return path


def expressions() -> list[str]:
    """What the dashboard's panels ask Prometheus for."""
    panels = json.loads(DASHBOARD.read_text())["panels"]
    return [target["expr"] for panel in panels for target in panel["targets"]]


def names_in(text: str) -> set[str]:
    """Names of our metrics."""
    return set(re.findall(r"\borch_[a-z0-9_]+", text))
