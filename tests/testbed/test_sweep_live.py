"""A sweep on a local testbed: cut off at random moments, it ends with the points that it was to measure."""

from __future__ import annotations

import random
import signal
import time

import pytest
import yaml

from orchestrator.store import index, sweeps
from tests.helpers.orch_runs import TRIES, in_stage, last_json, light, nothing_is_left, orch, start, wait_for, write

pytestmark = [pytest.mark.testbed, pytest.mark.variants]

LOADS = ["0bit", "2gbit", "4gbit", "6gbit"]


def sweep_file(folder, **more):
    experiment = light(measure={"warmup": 2, "iterations": 15, "at_most": "30s"})
    del experiment["name"]
    data = {"name": "s", "mode": "windows", "attempts": 5, **more, "experiment": experiment}
    return write(folder, {"axes": {"traffic.0.iperf.load": LOADS}, **data}, "sweep.yaml")


def test_a_sweep_that_is_killed_and_interrupted_ends_with_the_same_points(tmp_path):
    file, results = sweep_file(tmp_path), tmp_path / "results"
    moments = random.Random()  # noqa: S311
    for number in (signal.SIGKILL, signal.SIGINT):
        process = start("sweep", file, "--results", results)
        wait_for(in_stage(results, "window"), 360, "a window")
        time.sleep(moments.uniform(0, 3))
        process.send_signal(number)
        process.communicate(timeout=300)
        for entry in index.entries(results):
            nothing_is_left(entry.run)
    status, out, err = orch("sweep", file, "--results", results, "--json")
    assert status == 0, out + err
    (sweep,) = sweeps.sweeps(results)
    kept = sweeps.chosen(sweeps.measured(results, sweep))
    assert sorted(one.key for one in kept) == sorted(sweep.planned())
    assert sorted(one.measurement.values["traffic.0.iperf.load"] for one in kept) == LOADS
    assert not list(results.glob("*/*.partial"))
    for one in kept:
        assert one.achieved_bps == pytest.approx(one.requested_bps, rel=0.05)
    again = last_json(orch("sweep", file, "--results", results, "--json")[1])
    assert (again["runs_s"], all(one["valid"] for one in again["measurements"])) == (0, True)


def test_a_load_that_cannot_be_had_costs_its_own_window_alone(tmp_path):
    data = yaml.safe_load(sweep_file(tmp_path, attempts=1).read_text())
    data["axes"] = {"traffic.0.iperf.load": ["5gbit", "14gbit"]}
    data["experiment"]["conditions"] = [{"rate": {"where": "nic", "host": "h1", "rate": "10gbit"}}]
    file = write(tmp_path, data, "sweep.yaml")
    for attempt in range(TRIES):  # by a new sweep each, since with a single attempt a spoilt window is not repeated
        results = tmp_path / f"results{attempt}"
        status, out, err = orch("sweep", file, "--results", results, "--json")
        assert status == 3, out + err
        (run,) = index.entries(results)
        if [window.valid for window in run.manifest.windows] == [True]:
            break
    (window,) = run.manifest.windows
    (why,) = run.manifest.unreached.values()
    assert "h3 receives" in why
    assert "of 14gbit" in why
    assert (window.valid, window.reasons) == (True, ())
    valid = {one["point"]: one["valid"] for one in last_json(out)["measurements"]}
    assert sorted(valid.values()) == [False, True]
    before = len(index.entries(results))
    assert orch("sweep", file, "--results", results)[0] == 3
    assert len(index.entries(results)) == before, "it is not tried for ever"


def test_a_sweep_goes_on_until_its_levels_are_known(tmp_path):
    data = yaml.safe_load(sweep_file(tmp_path, until={"interval": "90%", "least": 2, "most": 4}).read_text())
    data["axes"] = {"traffic.0.iperf.load": ["0bit", "4gbit"]}
    file, results = write(tmp_path, data, "sweep.yaml"), tmp_path / "results"
    process = start("sweep", file, "--results", results)
    wait_for(in_stage(results, "window"), 360, "a window")
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=300)
    status, out, err = orch("sweep", file, "--results", results, "--json")
    assert status == 0, out + err
    known = last_json(out)["known"]
    assert [one["ended"] for one in known] == ["it is known"] * 2, known
    assert all(2 <= one["repetitions"] <= 4 and one["high"] <= 1.9001 * one["value"] for one in known)
    assert len(last_json(out)["measurements"]) == sum(one["repetitions"] for one in known)
    assert "it is known" in err
    again = last_json(orch("sweep", file, "--results", results, "--json")[1])
    assert (again["runs_s"], again["known"]) == (0, known)
