"""The reference on the site says what there is: gates, workloads, keys, commands, metrics."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest

from documentation import commands, gates, generated, keys, metrics, workloads
from orchestrator.cli.commandline import build_parser
from orchestrator.experiment.experiment import validity_model
from orchestrator.parts import registry
from orchestrator.validity import registry as registry_of_gates

ROOT = Path(__file__).parents[2]


def judged(module):
    """Names of gates that a module judges by: a first argument of `verdict`, or a name that a loop gives to one."""
    tree = ast.parse(Path(module.__file__).read_text(encoding="utf-8"))
    loops = [node for node in ast.walk(tree) if isinstance(node, ast.For)]
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and getattr(node.func, "id", "") == "verdict"):
            continue
        name = node.args[0]
        if isinstance(name, ast.Constant):
            yield name.value
            continue
        (loop,) = [one for one in loops if node in ast.walk(one) and name.id in ast.unparse(one.target)]
        yield from (row.elts[0].value for row in getattr(loop.iter, "elts", ()))


@pytest.mark.parametrize("module", registry_of_gates.modules(), ids=lambda module: module.NAME)
def test_every_gate_is_explained_and_no_other(module):
    assert sorted(spec.name for spec in module.GATES) == sorted(set(judged(module)))
    assert all(f"| `{spec.name}` | {spec.passes}" in gates.page() for spec in module.GATES)


def test_every_limit_that_a_file_can_move_is_a_gates():
    assert set(registry_of_gates.limits()) == set(validity_model().model_fields)
    assert "| `5%`, by `validity: {load: ...}` |" in gates.page()


def test_every_workload_has_a_status():
    assert set(workloads.entries()) == set(registry.parts_of("workload"))


@pytest.mark.parametrize("name", registry.parts_of("workload"))
def test_the_tests_that_verify_a_workload_run_it(name):
    for test in workloads.entries()[name]["tests"]:
        assert re.search(rf"\b{name}\b", (ROOT / "tests/testbed" / test).read_text(encoding="utf-8")), test


def test_every_part_has_its_keys_and_an_example():
    page = keys.page()
    places = {"workload": "workload", "traffic": "traffic", "collector": "collect", "condition": "conditions"}
    for kind, place in places.items():
        for name, part in registry.parts_of(kind).items():
            section = page.partition(f"### `{place}.{name}` ")[2].partition("\n### ")[0]
            assert "```yaml\n" in section, name
            for field, info in part.Config.model_fields.items():
                assert f"| `{info.alias or field}` |" in section, (name, field)


def test_every_link_within_the_keys_leads_to_a_section():
    page = keys.page()
    assert set(re.findall(r"\(#([a-z0-9-]+)\)", page)) <= set(re.findall(r"\{#([a-z0-9-]+)\}", page))


def test_every_command_has_its_options():
    page = commands.page()
    found = dict(commands.commands(build_parser()))
    assert {"orch run", "orch baseline set", "orch query"} <= found.keys()
    for name, parser in found.items():
        section = page.partition(f"# {name}\n")[2].partition("\n## ")[0]
        options = re.findall(r"^ {2}(--[a-z-]+)", parser.format_help(), re.MULTILINE)
        assert [option for option in options if f"`{option}" not in section] == [], name


def test_the_dashboard_draws_metrics_that_there_are():
    served = set(re.findall(r"^\| `([a-z0-9_]+)`", metrics.page(), re.MULTILINE))
    dashboard = json.loads((ROOT / "playbooks/grafana/orch.json").read_text(encoding="utf-8"))
    drawn = set(re.findall(r"\borch_[a-z0-9_]+\b", json.dumps([panel.get("targets") for panel in dashboard["panels"]])))
    assert drawn
    assert {re.sub(r"_(bucket|count|sum)$", "", name) for name in drawn} <= served


def test_generated_parts_are_on_a_page():
    marked = [name for page in (ROOT / "docs").glob("*.md") for name in generated.MARKER.findall(page.read_text())]
    assert sorted(marked) == sorted(generated.PARTS)
