"""What other projects' versions and drivers print, read by each reader: tests/data/logs/READER holds the samples.

A new sample is a file dropped there, and beside it FILE.expected.json with what is to be read of it; a test that fails
shows what was read. README.md there says what each sample stands for.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from cross_traffic import iperf
from orchestrator.core.opendata import JsonObject
from orchestrator.parts.rows import TABLES, Columns, LaunchOutput, Row
from orchestrator.parts.shared import offload_change
from orchestrator.store.tabular.tables import TableWriter
from workloads.rank.external import nccl_tests
from workloads.readers.horovod_timeline import read_timeline
from workloads.readers.nccl import read_nccl
from workloads.readers.torch_profiles import read_profiles

DATA = Path(__file__).parents[2] / "data/logs"
EXPECTED = ".expected.json"
BEGIN_NS, END_NS = 0, 1 << 61  # of the iteration that everything is in
ITERATIONS = {
    "job": ["j"], "rank": [0], "window_name": ["w"], "iteration": [0], "start_ns": [BEGIN_NS], "end_ns": [END_NS],
    "forward_s": [0.0], "backward_s": [0.0],
}  # fmt: skip


def samples(reader: str) -> Any:
    """A parameter for each sample of a reader."""
    found = [path for path in sorted((DATA / reader).iterdir()) if not path.name.endswith(EXPECTED)]
    return pytest.mark.parametrize("sample", found, ids=lambda path: path.name)


def expected(sample: Path) -> Any:
    return json.loads(sample.with_name(sample.name + EXPECTED).read_text())


def brought_home(sample: Path, folder: Path, name: str) -> LaunchOutput:
    """The output of a launch that has the sample under a name."""
    shutil.copy(sample, folder / name)
    return LaunchOutput(folder=folder, node="h1", launch="l", job="j", rank=0, window="w", source="iperf0", offset_ns=0)


def rows(columns: Columns) -> list[Row]:
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def unread(output: LaunchOutput) -> JsonObject:
    """How many of what were passed over; each can be a table's row and a sentence."""
    columns = output.unread.rows()
    assert len(output.unread.sentences()) == len(columns["count"])
    return {row["what"]: row["count"] for row in rows(columns)}


def stored(tables: dict[str, Columns], folder: Path) -> None:
    """Whatever was read can be written down."""
    with TableWriter(folder / "tables", run="r") as writer:
        for name, columns in tables.items():
            assert set(columns) == set(TABLES[name])
            writer.add(name, columns, node="h1", launch="l")


@samples("nccl")
def test_logs_of_nccl_and_rccl(sample: Path, tmp_path: Path) -> None:
    output = brought_home(sample, tmp_path, "nccl.4711.log")
    found = dict(read_nccl(output))
    stored(found, tmp_path)
    connections, rings = (rows(found.get(name, {})) for name in ("nccl_connections", "nccl_rings"))
    ways = Counter(f"{row['transport']} {row['detail']} {row['device']}".strip() for row in connections)
    assert {
        "ways": ways,
        "connections": [
            f"{row['channel']}/{row['connection']}: {row['src']} {row['direction']} {row['dst']}" for row in connections
        ],
        "rings": [f"{row['channel']}: {row['previous']} {row['member']} {row['next']}" for row in rings],
        "communicators": sorted({row["communicator"] for row in (*connections, *rings)}),
        "unread": unread(output),
    } == expected(sample)


@samples("nccl_tests")
def test_results_of_nccl_tests(sample: Path) -> None:
    lines = sample.read_text().splitlines()
    results = [found for line in lines if (found := nccl_tests.row_of(line)) is not None]
    assert {
        "ranks": sum(bool(nccl_tests.RANK.match(line)) for line in lines),
        "results": [
            [size, *(value for one in both for value in (round(one[0] * 1e6, 6), one[1]))] for size, both in results
        ],
    } == expected(sample)


def _spans(found: dict[str, Columns]) -> list[str]:
    return [
        f"{row['lane']} {row['span']} {row['bytes']} at {row['start_ns'] % 10**9} for {row['end_ns'] - row['start_ns']}"
        for row in rows(found["spans"])
    ]


@samples("kineto")
def test_profiles_of_torch(sample: Path, tmp_path: Path) -> None:
    output = brought_home(sample, tmp_path, sample.name)
    found = dict(read_profiles(output, ITERATIONS))
    stored(found, tmp_path)
    assert {"spans": _spans(found), "unread": unread(output)} == expected(sample)


@samples("chakra")
def test_execution_traces_of_torch(sample: Path, tmp_path: Path) -> None:
    """Sizes of what a profile without shapes tells of, by the ids of the functions."""
    output, told = brought_home(sample, tmp_path, sample.name), expected(sample)
    events = [
        {
            "ph": "X",
            "cat": "user_annotation",
            "name": "gloo:all_reduce",
            "tid": 1,
            "ts": 10 * place,
            "dur": 1,
            "args": {"Record function id": int(number)},
        }
        for place, number in enumerate(told["bytes"])
    ]
    (tmp_path / "a.pt.trace.json").write_text(json.dumps({"traceEvents": events}))
    sizes = read_profiles(output, ITERATIONS)["spans"]["bytes"]
    assert {"bytes": dict(zip(told["bytes"], sizes, strict=True)), "unread": unread(output)} == told


@samples("horovod")
def test_timelines_of_horovod(sample: Path, tmp_path: Path) -> None:
    output = brought_home(sample, tmp_path, "timeline.json")
    found = dict(read_timeline(output, "timeline.json", ITERATIONS))
    stored(found, tmp_path)
    told = [f"{line} of {row['what']}" for line, row in zip(_spans(found), rows(found["spans"]), strict=True)]
    assert {"spans": told, "unread": unread(output)} == expected(sample)


@samples("iperf3")
def test_reports_of_iperf3(sample: Path, tmp_path: Path) -> None:
    output = brought_home(sample, tmp_path, "stdout")
    found = dict(iperf.read(output))
    stored(found, tmp_path)
    assert {
        "flows": [
            f"{row['src']} {row['src_port']} to {row['dst']} {row['dst_port']}: {row['bytes']} bytes in "
            f"{(row['end_ns'] - row['start_ns']) / 1e9:g} s, {row['retransmits']} again"
            for row in rows(found.get("flows", {}))
        ],
        "unread": unread(output),
    } == expected(sample)


@samples("ethtool")
def test_features_as_ethtool_shows_them(sample: Path) -> None:
    try:
        found = offload_change.parse(sample.read_text())
    except ValueError as error:
        found = str(error)
    assert found == expected(sample)


def test_every_sample_is_told_of_and_has_its_value() -> None:
    """A folder that no test reads, or a value without its sample, would be taken for a check."""
    page = (DATA / "README.md").read_text()
    readers = {path.name for path in DATA.iterdir() if path.is_dir()}
    assert readers == {"nccl", "nccl_tests", "kineto", "chakra", "horovod", "iperf3", "ethtool"}
    for reader in readers:
        names = {path.name for path in (DATA / reader).iterdir()}
        values = {name for name in names if name.endswith(EXPECTED)}
        assert {f"{name}{EXPECTED}" for name in names - values} == values, reader
        assert [name for name in names - values if f"`{reader}/{name}`" not in page] == []
