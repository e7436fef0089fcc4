"""`vars:` in files: defaults, types, `--set NAME=VALUE`, and where a mistake stands."""

from __future__ import annotations

import json

import pytest

from orchestrator.core.errors import ConfigError
from orchestrator.experiment import experiment, loading, sweepfile, variables
from orchestrator.experiment.paperfile import PaperFile
from orchestrator.experiment.sweepfile import SweepFile
from orchestrator.testbed.inventory import Inventory
from tests.helpers.experiments import orch

FILE = """\
name: t
vars:
  load: 200mbit
  model: {type: text, default: resnet50, help: what trains}
  count: 10
  ranks: [h1, h2]
testbed:
  local: {hosts: 3, link: 1gbit, scale: 10}
workload:
  ddp: {model: $model, hosts: $ranks, env: {WHAT: "${model}-of-$count$$", PRICE: "5$"}}
traffic:
  - iperf: {from: h1, to: h2, load: $load}
measure: {iterations: $count}
"""


def loaded(tmp_path, text=FILE, *options):
    path = tmp_path / "e.yaml"
    path.write_text(text)
    return loading.load_experiment(path, options)


def test_defaults_stand_in_place_with_their_types(tmp_path):
    found, document = loaded(tmp_path)
    ddp = found.workload.config
    assert (ddp.model, ddp.hosts, found.measure.iterations) == ("resnet50", ["h1", "h2"], 10)
    assert ddp.env == {"WHAT": "resnet50-of-10$", "PRICE": "5$"}
    assert [(one.name, one.type, one.origin) for one in document.variables] == [
        ("load", "rate", "default"),
        ("model", "text", "default"),
        ("count", "integer", "default"),
        ("ranks", "list", "default"),
    ]


def test_set_gives_variables_and_fields_alike(tmp_path):
    options = ("load=300mbit", "count=20", "ranks=[h3, h1]", "model=vgg16", "seed=9", "measure.warmup=4")
    found, document = loaded(tmp_path, FILE, *options)
    assert found.traffic[0].config.load == 300e6
    assert (found.measure.iterations, found.measure.warmup, found.seed) == (20, 4, 9)
    assert (found.workload.config.model, found.workload.config.hosts) == ("vgg16", ["h3", "h1"])
    assert {one.origin for one in document.variables} == {"--set"}


def test_text_is_taken_as_it_is_written(tmp_path):
    text = FILE.replace(
        "model: {type: text, default: resnet50, help: what trains}", "model: resnet50\n  note: {type: text}"
    )
    text = text.replace("PRICE", "NOTE").replace('"5$"', "$note")
    assert loaded(tmp_path, text, "note=10")[0].workload.config.env["NOTE"] == "10"
    assert loaded(tmp_path, text, "note=a=b: [c")[0].workload.config.env["NOTE"] == "a=b: [c"


def test_a_file_without_variables_keeps_its_dollars(tmp_path):
    text = FILE[: FILE.index("vars:")] + FILE[FILE.index("testbed:") :]
    text = (
        text.replace("$model,", "resnet50,")
        .replace("$ranks", "[h1, h2]")
        .replace("$load", "200mbit")
        .replace("$count}", "10}")
    )
    assert loaded(tmp_path, text)[0].workload.config.env == {"WHAT": "${model}-of-$count$$", "PRICE": "5$"}


