"""docs/architecture.md names modules and folders that are there, and every folder of the controller."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
PACKAGES = ("orchestrator", "workloads", "cross_traffic", "tests", "documentation")
MODULES = sorted(path.relative_to(ROOT).as_posix() for folder in PACKAGES for path in (ROOT / folder).rglob("*.py"))
FOLDERS = {
    path.relative_to(ROOT).as_posix()
    for folder in (*PACKAGES, "docs", "playbooks")
    for path in ((ROOT / folder), *(ROOT / folder).rglob("*"))
    if path.is_dir()
}


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`([a-z_/]+\.(?:py|html|yaml))`", PAGE))))
def test_a_file_that_is_named_is_there(name):
    files = [*MODULES, *(path.relative_to(ROOT).as_posix() for path in (ROOT / "orchestrator").rglob("*.html"))]
    assert (ROOT / name).exists() or any(f"/{file}".endswith(f"/{name}") for file in files)


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`([a-z_/]+)/`", PAGE)) - {"tests/data/NAME"}))
def test_a_folder_that_is_named_is_there(name):
    assert any(f"/{folder}".endswith(f"/{name}") for folder in FOLDERS)


def test_every_folder_of_the_controller_is_told():
    folders = {path.parent.name for path in (ROOT / "orchestrator").glob("*/__init__.py")}
    assert not {name for name in folders | {"workloads", "cross_traffic"} if f"`{name}/`" not in PAGE}


def test_modules_lie_in_folders():
    assert [path.name for path in (ROOT / "orchestrator").glob("*.py")] == ["__init__.py"]


SIX_CHANGES = PAGE.partition("## Six changes")[2].partition("\n## ")[0]
PLACES = re.findall(r"`([a-z_/]+\.py)`\s+\(([^)]*)\)", SIX_CHANGES)


@pytest.mark.parametrize(("name", "inside"), PLACES, ids=[name for name, _ in PLACES])
def test_what_is_said_to_be_in_a_module_is_there(name, inside):
    words = set(re.findall(r"`(\w+)`", inside))
    folders = [path for path in MODULES if f"/{path}".endswith(f"/{name}")]
    assert any(words <= _names(ROOT / path) for path in folders), f"{words} in one of {folders}"


def _names(path: Path) -> set[str]:
    """Functions, classes, methods and constants that a module defines."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign):
            found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.add(node.target.id)
    return found


def test_the_six_changes_name_where_they_are_made():
    steps = re.split(r"^\d\. ", SIX_CHANGES, flags=re.MULTILINE)[1:]
    assert len(steps) == 6
    assert all(re.search(r"`[a-z_/]+\.py`", step) for step in steps)
