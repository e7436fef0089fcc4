from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from orchestrator.core.errors import StoreError
from orchestrator.parts.rows import TABLES
from orchestrator.store.tabular import tables

CAPTURE = {
    "port": ["eth0"],
    "captured": [5],
    "received": [6],
    "dropped": [1],
    "files": [2],
    "bytes": [300],
    "ended_ns": [None],
}


def test_what_was_written_is_read_back_with_its_types_and_origin(tmp_path):
    tables.write(tmp_path, "captures", CAPTURE, run="r1", node="h1", launch="tcpdump")
    table = tables.read(tmp_path, "captures")
    assert table.column_names == ["run", "node", "launch", *TABLES["captures"]]
    assert table.schema == tables.schema("captures")
    assert table.to_pylist() == [
        {"run": "r1", "node": "h1", "launch": "tcpdump", **{k: v[0] for k, v in CAPTURE.items()}}
    ]


def test_several_homes_make_one_file_of_few_row_groups(tmp_path):
    import pyarrow.parquet as pq

    with tables.TableWriter(tmp_path, run="r1") as writer:
        for host in range(50):
            writer.add("captures", CAPTURE, node=f"h{host}", launch="tcpdump")
    file = pq.ParquetFile(tmp_path / "captures.parquet")
    assert file.metadata.num_rows == 50
    assert file.metadata.num_row_groups == 1
    assert file.metadata.row_group(0).column(0).compression == "ZSTD"


def test_a_big_table_is_not_held_back_as_a_whole(tmp_path):
    import pyarrow.parquet as pq

    n = 300_000
    part = {"port": ["eth0"] * n, "time_ns": np.arange(n), "counter": ["rx_bytes"] * n, "value": np.arange(n) / 2}
    with tables.TableWriter(tmp_path, run="r1") as writer:
        writer.add("counters", part, node="h1", launch="nic")
        writer.add("counters", part, node="h2", launch="nic")
    assert pq.ParquetFile(tmp_path / "counters.parquet").metadata.num_row_groups == 2


@pytest.mark.parametrize("name", TABLES)
def test_every_table_may_be_empty_or_missing(tmp_path, name):
    nothing = {column: [] for column in TABLES[name]}
    assert tables.read(tmp_path, name).num_rows == 0
    tables.write(tmp_path, name, nothing, run="r1")
    table = tables.read(tmp_path, name)
    assert table.num_rows == 0
    assert table.schema == tables.schema(name)
    if name == "training":
        assert table["drift"].to_pylist() == [None] * table.num_rows
        assert None not in table["mean_s"].to_pylist()


def test_missing_values_stay_missing_and_nan_stays_nan(tmp_path):
    row = {"port": [None], "time_ns": [None], "counter": ["x"], "value": [float("nan")]}
    tables.write(tmp_path, "counters", row, run="r1", node="h1", launch="nic")
    (back,) = tables.read(tmp_path, "counters").to_pylist()
    assert back["port"] is None
    assert back["time_ns"] is None
    assert np.isnan(back["value"])


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"captured": [1.5]}, "column captured is not int64"),
        ({"captured": ["5"]}, "column captured is not int64"),
        ({"captured": [True]}, "column captured is not int64"),
        ({"port": [7]}, "column port is not string"),
        ({"captured": [1, 2]}, "unequal length"),
        ({"extra": [1]}, "unknown extra"),
        ({"captured": None}, "lacks captured"),
    ],
)
def test_wrong_columns_are_refused_by_name(tmp_path, change, told):
    columns = {key: value for key, value in {**CAPTURE, **change}.items() if value is not None}
    with pytest.raises(StoreError, match=told):
        tables.write(tmp_path, "captures", columns, run="r1", node="h1", launch="tcpdump")


def test_tables_of_the_run_take_no_origin(tmp_path):
    row = {"window_name": ["w1"], "start_ns": [1], "end_ns": [2], "valid": [True], "reasons": [""]}
    tables.write(tmp_path, "windows", row, run="r1")
    assert tables.read(tmp_path, "windows").column_names[0:2] == ["run", "window_name"]
    with pytest.raises(StoreError, match="takes no node"):
        tables.write(tmp_path, "windows", row, run="r1", node="h1")


OLDER = Path(__file__).parents[2] / "data" / "sealed" / "tables-1" / "small" / "20261122T095054224-ef056278" / "tables"


@pytest.mark.parametrize("name", sorted(path.stem for path in OLDER.glob("*.parquet")))
def test_a_file_of_an_older_version_is_read_by_the_names_of_today(name):
    table = tables.read(OLDER, name)
    assert table.schema == tables.schema(name)
    if name == "training":
        assert table["drift"].to_pylist() == [None] * table.num_rows
        assert None not in table["mean_s"].to_pylist()


def test_what_is_left_out_of_an_older_file_goes_by_the_names_of_today():
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    path = OLDER / "iterations.parquet"
    raw = pq.read_table(path)
    assert "window" in raw.column_names
    assert not pq.read_schema(path).metadata
    kept = tables.read(OLDER, "iterations", where=pc.field("window_name") == "w1")
    assert 0 < kept.num_rows == raw["window"].to_pylist().count("w1") < raw.num_rows
    assert set(kept["window_name"].to_pylist()) == {"w1"}


def test_a_file_says_its_version(tmp_path):
    import pyarrow.parquet as pq

    path = tables.write(tmp_path, "captures", CAPTURE, run="r1", node="h1", launch="tcpdump")
    assert pq.read_schema(path).metadata[b"orch.tables"] == str(tables.VERSION).encode()


def test_unknown_table_and_broken_file_are_told(tmp_path):
    with pytest.raises(StoreError, match="no table 'nonsense'"):
        tables.read(tmp_path, "nonsense")
    (tmp_path / "captures.parquet").write_bytes(b"PAR1 not really")
    with pytest.raises(StoreError, match="cannot read"):
        tables.read(tmp_path, "captures")


def test_duckdb_reads_the_files_as_they_are(tmp_path):
    duckdb = pytest.importorskip("duckdb")
    tables.write(tmp_path, "captures", CAPTURE, run="r1", node="h1", launch="tcpdump")
    rows = duckdb.sql(f"select node, sum(dropped) from '{tmp_path}/*.parquet' group by node").fetchall()  # noqa: S608
    assert rows == [("h1", 1)]


def test_the_module_alone_does_not_load_pyarrow():
    code = "import sys, orchestrator.store.tabular.tables; sys.exit('pyarrow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
