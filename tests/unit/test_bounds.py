"""What comes from outside costs no more than what is kept of it: bounds are counted while something is read."""

from __future__ import annotations

import json
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest

from orchestrator.analysis import launch_outputs, packed_tables
from orchestrator.analysis.capture.stages.sightings import WORDS
from orchestrator.core.errors import CaptureError, StoreError
from orchestrator.parts import rows as rows_module
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
    monkeypatch.setattr(rows_module, "MOST_ROWS", 3)
    spans = [["compute", "forward", "", -1, 0, 1, 2]] * 2
    text = json.dumps({"iteration": 1, "start_ns": 5, "mono_start_ns": 1, "spans": spans}) + "\n"
    (tmp_path / "trace.jsonl").write_text(text)
    assert len(launch_outputs.rows_of("workload.ddp", output(tmp_path))["spans"]["lane"]) == 2
    (tmp_path / "trace.jsonl").write_text(text * 2)
    with pytest.raises(StoreError, match="there are more than 3 rows of the table spans"):
        launch_outputs.rows_of("workload.ddp", output(tmp_path))


# Tables that a host made


def packed(path: Path, rows: int) -> None:
    """What a host might make to cost us memory: constant columns, of which a row is next to nothing in the file."""
    arrays = {"sightings": np.zeros((0, WORDS), np.int64), "problems": np.array([], str)}
    for table in ("capture_flows", "packets", "cross_packets", "flow_packets"):
        for column, kind in rows_module.TABLES["packets" if table == "cross_packets" else table].items():
            if kind == "string":
                arrays[f"{table}.{column}.words"] = np.array(["x"])
                arrays[f"{table}.{column}.places"] = np.zeros(rows, np.int8)
            else:
                arrays[f"{table}.{column}.numbers"] = np.zeros(rows, np.int8)
    np.savez_compressed(path, **arrays)


def test_what_a_hosts_tables_come_to_is_bounded_before_they_are_read(tmp_path):
    packed(tmp_path / "few.npz", 1000)
    assert len(packed_tables.load(tmp_path / "few.npz").packets["port"]) == 1000
    packed(tmp_path / "t.npz", 2_000_000)
    size = (tmp_path / "t.npz").stat().st_size  # it comes to half a gigabyte

    def read():
        with pytest.raises(CaptureError, match="it comes to more in memory than tables of a capture do"):
            packed_tables.load(tmp_path / "t.npz")

    assert peak(read) < 1.5 * max(packed_tables.MOST_TIMES * size, packed_tables.ALWAYS_BYTES)


def one_array(path: Path, head: str, *, compression: int = zipfile.ZIP_DEFLATED) -> None:
    """An archive whose array `sightings` says so of itself."""
    text = head.encode().ljust(118) + b"\n"
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr("sightings.npy", b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text)


@pytest.mark.parametrize(
    ("shape", "kind"),
    [("(9000000000, 8)", "<i8"), ("(-1, 8)", "<i8"), ("(3, 8)", "<i8"), ("(1,)", "|O"), ("(1, 8)", "<U900000000")],
)
def test_an_array_that_says_what_it_is_not_costs_nothing(tmp_path, shape, kind):
    one_array(tmp_path / "t.npz", f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}}}")

    def read():
        with pytest.raises(CaptureError, match="the tables that the host made cannot be read"):
            packed_tables.load(tmp_path / "t.npz")

    assert peak(read) < MIB


@pytest.mark.parametrize("compression", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_an_archive_is_compressed_as_hosts_compress(tmp_path, compression):
    one_array(tmp_path / "t.npz", "{'descr': '<i8', 'fortran_order': False, 'shape': (0, 8)}", compression=compression)
    with pytest.raises(CaptureError, match="compressed as no host compresses"):
        packed_tables.load(tmp_path / "t.npz")


def test_an_archive_of_a_million_names_is_not_read(tmp_path):
    with zipfile.ZipFile(tmp_path / "t.npz", "w") as archive:
        for number in range(25_000):
            archive.writestr(str(number), b"")

    def read():
        with pytest.raises(CaptureError, match="it is no archive of arrays"):
            packed_tables.load(tmp_path / "t.npz")

    assert peak(read) < MIB