@pytest.mark.parametrize(
    ("old", "new", "options", "told"),
    [
        ("$load}", "$lod}", (), "e.yaml:12:31: traffic.0.iperf.load: no variable is called lod; did you mean load?"),
        ("$load}", '"${}"}', (), "e.yaml:12:31: traffic.0.iperf.load: no variable is called ; accepted: load, model"),
        ("", "", ("load=12",), "--set load=12: is no rate; accepted: a rate, as vars.load at .*e.yaml:3:3 says"),
        ("", "", ("count=1.5",), "--set count=1.5: is no integer"),
        ("", "", ("count=true",), "--set count=true: is no integer"),
        ("", "", ("ranks=h1",), "--set ranks=h1: is no list"),
        ("", "", ("ranks=[h1",), "--set ranks=.*not YAML"),
        ("", "", ("laod=1",), "laod"),
        ("load: 200mbit", "load: {type: rate}", (), r"e.yaml:3:3: vars.load: has no value and no default"),
        ("load: 200mbit", "load: {type: speed}", (), "e.yaml:3:3: vars.load: type 'speed' is not known"),
        ("load: 200mbit", "load: {type: rate, default: 5s}", (), "e.yaml:3:3: vars.load: its default '5s' is no rate"),
        ("load: 200mbit", "load: {type: [rate]}", (), r"e.yaml:3:3: vars.load: type \['rate'\] is not known"),
        ("load: 200mbit", "load: {standard: 5s}", (), "e.yaml:3:10: vars.load.standard: unknown key; accepted: type"),
        ("load: 200mbit", "load:", (), "e.yaml:3:3: vars.load: is null; accepted: its default, or {type: TYPE}"),
        ("load: 200mbit", "load: ~", ("load=5mbit",), "e.yaml:3:3: vars.load: is null"),
        ("load: 200mbit", "load: {type: ~, default: 5s}", (), "e.yaml:3:10: vars.load.type: is null; accepted: a val"),
        ("load: 200mbit", "load: {default: ~}", (), "e.yaml:3:10: vars.load.default: is null; accepted: a value, or"),
        ("load: 200mbit", "load: {default: 5s, help: }", (), "e.yaml:3:.*: vars.load.help: is null"),
        ("load: 200mbit", "seed: 3", (), "e.yaml:3:3: vars.seed: is a key of files"),
        ("load: 200mbit", "Load: 3", (), "e.yaml:3:3: vars.Load: is no name of a variable"),
        ("count: 10", "count: 0", (), "e.yaml:13:11: measure.iterations: 0 is too small"),
    ],
)
def test_a_mistake_is_told_with_its_place(tmp_path, old, new, options, told):
    assert not old or FILE.count(old) == 1
    with pytest.raises(ConfigError, match=told):
        loaded(tmp_path, FILE.replace(old, new) if old else FILE, *options)


def test_a_secret_in_an_option_is_not_shown(tmp_path):
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, FILE, "count=ghp_" + "a" * 36)
    assert "aaaa" not in str(caught.value)


def test_an_include_declares_and_the_file_sets_a_default(tmp_path):
    (tmp_path / "base.yaml").write_text(FILE.replace("name: t\n", ""))
    text = "name: own\ninclude: base.yaml\nvars: {load: 500mbit, model: {default: vgg16}}\n"
    found, document = loaded(tmp_path, text)
    assert (found.traffic[0].config.load, found.workload.config.model) == (500e6, "vgg16")
    assert [one.help for one in document.variables if one.name == "model"] == ["what trains"]
    with pytest.raises(ConfigError, match=r"base\.yaml:12:11: measure.iterations"):
        loaded(tmp_path, text, "count=0")


def test_the_plan_shows_every_variable(tmp_path, monkeypatch):
    (tmp_path / "e.yaml").write_text(FILE)
    monkeypatch.chdir(tmp_path)
    out = orch("plan", "e.yaml", "--set", "load=300mbit")[1]
    assert out.startswith("variables: load = 300mbit (--set), model = resnet50, count = 10, ranks = h1,h2\n")
    told = json.loads(orch("plan", "e.yaml", "--json")[1])["variables"]
    assert told["count"] == {"value": 10, "type": "integer", "origin": "default"}


def test_a_sweep_has_variables_of_its_own_and_sets_those_of_its_experiment(tmp_path):
    (tmp_path / "e.yaml").write_text(FILE)
    sweep = "name: s\nvars: {most: 3}\nexperiment: e.yaml\naxes: {seed: {from: 1, to: $most, step: 1}}\nmode: runs\n"
    (tmp_path / "s.yaml").write_text(sweep)
    found = sweepfile.load(tmp_path / "s.yaml", ["most=2", "count=30"])
    assert [point.values["seed"] for point in found.points] == [1, 2]
    assert {point.resolved["measure"]["iterations"] for point in found.points} == {30}
    assert [one.name for one in found.variables] == ["most", "load", "model", "count", "ranks"]
    assert found.digest != sweepfile.load(tmp_path / "s.yaml", ["most=2"]).digest


def swept(tmp_path, axes, *options, text=FILE, more=""):
    (tmp_path / "e.yaml").write_text(text)
    (tmp_path / "s.yaml").write_text(f"name: s\nexperiment: e.yaml\naxes: {axes}\nmode: runs\n{more}")
    return sweepfile.load(tmp_path / "s.yaml", options)


