"""What every workload, traffic source, collector and condition must keep to; a new one is found and held to it.

A part called NAME has a folder `tests/data/NAME` with real samples of what it reads, and `example.yaml`: `config` is a
minimal configuration for a testbed with the hosts h1 to h4 ("{here}" in it is that folder), and `output`, where it is
given, says under which names the samples lie in the folder that a launch brings home (else under their own).
"""

from __future__ import annotations

import ast
import json
import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from pydantic import ValidationError

from orchestrator.core.fields import Model
from orchestrator.parts import registry
from orchestrator.parts.launch import Change, Launch, Listening, Requirement
from orchestrator.parts.protocols import Demand, Problem, Source
from orchestrator.parts.rows import TABLES, LaunchOutput
from orchestrator.parts.theory import Theory
from orchestrator.parts.topology import KNOWN_PORTS, Job
from orchestrator.testbed import inventory, netns
from workloads.common import placement

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests/data"
HOSTS = ("h1", "h2", "h3", "h4")
OURS_ALLOWED = {
    *(
        "orchestrator.parts.hosts",
        "orchestrator.parts.launch",
        "orchestrator.parts.rows",
        "orchestrator.parts.protocols",
        "orchestrator.parts.theory",
        "orchestrator.parts.work",
        "orchestrator.parts.topology",
    ),
    *(
        "orchestrator.core.intervals",
        "orchestrator.core.fields",
        "orchestrator.core.units",
        "orchestrator.core.errors",
        "orchestrator.parts.named_hosts",
        "orchestrator.parts.offload_change",
        "orchestrator.core.lookup",
        "orchestrator.core.packages",
        "orchestrator.parts.packet_rules",
        "orchestrator.core.remedies",
        "orchestrator.parts.samplers",
        "orchestrator.core.secret_looks",
        "orchestrator",
    ),
}
LIBRARIES_ALLOWED = {"pydantic", "pydantic_core", "numpy", "pyarrow"}
SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,100}")
STOPPED_WITHIN_S = 30.0

ALL = [(kind, name) for kind in registry.FOLDERS for name in registry.parts_of(kind)]
READING = [(kind, name) for kind, name in ALL if hasattr(registry.parts_of(kind)[name], "read")]
TOPOLOGIES = {
    "local": netns.topology(netns.LocalSpec(hosts=HOSTS, rates=dict.fromkeys(HOSTS, 1e9), scale=10)),
    "inventory": inventory.topology(
        inventory.Inventory.model_validate(
            {
                "link": "1gbit",
                "hosts": {
                    name: {"ssh": name, "data": {"address": f"10.9.0.{i}/24", "device": "eth7"}, "gpus": i % 2}
                    for i, name in enumerate(HOSTS, start=1)
                },
            }
        )
    ),
}
each_part = pytest.mark.parametrize(("kind", "name"), ALL, ids=[f"{kind}-{name}" for kind, name in ALL])
on_each_topology = pytest.mark.parametrize("topology", TOPOLOGIES.values(), ids=TOPOLOGIES)


def folder_of(name):
    return DATA / name


def example(name):
    path = folder_of(name) / "example.yaml"
    if not path.is_file():
        pytest.fail(f"{name} has no example: put one into {path.relative_to(ROOT)} (see {Path(__file__).name})")
    return yaml.safe_load(path.read_text().replace("{here}", str(folder_of(name))))


def part_and_config(kind, name):
    part = registry.parts_of(kind)[name]
    return part, part.Config.model_validate(example(name)["config"])


def made(kind, name, topology):
    """What a part makes of its example: launches, changes, requirements, demands, theory."""
    part, config = part_and_config(kind, name)
    if kind == "workload":
        job = Job(name="training", index=0, ranks=placement.ranks(config.hosts, topology))
        return (
            part.launches(config, job, topology, 7),
            part.requirements(config, job, topology),
            part.theory(config, job, topology),
        )
    if kind == "traffic":
        source = Source(name=f"{name}0", window="w1", port=15201, duration_s=100.0, seed=7)
        demands = part.demands(config)
        return part.launches(config, source, topology), part.requirements(config, topology), demands
    if kind == "condition":
        return part.changes(config, topology), part.requirements(config, topology), None
    return part.launches(config, topology), part.requirements(config, topology), None


