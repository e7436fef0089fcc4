"""Columns are declared in the schema alone: readers, packages and sealed tables that lack one give null."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.core.errors import StoreError
from orchestrator.parts import rows
from orchestrator.parts.rows import DESCRIBED, TABLES, LaunchOutput, gathered
from orchestrator.parts.schema.column import Column
from orchestrator.store.manifests import records
from orchestrator.store.manifests.coding import encoded
from orchestrator.store.manifests.manifest import load
from orchestrator.store.stamps import MANIFEST
from orchestrator.store.tabular import tables
from tests.helpers.sealed_run import make_run
from workloads import ddp
from workloads.readers.iteration_logs import LOG, read_iterations

ROOT = Path(__file__).parents[3]
SAMPLES = ROOT / "tests/data/ddp"
ROW = {"job": "j", "rank": 0, "iteration": 4, "start_ns": 1, "end_ns": 2, "seconds": 1e-9}
# A workload as a package has it that was built when the table `iterations` had no more columns than these.
OLDER_PACKAGE = """
from workloads.ddp import Config, launches, problems, requirements, theory
from workloads.readers.iteration_logs import read_iterations

NAME = "older"
COLUMNS = (
    *("job", "rank", "window_name", "iteration", "start_ns", "end_ns"),
    *("seconds", "forward_s", "backward_s", "wait_s"),
)

def read(output):
    found = read_iterations(output, unknown=frozenset({"loss", "samples"}))["iterations"]
    return {"iterations": {name: found[name] for name in COLUMNS}}
"""


def output(folder: Path) -> LaunchOutput:
    return LaunchOutput(folder=folder, node="h1", launch="l", job="j", rank=0, window=None, source=None, offset_ns=0)


@pytest.mark.parametrize("name", TABLES)
def test_required_columns_are_columns(name: str) -> None:
    assert set(DESCRIBED[name].required) <= set(TABLES[name])


def test_a_table_takes_rows_that_lack_what_is_not_required(tmp_path: Path) -> None:
    tables.write(tmp_path, "iterations", {name: [value] for name, value in ROW.items()}, run="r", node="h", launch="l")
    (back,) = tables.read(tmp_path, "iterations").to_pylist()
    assert back == {"run": "r", "node": "h", "launch": "l", **dict.fromkeys(TABLES["iterations"]), **ROW}
    assert tables.read(tmp_path, "iterations").schema == tables.schema("iterations")


@pytest.mark.parametrize("name", DESCRIBED["iterations"].required)
def test_a_required_column_and_an_unknown_one_are_told(name: str) -> None:
    columns = {key: [value] for key, value in ROW.items() if key != name}
    with pytest.raises(StoreError, match=f"table iterations lacks {name}"):
        tables.batch("iterations", columns, run="r")
    with pytest.raises(ValueError, match=f"a row of the table iterations lacks {name}"):
        gathered("iterations", [{key: value for key, value in ROW.items() if key != name}])
    with pytest.raises(StoreError, match=r"has the unknown sekonds; its columns are job, rank, .*, accuracy"):
        tables.batch("iterations", {**columns, name: [ROW[name]], "sekonds": [1.0]}, run="r")


@pytest.fixture
def column_added(monkeypatch: pytest.MonkeyPatch) -> str:
    """A column more of `iterations`, as a line more in the schema is one."""
    name = "gradient_norm"
    columns = {**DESCRIBED["iterations"].columns, name: Column("float64", "Euclidean norm of the gradients")}
    monkeypatch.setitem(DESCRIBED, "iterations", replace(DESCRIBED["iterations"], columns=columns))
    monkeypatch.setitem(rows.TABLES, "iterations", {**TABLES["iterations"], name: "float64"})
    return name


def test_a_column_more_is_null_in_what_was_made_before(column_added: str, tmp_path: Path) -> None:
    (tmp_path / LOG).write_bytes((SAMPLES / LOG).read_bytes())
    found = ddp.read(output(tmp_path))["iterations"]
    assert found[column_added] == [None] * 12
    without = {name: values for name, values in found.items() if name != column_added}
    made = tables.batch("iterations", without, run="r", node="h", launch="l")
    assert made[column_added].null_count == made.num_rows == 12
    sealed = ROOT / "tests/data/sealed/tables-1/small/20261122T095054224-ef056278/tables"
    back = tables.read(sealed, "iterations")
    assert back[column_added].null_count == back.num_rows > 0


def test_a_column_of_the_schema_is_read_from_a_field_of_its_name(tmp_path: Path) -> None:
    program = f"""
