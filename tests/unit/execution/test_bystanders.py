"""Which other programs a run names: from made tables of processes, and from this machine's own."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from orchestrator.execution.nodes import bystanders
from orchestrator.execution.nodes.bystanders import Bystanders

TICKS = os.sysconf("SC_CLK_TCK")


def write(proc: Path, *processes: tuple[int, str, int, float, float]) -> None:
    """Processes by number, program, parent, and seconds that they and children that ended have used."""
    proc.mkdir(exist_ok=True)
    for old in proc.iterdir():
        (old / "stat").unlink()
        old.rmdir()
    for pid, name, parent, own_s, children_s in processes:
        (proc / str(pid)).mkdir()
        fields = [
            "S",
            parent,
            *[0] * 9,
            round(own_s * TICKS),
            0,
            round(children_s * TICKS),
            0,
            *[0] * 4,
            pid,
            *[0] * 20,
        ]
        (proc / str(pid) / "stat").write_text(f"{pid} ({name}) " + " ".join(map(str, fields)))


@pytest.fixture
def told(tmp_path, monkeypatch):
    """What is told of processes that were so at the beginning, and are so 10 s later, on two processors."""
    clock = iter((100.0, 110.0))
    monkeypatch.setattr(bystanders.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(bystanders.os, "cpu_count", lambda: 2)

    def tell(before, after):
        write(tmp_path / "proc", *before)
        beside = Bystanders(tmp_path / "proc")
        write(tmp_path / "proc", *after)
        return beside.text(ours=50, contained=False)

    return tell


IDLE = [(1, "init", 0, 3, 0), (50, "orch", 1, 2, 0), (60, "rank", 50, 1, 0)]


def test_what_the_run_itself_uses_is_not_told(told):
    assert told(IDLE, [(1, "init", 0, 3, 0), (50, "orch", 1, 5, 4), (60, "rank", 50, 9, 0)]) == ""


def test_the_programs_that_used_most_are_named(told):
    text = told(
        [*IDLE, (70, "firefox", 1, 500, 0)],
        [*IDLE, (70, "firefox", 1, 509.8, 0), (71, "make (all)", 1, 0, 2), (72, "make (all)", 1, 1, 0)],
    )
    assert text == (
        "other programs of this machine used 1.28 of its 2 processors while it was measured: "
        "firefox (process 70) 0.98, make (all) (process 71) 0.30"
    )


def test_what_children_had_used_before_they_ended_is_not_counted_again(told):
    before = [*IDLE, (80, "bash", 1, 0, 0), (81, "sh", 80, 0, 0), (82, "cc", 81, 300, 0)]
    assert "bash (process 80) 0.40" in told(before, [*IDLE, (80, "bash", 1, 0, 304)])


def test_a_program_that_began_later_counts_whole(told):
    assert "new (process 91) 0.40" in told([*IDLE, (90, "old", 1, 300, 0)], [*IDLE, (91, "new", 1, 4, 0)])


def test_a_real_program_is_named(tmp_path):
    (tmp_path / "spinner").symlink_to("/bin/sh")
    beside, text = Bystanders(), ""
    busy = subprocess.Popen([tmp_path / "spinner", "-c", "while :; do :; done"])
    try:
        end = time.monotonic() + 60
        while f"spinner (process {busy.pid})" not in text:
            assert time.monotonic() < end, text
            time.sleep(0.3)
            text = beside.text(ours=-1, contained=False)
    finally:
        busy.kill()
        busy.wait()
