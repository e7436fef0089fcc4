"""The fault matrix finds what it looks for: each of the five checks has a violation planted, and results are kept."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from documentation import measurements
from tests.faults import checks, record, running, scene, side_by_side
from tests.faults.carrying import NOT_CARRIED_OUT, Result, carry_out
from tests.faults.checks import DATA, LINE, PROCESSES, STATE, STATUS
from tests.faults.matrix import LOCAL, Case, cases
from tests.faults.record import Record

RUN = f"20261122T000000000-{os.getpid()}"  # processes of another test's run are not this one's to find, nor to end
NAMES = [(found.name.partition("@")[0], found.what, found.place) for found in cases()]
ORDERLY = """
import json, pathlib, sys
print("orch: stopped by SIGINT", file=sys.stderr)
sys.exit(130)
"""


class Still:
    """A place where nothing changes unless a test has it change."""

    def __init__(self):
        self.read = {"h1": {"qdiscs": "qdisc tbf rate 250Mbit"}}

    def experiment(self, **changes):
        return changes

    def state(self):
        return {machine: dict(kinds) for machine, kinds in self.read.items()}

    def processes(self):
        return set()


@pytest.fixture
def place():
    return Still()


@pytest.fixture
def stage(tmp_path, place, monkeypatch):
    """A scene whose patience is short: what is planted stays."""
    monkeypatch.setattr(scene, "BACK_WITHIN_S", 0.3)
    monkeypatch.setattr(running, "ENDS_WITHIN_S", 0.3)
    made = scene.Scene(tmp_path, place, name="a-row", seed=1)
    yield made
    made.abandon()


def sealed(results, *, outcome="failed", rows=8, name=RUN):
    """A sealed run with so many iterations."""
    folder = results / "small" / name
    (folder / "tables").mkdir(parents=True)
    pq.write_table(pa.table({"iteration": list(range(rows))}), folder / "tables/iterations.parquet")
    digest = hashlib.sha256((folder / "tables/iterations.parquet").read_bytes()).hexdigest()
    artifacts = [{"path": "tables/iterations.parquet", "sha256": digest}]
    (folder / "manifest.json").write_text(json.dumps({"run": name, "outcome": outcome, "artifacts": artifacts}))
    return folder


def run_of(stage, program):
    """What stands for `orch run`: a program of a line or two, and a sealed run."""
    process = stage.start(argv=[sys.executable, "-c", program], name="run")
    results = stage.folder / "results"
    if not results.exists():
        sealed(results)
    return running.Controller(stage, process, results, "run")


def look_at_all(stage, run, *, status=130, told="SIGINT", outcome="failed", iterations=8):
    run.must_end(status, told=told, within_s=60)
    run.must_be_home(outcome, iterations=iterations)
    stage.finish()
    return set(stage.failures)


def test_an_orderly_end_holds(stage):
    assert look_at_all(stage, run_of(stage, ORDERLY)) == set()


def test_another_exit_status_is_found(stage):
    assert look_at_all(stage, run_of(stage, ORDERLY), status=1) == {STATUS}


def test_an_end_that_does_not_come_is_found(stage):
    run = run_of(stage, "import time\ntime.sleep(3600)")
    run.must_end(130, told="", within_s=0.5)
    assert stage.failures[STATUS] == ["it has not ended within 0 s"]


@pytest.mark.parametrize(
    ("said", "wrong"),
    [
        ("orch: h1: something else\n", "is not in the line"),
        ("  window\n", "0 lines begin"),
        ("orch: stopped by SIGINT\norch: and more\n", "2 lines begin"),
        ("orch: stopped by SIGINT\nTraceback (most recent call last):\n", "a traceback"),
        ("\r window ...\rorch: a\rorch: stopped by SIGINT\r\n", "2 lines begin"),
    ],
)
def test_a_line_that_is_wrong_or_not_one_is_found(said, wrong):
    assert wrong in (checks.line(said, "stopped by SIGINT") or "")


def test_what_is_not_mentioned_is_found():
    assert checks.mention("orch: h1: rank 0 ended\n  also: no space on h2\n", "no space on h2") is None
    assert checks.mention("orch: h1: rank 0 ended\n", "no space on h2") == "nothing says 'no space on h2'"
    assert checks.mention("no space\nTraceback (most recent call last):\n", "no space") == "a traceback"


def test_a_line_of_a_terminal_is_read_without_what_it_overwrote():
    assert checks.line("\r  window ...\r             \rorch: stopped by SIGINT\r\n", "stopped by SIGINT") is None


@pytest.mark.parametrize(
    "planted",
    [
        {"h1": {"qdiscs": "qdisc tbf rate 120Mbit"}},
        {"h1": {"qdiscs": "qdisc tbf rate 250Mbit", "files": "100600 orch/journal"}},
        {"h1": {}},
        {},
    ],
)
def test_a_state_that_is_not_as_before_is_found(stage, place, planted):
    run = run_of(stage, ORDERLY)
    place.read = planted
    assert look_at_all(stage, run) == {STATE}


def test_a_temporary_file_that_is_left_is_found(stage):
    leaving = "import tempfile\ntempfile.mkstemp()\n" + ORDERLY
    assert look_at_all(stage, run_of(stage, leaving)) == {STATE}


def plant_another_outcome(folder):
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps({**manifest, "outcome": "completed"}))


def plant_a_change(folder):
    (folder / "tables/iterations.parquet").write_bytes(b"PAR1")


def plant_a_loss(folder):
    (folder / "tables/iterations.parquet").unlink()


def plant_no_seal(folder):
    folder.rename(folder.with_name(folder.name + ".partial"))


def plant_another_run(folder):
    sealed(folder.parents[1], name="20261122T000000000-2")


@pytest.mark.parametrize(
    "plant", [plant_another_outcome, plant_a_change, plant_a_loss, plant_no_seal, plant_another_run]
)
def test_data_that_is_not_home_is_found(stage, plant):
    run = run_of(stage, ORDERLY)
    plant(run.results / "small" / RUN)
    run.must_be_home("failed", iterations=8)
    assert set(stage.failures) == {DATA}


def test_too_few_iterations_are_found(stage):
    assert look_at_all(stage, run_of(stage, ORDERLY), iterations=9) == {DATA}


def test_a_run_that_should_not_be_there_is_found(stage):
    run_of(stage, ORDERLY).must_have_left_nothing()
    assert set(stage.failures) == {DATA}


# A process has no environment yet when its starter goes on: the kernel closes descriptors first in the midst of exec.
LEAVING = (
    "import subprocess, sys\nleft = subprocess.Popen(['sleep', '3600'], start_new_session=True{})\n"
    "while not open('/proc/%d/environ' % left.pid).read(): pass\n" + ORDERLY
)


@pytest.mark.parametrize("more", ["", f", env={{'ORCH_RUN': '{RUN}'}}"], ids=["of the row", "of the run"])
def test_a_process_that_is_left_is_found(stage, more):
    """By the tag that all has that a row starts, and by the run's own, which agents give."""
    run = run_of(stage, LEAVING.format(more))
    assert look_at_all(stage, run) == {PROCESSES}
    (told,) = stage.failures[PROCESSES]
    assert told.endswith(": sleep 3600")
    stage.abandon()
    assert stage._left() == []