from pathlib import Path
from orchestrator.parts.schema import training
from orchestrator.parts.schema.column import Column
training.TABLES["iterations"].columns["gradient_norm"] = Column("float64")
from test_table_columns import output
from workloads.readers.iteration_logs import read_iterations
print(read_iterations(output(Path({str(tmp_path)!r})))["iterations"]["gradient_norm"])
"""
    records = [json.loads(line) for line in (SAMPLES / LOG).read_text().splitlines()[:3]]
    records[0]["gradient_norm"], records[2]["gradient_norm"] = 3, "none"
    (tmp_path / LOG).write_text("\n".join(map(json.dumps, records)))
    path = os.pathsep.join([str(ROOT), str(Path(__file__).parent)])
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "[3.0, None, None]\n"


@pytest.mark.parametrize("name", ["loss", "samples", "wait_s", "iteration", "mono_end_ns"])
def test_a_line_that_lacks_what_every_rank_tells_is_passed_over(name: str, tmp_path: Path) -> None:
    records = [json.loads(line) for line in (SAMPLES / LOG).read_text().splitlines()[:3]]
    del records[1][name]
    (tmp_path / LOG).write_text("\n".join(map(json.dumps, records)))
    assert list(read_iterations(output(tmp_path))["iterations"]["iteration"]) == [0, 2]
    known = name in ("iteration", "mono_end_ns")
    assert len(read_iterations(output(tmp_path), unknown=frozenset({name}))["iterations"]["rank"]) == 3 - known


def test_a_package_built_against_fewer_columns_passes_its_checks_and_is_measured(tmp_path: Path) -> None:
    about = tmp_path / "site/older_parts-1.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: older-parts\nVersion: 1\n")
    (about / "entry_points.txt").write_text("[orch.workloads]\nolder = older_module\n")
    (about.parent / "older_module.py").write_text(OLDER_PACKAGE)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(about.parent), str(ROOT)])}

    checked = f"""
from pathlib import Path
from orchestrator.testing import Case, checks
for number, check in enumerate(checks(Case(kind="workload", name="older", samples=Path({str(SAMPLES)!r})))):
    folder = Path({str(tmp_path)!r}, str(number))
    folder.mkdir()
    check(folder)
"""
    subprocess.run([sys.executable, "-c", checked], env=env, check=True)

    run = make_run(tmp_path, skip=("iterations",))
    manifest = load(run / MANIFEST)
    about_rank = {"part": "workload.older", "role": "rank", "argv": (), "env": {}}
    launch = records.Launch(name="rank0", node="h1", job=manifest.jobs[0].name, rank=0, **about_rank)
    (run / MANIFEST).write_bytes(encoded(replace(manifest, launches=(launch,))))
    home = run / "hosts/h1/rank0"
    home.mkdir(parents=True)
    (home / LOG).write_bytes((SAMPLES / LOG).read_bytes())
    done = subprocess.run(
        [sys.executable, "-m", "orchestrator.analysis.reduction"],
        input=json.dumps([str(run), None]),
        env=env,
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout)["error"] is None, done.stdout
    rows_there = tables.read(run / "tables", "iterations").to_pylist()
    assert [row["iteration"] for row in rows_there] == list(range(12))
    assert {(row["samples"], row["loss"], row["accuracy"]) for row in rows_there} == {(None, None, None)}