def launches_of(kind, name, topology):
    made_of_it = made(kind, name, topology)[0]
    if kind == "condition":
        return [change.process for change in made_of_it if change.process is not None]
    return made_of_it


@pytest.mark.parametrize("kind", registry.FOLDERS)
def test_every_folder_has_parts_and_each_is_found_by_its_name(kind):
    assert registry.parts_of(kind)
    for name, part in registry.parts_of(kind).items():
        assert name == part.NAME
        assert registry.by_label(f"{kind}.{name}") is part
        assert re.fullmatch(r"[a-z][a-z0-9-]*", name)


def test_a_folder_of_samples_is_of_one_part_alone():
    names = [name for _, name in ALL]
    assert len(set(names)) == len(names)


def models_below(model, seen=()):
    """A model and all those that it holds."""
    yield model
    for field in model.model_fields.values():
        for inner in re.findall(r"[\w.]+", repr(field.annotation)):
            module, _, name = inner.rpartition(".")
            found = getattr(sys.modules.get(module), name, None)
            if isinstance(found, type) and issubclass(found, Model) and found not in (model, *seen):
                yield from models_below(found, (*seen, model))


@each_part
def test_its_configuration_is_strict_frozen_and_described(kind, name):
    part, config = part_and_config(kind, name)
    assert issubclass(part.Config, Model)
    for model in models_below(part.Config):
        assert model.model_config["extra"] == "forbid"
        assert model.model_config["frozen"] is True
        assert (model.__doc__ or "").strip()
        for field in model.model_fields.values():
            assert field.description, f"{model.__name__}.{field.alias} has no description"
    with pytest.raises(ValidationError, match="frozen"):
        setattr(config, next(iter(part.Config.model_fields)), None)
    given = example(name)["config"]
    if isinstance(given, dict):
        with pytest.raises(ValidationError, match="Extra inputs"):
            part.Config.model_validate({**given, "no-such-key": 1})
    schema = part.Config.model_json_schema(by_alias=True)
    assert json.dumps(schema)


@each_part
def test_it_imports_only_what_parts_may(kind, name):
    part = registry.parts_of(kind)[name]
    own = registry.FOLDERS[kind]
    todo, seen = [part.__name__], set()
    while todo:
        module = todo.pop()
        if module in seen:
            continue
        seen.add(module)
        path = Path(sys.modules[module].__file__ or "")
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                wanted = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0
                nested = [f"{node.module}.{alias.name}" for alias in node.names]
                wanted = [inner if inner in sys.modules else str(node.module) for inner in nested]
            else:
                continue
            for what in wanted:
                if f"{what}.".startswith("workloads.rank."):  # which import-linter holds
                    continue
                if what == own or what.startswith(own + "."):
                    todo.append(what)
                    continue
                root = what.split(".")[0]
                fine = what in OURS_ALLOWED or root in sys.stdlib_module_names or root in LIBRARIES_ALLOWED
                assert fine or root == "__future__", f"{module} imports {what}"
    others = {registry.parts_of(k)[n].__name__ for k, n in ALL} - {part.__name__}
    assert not seen & others, "parts never know each other"


@each_part
@on_each_topology
def test_its_example_has_no_problems_and_makes_the_same_twice(kind, name, topology):
    part, config = part_and_config(kind, name)
    assert part.problems(config, topology) == []
    assert part.problems(config, topology) == []
    first, again = made(kind, name, topology), made(kind, name, topology)
    if kind == "condition":
        assert first[1:] == again[1:]
        assert [(c.node, c.name, c.kind, c.read) for c in first[0]] == [
            (c.node, c.name, c.kind, c.read) for c in again[0]
        ]
    else:
        assert first == again
    assert first[0], "it starts and changes nothing"


