"""A study on a local testbed: killed while it measures, it ends with all its points and a page of them."""

from __future__ import annotations

import signal

import pytest
import yaml
from orch_runs import in_stage, nothing_is_left, orch, small, start, wait_for, write

from orchestrator.store import index, sweeps

pytestmark = [pytest.mark.testbed, pytest.mark.any_user, pytest.mark.alone, pytest.mark.variants]

LOADS = {"a": ["0bit", "3gbit"], "b": ["2gbit", "5gbit"]}


def test_a_study_that_is_killed_ends_with_the_same_points_and_a_page(tmp_path):
    experiment = small(measure={"warmup": 2, "iterations": 15, "at_most": "30s"})
    del experiment["name"]
    for name, loads in LOADS.items():
        data = {"name": name, "mode": "windows", "axes": {"traffic.0.iperf.load": loads}, "experiment": experiment}
        write(tmp_path, data, f"{name}.yaml")
    file = tmp_path / "study.yaml"
    file.write_text(yaml.safe_dump({"name": "s", "paper": "salamy", "quick": ["a.yaml", "b.yaml"], "full": ["a.yaml"]}))
    results, page = tmp_path / "results", tmp_path / "page.html"
    arguments = ("study", "salamy", "--quick", "--file", file, "--results", results, "-o", page, "--wait", "5min")
    process = start(*arguments)
    wait_for(in_stage(results, "window"), 360, "a window")
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=300)
    for entry in index.entries(results):
        nothing_is_left(entry.run)
    status, out, err = orch(*arguments)
    assert status == 0, out + err
    for name, loads in LOADS.items():
        (one,) = sweeps.sweeps(results, name)
        kept = sweeps.chosen(sweeps.measured(results, one))
        assert sorted(measured.measurement.values["traffic.0.iperf.load"] for measured in kept) == sorted(loads)
    assert not list(results.glob("*/*.partial"))
    assert "mobilenet_v2, iperf" in page.read_text()
