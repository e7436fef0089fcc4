"""Every synchronization strategy, run for real, is recognized in what was captured, and sends whom what it should."""

from __future__ import annotations

import pytest

from orchestrator.report.runs import Run
from tests.helpers import wire
from tests.helpers.orch_runs import measured, nothing_is_left, small, write

pytestmark = pytest.mark.testbed

HOSTS = ["h1", "h2", "h3", "h4", "h5"]


@pytest.mark.parametrize(
    ("options", "shape", "heads"),
    [
        ({"strategy": "parameter-server", "servers": 2}, "parameter servers", {"h1", "h2"}),
        pytest.param({"strategy": "star"}, "star", {"h1"}, marks=pytest.mark.variants),
        pytest.param({"strategy": "binary-tree-star"}, "tree", None, marks=pytest.mark.variants),
        pytest.param({"strategy": "clique"}, "full mesh", None, marks=pytest.mark.variants),
    ],
    ids=lambda value: value["strategy"] if isinstance(value, dict) else "",
)
def test_a_strategy_is_seen_on_the_wire(tmp_path, options, shape, heads):
    workload = {"p2p": {"model": "mobilenet_v2", "compute_time": "60ms", "hosts": HOSTS, **options}}
    experiment = small(
        testbed={"local": {"hosts": 5, "link": "100gbit", "scale": 40}},
        workload=workload,
        traffic=None,
        collect=["tcpdump", "nic"],
        measure={"warmup": 2, "iterations": 40, "at_most": "60s"},
    )
    summary, results = measured(write(tmp_path, experiment), tmp_path / "results", "--no-report")
    (run,) = summary["runs"]
    sealed = Run(results / "small" / run["run"])
    pattern = wire.pattern_of(sealed)
    assert pattern.shape == shape or shape in pattern.same_as, pattern
    if heads is not None:
        assert {sealed.traffic.hosts[host] for host in pattern.hosts[: pattern.heads]} == heads
    assert wire.apart(wire.captured(sealed), wire.told(sealed)) < 0.07
    nothing_is_left(run["run"])
