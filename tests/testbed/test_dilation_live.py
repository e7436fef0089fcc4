"""A dilated run, divided back, is the run that it stands for."""

from __future__ import annotations

import pytest

from tests.helpers.orch_runs import measured, nothing_is_left, small, write

pytestmark = [pytest.mark.testbed, pytest.mark.alone, pytest.mark.variants]

DILATION = 5


def run_of(folder, name, **local):
    """The summary, and the manifest's window, of a training without cross traffic."""
    data = small(
        name=name,
        testbed={"local": {"hosts": 3, "link": "25gbit", "scale": 100, **local}},
        workload={"ddp": {"model": "resnet50", "compute_time": "150ms"}},
        traffic=None,
        measure={"warmup": 2, "iterations": 12, "at_most": "60s"},
    )
    summary, _ = measured(write(folder, data, f"{name}.yaml"), folder / "results", "--no-report")
    (run,) = summary["runs"]
    nothing_is_left(run["run"])
    return run


def test_iterations_of_a_dilated_run_divided_back_last_as_long_as_those_of_an_undilated_one(tmp_path):
    plain = run_of(tmp_path, "plain")
    slow = run_of(tmp_path, "slow", dilation=DILATION)
    assert (slow["scale"], slow["dilation"]) == (100 // DILATION, DILATION)
    (one,), (other,) = (run["windows"][0]["jobs"] for run in (plain, slow))
    assert other["p50_s"] == pytest.approx(one["p50_s"], rel=0.05)
    sent = [job["bytes_per_iteration"] for job in (one, other)]
    assert sent[1]["measured"] == pytest.approx(sent[0]["measured"], rel=0.02)
    assert sent[1]["measured_raw"] == pytest.approx(DILATION * sent[0]["measured_raw"], rel=0.02)
    # What passed was as many times longer.
    assert slow["phases"]["window"] > 0.8 * DILATION * 12 * one["p50_s"]
