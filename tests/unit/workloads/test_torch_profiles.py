"""PyTorch's own files of a step over gloo, and made-up ones of a GPU, as spans."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from orchestrator.parts.rows import LaunchOutput
from workloads.readers.torch_profiles import read_profiles

DATA = Path(__file__).parents[2] / "data" / "command"
STEP_NS = (1_795_255_720_399_993_421, 1_795_255_720_415_894_945)  # of ProfilerStep#3


def spans(folder: Path, *, start_ns: int = STEP_NS[0], end_ns: int = STEP_NS[1], offset_ns: int = 0) -> Any:
    output = LaunchOutput(
        folder=folder, node="h1", launch="job0-rank0", job="job0", rank=0, window=None, source=None, offset_ns=offset_ns
    )
    iterations = {
        "job": ["job0"],
        "rank": [0],
        "window_name": [""],
        "iteration": [17],
        "start_ns": [start_ns + offset_ns],
        "end_ns": [end_ns + offset_ns],
    }
    found = read_profiles(output, iterations)
    return {table: {name: list(values) for name, values in rows.items()} for table, rows in found.items()}


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    for path in DATA.glob("rank0.*.gz"):
        (tmp_path / path.name.removesuffix(".gz")).write_bytes(gzip.decompress(path.read_bytes()))
    return tmp_path


def test_a_step_over_gloo(recorded: Path) -> None:
    found = spans(recorded, offset_ns=5)
    rows = found["spans"]
    told = list(zip(rows["lane"], rows["span"], rows["bytes"], strict=True))
    assert told == [
        ("compute", "forward", 0),
        ("compute", "backward", 0),
        # 267,786 and 262,656 float32: the first bucket is closed at a megabyte, the second has the first layer.
        ("communication", "all-reduce", 4 * 267_786),
        ("communication", "all-reduce", 4 * (512 * 512 + 512)),
        ("compute", "step", 0),
    ]
    assert set(rows["iteration"]) == {17}
    assert rows["start_ns"] == sorted(rows["start_ns"])
    assert all(
        STEP_NS[0] + 5 <= begin <= end <= STEP_NS[1] + 5
        for begin, end in zip(rows["start_ns"], rows["end_ns"], strict=True)
    )
    assert rows["start_ns"][2] == STEP_NS[0] + 11_469_177 + 5, "ts and baseTimeNanoseconds of the file, to the ns"
    (communicated,) = found["overlaps"]["communication_s"]
    (both,) = found["overlaps"]["overlap_s"]
    assert communicated == pytest.approx(0.003134234)
    assert 0 < both <= communicated


def test_sizes_come_from_either_file(recorded: Path) -> None:
    whole = spans(recorded)["spans"]["bytes"]
    (recorded / "rank0.et.json").unlink()
    assert spans(recorded)["spans"]["bytes"] == whole, "by the shapes that the profiler recorded"


def test_sizes_of_a_profile_without_shapes_come_from_the_observer(recorded: Path) -> None:
    path = recorded / "rank0.pt.trace.json"
    document = json.loads(path.read_text())
    for event in document["traceEvents"]:
        event.get("args", {}).pop("Input Dims", None)
    path.write_text(json.dumps(document))
    assert spans(recorded)["spans"]["bytes"] == [0, 0, 4 * 267_786, 4 * 262_656, 0]
    (recorded / "rank0.et.json").unlink()
    assert spans(recorded)["spans"]["bytes"] == [0, 0, None, None, 0], "not known is not nothing"


def test_an_observers_file_without_its_end_tells_what_it_has(recorded: Path) -> None:
    whole = spans(recorded)["spans"]["bytes"]
    for name in ("rank0.et.json", "rank0.pt.trace.json"):
        path = recorded / name
        text = path.read_text()
        if name == "rank0.et.json":
            path.write_text(text[: text.rindex('"gloo:all_reduce"') - 40])  # in the last of its nodes
        else:
            path.write_text(text.replace('"Input Dims"', '"Other"'))
    first, last = 4 * 267_786, 4 * 262_656
    assert whole == [0, 0, first, last, 0]
    assert spans(recorded)["spans"]["bytes"] in ([0, 0, first, None, 0], [0, 0, None, last, 0])


def test_a_step_is_that_of_the_iteration_that_has_most_of_it(recorded: Path) -> None:
    """A line is printed after its step, and read after it was printed: the next step has begun by then."""
    late = 6_000_000
    output = LaunchOutput(
        folder=recorded, node="h1", launch="job0-rank0", job="job0", rank=0, window=None, source=None, offset_ns=0
    )
    edges = [STEP_NS[0] - 10**7, STEP_NS[0] + late, STEP_NS[1] + late]
    iterations = {
        "job": ["job0"] * 2,
        "rank": [0] * 2,
        "window_name": [""] * 2,
        "iteration": [4, 5],
        "start_ns": edges[:2],
        "end_ns": edges[1:],
    }
    found = read_profiles(output, iterations)["spans"]
    assert found["span"] == ["forward", "backward", "all-reduce", "all-reduce", "step"]
    assert set(found["iteration"]) == {5}
    assert found["start_ns"][0] < edges[1]


def test_what_is_outside_every_iteration_is_left_out(recorded: Path) -> None:
    assert spans(recorded, start_ns=1, end_ns=2) == spans(recorded.parent / "nothing")


def test_a_profile_of_which_nothing_is_in_an_iteration_is_told(recorded: Path) -> None:
    """As of a host whose clock is off, or of a profile that was brought along."""
    (recorded / "rank0.et.json").unlink()
    output = LaunchOutput(
        folder=recorded, node="h1", launch="job0-rank0", job="job0", rank=0, window=None, source=None, offset_ns=0
    )
    read_profiles(output, {"start_ns": [], "end_ns": []})
    assert len(output.unread.rows()["count"]) == 0, "there is no iteration"
    read_profiles(output, {"start_ns": [1], "end_ns": [2]})
    assert output.unread.rows()["what"] == ["spans, all of the file, in no iteration"]


def test_gzipped_files_in_folders_below_are_read(recorded: Path) -> None:
    whole = spans(recorded)
    below = recorded / "log" / "plugins"
    below.mkdir(parents=True)
    path = recorded / "rank0.pt.trace.json"
    (below / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()
    assert spans(recorded) == whole


def test_kernels_of_a_gpu(tmp_path: Path) -> None:
    """Only they count, and the launch of NCCL on the processor is no communication."""
    args = {"Collective name": "_allgather_base", "In msg nelems": 1000, "dtype": "BFloat16", "stream": 20}
    events = [
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "tid": 1, "ts": 1.0, "dur": 900.0},
        {"ph": "X", "cat": "user_annotation", "name": "nccl:all_gather", "tid": 1, "ts": 2.0, "dur": 1.0},
        {"ph": "X", "cat": "kernel", "name": "sm80_gemm", "tid": 7, "ts": 10.0, "dur": 20.5},
        {
            "ph": "X",
            "cat": "kernel",
            "name": "ncclDevKernel_AllGather_RING_LL(ncclWork*)",
            "tid": 20,
            "ts": 15.0,
            "dur": 30.0,
            "args": args,
        },
        {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_SendRecv(ncclWork*)", "tid": 20, "ts": 50.0, "dur": 1.0},
    ]
    (tmp_path / "a.pt.trace.json").write_text(json.dumps({"traceEvents": events, "baseTimeNanoseconds": 10**18}))
    rows = spans(tmp_path, start_ns=10**18, end_ns=10**18 + 10**9)["spans"]
    told = zip(rows["lane"], rows["span"], rows["bytes"], rows["start_ns"], rows["end_ns"], strict=True)
    assert [(*words, begin - 10**18, end - 10**18) for *words, begin, end in told] == [
        ("compute", "kernel", 0, 10_000, 30_500),
        ("communication", "all-gather", 2000, 15_000, 45_000),
        ("communication", "send and receive", None, 50_000, 51_000),
    ]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b'{"traceEvents": 3}',
        b'{"traceEvents": [1, {"ph": "X"}, {"ph": "X", "ts": "now"}]}',
        b'{"baseTimeNanoseconds": -1, "traceEvents": []}',
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "\\ud800", "tid": 1, "ts": 1, "dur": 1}]}',
        b'{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "k", "tid": 1, "ts": 1e999, "dur": 1}]}',
    ],
)
def test_a_damaged_file_has_no_spans(content: bytes, tmp_path: Path) -> None:
    for name in ("a.pt.trace.json", "b.pt.trace.json.gz", "c.et.json"):
        (tmp_path / name).write_bytes(content)
    (tmp_path / "d.pt.trace.json.gz").write_bytes(gzip.compress(content)[:-3])
    assert spans(tmp_path, start_ns=0)["spans"]["span"] == []
