"""Real ranks of the DDP workload over gloo on loopback, started as an agent would start them."""

from __future__ import annotations

import importlib.util
import json
import re
import signal
import socket
import sys
import time
from dataclasses import replace
from pathlib import Path
from statistics import median

import pytest

from orchestrator.core.deadline import Deadline
from orchestrator.parts.launch import Launch
from tests.helpers.rank_processes import PATIENCE_S, Ranks, loopback, running
from tests.helpers.skipping import needs_torch
from workloads import ddp

pytestmark = [pytest.mark.testbed, needs_torch]


def _launches(count: int, **options: object) -> list[Launch]:
    return loopback(ddp, count, **{"model": "resnet50", **options})  # type: ignore[arg-type]


@pytest.mark.alone
@pytest.mark.parametrize("count", [2, 4])
def test_ranks_iterate_agree_and_end(count: int, tmp_path: Path) -> None:
    with running(_launches(count), tmp_path, extra=("--checksum",)) as started:
        started.wait_ready()
        assert all(started.lines(rank) == [] for rank in range(count)), "nobody starts before the gate"
        started.go()
        started.wait_iterations(8)
        assert started.end() == [0] * count
        rows = [started.read(ddp, rank) for rank in range(count)]
        common = min(len(table["iteration"]) for table in rows)
        sums = [[json.loads(line)["checksum"] for line in started.lines(rank)[:common]] for rank in range(count)]
    assert all(each == sums[0] for each in sums), "averaged gradients give equal weights on all ranks"
    assert len(set(sums[0])) == common, "the weights move in each iteration"
    for rank, table in enumerate(rows):
        assert list(table["iteration"]) == list(range(len(table["iteration"])))
        assert set(table["rank"]) == {rank}
        assert set(table["samples"]) == {64}
        assert 0.148 <= median(table["seconds"]) < 2 * 0.148
        assert 0.049 <= median(table["forward_s"]) < 2 * 0.049
        assert 0.098 <= median(table["backward_s"]) < 2 * 0.098
        assert min(table["wait_s"]) >= 0
        shares = [part / whole for part, whole in zip(table["absorbed_s"], table["seconds"], strict=True)]
        assert 0 < median(shares) < 0.5, "copying into buckets takes something of the layers' time"
    waited = [wait_s / seconds for wait_s, seconds in zip(rows[0]["wait_s"], rows[0]["seconds"], strict=True)]
    assert median(waited) < 0.2, "loopback hides almost all communication"


def test_gradients_are_the_mean_over_ranks(tmp_path: Path) -> None:
    """After k steps each weight is 1 - k * rate * (mean of the ranks' noise): so says the sum of all weights."""
    import torch

    launches = _launches(2, scale=1000, compute_time="10ms")
    config = json.loads(launches[0].files["config.json"])  # type: ignore[arg-type]
    sizes = [size for _, _, layer in config["layers"] for size in layer]
    drawn = 0.0
    for rank in range(2):
        draw = torch.Generator().manual_seed(config["seed"] + rank)
        drawn += sum(float(torch.randn(size, generator=draw).double().sum()) for size in sizes)
    with running(launches, tmp_path, extra=("--checksum",)) as started:
        started.wait_ready()
        started.go()
        started.wait_iterations(10)
        started.end()
        records = [json.loads(line) for line in started.lines(0)]
    assert sum(sizes) == 25_557
    for record in records:
        expected = sum(sizes) - (record["iteration"] + 1) * 0.01 * drawn / 2
        assert record["checksum"] == pytest.approx(expected, abs=0.05)


def test_sigterm_ends_a_rank_inside_a_collective(tmp_path: Path) -> None:
    with running(_launches(2, compute_time="20ms"), tmp_path) as started:
        started.wait_ready()
        started.go()
        started.wait_iterations(3)
        frozen, waiting = started.processes
        frozen.send_signal(signal.SIGSTOP)
        try:
            _wait_until_stuck(started, rank=1)
            waiting.terminate()
            assert waiting.wait(PATIENCE_S) == 0
        finally:
            frozen.send_signal(signal.SIGCONT)
        content = (started.folders[1] / "iterations.jsonl").read_bytes()
        assert content.endswith(b"\n")
        numbers = [json.loads(line)["iteration"] for line in content.splitlines()]
        assert numbers == list(range(len(numbers)))


def _wait_until_stuck(started: Ranks, *, rank: int) -> None:
    """The rank's log has not grown for ten iterations' time."""
    seen, since = len(started.lines(rank)), time.monotonic()

    def stuck() -> bool:
        nonlocal seen, since
        now = len(started.lines(rank))
        if now != seen:
            seen, since = now, time.monotonic()
        return time.monotonic() - since > 0.3

    Deadline.after(PATIENCE_S).poll(stuck, every_s=0.02, waiting_for="the rank to wait for its peer")


