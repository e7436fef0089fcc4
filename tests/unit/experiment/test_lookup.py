"""A file that a file names lies beside it, or in the current folder; an error says where it was looked up."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.core.errors import ConfigError
from orchestrator.core.paths import lookup
from orchestrator.experiment import loading, paperfile, sweepfile
from tests.helpers.experiments import IPERF, WORKLOAD, changed

COMMAND = """\
workload:
  command:
    argv: ["{python}", train.py]
    files: [train.py]
    iterations: {pattern: 'took (?P<seconds>[\\d.]+)'}
"""
REPLAY = "  - replay: {from: h1, to: h2, schedule: flows.csv}\n"
WEBSEARCH = "  - websearch: {from: h1, to: h2, load: 20mbit, distribution: sizes.csv}\n"
RACK = """\
link: 1gbit
hosts:
  h1: {ssh: a, data: {address: 10.0.0.1/24, device: eth0}}
  h2: {ssh: b, data: {address: 10.0.0.2/24, device: eth0}}
"""
CONTENT = {
    "train.py": "",
    "flows.csv": "start_s,bytes,to\n0,1000,h2\n1,1000,h2\n",
    "sizes.csv": "0,0\n1000,1\n",
    "rack.yaml": RACK,
}
TEXTS = {
    "train.py": changed(WORKLOAD, COMMAND),
    "flows.csv": changed(IPERF, REPLAY),
    "sizes.csv": changed(IPERF, WEBSEARCH),
    "rack.yaml": changed("local: {hosts: 3, link: 1gbit, scale: 10}", "inventory: rack.yaml"),
}


def config_of(experiment, name):
    """The path in an experiment that a file's name became."""
    if name == "train.py":
        return str(Path(experiment.workload.config.files[0]))
    config = experiment.traffic[0].config
    return str(config.schedule if name == "flows.csv" else config.distribution)


@pytest.fixture
def here(tmp_path, monkeypatch):
    """The current folder, with a folder `exps` that has an experiment in it."""
    (tmp_path / "exps").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("place", ["exps", "."])
def test_a_file_is_found_beside_the_file_that_names_it_else_here(here, name, place):
    (here / "exps/e.yaml").write_text(TEXTS[name])
    (here / place / name).write_text(CONTENT[name])
    experiment, _ = loading.checked(Path("exps/e.yaml"), [], local=False)
    if name == "rack.yaml":
        assert set(experiment.testbed.inventory.hosts) == {"h1", "h2"}
    else:
        assert config_of(experiment, name) == str(Path(place) / name)


@pytest.mark.parametrize("name", [name for name in TEXTS if name != "rack.yaml"])
def test_the_one_beside_it_is_taken_before_the_one_here(here, name):
    (here / "exps/e.yaml").write_text(TEXTS[name])
    for place in ("exps", "."):
        (here / place / name).write_text(CONTENT[name])
    experiment, _ = loading.checked(Path("exps/e.yaml"), [], local=False)
    assert config_of(experiment, name) == f"exps/{name}"


@pytest.mark.parametrize("name", TEXTS)
def test_an_error_says_where_it_was_looked_up(here, name):
    (here / "exps/e.yaml").write_text(TEXTS[name])
    with pytest.raises(ConfigError, match=rf"^exps/e\.yaml:\d+:\d+: .*no file exps/{name} nor {name}; accepted: "):
        loading.checked(Path("exps/e.yaml"), [], local=False)


@pytest.mark.parametrize("name", [name for name in TEXTS if name != "rack.yaml"])
def test_a_resolved_experiment_names_the_same_file_from_its_run_folder(here, name):
    (here / "exps/e.yaml").write_text(TEXTS[name])
    (here / "exps" / name).write_text(CONTENT[name])
    experiment, _ = loading.checked(Path("exps/e.yaml"), [], local=False)
    (here / "results").mkdir()
    (here / "results/experiment.yaml").write_text(loading.resolved_text(experiment))
    again, _ = loading.checked(Path("results/experiment.yaml"), [], local=False)
    assert config_of(again, name) == f"exps/{name}"


def test_files_of_a_sweep_lie_beside_it_and_beside_its_experiment(here):
    (here / "sweeps").mkdir()
    (here / "exps/e.yaml").write_text(TEXTS["flows.csv"])
    (here / "exps/flows.csv").write_text(CONTENT["flows.csv"])
    (here / "sweeps/other.csv").write_text(CONTENT["flows.csv"])
    sweep = here / "sweeps/s.yaml"
    sweep.write_text(
        "name: s\nexperiment: ../exps/e.yaml\naxes:\n  traffic.0.replay.schedule: [flows.csv, other.csv]\n"
    )
    points = sweepfile.load(Path("sweeps/s.yaml")).points
    found = {config_of(point.experiment, "flows.csv") for point in points}
    assert {Path(path).resolve() for path in found} == {here / "exps/flows.csv", here / "sweeps/other.csv"}


def test_sweeps_and_studies_say_where_they_looked(here):
    (here / "exps/s.yaml").write_text("name: s\nexperiment: gone.yaml\naxes: {seed: [1]}\n")
    with pytest.raises(ConfigError, match=r"s\.yaml:2:1: experiment: no file exps/gone\.yaml nor gone\.yaml; accepted"):
        sweepfile.load(Path("exps/s.yaml"))
    (here / "exps/p.yaml").write_text(
        "name: p\ntitle: t\nshows: x\nfigures: [{title: f}]\nsweeps: {quick: [s.yaml, no.yaml]}\n"
    )
    (here / "exps/s.yaml").write_text(f"name: s\naxes: {{seed: [1]}}\nexperiment: {{{_flow()}}}\n")
    with pytest.raises(
        ConfigError, match=r"p\.yaml:5:26: sweeps\.quick\.1: no file exps/no\.yaml nor no\.yaml; accepted"
    ):
        paperfile.load(Path("exps/p.yaml"), version="quick")


def _flow():
    return (
        "testbed: {local: {hosts: 3, link: 1gbit, scale: 10}}, workload: {ddp: {model: resnet50}}, "
        "measure: {iterations: 10}"
    )


def test_a_secret_lies_beside_the_file_that_names_it(here):
    text = changed("{model: resnet50}", "{model: resnet50, env_from: {KEY: ./wandb.key, OTHER: /etc/no.key}}")
    (here / "exps/e.yaml").write_text(text)
    (here / "exps/wandb.key").write_text("x")
    experiment, _ = loading.checked(Path("exps/e.yaml"), [], local=False)
    assert experiment.workload.config.env_from == {"KEY": "exps/wandb.key", "OTHER": "/etc/no.key"}


def test_home_and_absolute_paths_are_as_they_are(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "x.csv").touch()
    assert lookup.find("~/x.csv", [Path("a")]) == tmp_path / "x.csv"
    assert lookup.candidates("/x", [Path("a"), Path("b")]) == (Path("/x"),)
    assert lookup.find("a\0b", [Path()]) is None
    assert lookup.candidates("x", [Path("a"), Path()]) == (Path("a/x"), Path("x"))