@each_part
@on_each_topology
def test_a_testbed_without_its_hosts_is_a_problem_with_a_way_out(kind, name, topology):
    part, config = part_and_config(kind, name)
    renamed = replace(
        topology,
        nodes=tuple(replace(n, name=f"x{n.name}") if n.kind == "host" else n for n in topology.nodes),
        links=tuple(replace(link, host=f"x{link.host}") for link in topology.links),
    )
    found = part.problems(config, renamed)
    names_hosts = any(host in json.dumps(example(name)["config"]) for host in HOSTS)
    assert found or not names_hosts
    for problem in found:
        assert isinstance(problem, Problem)
        assert problem.message
        assert problem.accepted
        assert all(isinstance(step, str | int) for step in problem.at)


@pytest.mark.parametrize(("kind", "name"), READING, ids=[name for _, name in READING])
@on_each_topology
def test_its_launches_can_be_carried_out(kind, name, topology):
    launches = launches_of(kind, name, topology)
    role = "rank" if kind == "workload" else kind
    assert launches, "it reads what nothing brings home"
    nodes = {node.name for node in topology.nodes}
    assert len({(launch.node, launch.name) for launch in launches}) == len(launches)
    for launch in launches:
        assert isinstance(launch, Launch)
        assert launch.role == role
        assert launch.node in nodes
        assert SAFE.fullmatch(launch.name), launch.name
        assert launch.argv
        assert all(isinstance(word, str) and "\0" not in word for word in launch.argv)
        assert all(isinstance(k, str) and isinstance(v, str) for k, v in launch.env.items())
        for file, content in launch.files.items():
            assert SAFE.fullmatch(file), file
            assert isinstance(content, bytes) or content.is_file()
        assert 0 < launch.ready_within_s <= 600
        stop = launch.stop
        assert stop.signals, "nothing asks it to end"
        assert stop.drain_s + sum(grace_s for _, grace_s in stop.signals) <= STOPPED_WITHIN_S
        assert launch.follow is None or SAFE.fullmatch(launch.follow)
        python = topology.node(launch.node).python
        assert not launch.privileged or launch.argv[0] != python or launch.argv[1] == "-I", "it imports what lies there"
        if kind == "workload":
            assert launch.job == "training"
            assert launch.gate == (launch.rank is not None), "ranks wait for each other, their servers for nobody"


@each_part
@on_each_topology
def test_what_it_needs_can_be_got(kind, name, topology):
    nodes = {node.name for node in topology.nodes}
    for requirement in made(kind, name, topology)[1]:
        assert isinstance(requirement, Requirement)
        assert requirement.node in nodes
        assert requirement.what
        assert requirement.remedy
        assert requirement.needed_by
        assert requirement.python or requirement.kind != "module"


@pytest.mark.parametrize("name", registry.parts_of("workload"))
@on_each_topology
def test_every_rank_of_a_workload_is_followed_and_theory_is_positive(name, topology):
    launches, _, theory = made("workload", name, topology)
    by_rank = {launch.rank: launch for launch in launches if launch.rank is not None}
    assert sorted(by_rank) == list(range(len(by_rank)))
    assert all(launch.follow for launch in by_rank.values())
    assert sum(launch.rank is not None for launch in launches) == len(by_rank)
    assert any(flow.kind == "training" for launch in launches for flow in launch.flows)
    if theory is not None:
        assert isinstance(theory, Theory)
        assert theory.bytes_per_iteration > 0
        assert theory.source


@pytest.mark.parametrize(("kind", "name"), [(k, n) for k, n in ALL if k in ("workload", "traffic")])
@on_each_topology
def test_the_ports_of_its_launches_are_among_those_that_are_known(kind, name, topology):
    """What the condition firewall guards."""
    launches = made(kind, name, topology)[0]
    ports = {flow.port for launch in launches for flow in launch.flows} - {None}
    ports |= {launch.ready.port for launch in launches if isinstance(launch.ready, Listening)}
    assert ports
    assert all(any(first <= port <= last for first, last in KNOWN_PORTS) for port in ports)


