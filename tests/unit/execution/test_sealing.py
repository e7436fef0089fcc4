"""The process that makes tables, on a machine that starts none."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from orchestrator.core.errors import StoreError
from orchestrator.core.interrupts import Interrupts
from orchestrator.execution import sealing
from tests.helpers import manifests


def test_a_machine_that_starts_no_process_is_told_when_tables_are_made_and_not_before(tmp_path, monkeypatch):
    """The reducer is begun before a run is put back: an error there would leave everything as it is."""
    folder = manifests.begun(tmp_path)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "no-python"))
    reducer = sealing.Reducer()
    with pytest.raises(StoreError, match=r"r1\.partial could not be made: no process starts: .*no-python"):
        reducer.reduce(folder, Interrupts(), print, why="orch run")
    reducer.close()


def test_one_that_could_not_be_started_early_is_started_late(tmp_path, monkeypatch):
    folder = manifests.begun(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(sys, "executable", str(tmp_path / "no-python"))
        reducer = sealing.Reducer()
    (folder.path / "manifest.json").write_text("{")
    with pytest.raises(StoreError, match=r"could not be made: .*manifest\.json"):  # as the process says
        reducer.reduce(folder, Interrupts(), print, why="orch run")
    reducer.close()


def test_one_that_is_ended_while_it_warms_up_leaves_no_file(tmp_path):
    """It writes none: it may be killed at any moment."""
    program = """
import sys
from orchestrator.analysis.capture import flowtable
def told(event, arguments):
    if event == "open" and isinstance(arguments[2], int) and arguments[2] & 0o100:  # O_CREAT
        print(arguments[0])
sys.addaudithook(told)
flowtable.warm()
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert str(tmp_path) not in done.stdout


def test_what_makes_tables_does_not_load_all_of_scipys_statistics():
    """A second of processor time of every run, for two values of Student's distribution."""
    code = "import sys, orchestrator.analysis.reduction; sys.exit('scipy.stats' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
