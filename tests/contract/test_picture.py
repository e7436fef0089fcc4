"""docs/architecture.md names modules that are there, and every room of the house."""

from __future__ import annotations

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


def test_every_room_is_told():
    rooms = {path.name for path in (ROOT / "orchestrator").iterdir() if (path / "__init__.py").exists()}
    assert not {room for room in rooms if f"`{room}/`" not in PICTURE}


def test_modules_lie_in_rooms():
    assert [path.name for path in (ROOT / "orchestrator").glob("*.py")] == ["__init__.py"]


# On purpose: a reading and what is judged by it; rows and what is made of them; where parts, and papers, are listed;
# any page and that of a study; runs beside runs and ours beside what is printed.
TWINS = ("clocks", "traffic", "registry", "page", "comparison")


def test_no_two_modules_of_the_controller_have_one_name():
    """Programs that are sent to hosts may be called as what they serve: `ddp` is a workload, and its ranks' program.

    Papers are made of the same modules each.
    """
    sent = ("orchestrator/agents/", "cross_traffic/agents/", "workloads/rank/", "tests/")
    papers = re.compile("orchestrator/papers/[^/]+/")
    names = [Path(path).stem for path in MODULES if not path.startswith(sent) and not papers.match(path)]
    assert {name for name in names if names.count(name) > 1} <= {"__init__", *TWINS}
