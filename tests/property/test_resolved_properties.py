"""The experiment with every default spelled out is the same experiment, and the schema for editors knows it."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stdout
from functools import cache
from pathlib import Path

import jsonschema
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.cli.main import main
from orchestrator.experiment import documents, loading, plan, validation
from orchestrator.experiment.experiment import model as experiment_model
from orchestrator.experiment.experiment import on_this_machine, resolved_data
from orchestrator.experiment.plan import plan_data
from orchestrator.parts.registry import FOLDERS, parts_of
from tests.helpers import allocations

ROOT = Path(__file__).parents[2]
PLAYBOOKS = sorted((ROOT / "playbooks/experiments").rglob("*.yaml"))


@cache
def schema():
    said = io.StringIO()
    with redirect_stdout(said):
        assert main(["schema"]) == 0
    schema = json.loads(said.getvalue())
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def rate(low=1, high=1000):
    return st.builds("{}mbit".format, st.integers(low, high))


NAMES = st.from_regex(r"[A-Za-z][A-Za-z0-9_-]{0,10}", fullmatch=True) | st.sampled_from(["no", "on", "y", "null-x"])
HOSTS = ["no", "h2", "x-3"]
IPERF = st.fixed_dictionaries(
    {"from": st.just("no"), "to": st.sampled_from(["h2", "x-3"]), "load": rate(1, 30)},
    optional={"streams": st.integers(1, 8), "congestion": st.sampled_from(["cubic", "1e3", "010", "off"])},
)
DDP = st.fixed_dictionaries(
    {"model": st.sampled_from(["resnet50", "vgg16"])},
    optional={
        "batch": st.integers(1, 512),
        "compute_time": st.builds("{}ms".format, st.integers(1, 999)),
        "env": st.dictionaries(
            NAMES, st.sampled_from(["1", "yes", "1:30", "2024-01-01", "", "~", "é\n x", ".5", "<<"])
        ),
        "hosts": st.lists(st.sampled_from(HOSTS), min_size=2, max_size=5),
    },
)
MEASURE = st.fixed_dictionaries(
    {"iterations": st.integers(1, 1000)},
    optional={"at_most": st.builds("{}s".format, st.integers(1, 900)), "warmup": st.integers(0, 9)},
)
TRAFFIC = st.lists(st.fixed_dictionaries({"iperf": IPERF}), max_size=3)
WINDOWS = st.lists(
    st.fixed_dictionaries({"name": NAMES}, optional={"traffic": TRAFFIC, "measure": MEASURE}),
    min_size=1,
    max_size=3,
    unique_by=lambda window: window["name"],
)
EXPERIMENTS = st.fixed_dictionaries(
    {
        "name": NAMES,
        "testbed": st.fixed_dictionaries(
            {
                "local": st.fixed_dictionaries(
                    {"hosts": st.just(HOSTS), "link": rate(100)},
                    optional={"scale": st.integers(1, 100), "mtu": st.integers(1280, 9000), "offloads": st.booleans()},
                )
            }
        ),
        "workload": st.fixed_dictionaries({"ddp": DDP}),
        "measure": MEASURE,
    },
    optional={
        "collect": st.lists(st.sampled_from(["nic", "tcpdump", "cpu", {"tcp": {"every": "20ms"}}]), unique_by=str),
        "repetitions": st.integers(1, 3),
        "seed": st.integers(0, 2**40),
        "validity": st.sampled_from([{"load": "as-achieved"}, {"load": "12.5%", "clock": "2ms"}, {}]),
        "conditions": st.just([{"congestion-control": "cubic"}, {"rate": {"host": "no", "rate": "90mbit"}}]),
    },
)


def read(text: str):
    document = documents.parse(text.encode(), name="e.yaml", needs="all")
    return validation.validate(document, experiment_model())


@settings(max_examples=40, deadline=None)
@given(data=EXPERIMENTS, spread=st.none() | st.tuples(TRAFFIC, st.none()) | st.tuples(st.none(), WINDOWS))
def test_resolved_and_read_again_it_plans_the_same(data, spread):
    traffic, windows = spread or (None, None)
    data = {**data, **({"traffic": traffic} if traffic else {}), **({"windows": windows} if windows else {})}
    first = read(yaml.safe_dump(data, allow_unicode=True))
    text = loading.resolved_text(first)
    again = read(text)
    assert loading.resolved_text(again) == text
    assert [plan_data(run) for run in plan.build(again)] == [plan_data(run) for run in plan.build(first)]
    assert not list(schema().iter_errors(data))
    assert not list(schema().iter_errors(resolved_data(first)))


@pytest.mark.parametrize("path", PLAYBOOKS, ids=lambda path: path.stem)
@pytest.mark.parametrize("local", [False, True])
def test_playbooks_resolve_plan_and_keep_to_the_schema(path, local, monkeypatch):
    allocations.entered(monkeypatch)
    experiment, document = loading.checked(path, [], local=local)
    schema().validate(document.data)
    again = read(loading.resolved_text(experiment))
    assert [run.point for run in plan.build(again)] == [run.point for run in plan.build(experiment)]


@pytest.mark.parametrize("path", PLAYBOOKS, ids=lambda path: path.stem)
def test_the_schema_refuses_a_key_that_nobody_knows_anywhere(path, monkeypatch):
    allocations.entered(monkeypatch)
    _, document = loading.checked(path, [], local=False)

    def with_stray(data):
        if isinstance(data, dict):
            yield {**data, "stray": 1}
            for key, value in data.items():
                yield from ({**data, key: inner} for inner in with_stray(value))
        elif isinstance(data, list):
            for place, value in enumerate(data):
                yield from ([*data[:place], inner, *data[place + 1 :]] for inner in with_stray(value))

    strays = list(with_stray(document.data))
    assert len(strays) > 5
    for stray in strays:
        assert not schema().is_valid(stray), stray


def test_the_schema_knows_every_part_and_tells_of_every_key():
    text = json.dumps(schema().schema)
    for kind in FOLDERS:
        for name in parts_of(kind):
            assert f'"{name}"' in text
    for title, model in schema().schema["$defs"].items():
        for key, field in model.get("properties", {}).items():
            assert field.get("description") or "$ref" in json.dumps(field), f"{title}.{key} has no description"


def test_a_local_run_of_an_inventory_keeps_names_and_rates(tmp_path):
    text = (ROOT / "playbooks/experiments/quickstart.yaml").read_text()
    bed = ROOT / "playbooks/testbeds/example-rack.yaml"
    text = text.replace("local: {hosts: 5, link: 25gbit, scale: 100}", f"inventory: {bed}").replace("to: h5", "to: h4")
    (tmp_path / "e.yaml").write_text(text)
    assert schema().is_valid(yaml.safe_load(text))
    experiment, _ = loading.checked(tmp_path / "e.yaml", [], local=True)
    local = experiment.testbed.local
    assert local.names == ("h1", "h2", "h3", "h4")
    assert (local.rate_of("h1"), local.rate_of("h4"), local.scale, local.mtu) == (25e9, 10e9, 100, 9000)
    again = on_this_machine(read(loading.resolved_text(experiment)))
    assert plan.build(again)[0].point == plan.build(experiment)[0].point