def test_a_row_that_looks_at_nothing_does_not_hold(stage):
    stage.finish()
    assert set(stage.failures) == {STATUS, LINE, DATA}


def case(carry, row=1):
    return Case(row, "", LOCAL, "something", carry, 1, root=False, hosts=3, ci=False)


def test_a_row_that_cannot_be_arranged_does_not_hold_and_keeps_its_folder(tmp_path):
    def carry(scene):
        (scene.folder / "log").write_text("why")
        raise AssertionError("the window did not come")

    result = carry_out(case(carry), tmp_path / "it", number=0, seed=1)
    assert result.failures == {NOT_CARRIED_OUT: ["AssertionError: the window did not come"]}
    assert (tmp_path / "it/log").exists()


def test_seeds_are_the_same_for_everybody():
    assert record.seed_of("1@local", 3) == record.seed_of("1@local", 3) != record.seed_of("1@local", 4)


def test_what_is_on_record_is_not_carried_out_again(tmp_path):
    one, other = case(None), case(None, row=2)
    path = tmp_path / "abc.jsonl"
    Record(path).add(Result("1@local", 0, 3.0))
    Record(path).add(Result("2@local", 0, 5.0, {STATE: ["a queue"]}))
    path.write_text(path.read_text() + '{"case": "1@loc')  # interrupted in the midst
    again = Record(path)
    assert again.missing([one, other], 2) == [(one, 1), (other, 1)]
    again.add(Result("1@local", 1, 5.0))
    assert record.rows([one, other], Record(path)) == [
        ("1", "something", "local", "2", "all", "4"),
        ("2", "something", "local", "1", "0; not: state", "5"),
    ]
    again.forget({"2@local"})
    assert Record(path).missing([one, other], 1) == [(other, 0)]


def test_what_is_on_record_is_a_table_for_the_docs(tmp_path):
    now = Record(tmp_path / "now.jsonl")
    now.add(Result("1@local", 0, 4.0))
    made = record.table([case(None), case(None, row=2)], now)
    assert made.columns == ("row", "what breaks", "testbed", "times", "held", "seconds")
    assert made.rows == (("1", "something", "local", "1", "all", "4"), ("2", "something", "local", "0", "-", "-"))


def test_results_are_of_the_sources_and_not_of_prose_or_other_tests(tmp_path, monkeypatch):
    monkeypatch.setattr(record, "ROOT", tmp_path)
    files = [
        "orchestrator/execution/run.py",
        "tests/faults/row.py",
        "docs/a.md",
        "orchestrator/a.md",
        "tests/unit/test_a.py",
    ]
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("before")
    for argv in (["init", "--quiet"], ["add", "."]):
        subprocess.run(["git", *argv], cwd=tmp_path, check=True)

    def changes(name):
        before = record.version()
        (tmp_path / name).write_text("after")
        return record.version() != before

    assert [changes(name) for name in files] == [True, True, False, False, False]


def test_a_case_whose_process_dies_is_told_and_the_others_go_on(tmp_path, monkeypatch):
    results = side_by_side.carried_out([("77@nowhere", 0), ("78@nowhere", 0)], 2, tmp_path)
    told = {result.case: result.failures for result in results}
    assert told == {
        name: {NOT_CARRIED_OUT: ["its process ended with status 1"]} for name in ("77@nowhere", "78@nowhere")
    }


def test_the_rows_of_the_docs_are_those_of_the_program():
    for found in measurements.records(["faults"]):
        written = [tuple(row[:3]) for table in found["tables"] for row in table["rows"]]
        assert written == NAMES
    assert measurements.records(["faults"])
    assert len(set(NAMES)) == len(NAMES)


def test_an_unknown_row_is_refused():
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults", "77"], capture_output=True, text=True, check=False, cwd=record.ROOT
    )
    assert done.returncode == 2
    assert "no row 77" in done.stderr
