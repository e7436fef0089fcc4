"""What every workload, traffic source, collector and condition must keep to; a new one is found and held to it.

A part called NAME has a folder `tests/data/NAME` with real samples of what it reads, and `example.yaml`
(orchestrator/testing/case.py). The checks are those that parts of other packages are held to, too.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

from orchestrator.parts import registry
from orchestrator.testing import Case, checks

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests/data"
OURS_ALLOWED = {
    *(
        "orchestrator.parts.hosts",
        "orchestrator.parts.launch",
        "orchestrator.parts.ranks",
        "orchestrator.parts.rows",
        "orchestrator.parts.protocols",
        "orchestrator.parts.taskgraph",
        "orchestrator.parts.theory",
        "orchestrator.parts.theory",
        "orchestrator.parts.topology",
    ),
    *(
        "orchestrator.core.intervals",
        "orchestrator.core.fields",
        "orchestrator.core.opendata",
        "orchestrator.core.units",
        "orchestrator.core.errors",
        "orchestrator.parts.shared.capture_files",
        "orchestrator.parts.shared.fabric_links",
        "orchestrator.parts.shared.fabric_routes",
        "orchestrator.parts.shared.meter_files",
        "orchestrator.parts.shared.named_hosts",
        "orchestrator.parts.shared.offload_change",
        "orchestrator.core.paths.lookup",
        "orchestrator.core.paths.safepath",
        "orchestrator.core.machines.packages",
        "orchestrator.parts.shared.packet_rules",
        "orchestrator.parts.shared.rails",
        "orchestrator.parts.shared.token_bucket",
        "orchestrator.parts.shared.secret_source",
        "orchestrator.core.machines.remedies",
        "orchestrator.parts.samplers",
        "orchestrator.core.secret_looks",
        "orchestrator",
    ),
}
LIBRARIES_ALLOWED = {"pydantic", "pydantic_core", "numpy", "pyarrow"}

CASES = [
    Case(kind=kind, name=name, samples=DATA / name) for kind in registry.FOLDERS for name in registry.own_parts(kind)
]
ALL = [(case.kind, case.name) for case in CASES]
each_part = pytest.mark.parametrize(("kind", "name"), ALL, ids=[f"{kind}-{name}" for kind, name in ALL])


def made(kind, name, topology):
    """What a part makes of its example: launches or changes, requirements, demands or theory."""
    return Case(kind=kind, name=name, samples=DATA / name).made(topology)


@pytest.mark.parametrize(
    "check", [pytest.param(check, id=f"{case}-{check}") for case in CASES for check in checks(case)]
)
def test_a_part_keeps_its_contract(check, tmp_path):
    check(tmp_path)


@pytest.mark.parametrize("kind", registry.FOLDERS)
def test_every_folder_has_parts(kind):
    assert registry.own_parts(kind)


def test_a_folder_of_samples_is_of_one_part_alone():
    names = [name for _, name in ALL]
    assert len(set(names)) == len(names)


READERS = (
    "workloads/readers", "orchestrator/parts/collectors", "orchestrator/parts/samplers.py",
    "orchestrator/parts/conditions/delay.py", "orchestrator/parts/shared/capture_files.py", "cross_traffic/iperf.py",
    "cross_traffic/flow_records.py", "orchestrator/analysis/launch_outputs.py",
    "orchestrator/analysis/windows/generated_flows.py", "orchestrator/report/runs.py",
    "orchestrator/report/run/timeline.py",
)  # fmt: skip


@pytest.mark.parametrize("place", READERS)
def test_what_processes_left_is_opened_by_the_one_that_opens_files_alone(place):
    """`safepath.opened`, and not by methods of a path, which follow links and wait for pipes."""
    path = Path(__file__).parents[2] / place
    for module in [path] if path.is_file() else path.glob("*.py"):
        for node in ast.walk(ast.parse(module.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                whose = ast.unparse(node.func.value)
                direct = node.func.attr in ("read_bytes", "read_text", "open") and whose not in ("gzip", "os")
                assert not direct, f"{module}:{node.lineno}: {ast.unparse(node)}"


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
