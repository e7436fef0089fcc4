"""A command opens each file of an experiment, a sweep or a study once, and so do those that several of them name."""

from __future__ import annotations

import pytest

from orchestrator.core.machines import machine
from orchestrator.core.machines.machine import Machine
from orchestrator.experiment import opening
from tests.helpers.experiments import orch
from tests.helpers.opened import opens

INVENTORY = """\
link: 1gbit
hosts:
  n1: {ssh: n1, data: {address: 10.1.0.1/24, device: eth0}}
  n2: {ssh: n2, data: {address: 10.1.0.2/24, device: eth0}}
"""
COMMON = "measure: {iterations: 10}\n"
EXPERIMENT = """\
name: e
include: common.yaml
testbed: {inventory: rack.yaml}
vars: {model: resnet50}
workload: {ddp: {model: $model}}
traffic: [{iperf: {from: n1, to: n2, load: 200mbit}}]
"""
SWEEP = "name: %s\nexperiment: e.yaml\naxes:\n  model: [resnet50, vgg16]\n  traffic.0.iperf.load: [100mbit, 200mbit]\n"
PAPER = "{name: s, title: t, shows: x, sweeps: {quick: [a.yaml], full: [a.yaml, b.yaml]}, figures: [{title: f}]}\n"
FILES = {
    "rack.yaml": INVENTORY,
    "common.yaml": COMMON,
    "e.yaml": EXPERIMENT,
    "a.yaml": SWEEP % "a",
    "b.yaml": SWEEP % "b",
    "paper.yaml": PAPER,
}
OF_EXPERIMENT = {"e.yaml", "common.yaml", "rack.yaml"}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("more", [[], ["--json"], ["--local"], ["--set", "model=vgg16", "--set", "repetitions=2"]])
def test_a_plan_opens_an_experiment_once(folder, more):
    with opens(folder) as counted:
        status, _, err = orch("plan", "e.yaml", *more)
    assert (status, err) == (0, "")
    assert counted == dict.fromkeys(OF_EXPERIMENT, 1)


def test_a_plan_opens_a_sweep_and_what_its_points_name_once(folder):
    with opens(folder) as counted:
        status, out, err = orch("plan", "a.yaml")
    assert (status, err) == (0, ""), out
    assert counted == dict.fromkeys({"a.yaml", *OF_EXPERIMENT}, 1)


@pytest.mark.parametrize("command", [["plan", "paper.yaml"], ["study", ".", "--what"]])
def test_a_plan_opens_a_study_and_what_its_sweeps_name_once(folder, command):
    with opens(folder) as counted:
        status, out, err = orch(*command)
    assert (status, err) == (0, ""), out
    assert counted == dict.fromkeys({"paper.yaml", "a.yaml", "b.yaml", *OF_EXPERIMENT}, 1)


@pytest.mark.parametrize("name", ["e.yaml", "a.yaml", "rack.yaml"])
def test_testbeds_that_are_named_are_read_once(folder, name):
    with opens(folder) as counted:
        (named,) = opening.named_testbeds([folder / name])
    assert named.choice.inventory is not None
    assert counted == dict.fromkeys({name, *{"e.yaml": OF_EXPERIMENT, "a.yaml": OF_EXPERIMENT}.get(name, ())}, 1)


@pytest.mark.parametrize(("command", "name"), [("run", "e.yaml"), ("sweep", "a.yaml")])
def test_what_is_measured_is_read_once(folder, monkeypatch, command, name):
    """It ends where this machine is too small for it: by then everything is planned."""
    monkeypatch.setattr(machine, "local", lambda: Machine(processors=1, memory=1.0))
    with opens(folder) as counted:
        status, _, err = orch(command, name, "--local", "--results", "r")
    assert status == 1
    assert "of memory" in err
    assert {one: count for one, count in counted.items() if one in FILES} == dict.fromkeys({name, *OF_EXPERIMENT}, 1)


@pytest.mark.parametrize("name", ["e.yaml", "a.yaml", "paper.yaml"])
def test_a_file_with_a_mistake_is_read_once(folder, name):
    text = (folder / name).read_text()
    (folder / name).write_text(text.replace("name: ", "nam: ", 1))
    with opens(folder) as counted:
        status, _, err = orch("plan", name)
    assert status == 2
    assert f"{name}:1:" in err
    assert counted[name] == 1
