"""A sweep of 40 points in windows mode: how much of its time is spent inside measured windows."""

from __future__ import annotations

from collections.abc import Iterator

from tests.bench.commands import orch_sweep
from tests.bench.figure import Figure, Settings

GOAL = 0.85


def measure(settings: Settings) -> Iterator[Figure]:
    """A small model on two hosts, iperf beside it at 40 loads."""
    points = settings.times(40, 4)
    data = {
        "name": "bench",
        "mode": "windows",
        "axes": {"traffic.0.iperf.load": {"from": 0, "to": 0.25 * (points - 1), "count": points, "unit": "gbit"}},
        "experiment": {
            "testbed": {"local": {"hosts": 3, "link": "25gbit", "scale": 100}},
            "conditions": [{"congestion-control": "cubic"}],
            "workload": {"ddp": {"model": "mobilenet_v2", "compute_time": "40ms", "hosts": ["h1", "h2"]}},
            "traffic": [{"iperf": {"from": "h1", "to": "h3", "load": "5gbit", "streams": 2}}],
            "collect": ["tcpdump", "nic", "qdisc", "tcp", "cpu"],
            "measure": {"warmup": 5, "iterations": settings.times(150, 20), "at_most": "30s"},
        },
    }
    summary = orch_sweep(data, settings.scratch / "results")
    valid = sum(one["valid"] for one in summary["measurements"])
    yield Figure(
        what="share of the runs' time inside measured windows",
        unit="of 1",
        values=(summary["measured_s"] / summary["runs_s"],),
        against="requested",
        reference=(GOAL,),
        note=f"{summary['runs_s']:.0f} s for {points} points, {valid} of them valid",
    )
