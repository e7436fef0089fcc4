"""`orch capture --engine`: workers of a Dask cluster read what this process would."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.analysis import capture_engine
from orchestrator.cli.main import main

ROOT = Path(__file__).parents[2]
LOSS = ROOT / "tests/data/pcap/loss.pcap"
CLUSTER = """
import sys
from distributed import LocalCluster

with LocalCluster(
    n_workers=int(sys.argv[1]), threads_per_worker=1, processes=False, protocol="tcp", dashboard_address=None
) as up:
    print(up.scheduler_address, flush=True)
    sys.stdin.read()
"""


@contextlib.contextmanager
def cluster(workers):
    """The address of a scheduler in a process of its own: Dask's threads outlive it, and tests here fork."""
    command = [sys.executable, "-c", CLUSTER, str(workers)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process.stdout.readline().strip()
        process.stdin.close()


def captured(*arguments, first="pass"):
    """`orch capture` after what is to happen first, in a process of its own too: its status, output and errors."""
    call = f"from orchestrator.cli.main import main; sys.exit(main({['capture', *map(str, arguments)]!r}))"
    command = [sys.executable, "-c", f"import sys; {first}; {call}"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environment)
    return done.returncode, done.stdout, done.stderr


def test_workers_give_what_this_process_gives(tmp_path, capsys):
    for name in ("a.pcap", "b.pcap"):
        shutil.copy(LOSS, tmp_path / name)
    assert main(["capture", str(tmp_path), "--json"]) == 0
    here = json.loads(capsys.readouterr().out)
    with cluster(2) as address:
        status, out, err = captured(tmp_path, "--json", "--engine", address)
    assert status == 0, err
    assert [point["packets"] for point in here["points"]] == [247, 247]
    assert json.loads(out) == here


def test_a_scheduler_without_workers_is_refused():
    with cluster(0) as address:
        status, _, err = captured(LOSS, "--engine", address)
    assert (status, "the scheduler has no workers" in err) == (1, True), err


def test_workers_of_another_version_are_refused():
    with pytest.raises(capture_engine.TestbedError, match="a has version 0"):
        capture_engine._refuse_others({"tcp://a": "0.0"}, "tcp://s")
    with pytest.raises(capture_engine.TestbedError, match="a has none of orch-testbed"):
        capture_engine._refuse_others({"tcp://a": ModuleNotFoundError("orch-testbed")}, "tcp://s")


def test_a_scheduler_that_does_not_answer_is_told():
    sooner = "from orchestrator.analysis import capture_engine; capture_engine.CONNECT_S = 0.1"
    status, _, err = captured(LOSS, "--engine", "tcp://127.0.0.1:1", first=sooner)
    assert (status, "no Dask scheduler answers" in err) == (1, True), err


@pytest.mark.parametrize(
    ("address", "told"),
    [("hosts", "say `captures: {stay: true}` in the experiment"), ("head:8786", "accepted: such as tcp://head:8786")],
)
def test_what_is_no_scheduler_is_told(address, told, capsys):
    assert main(["capture", str(LOSS), "--engine", address]) == 2
    assert told in capsys.readouterr().err


def test_without_dask_the_package_is_named(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "distributed", None)
    assert main(["capture", str(LOSS), "--engine", "tcp://head:8786"]) == 2
    assert "pip install 'orch-testbed[dask]'" in capsys.readouterr().err
