"""Emulated compute fitted to a machine: what is fitted, what is kept, and what studies make of it."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from orchestrator.core.errors import ConfigError, OrchError, StoreError
from orchestrator.core.units import quantity
from orchestrator.experiment import paperfile
from orchestrator.experiment.experiment import resolved_data
from orchestrator.study import calibrating, studytext
from orchestrator.study.calibrating import Fitted, TooSlow

FOLDER = Path(__file__).parents[3] / "playbooks/papers/salamy"
SALAMY = FOLDER / "paper.yaml"


class Machine:
    """One whose ranks add a time to each iteration, less at larger scales, beside what links of a ring need."""

    def __init__(self, *, overhead_s=0.012, link_s=0.1, noise=0.003, seed=1):
        self.overhead_s, self.link_s, self.noise = overhead_s, link_s, noise
        self.random = np.random.default_rng(seed)
        self.asked = []

    def iteration(self, compute_s, times):
        self.asked.append((compute_s, times))
        level = max(compute_s, compute_s / 3 + self.link_s) + self.overhead_s / times
        return level * (1 + self.noise * self.random.standard_normal())

    def run(self, experiment, _label):
        data = resolved_data(experiment)
        compute_s = quantity(data["workload"]["ddp"]["compute_time"])[1]
        return self.iteration(compute_s, data["testbed"]["local"]["scale"] // 100)


class Quiet:
    """Progress that is kept."""

    def __init__(self):
        self.said = []

    def say(self, text):
        self.said.append(text)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize(("printed_s", "link_s"), [(0.16, 0.06), (0.37, 0.27), (0.84, 0.6), (0.38, 0.07)])
@pytest.mark.parametrize("first", [0.3, 0.7, 1.2])
def test_the_iteration_comes_as_close_as_runs_agree(printed_s, link_s, first, seed):
    machine = Machine(link_s=link_s, seed=seed)
    fitted = calibrating.fit(printed_s, machine.iteration, first_s=first * printed_s)
    assert abs(fitted.iteration_s / printed_s - 1) <= calibrating.CLOSE
    machine.noise = 0.0
    assert machine.iteration(fitted.compute_s, 1) == pytest.approx(printed_s, rel=0.025)
    assert fitted.runs == len(machine.asked) - 1


@pytest.mark.parametrize(("overhead_s", "carries"), [(0.13, 2), (0.3, 4), (0.6, 8), (2.0, None)])
def test_a_machine_that_is_too_slow_is_said_to_be_so_with_what_it_carries(overhead_s, carries):
    machine = Machine(overhead_s=overhead_s, link_s=0.07)
    with pytest.raises(TooSlow, match="without any compute") as caught:
        calibrating.fit(0.16, machine.iteration, first_s=0.148)
    assert caught.value.carries == carries


def test_runs_that_agree_on_nothing_are_given_up():
    times = iter([0.3, 0.1, 0.3, 0.1, 0.3, 0.1, 0.3])
    with pytest.raises(OrchError, match=r"in 6 runs: 0\.3 s with 0\.148"):
        calibrating.fit(0.16, lambda _compute_s, _times: next(times), first_s=0.148)


@pytest.fixture
def calibration(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return paperfile.load(SALAMY, version="quick").calibration


def test_what_is_fitted_is_kept_and_not_fitted_again(calibration):
    machine, quiet = Machine(link_s=0.08), Quiet()
    first = calibrating.carry_out(calibration, run=machine.run, progress=quiet)
    assert list(first) == ["vgg16", "resnet50"]
    runs = len(machine.asked)
    assert calibrating.carry_out(calibration, run=machine.run, progress=quiet) == first
    assert len(machine.asked) == runs
    assert calibrating.fitted_here(calibration) == first
    calibrating.carry_out(calibration, run=machine.run, progress=quiet, new=True)
    assert len(machine.asked) > runs
    kept = json.loads(calibrating.path_of(calibration).read_text())
    assert kept["machine"] == calibrating.machine()
    assert kept["machine"]["processors"] >= 1


def test_what_was_fitted_before_an_interruption_is_kept(calibration):
    machine = Machine(link_s=0.08)

    def run(experiment, label):
        if label.startswith("resnet50"):
            raise OrchError("gone")
        return machine.run(experiment, label)

    with pytest.raises(OrchError, match="gone"):
        calibrating.carry_out(calibration, run=run, progress=Quiet())
    assert list(calibrating.fitted_here(calibration)) == ["vgg16"]


def test_a_machine_too_slow_for_a_study_is_told_a_scale(calibration):
    with pytest.raises(OrchError, match="too slow for resnet50 at a scale of 100") as caught:
        calibrating.carry_out(calibration, run=Machine(overhead_s=0.3, link_s=0.05).run, progress=Quiet())
    assert "--set testbed.local.scale=400" in caught.value.hint


def test_another_scale_kernel_or_number_of_processors_is_another_calibration(calibration, monkeypatch):
    here = calibrating.path_of(calibration)
    larger = paperfile.load(SALAMY, ["testbed.local.scale=200"], version="quick").calibration
    assert calibrating.path_of(larger) != here
    same = paperfile.load(SALAMY, ["measure.at_most=90s"], version="quick").calibration
    assert calibrating.path_of(same) == here
    for key, value in (("kernel", "6.1"), ("processors", 96), ("cpu", "another")):
        machine = {**calibrating.machine(), key: value}
        with monkeypatch.context() as changed:
            changed.setattr(calibrating, "machine", lambda machine=machine: machine)
            assert calibrating.path_of(calibration) != here


@pytest.mark.parametrize("text", ["", "[]", '{"models": {"resnet50": {"compute_s": 1}}}', '{"models": 3}', "\xff"])
def test_a_damaged_file_is_one_error(calibration, text):
    path = calibrating.path_of(calibration)
    path.parent.mkdir(parents=True)
    path.write_text(text, encoding="latin-1")
    with pytest.raises(StoreError, match="holds no calibration"):
        calibrating.fitted_here(calibration)


def test_another_printed_time_is_fitted_anew(calibration):
    fitted = Fitted(compute_s=0.1, iteration_s=0.2, printed_s=0.2, runs=1)
    calibrating.write(calibrating.path_of(calibration), {"resnet50": fitted})
    assert calibrating.fitted_here(calibration) == {}


def test_a_study_measures_with_the_fitted_times():
    found = paperfile.load(SALAMY, version="quick", compute_s={"resnet50": 0.1471, "vgg16": 0.2312})
    assert found.calibration is None
    times = {
        (point.resolved["workload"]["ddp"]["model"], point.resolved["workload"]["ddp"]["compute_time"])
        for definition in found.sweeps
        for point in definition.points
    }
    assert times == {("resnet50", "147.1ms"), ("vgg16", "231.2ms")}


def test_a_time_that_was_set_is_left_and_calibrated_by_nobody():
    found = paperfile.load(SALAMY, ["workload.ddp.compute_time=99ms"], version="quick", compute_s={"resnet50": 0.1471})
    assert found.calibration is None
    assert all(p.resolved["workload"]["ddp"]["compute_time"] == "99ms" for one in found.sweeps for p in one.points)


def test_the_full_study_calibrates_all_models_to_what_is_printed_over_rdma():
    full = paperfile.load(SALAMY, version="full").calibration
    rows = paperfile.read(SALAMY).printed["baseline"].rows
    assert full.iteration_s == {row["model"]: float(row["seconds"]) for row in rows if row["over"] == "rdma"}


def test_a_study_says_beforehand_that_it_calibrates(tmp_path):
    text = studytext.what_text(paperfile.load(SALAMY, version="quick"), tmp_path)
    assert "first: compute of vgg16, resnet50 is fitted to this machine, unless it was" in text


@pytest.mark.parametrize("experiment", ["a.yaml", "b.yaml"])
def test_an_experiment_with_traffic_calibrates_nothing(calibration, experiment):
    loaded = replace(calibration, experiment=FOLDER / experiment)
    with pytest.raises(ConfigError, match=f"{experiment}: accepted: one workload and one window, without cross"):
        calibrating.carry_out(loaded, run=Machine().run, progress=Quiet())


def test_an_experiment_that_is_not_there_is_named(tmp_path):
    shutil.copytree(FOLDER, tmp_path / "salamy")
    path = tmp_path / "salamy/paper.yaml"
    path.write_text(path.read_text().replace("zero.yaml", "nowhere.yaml"))
    with pytest.raises(ConfigError, match=r"calibrate\.experiment: no file .*nowhere\.yaml"):
        paperfile.load(path, version="quick")
