"""`tests/beside-frameworks`: which tests run while environments are built, which afterwards, and with what status."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "beside-frameworks"


@pytest.fixture
def asked(tmp_path):
    """Run the script where environments are `built` or building does what it is told, as `pytest` does."""
    hosts = tmp_path / "playbooks/hosts"
    hosts.mkdir(parents=True)
    (tmp_path / "tests").mkdir()
    script = shutil.copy(SCRIPT, tmp_path / "tests")

    def program(path, text):
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    def run(built, building="exit 0", pytest="exit 0", preparing="exit 0"):
        program(hosts / "install-packages", f'echo "$@" > {tmp_path / "installed"}')
        program(hosts / "prepare-this-machine", f'echo "$@" > {tmp_path / "prepared"}; {preparing}')
        program(hosts / "prepare-frameworks", f'[ "$1" != --check ] || exit {0 if built else 1}\n{building}')
        program(tmp_path / "pytest", f'echo "pytest: $@"\n{pytest}')
        argv = [script, "not alone", tmp_path / "pytest", "-n", "5"]
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
        return done.returncode, [line for line in done.stdout.splitlines() if line.startswith("pytest: ")], done.stdout

    return run


BESIDE = "pytest: -n 5 -m (not alone) and not frameworks"
AFTERWARDS = "pytest: -n 5 -m (not alone) and frameworks tests/testbed"


def test_where_all_is_built_all_tests_run_at_once(asked, tmp_path):
    status, ran, _ = asked(built=True)
    assert (status, ran) == (0, ["pytest: -n 5 -m not alone"])
    assert (tmp_path / "prepared").read_text() == "--tests\n"


def test_tests_that_need_what_is_built_run_once_it_is_there(asked, tmp_path):
    waits = f"while [ ! -e {tmp_path / 'went'} ]; do sleep 0.05; done; echo frameworks: torch is ready"
    status, ran, said = asked(built=False, building=waits, pytest=f"touch {tmp_path / 'went'}")
    assert (status, ran) == (0, [BESIDE, AFTERWARDS])
    assert said.index(BESIDE) < said.index("torch is ready") < said.index(AFTERWARDS)
    assert (tmp_path / "installed").read_text() == "run tests frameworks\n"
    assert (tmp_path / "prepared").read_text() == "--tests\n"


@pytest.mark.parametrize(
    ("fails", "status"), [('[ "$5" = x ] || exit 1', 1), ('case "$4" in *"and not"*) exit 3;; esac', 3)]
)
def test_tests_that_fail_are_its_status_and_keep_no_others_from_running(asked, fails, status):
    ended, ran, _ = asked(built=False, pytest=fails)
    assert (ended, ran) == (status, [BESIDE, AFTERWARDS])


def test_what_cannot_be_built_is_told_and_its_status(asked):
    status, ran, said = asked(built=False, building="echo frameworks: building torch failed; exit 1")
    assert (status, ran) == (1, [BESIDE])
    assert "building torch failed" in said


@pytest.mark.parametrize("built", [True, False])
def test_a_machine_that_cannot_be_prepared_runs_no_tests(asked, built):
    status, ran, _ = asked(built, building="sleep 60", preparing="exit 4")
    assert (status, ran) == (4, [])