@pytest.mark.parametrize("name", registry.parts_of("traffic"))
@on_each_topology
def test_traffic_says_what_it_asks_for_and_stays_on_its_ports(name, topology):
    launches, _, demands = made("traffic", name, topology)
    assert demands
    for demand in demands:
        assert isinstance(demand, Demand)
        assert demand.rate > 0
        assert demand.src != demand.dst
    flows = [flow for launch in launches for flow in launch.flows]
    assert flows
    assert {flow.name for flow in flows} == {f"{name}0"}
    for flow in flows:
        assert flow.kind == "cross"
        assert flow.port is not None
        assert 15201 <= flow.port < 15201 + 16
    receivers = {launch.order for launch in launches if launch.node in {demand.dst for demand in demands}}
    senders = {launch.order for launch in launches if launch.node in {demand.src for demand in demands}}
    assert min(receivers) < max(senders), "receivers stand before senders"


@pytest.mark.parametrize("name", registry.parts_of("condition"))
@on_each_topology
def test_changes_are_named_and_read_by_a_command(name, topology):
    changes, _, _ = made("condition", name, topology)
    assert len({change.name for change in changes}) == len(changes)
    for change in changes:
        assert isinstance(change, Change)
        assert change.kind == name
        assert change.read
        with pytest.raises(ValueError):
            change.parse("what no tool prints {")


def output(folder):
    return LaunchOutput(
        folder=folder, node="h1", launch="x", job="training", rank=0, window="w1", source="s0", offset_ns=5_000
    )


def samples(name):
    return [path for path in folder_of(name).iterdir() if path.name != "example.yaml" and path.is_file()]


@each_part
def test_there_are_real_samples(kind, name):
    if not folder_of(name).is_dir() or not samples(name):
        pytest.fail(f"{name} has no real samples of what it reads: put some into tests/data/{name}")


@pytest.mark.parametrize(("kind", "name"), READING, ids=[name for _, name in READING])
def test_nothing_brought_home_gives_no_rows(kind, name, tmp_path):
    part = registry.parts_of(kind)[name]
    assert all(len(next(iter(columns.values()))) == 0 for columns in part.read(output(tmp_path)).values())
    for file in ("stdout", "stderr"):
        (tmp_path / file).write_bytes(b"")
    assert all(len(next(iter(columns.values()))) == 0 for columns in part.read(output(tmp_path)).values())


@pytest.mark.parametrize(("kind", "name"), READING, ids=[name for _, name in READING])
def test_samples_become_rows_of_known_tables(kind, name, tmp_path):
    part = registry.parts_of(kind)[name]
    names = example(name).get("output") or {path.name: path.name for path in samples(name)}
    for at_home, sample in names.items():
        shutil.copy(folder_of(name) / sample, tmp_path / at_home)
    tables = part.read(output(tmp_path))
    assert tables, "nothing was read from the samples"
    for table, columns in tables.items():
        assert set(columns) == set(TABLES[table]), table
        lengths = {column: len(values) for column, values in columns.items()}
        assert len(set(lengths.values())) == 1, lengths
        assert next(iter(lengths.values())) > 0
        for column, kind_of in TABLES[table].items():
            expected = {"int64": int, "float64": (int, float), "string": str, "bool": bool}[kind_of]
            value = columns[column][0]
            value = value.item() if hasattr(value, "item") else value
            assert value is None or isinstance(value, expected), f"{table}.{column} holds {value!r}"


@pytest.mark.parametrize(("kind", "name"), READING, ids=[name for _, name in READING])
@pytest.mark.parametrize("cut", [1, 7, 50])
def test_what_was_cut_short_is_read_as_far_as_it_goes(kind, name, cut, tmp_path):
    part = registry.parts_of(kind)[name]
    names = example(name).get("output") or {path.name: path.name for path in samples(name)}
    for at_home, sample in names.items():
        whole = (folder_of(name) / sample).read_bytes()
        (tmp_path / at_home).write_bytes(whole[: max(0, len(whole) - cut)])
    part.read(output(tmp_path))


@pytest.mark.parametrize("name", registry.parts_of("condition"))
@on_each_topology
def test_every_program_that_a_change_runs_is_asked_of_its_node_with_a_remedy(name, topology):
    changes, needs, _ = made("condition", name, topology)
    asked = {(need.node, need.what) for need in needs if need.kind == "program" and need.remedy}
    for change in changes:
        reads = [change.read, *([change.count.read] if change.count else [])]
        assert {(change.node, argv[0]) for argv in reads} <= asked
