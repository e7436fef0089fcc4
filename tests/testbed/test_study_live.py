"""A study on a local testbed: killed while it measures, it ends with all its points and a page of them."""

from __future__ import annotations

import json
import signal

import pytest
import yaml

from orchestrator.core.units import quantity
from orchestrator.store import index, sweeps
from tests.helpers.orch_runs import in_stage, nothing_is_left, orch, small, start, wait_for, write

pytestmark = [pytest.mark.testbed, pytest.mark.variants]

PRINTED_S = 0.3
LOADS = {"a": ["0bit", "3gbit"], "b": ["2gbit", "5gbit"]}


def paper(*, quick, **more):
    """A paper whose only figure is the iteration time by model."""
    check = {
        "what": "{model}: time",
        "by": ["model"],
        "value": "seconds",
        "says": "takes a while",
        "place": "nowhere",
        "most": 100.0,
        "because": "no training here takes longer",
        "fails": {"slow": [{"sql": "select * replace (seconds * 1000 as seconds) from answer"}]},
    }
    figure = {"title": "times", "ask": [{"iterations": {}}], "draw": [{"kind": "bars", "x": "model", "y": "seconds"}]}
    figures = [{**figure, "holds": [check]}]
    return {"name": "s", "title": "t", "shows": "times", "sweeps": {"quick": quick}, "figures": figures, **more}


def test_a_study_that_is_killed_ends_with_the_same_points_and_a_page(tmp_path):
    experiment = small(measure={"warmup": 2, "iterations": 15, "at_most": "30s"})
    del experiment["name"]
    for name, loads in LOADS.items():
        sweep = {"name": name, "mode": "windows", "attempts": 5, "experiment": experiment}
        write(tmp_path, {**sweep, "axes": {"traffic.0.iperf.load": loads}}, f"{name}.yaml")
    write(tmp_path, paper(quick=["a.yaml", "b.yaml"]), "paper.yaml")
    results, page = tmp_path / "results", tmp_path / "page.html"
    arguments = ("study", tmp_path, "--quick", "--results", results, "-o", page, "--wait", "5min")
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
    assert "mobilenet_v2: time" in page.read_text()


@pytest.mark.alone
def test_a_study_fits_its_compute_to_this_machine_before_it_measures(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    measure = {"warmup": 2, "iterations": 15, "at_most": "30s"}
    experiment = small(workload={"ddp": {"model": "resnet50"}}, traffic=None, measure=measure)
    write(tmp_path, {**experiment, "name": "zero"}, "zero.yaml")
    del experiment["name"]
    write(tmp_path, {"name": "a", "axes": {"workload.ddp.model": ["resnet50"]}, "experiment": experiment}, "a.yaml")
    calibrate = {"experiment": "zero.yaml", "iteration": {"resnet50": f"{PRINTED_S}s"}}
    results = tmp_path / "results"
    write(tmp_path, paper(quick=["a.yaml"], calibrate=calibrate), "paper.yaml")
    arguments = (tmp_path, "--quick", "--results", results, "--wait", "5min")
    status, out, err = orch("study", *arguments, "-o", tmp_path / "page.html")
    assert status == 0, out + err
    assert "compute of resnet50 is fitted to this machine first" in out + err
    (kept,) = (tmp_path / "cache/orch/calibration").glob("*.json")
    fitted = json.loads(kept.read_text())["models"]["resnet50"]
    assert fitted["iteration_s"] == pytest.approx(PRINTED_S, rel=0.01)
    assert fitted["compute_s"] < PRINTED_S
    runs = {
        entry.path.name: yaml.safe_load((entry.path / "experiment.yaml").read_text())
        for entry in index.entries(results)
    }
    times = [quantity(run["workload"]["ddp"]["compute_time"])[1] for run in runs.values() if run["name"] == "a"]
    assert times == [pytest.approx(fitted["compute_s"], abs=1e-6)]
    assert len(runs) == fitted["runs"] + 1
    status, out, err = orch("calibrate", *arguments)
    assert status == 0, out + err
    assert f"kept in {kept}" in out
    assert len(index.entries(results)) == len(runs)
