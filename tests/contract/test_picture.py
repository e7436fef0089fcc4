"""docs/architecture.md names modules that are there, and every room of the house."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PICTURE = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
MODULES = sorted(
    path.relative_to(ROOT).as_posix()
    for folder in ("orchestrator", "workloads", "cross_traffic", "tests")
    for path in (ROOT / folder).rglob("*.py")
)


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`([a-z_/]+\.py)`", PICTURE))))
def test_a_module_that_is_named_is_there(name):
    assert any(f"/{module}".endswith(f"/{name}") for module in MODULES)


def test_every_room_is_told_and_those_within_it():
    rooms = {path for path in map(Path, MODULES) if path.name == "__init__.py" and path.parts[0] != "tests"}
    rooms = {path.parent for path in rooms if path.parent.parent.name != "papers"}
    assert not {str(room) for room in rooms if f"`{room.name}/`" not in PICTURE and f"`{room}/`" not in PICTURE}


def test_modules_lie_in_rooms():
    assert [path.name for path in (ROOT / "orchestrator").glob("*.py")] == ["__init__.py"]


FIVE_CHANGES = PICTURE.partition("## Five changes")[2].partition("\n## ")[0]
PLACES = re.findall(r"`([a-z_/]+\.py)`\s+\(([^)]*)\)", FIVE_CHANGES)


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
    return found


def test_the_five_changes_name_where_they_are_made():
    steps = re.split(r"^\d\. ", FIVE_CHANGES, flags=re.MULTILINE)[1:]
    assert len(steps) == 5
    assert all(re.search(r"`[a-z_/]+\.py` \(`", step) for step in steps)
