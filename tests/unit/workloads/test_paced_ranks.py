"""Ranks at their gate: when iterations begin, and the congestion control of their connections."""

from __future__ import annotations

import io
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from workloads.rank import lifecycle
from workloads.rank.lifecycle import Pace

ROOT = Path(__file__).parents[3]
# Iterations of 20 ms, but for the fourth one of 250 ms; the rank ends after ten.
RANK = """
import sys, time
from pathlib import Path
from workloads.rank import lifecycle
from workloads.rank.logs import IterationLog
log = IterationLog(Path("iterations.jsonl"))
def step(iteration):
    if iteration == 10:
        log.close()
        sys.exit()
    time.sleep(0.25 if iteration == 3 else 0.02)
    return {}
lifecycle.iterate(step, log)
"""


def starts(folder, line):
    """The begins of iterations of a rank, seconds by the wall clock, whose gate this line opens."""
    done = subprocess.run(
        [sys.executable, "-c", RANK],
        cwd=folder,
        input=line,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        timeout=60,
        check=True,
    )
    assert done.stdout == "ready\n"
    return [json.loads(one)["start_ns"] / 1e9 for one in (folder / "iterations.jsonl").read_text().splitlines()]


@pytest.mark.alone
def test_iterations_wait_for_their_turn_and_a_late_one_moves_no_other(tmp_path):
    begin_ns = time.time_ns() + 1_500_000_000
    found = starts(tmp_path, f"go {begin_ns} 100000000\n")
    turns = [begin_ns / 1e9 + 0.1 * number for number in range(10)]
    assert all(start >= turn - 1e-3 for start, turn in zip(found, turns, strict=True))  # never before
    assert found[4] >= turns[3] + 0.25 - 1e-3  # the fifth one began as soon as the long one had ended
    assert found[9] - turns[9] < 0.1  # its own turn, whatever the long one took


def test_without_a_period_iterations_follow_one_another(tmp_path):
    began = time.time()
    found = starts(tmp_path, "go\n")
    assert found[-1] - found[0] < time.time() - began
    assert found[1] - found[0] >= 0.02


@pytest.mark.parametrize(
    ("line", "ahead_s", "every_ns"), [("go\n", 0, 0), ("\nwhat\ngo\n", 0, 0), ("go {at} 5\n", 0.2, 5)]
)
def test_the_gate_gives_a_pace(monkeypatch, line, ahead_s, every_ns):
    now_ns = time.monotonic_ns()
    monkeypatch.setattr(sys, "stdin", io.StringIO(line.format(at=time.time_ns() + 200_000_000)))
    pace = lifecycle.wait_for_go()
    assert pace.every_ns == every_ns
    assert pace.begin_ns - now_ns >= ahead_s * 1e9 - 1e6
    assert time.monotonic_ns() >= pace.begin_ns


def test_a_turn_that_has_passed_is_not_waited_for():
    began = time.monotonic()
    Pace(time.monotonic_ns() - 10**12, 10**9).wait(3)
    Pace(time.monotonic_ns() + 10**12, 0).wait(1)
    assert time.monotonic() - began < 1


def test_connections_of_a_process_get_a_congestion_control_and_others_keep_theirs(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX) as other:
        before = server.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
        (tmp_path / "open").touch()
        with (
            (tmp_path / "open").open(),
            other,
            socket.create_connection(server.getsockname()) as near,
            server.accept()[0] as far,
        ):
            opened = {entry.name for entry in Path("/proc/self/fd").iterdir()}
            assert lifecycle.set_congestion_control("reno") >= 2
            assert {entry.name for entry in Path("/proc/self/fd").iterdir()} == opened
            for one in (near, far):
                assert one.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0") == b"reno"
            near.sendall(b"still")
            assert far.recv(5) == b"still"
        assert server.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16) == before


def test_what_the_kernel_does_not_have_is_told():
    program = (
        "import socket\nfrom workloads.rank import lifecycle\n"
        "server = socket.create_server(('127.0.0.1', 0))\nnear = socket.create_connection(server.getsockname())\n"
        "lifecycle.set_congestion_control('none_such')"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (
        1,
        "rank ?: congestion control none_such: this kernel has none of this name: `modprobe tcp_none_such`\n",
    )
