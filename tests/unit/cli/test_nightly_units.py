from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from orchestrator.cli.commandline import build_parser

NIGHTLY = Path(__file__).parents[3] / "playbooks/nightly"
JOURNAL = "--unit orch-nightly --lines 80 --no-pager"
ORCH = "/srv/orch/.venv/bin/orch"
UNITS = ("orch-nightly.service", "orch-nightly.timer", "orch-alert.service")


def commands():
    """Every `orch` command line of the service and the crontab, without the program."""
    service = (NIGHTLY / UNITS[0]).read_text().splitlines()
    found = [line.partition("=")[2] for line in service if line.startswith("Exec")]
    jobs = [line for line in (NIGHTLY / "crontab").read_text().splitlines() if line and not line.startswith("#")]
    found += [part for line in jobs for part in line.partition("&&")[2].split(";")]
    return [shlex.split(command)[1:] for command in found]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze here")
@pytest.mark.skipif(
    os.geteuid() != 0 and not Path("/run/systemd").is_dir(),
    reason="systemd-analyze makes /run/systemd where systemd does not run, which root alone can",
)
def test_systemd_takes_the_units(tmp_path):
    program = shutil.which("true")
    for name in UNITS:
        (tmp_path / name).write_text((NIGHTLY / name).read_text().replace(ORCH, program))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *(str(tmp_path / name) for name in UNITS)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    said = [line for line in done.stderr.splitlines() if "orch-" in line]
    assert (done.returncode, said) == (0, [])


@pytest.mark.parametrize("argv", [argv for argv in commands() if argv[0] == "prune"], ids=" ".join)
def test_what_is_started_every_night_are_commands_there_are(argv):
    assert build_parser().parse_args(argv).action


def test_what_is_pruned_on_hosts_is_reached_by_the_sweeps_own_testbed():
    """Nothing in a run's folder says how its hosts are reached."""
    for argv in commands():
        if argv[0] == "prune":
            assert build_parser().parse_args(argv).testbeds == [Path("playbooks/sweeps/nightly.yaml")]


def test_every_night_measures_anew_and_is_judged():
    sweeps = [argv for argv in commands() if argv[0] == "sweep"]
    assert len(sweeps) == 2
    for argv in sweeps:
        assert {"playbooks/sweeps/nightly.yaml", "--new", "--baseline"} <= set(argv)


@pytest.mark.parametrize(("told", "subject"), [({"MONITOR_EXIT_STATUS": "4"}, "status 4"), ({}, "status unknown")])
def test_a_night_that_failed_is_mailed_with_its_status_and_last_words(tmp_path, told, subject):
    assert f"OnFailure={UNITS[2]}\n" in (NIGHTLY / UNITS[0]).read_text()
    (line,) = [line for line in (NIGHTLY / UNITS[2]).read_text().splitlines() if line.startswith("ExecStart=")]
    for name, does in {
        "journalctl": f'test "$*" = "{JOURNAL}" && echo worse: load 8gbit',
        "mail": 'echo "$@"; cat',
    }.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{does}\n")
        (tmp_path / name).chmod(0o755)
    argv = [word.replace("$$", "$") for word in shlex.split(line.partition("=")[2])]  # as systemd does
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "ORCH_ALERT": "ops@example.org", **told}
    mailed = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60, check=True).stdout.splitlines()
    assert mailed[0].startswith("-s orch-nightly on ")
    assert mailed[0].endswith(f": {subject} ops@example.org")
    assert mailed[1:] == ["worse: load 8gbit"]