def test_a_peer_asked_to_end_first_is_no_failure(tmp_path: Path) -> None:
    with running(_launches(2, compute_time="20ms"), tmp_path) as started:
        started.wait_ready()
        started.go()
        started.wait_iterations(3)
        started.processes[0].terminate()
        assert started.processes[0].wait(PATIENCE_S) == 0
        _wait_until_stuck(started, rank=1)
        started.processes[1].terminate()
        assert started.processes[1].wait(PATIENCE_S) == 0
        assert started.stderr(1) == ""


def test_a_killed_peer_is_reported_in_one_line(tmp_path: Path) -> None:
    with running(_launches(2, compute_time="20ms"), tmp_path) as started:
        started.wait_ready()
        started.go()
        started.wait_iterations(3)
        started.processes[0].kill()
        assert started.processes[1].wait(PATIENCE_S) == 1
        assert started.stderr(1).startswith("rank 1: ")
        assert len(started.stderr(1).splitlines()) == 1
        assert "Connection" in started.stderr(1)


def test_without_go_a_rank_ends_with_its_standard_input(tmp_path: Path) -> None:
    with running(_launches(2), tmp_path) as started:
        started.wait_ready()
        for process in started.processes:
            assert process.stdin is not None
            process.stdin.close()
        assert [process.wait(PATIENCE_S) for process in started.processes] == [1, 1]
        assert started.stderr(0) == 'rank 0: standard input ended before "go" came\n'


def test_sigterm_ends_ranks_that_wait_for_each_other(tmp_path: Path) -> None:
    with running(_launches(2)[:1], tmp_path) as started:
        status = Path(f"/proc/{started.processes[0].pid}/status")

        def hears() -> bool:
            blocked = re.search(r"^SigBlk:\s*(\w+)$", status.read_text(), re.MULTILINE)
            return blocked is not None and bool(int(blocked[1], 16) >> (signal.SIGTERM - 1) & 1)

        Deadline.after(PATIENCE_S).poll(hears, every_s=0.02, waiting_for="the rank to listen for signals")
        assert started.end() == [0]


def test_a_busy_port_is_said_in_a_clear_line(tmp_path: Path) -> None:
    launches = _launches(2)
    with socket.socket() as taken:
        taken.bind(("", int(launches[0].env["MASTER_PORT"])))
        taken.listen()
        with running(launches[:1], tmp_path) as started:
            assert started.processes[0].wait(PATIENCE_S) == 1
            last = started.stderr(0).splitlines()[-1]
    assert last.startswith(f"rank 0: port {launches[0].env['MASTER_PORT']} is in use by another program")


def test_the_store_of_the_ranks_listens_at_their_address_alone(tmp_path: Path) -> None:
    launches = _launches(2)
    port = int(launches[0].env["MASTER_PORT"])
    with running(launches, tmp_path) as started:
        started.wait_ready()
        socket.create_connection(("127.0.0.1", port)).close()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.2", port))
        assert started.end() == [0, 0]


def test_real_compute_learns_and_agrees(tmp_path: Path) -> None:
    if importlib.util.find_spec("torchvision") is None:
        pytest.skip("torchvision is not installed")
    launches = _launches(2, scale=1, model="mobilenet_v2", compute="real", batch=8, image=32)
    with running(launches, tmp_path, extra=("--checksum",)) as started:
        started.wait_ready()
        started.go()
        started.wait_iterations(6)
        assert started.end() == [0, 0]
        rows = [started.read(ddp, rank) for rank in range(2)]
        sums = [[json.loads(line)["checksum"] for line in started.lines(rank)[:6]] for rank in range(2)]
    assert sums[0] == sums[1]
    assert len(set(sums[0])) == 6
    assert rows[0]["loss"] != rows[1]["loss"], "each rank has images of its own"
    assert all(value > 0 for name in ("forward_s", "backward_s", "wait_s") for value in rows[0][name])
    assert set(rows[0]["absorbed_s"]) == {None}, "what really computes absorbs nothing"


def test_a_program_that_cannot_import_torch_says_so(tmp_path: Path) -> None:
    launches = [replace(launch, argv=(sys.executable, "-S", *launch.argv[1:])) for launch in _launches(2)[:1]]
    with running(launches, tmp_path) as started:
        assert started.processes[0].wait(PATIENCE_S) == 1
        assert started.stderr(0) == "rank 0: could not build the model: No module named 'torch'\n"


def test_nothing_is_left_in_the_folder_for_temporary_files(tmp_path: Path) -> None:
    temporary, homes = tmp_path / "tmp", tmp_path / "homes"
    temporary.mkdir()
    homes.mkdir()
    cold = [
        replace(launch, argv=(launch.argv[0], "-B", *launch.argv[1:]), env={**launch.env, "TMPDIR": str(temporary)})
        for launch in _launches(2)
    ]
    with running(cold, homes) as started:
        started.wait_ready()
        started.go()
        started.wait_iterations(2)
        assert started.end() == [0, 0]
    assert list(temporary.iterdir()) == []
