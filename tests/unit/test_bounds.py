"""What comes from outside costs no more than what is kept of it: bounds are counted while something is read."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

import pytest

from orchestrator.analysis import launch_outputs
from orchestrator.core.errors import StoreError
from orchestrator.parts import rows
from orchestrator.parts.rows import LaunchOutput
from workloads.readers import lines

MIB = 1 << 20


def output(folder: Path) -> LaunchOutput:
    return LaunchOutput(folder=folder, node="h1", launch="j.0", job="j", rank=0, window=None, source=None, offset_ns=0)


def peak(work) -> int:
    """The most memory that Python objects took while something was done, in bytes."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


# Logs of ranks


def test_a_log_of_short_lines_costs_no_memory(tmp_path):
    path = tmp_path / "iterations.jsonl"
    path.write_bytes(b'{"a":1}\n[]\n' * 100_000)

    def read():
        assert sum(1 for _ in lines.records(path)) == 100_000

    assert peak(read) < MIB // 4


def test_a_log_of_iterations_costs_its_columns(tmp_path):
    record = {
        "start_ns": 2**60, "end_ns": 2**60, "mono_start_ns": 0, "mono_end_ns": 10**9, "samples": 1, "forward_s": 1.5,
        "backward_s": 0.5, "wait_s": 0.5, "loss": 0.25, "of no interest": "x" * 1000,
    }  # fmt: skip
    with (tmp_path / "iterations.jsonl").open("w") as file:
        for number in range(10_000):
            file.write(json.dumps({"iteration": number, **record}) + "\n")

    def read():
        found = launch_outputs.rows_of("workload.ddp", output(tmp_path))["iterations"]
        assert len(found["iteration"]) == 10_000
        assert found["seconds"][-1] == 1.0

    launch_outputs.rows_of("workload.ddp", output(tmp_path / "none"))  # imported and cached what it needs
    assert peak(read) < 5 * MIB


def test_a_line_without_an_end_is_told(tmp_path):
    with (tmp_path / "iterations.jsonl").open("wb") as file:
        file.truncate(1 << 40)  # takes no room on the disk
    with pytest.raises(StoreError, match=r"cannot be read: iterations\.jsonl has a line of more than 4 MiB"):
        launch_outputs.rows_of("workload.ddp", output(tmp_path))


def test_more_rows_than_a_table_may_have_are_told(tmp_path, monkeypatch):
    monkeypatch.setattr(rows, "MOST_ROWS", 3)
    spans = [["compute", "forward", "", -1, 0, 1, 2]] * 2
    text = json.dumps({"iteration": 1, "start_ns": 5, "mono_start_ns": 1, "spans": spans}) + "\n"
    (tmp_path / "trace.jsonl").write_text(text)
    assert len(launch_outputs.rows_of("workload.ddp", output(tmp_path))["spans"]["lane"]) == 2
    (tmp_path / "trace.jsonl").write_text(text * 2)
    with pytest.raises(StoreError, match="there are more than 3 rows of the table spans"):
        launch_outputs.rows_of("workload.ddp", output(tmp_path))
