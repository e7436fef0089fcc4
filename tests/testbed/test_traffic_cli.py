"""`orch traffic` between two processes of this machine, over its loopback."""

from __future__ import annotations

import csv
import re
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from cross_traffic import flow_records
from cross_traffic.agents import flow_sender
from orchestrator.cli import main
from tests.helpers import machine
from tests.helpers.orch_runs import wait_for

pytestmark = pytest.mark.testbed

HERE = "127.0.0.1"
AGENTS = Path(__file__).parents[2] / "cross_traffic/agents"


@pytest.fixture
def port():
    return machine.free_port()


@contextmanager
def serving(log, port, *, senders=(HERE,)):
    options = [word for sender in senders for word in ("--from", sender)]
    argv = [sys.executable, "-m", "orchestrator.cli.main", "traffic", "serve", "--address", HERE, "--port", str(port)]
    process = subprocess.Popen([*argv, *options, "--log", str(log)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "listening\n"
        yield
    finally:
        process.terminate()
        assert process.wait(60) == 0


def send(log, port, *options):
    return main.main(
        ["traffic", "send", "--to", HERE, "--from", HERE, "--port", str(port), "--log", str(log), *options]
    )


def counted(log, port):
    """The sink's last counts."""
    *_, last = csv.DictReader((log / f"received.{port}.csv").open())
    return last


def test_a_schedule_is_sent_received_and_checked(tmp_path, port, capfd):
    with serving(tmp_path / "sink", port):
        assert send(tmp_path / "log", port, "--load", "5gbit", "--scale", "100", "--duration", "1s") == 0
    assert "all acknowledged" in capfd.readouterr().out
    assert main.main(["traffic", "check", str(tmp_path / "log")]) == 0
    told = capfd.readouterr().out
    assert "on the wire, 0.05 requested" in told
    assert re.search(r"[0-9.]+ [mu]s p99", told)
    assert int(counted(tmp_path / "sink", port)["bytes"]) > 4_000_000


def test_a_file_is_sent_as_it_says(tmp_path, port, capfd):
    file = tmp_path / "flows.csv"
    shape = ["--load", "5gbit", "--scale", "100", "--duration", "1s", "--burst", "1ms,10ms,3"]
    assert main.main(["traffic", "schedule", *shape, "-o", str(file), "--plot", str(tmp_path / "b4")]) == 0
    assert "burst profile" in capfd.readouterr().out
    assert (tmp_path / "b4.svg").stat().st_size > 1000
    flows = sum(not line.startswith(("#", "start_s")) for line in file.read_text().splitlines())
    with serving(tmp_path / "sink", port):
        assert send(tmp_path / "log", port, "--schedule", str(file), "--pool") == 0
    assert f"flows          {flows:,} in" in capfd.readouterr().out


def test_what_is_too_much_is_shed_and_told(tmp_path, port, capfd):
    with serving(tmp_path / "sink", port):
        status = send(tmp_path / "log", port, "--load", "100gbit", "--duration", "1s", "--most-open", "2")
    assert status == 3
    assert "shed: too many flows were open" in capfd.readouterr().out


def test_a_sender_without_time_sheds_flows_and_sends_those_that_it_started(tmp_path, port, capfd):
    """At any moment few flows are open: work on those that were started comes before more of them."""
    with serving(tmp_path / "sink", port):
        options = ["--load", "400gbit", "--duration", "1s", "--workers", "1"]
        assert send(tmp_path / "log", port, *options) == 3
    told = capfd.readouterr().out
    assert "shed: the sender had no processor time for it" in told
    assert "too many flows were open" not in told
    _, rows = flow_records.records(tmp_path / "log/flows.0.bin")
    started = rows[rows["dport"] > 0]
    assert (started["error"] == 0).all()
    opened, ended = np.sort(started["start"]), np.sort(started["acked"])
    open_at_once = np.arange(1, len(opened) + 1) - np.searchsorted(ended, opened)
    assert flow_sender.MOST_READY / 2 < open_at_once.max() < flow_sender.MOST_READY * 8


def test_a_sink_that_is_not_there_is_one_error(tmp_path, port, capfd):
    assert send(tmp_path / "log", port, "--load", "1gbit") == 1
    said = capfd.readouterr().err
    assert "cannot send" in said
    assert "Traceback" not in said


def test_a_sender_that_is_not_expected_is_turned_away(tmp_path, port, capfd):
    with serving(tmp_path / "sink", port, senders=("127.0.0.99",)):
        assert send(tmp_path / "log", port, "--load", "1gbit") == 1
        wait_for(lambda: counted(tmp_path / "sink", port)["refused"] == "1", 10, "the sink's count")
    assert "takes no flows from this address" in capfd.readouterr().err
    last = counted(tmp_path / "sink", port)
    assert (last["bytes"], last["refused"]) == ("0", "1")


def test_the_death_of_the_sender_ends_its_workers_and_not_the_sink(tmp_path, port):
    with serving(tmp_path / "sink", port):
        (tmp_path / "log").mkdir()
        made = tmp_path / "made"
        options = ["--load", "1gbit", "--scale", "100", "--duration", "60s"]
        argv = [sys.executable, "-m", "orchestrator.cli.main", "traffic", "send", "--to", HERE, "--port", str(port)]
        process = subprocess.Popen([*argv, "--log", str(made), *options], stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 120
        while not list(made.glob("flows.*.bin")) or _sender_of(made) is None:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        sender = _sender_of(made)
        workers = [int(pid) for pid in Path(f"/proc/{sender}/task/{sender}/children").read_text().split()]
        assert workers
        subprocess.run(["kill", "-9", str(sender)], check=True)
        process.wait(60)
        while any(Path(f"/proc/{pid}").exists() and not _is_zombie(pid) for pid in workers):
            assert time.monotonic() < deadline + 60
            time.sleep(0.02)


def _sender_of(folder):
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if (entry / "cwd").resolve() == folder and b"flow_sender.py" in (entry / "cmdline").read_bytes():
                status = (entry / "status").read_text()
                parent = next(line.split()[1] for line in status.splitlines() if line.startswith("PPid"))
                if b"flow_sender.py" not in Path(f"/proc/{parent}/cmdline").read_bytes():
                    return int(entry.name)
        except OSError:
            continue
    return None


def _is_zombie(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--load", "1"], "not a rate"),
        (["--load", "1gbit", "--duration", "x"], "not a duration"),
        (["--load", "1gbit", "--burst", "1ms"], "is not width,period,height"),
        (["--load", "1gbit", "--distribution", "nosuch"], "there is no distribution"),
        (["--load", "0bit"], "cannot be scheduled"),
        (["--load", "1gbit", "--scale", "0"], "--scale"),
    ],
)
def test_bad_options_get_one_line(options, told, capsys):
    assert main.main(["traffic", "schedule", *options]) == 2
    said = capsys.readouterr().err
    assert told in said
    assert len(said.splitlines()) <= 2


def test_a_folder_without_a_log_is_one_error(tmp_path, capsys):
    assert main.main(["traffic", "check", str(tmp_path)]) == 1
    assert "holds no log" in capsys.readouterr().err
