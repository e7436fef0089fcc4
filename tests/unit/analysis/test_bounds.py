"""What comes from outside costs no more than what is kept of it: bounds are counted while something is read."""

from __future__ import annotations

import contextlib
import copy
import functools
import json
import operator
import re
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest
import yaml

from orchestrator.analysis import launch_outputs, packed_tables
from orchestrator.analysis.capture.stages.sightings import WORDS
from orchestrator.core.errors import CaptureError, ConfigError, StoreError
from orchestrator.experiment import documents, loading, nodesets, plan, variables
from orchestrator.parts import registry
from orchestrator.parts import rows as rows_module
from orchestrator.parts.rows import LaunchOutput, Unread
from workloads.readers import lines

MIB = 1 << 20
DATA = Path(__file__).parents[2] / "data"


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
        assert sum(1 for _ in lines.records(path, Unread(), dict)) == 100_000

    assert peak(read) < MIB // 4


def test_a_log_of_iterations_costs_its_columns(tmp_path):
    record = {
        "start_ns": 2**60,
        "end_ns": 2**60,
        "mono_start_ns": 0,
        "mono_end_ns": 10**9,
        "samples": 1,
        "forward_s": 1.5,
        "backward_s": 0.5,
        "wait_s": 0.5,
        "loss": 0.25,
        "of no interest": "x" * 1000,
    }
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
        file.truncate(1 << 29)  # takes no room on the disk
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


# Files of users


def test_files_that_include_one_twice_end(tmp_path):
    for number in range(26):
        (tmp_path / f"f{number}.yaml").write_text(f"include: [f{number + 1}.yaml, f{number + 1}.yaml]\n")
    (tmp_path / "f26.yaml").write_text("name: t\n")
    with pytest.raises(ConfigError, match="include: more than 32 files; accepted: at most 32"):
        documents.load(tmp_path / "f0.yaml", needs="name")


@pytest.mark.parametrize(
    "hosts",
    [
        {"n[1-5000000]": {}},
        {"n[1-99999999999999999999]": {}},
        {"a[1-3],n[1-3][1 - 5000000]": {}},
        {"r[1-99]-s[1-99]-t[1-99]": {}},
        {"n[1-2]": {"address": "10.[0-255].[0-255].[0-255]"}},
        {"n[1-4000]": {}, "m[1-4000]": {}},
        {"n[1-4000]": {f"k{number}": "x" * 100 for number in range(100)}},
    ],
)
def test_node_sets_are_counted_before_they_are_spelled_out(hosts, tmp_path):
    def read():
        with pytest.raises(ConfigError, match=r"accepted: (at most 4096|less below a set)"):
            nodesets.expanded({"hosts": hosts}, [tmp_path], where="hosts.yaml")

    read()
    assert peak(read) < 8 * MIB


def test_node_sets_joined_in_many_parts_are_summed(tmp_path):
    sets = {"a[1-100],b[1-100],c[1-100]!b[7]": {}}
    assert len(nodesets.expanded({"hosts": sets}, [tmp_path], where="hosts.yaml")["hosts"]) == 299


def test_a_hosts_file_has_its_bounds_counted_line_by_line(tmp_path):
    (tmp_path / "many").write_text("".join(f"n{number}-[1-4000]\n" for number in range(10_000)))
    (tmp_path / "large").write_text("n1\n" + "#" * (1 << 20))
    for name, told in (("many", "many:2: more than 4096 hosts"), ("large", "larger than 1 MiB")):

        def read(name=name, told=told):
            with pytest.raises(ConfigError, match=told):
                nodesets.expanded({"hosts": {f"@{tmp_path / name}": {}}}, [tmp_path], where="hosts.yaml")

        assert peak(read) < 16 * MIB


@pytest.mark.parametrize("default", ["x" * 10_000, list(range(1000))])
def test_what_variables_come_to_is_counted_as_they_are_filled_in(tmp_path, default):
    text = yaml.safe_dump({"name": "$long$long" if isinstance(default, str) else "t", "vars": {"long": default}})
    places = "".join(f"k{number}: $long\n" for number in range(5000))
    (tmp_path / "e.yaml").write_text(text + places)
    document = documents.load(tmp_path / "e.yaml", needs="name")
    with pytest.raises(ConfigError, match=r"e\.yaml:\d+:1: k\d+: with this the variables come to too much"):
        variables.filled(document)


def leaves(value, at=()):
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in pairs:
        yield from leaves(inner, (*at, key))
    if not isinstance(value, dict | list):
        yield at, value


KEYS = {"workload": "workload", "traffic": "traffic", "collector": "collect", "condition": "conditions"}
PARTS = [(key, name) for kind, key in KEYS.items() for name in registry.parts_of(kind)]


@pytest.mark.parametrize(("key", "part"), PARTS)
def test_no_number_of_a_file_is_too_large_to_be_told(key, part, tmp_path):
    """Every number of a part, and of what stands around it: either the plan can carry it out, or a line says not."""
    samples = DATA / part
    config = yaml.safe_load((samples / "example.yaml").read_text().replace("{here}", str(samples)))["config"]
    base = {
        "name": "t",
        "testbed": {"local": {"hosts": 4, "link": "1gbit", "scale": 10}},
        "workload": {"ddp": {"model": "resnet50"}},
        "measure": {"iterations": 10, "warmup": 2},
        "repetitions": 1,
    }
    base[key] = {part: config} if key == "workload" else [{part: config}]
    path = tmp_path / "e.yaml"
    for at, value in leaves(base):
        if isinstance(value, str) and not value[:1].isdigit():
            continue
        unit = re.sub(r"[\d.]+", "", value) if isinstance(value, str) else ""
        for wrong in (f"1e308{unit}", f"1e299{unit}") if unit else (10**29, 10**18, 1e300):
            data = copy.deepcopy(base)
            functools.reduce(operator.getitem, at[:-1], data)[at[-1]] = wrong
            path.write_text(yaml.safe_dump(data))
            with contextlib.suppress(ConfigError):
                plan.build(loading.checked(path, (), local=False)[0])