def test_an_axis_may_be_a_variable_wherever_it_stands(tmp_path):
    text = FILE.replace("model: {type: text, default: resnet50, help: what trains}", "model: {type: text}")
    found = swept(tmp_path, "{load: [100mbit, 200mbit], model: [resnet50, vgg16]}", "count=7", text=text)
    assert found.axes == ("load", "model")
    assert [dict(point.values) for point in found.points[:2]] == [
        {"load": "100mbit", "model": "resnet50"},
        {"load": "100mbit", "model": "vgg16"},
    ]
    second = found.points[1].resolved
    assert second["workload"]["ddp"]["env"]["WHAT"] == "vgg16-of-7$"
    assert (second["workload"]["ddp"]["model"], second["traffic"][0]["iperf"]["load"]) == ("vgg16", "100mbit")
    assert [one.name for one in found.variables] == ["count", "ranks"]  # the others are in the points
    assert len({point.point for point in found.points}) == 4


def test_variables_meet_paths_go_hand_in_hand_and_can_be_excluded(tmp_path):
    more = "zip: [{count: [5, 6], measure.warmup: [1, 2]}]\nexclude: [{load: '>150mbit', count: 6}]\n"
    found = swept(tmp_path, "{load: {values: [100, 200], unit: mbit}}", more=more)
    assert [tuple(point.values.values()) for point in found.points] == [
        ("100mbit", 5, 1),
        ("100mbit", 6, 2),
        ("200mbit", 5, 1),
    ]
    measured = [point.resolved["measure"] for point in found.points]
    assert [(one["iterations"], one["warmup"]) for one in measured] == [(5, 1), (6, 2), (5, 1)]


@pytest.mark.parametrize(
    ("axes", "options", "more", "told"),
    [
        ("{load: [100mbit, 7]}", (), "", r"axes.load: 7 is no rate; accepted: values of type rate, as vars.load at "),
        ("{load: [100mbit]}", ("load=1gbit",), "", "--set load: is an axis of this sweep"),
        ("{most: [1, 2]}", (), "vars: {most: 3}\n", r"s.yaml:3:8: most: is a variable of the sweep;"),
        ("{lod: [1, 2]}", (), "", "point lod=1: lod: unknown key"),
    ],
)
def test_an_axis_that_is_no_variable_of_the_experiment_is_told(tmp_path, axes, options, more, told):
    with pytest.raises(ConfigError, match=told):
        swept(tmp_path, axes, *options, more=more)


@pytest.mark.parametrize("key", ["vars: {a: 1}", "include: e.yaml"])
def test_an_experiment_in_a_sweep_has_those_of_the_sweep(tmp_path, key):
    body = FILE[FILE.index("testbed:") :].replace("$ranks", "[h1, h2]").replace("$load", "200mbit")
    body = body.replace('WHAT: "${model}-of-$count$$", ', "").replace("$model", "resnet50")
    indented = "".join(f"  {line}\n" for line in body.splitlines())
    sweep = f"name: s\nvars: {{count: 3}}\naxes: {{seed: [1, 2]}}\nmode: runs\nexperiment:\n{indented}"
    (tmp_path / "s.yaml").write_text(sweep)
    found = sweepfile.load(tmp_path / "s.yaml", ["count=30"])
    assert found.points[0].resolved["measure"]["iterations"] == 30
    (tmp_path / "s.yaml").write_text(f"{sweep}  {key}\n")
    name = key.partition(":")[0]
    with pytest.raises(ConfigError, match=rf"s.yaml:13:3: experiment.{name}: is a file's; accepted: {name} at the top"):
        sweepfile.load(tmp_path / "s.yaml")


def test_no_variable_can_have_the_name_of_a_key():
    keys = {name for model in (experiment.Experiment, SweepFile, PaperFile, Inventory) for name in model.model_fields}
    assert {"include", "vars"} | keys <= variables.RESERVED


def test_a_long_value_in_a_mistake_is_shortened(tmp_path):
    path = tmp_path / "e.yaml"
    for wrong in ("{type: " + "x" * 3000 + "}", "{type: size, default: " + "x" * 3000 + "}"):
        path.write_text(FILE.replace("count: 10", f"count: {wrong}"))
        status, _, err = orch("plan", str(path))
        assert (status, max(map(len, err.splitlines())) < 1000) == (2, True)
