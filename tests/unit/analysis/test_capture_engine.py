"""`orch capture --engine`: workers of a Dask cluster read what this process would."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import subprocess
import sys
import types
from pathlib import Path

import pytest

from orchestrator.analysis import capture_engine
from orchestrator.cli.main import main
from orchestrator.testbed.slurm import dask_cluster
from tests.helpers.processes import ended

ROOT = Path(__file__).parents[3]
LOSS = ROOT / "tests/data/pcap/loss.pcap"
CLUSTER = """
import sys
from distributed import SpecCluster, Scheduler, Worker

names = sys.argv[1:]
options = {"nthreads": 1, "protocol": "tcp", "host": "127.0.0.1"}
workers = {name: {"cls": Worker, "options": options} for name in names}
scheduler = {"cls": Scheduler, "options": {"host": "127.0.0.1", "dashboard": False}}
with SpecCluster(workers=workers, scheduler=scheduler, silence_logs=50) as up:
    print(up.scheduler_address, flush=True)
    sys.stdin.read()
"""


@contextlib.contextmanager
def cluster(*workers):
    """The address of a scheduler with workers of these names in a process of its own: Dask's threads outlive it."""
    command = [sys.executable, "-c", CLUSTER, *workers]
    with ended(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
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
    with cluster("first", "second") as address:
        status, out, err = captured(tmp_path, "--json", "--engine", address)
    assert status == 0, err
    assert [point["packets"] for point in here["points"]] == [247, 247]
    assert json.loads(out) == here


def test_a_scheduler_without_workers_is_refused():
    with cluster() as address:
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


def test_outside_of_an_allocation_slurm_is_refused(monkeypatch, capsys):
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    assert main(["capture", str(LOSS), "--engine", "slurm"]) == 1
    assert "salloc -N 4 orch capture FILES --engine slurm" in capsys.readouterr().err


def test_a_node_without_dask_is_told_with_the_package(monkeypatch, capsys):
    settings = dask_cluster.encoded_settings(dask_cluster.WorkerSettings(host="127.0.0.1", port=1, tls={}))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(settings)))
    monkeypatch.setitem(sys.modules, "distributed", None)
    assert dask_cluster.main() == 1
    words = capsys.readouterr().err
    assert words == f"{sys.executable} has no package distributed\n"
    step = types.SimpleNamespace(poll=lambda: None)
    empty = types.SimpleNamespace(scheduler_info={"workers": {}})
    with pytest.raises(capture_engine.TestbedError, match="0 of 2 nodes have a worker") as caught:
        dask_cluster._wait(empty, 2, step, lambda: words)
    assert "pip install 'orch-testbed[dask]'" in str(caught.value)


def test_without_dask_the_package_is_named(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "distributed", None)
    assert main(["capture", str(LOSS), "--engine", "tcp://head:8786"]) == 2
    assert "pip install 'orch-testbed[dask]'" in capsys.readouterr().err
