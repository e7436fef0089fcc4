"""Directions of imports hold for modules that are named in strings too: a process that is started is a dependency."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    tomllib = pytest.importorskip("tomli")

ROOT = Path(__file__).parents[2]
PACKAGES = ("orchestrator", "workloads", "cross_traffic")
NAMED = re.compile(rf"(?:^|-m[ ,'\"]+)((?:{'|'.join(PACKAGES)})(?:\.\w+)+)")
# Finds the parts by walking over the folders that hold them.
EXCEPT = {("orchestrator.parts.registry", f"orchestrator.parts.{kind}") for kind in ("collectors", "conditions")}
EXCEPT.add(("orchestrator.verify.undoing", "orchestrator.cli.main"))  # which it runs, to kill it


@cache
def contracts() -> list[tuple[str, list[set[str]]]]:
    """Container and rows of names, highest first, of each contract of layers that has a container."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    return [
        (container, [{name.strip() for name in row.split("|")} for row in contract["layers"]])
        for contract in settings["contracts"]
        for container in contract.get("containers", [])
    ]


def named(text: str) -> Iterator[str]:
    """Modules that strings of a program name, but for its docstrings: `-m` and a module, or a module alone."""
    tree = ast.parse(text)
    about = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in about:
            yield from NAMED.findall(node.value)


def upward(source: str, target: str) -> str | None:
    """The contract's container in which a module lies below what it names, if there is one."""
    for container, rows in contracts():
        places = []
        for module in (source, target):
            inside = module.removeprefix(container + ".") if module.startswith(container + ".") else ""
            places.append(next((at for at, row in enumerate(rows) if inside.split(".")[0] in row), None))
        if None not in places and places[1] < places[0]:
            return container
    return None


def test_no_module_names_one_above_it_in_a_string() -> None:
    paths = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
    sources = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in paths}
    found = [
        f"{source} names {target}: against the order in {where}"
        for source, path in sources.items()
        if not source.startswith("orchestrator.playbooks.")
        for target in named(path.read_text(encoding="utf-8"))
        if (source, target) not in EXCEPT and (where := upward(source, target))
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("source", "program", "container"),
    [
        ("orchestrator.execution.execute", '[python, "-m", "orchestrator.cli.main"]', "orchestrator"),
        ("orchestrator.testbed.slurm.job", '"exec python3 -m orchestrator.cli.main run"', "orchestrator"),
        ("orchestrator.hosts.x", "f\"{python} -m 'orchestrator.report.page' {file}\"", "orchestrator"),
        ("orchestrator.analysis.capture.captures", '"orchestrator.analysis.reduction"', "orchestrator.analysis"),
    ],
)
def test_arrows_upwards_are_seen(source: str, program: str, container: str) -> None:
    (target,) = named(f"argv = {program}")
    assert upward(source, target) == container


def test_names_below_and_words_about_modules_are_no_arrows() -> None:
    assert list(named('"""As orchestrator.cli.main has it."""\nx = "see orchestrator.cli.main"')) == []
    assert upward("orchestrator.execution.sealing", "orchestrator.analysis.reduction") is None
    assert upward("orchestrator.cli.options", "orchestrator.cli.main") is None
    assert upward("orchestrator.remote.transport.bootstrap", "orchestrator.agents.agent") is None
