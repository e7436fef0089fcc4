"""Natural questions in SQL are answered right, every name can be written without quotes, and a page lists them all."""

from __future__ import annotations

import json
import re
from pathlib import Path

import duckdb
import pytest

from documentation import generated
from orchestrator.core.errors import ConfigError
from orchestrator.report.runs import Run
from orchestrator.store import query
from orchestrator.store.stores import Here
from orchestrator.store.tabular import tables, views
from tests.helpers.experiments import orch
from tests.helpers.sealed_run import loose, make_run

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("views")
    for number in (1, 2):
        make_run(folder / "e", repetition=number, iterations=40, tolerances=loose())
    return folder


def rows(results, sql):
    status, out, err = orch("query", sql, "--json", "--results", str(results))
    assert status == 0, err
    return [json.loads(line) for line in out.splitlines()]


def test_the_mean_over_iterations_is_that_of_windows(results):
    """Warm-up is slower or faster than what is measured: a mean over the file is another figure."""
    found = rows(results, "select run, job, avg(seconds) as mean from iterations group by all order by run")
    windows = rows(results, "select run, job, mean_s from windows order by run")
    assert [row["mean"] for row in found] == pytest.approx([row["mean_s"] for row in windows])
    (whole,) = rows(results, "select count(*) filter (window_name = '') as warm_up, count(*) as n from all_iterations")
    assert whole == {"warm_up": 2 * 4 * 5, "n": 2 * 4 * 45}


def captured(results, *flows):
    """A run whose captures saw these: (node, sender's address, receiver's, source port, bytes)."""
    path = make_run(results / "e", iterations=40, tolerances=loose())
    with tables.TableWriter(path / "tables", run=path.name) as writer:
        for node in dict.fromkeys(flow[0] for flow in flows):
            seen = [flow for flow in flows if flow[0] == node]
            ours = [
                {
                    "port": "eth0",
                    "direction": "out" if src == ADDRESSES.get(node) else "in",
                    "protocol": "tcp",
                    "src": src,
                    "src_port": port,
                    "dst": dst,
                    "dst_port": 5,
                    "tunnel": "",
                    "outer_src": "",
                    "outer_dst": "",
                    "kind": "training",
                    "name": "training",
                    "packets": 1,
                    "wire_bytes": size,
                    "payload_bytes": size,
                    "repeated_bytes": 0,
                    "first_ns": 1,
                    "last_ns": 10**9,
                }
                for _, src, dst, port, size in seen
            ]
            bins = [
                {
                    "port": "eth0",
                    "flow": place,
                    "bin_ns": 0,
                    "width_ns": 10**6,
                    "packets": 1,
                    "wire_bytes": size,
                    "payload_bytes": size,
                    "repeated_bytes": 0,
                }
                for place, (*_, size) in enumerate(seen)
            ]
            for name, made in (("capture_flows", ours), ("flow_packets", bins)):
                columns = {column: [row[column] for row in made] for column in tables.TABLES[name]}
                writer.add(name, columns, node=node, launch=f"tcpdump.{node}")
    return path


ADDRESSES = {f"h{n}": f"10.77.0.{n}" for n in (1, 2, 3, 4)}
H1, H2, H3 = (ADDRESSES[host] for host in ("h1", "h2", "h3"))
FLOWS = (
    ("h1", H1, H2, 1, 100), ("h2", H1, H2, 1, 90),  # lost on the way: at both ends
    ("h2", H2, H1, 2, 50), ("h1", H2, H1, 2, 50),
    ("h2", H3, H2, 3, 70),  # its sender captured nothing
    ("h1", H1, H2, 4, 7), ("h1", H1, H2, 4, 8), ("h2", H1, H2, 4, 7), ("h2", H1, H2, 4, 8),  # ports used again
    ("h1", "10.9.9.9", H1, 5, 20),  # from no host
    ("switch", H1, H2, 6, 30), ("switch2", H1, H2, 6, 30),  # captured on the way alone
)  # fmt: skip


def test_flows_are_there_once(tmp_path):
    path = captured(tmp_path, *FLOWS)
    found = rows(tmp_path, "select src_port as port, node, wire_bytes as size from captured_flows_once order by all")
    assert [(row["port"], row["node"], row["size"]) for row in found] == [
        (1, "h1", 100),
        (2, "h2", 50),
        (3, "h2", 70),
        (4, "h1", 7),
        (4, "h1", 8),
        (5, "h1", 20),
        (6, "switch", 30),
    ]
    reported = Run(path).traffic
    assert sorted(reported.wire_bytes.tolist()) == sorted(row["size"] for row in found)
    (twice,) = rows(tmp_path, "select count(*) as n from capture_flows")
    assert twice["n"] == len(FLOWS)


def test_flows_name_the_hosts_that_send_and_receive(tmp_path):
    captured(tmp_path, *FLOWS)
    found = rows(tmp_path, "select distinct src_port p, src_host s, dst_host d from captured_flows_once order by all")
    assert [(row["s"], row["d"]) for row in found] == [
        ("h1", "h2"),
        ("h2", "h1"),
        ("h3", "h2"),
        ("h1", "h2"),
        (None, "h1"),
        ("h1", "h2"),
    ]


def test_flows_of_addresses_that_no_host_has_stay(tmp_path):
    path = make_run(tmp_path / "e", iterations=40, tolerances=loose())
    manifest = json.loads((path / "manifest.json").read_text())
    for node in manifest["topology"]["nodes"]:
        node["address"] = ""
    (path / "manifest.json").write_text(json.dumps(manifest))
    (found,) = rows(tmp_path, "select count(*) as n, count(src_host) as named from captured_flows_once")
    assert found["n"] > 0
    assert found["named"] == 0


def test_sql_shows_and_describes_tables(results):
    named = [row["name"] for row in rows(results, "show tables")]
    assert named == sorted(query.names())
    columns = {row["column_name"] for row in rows(results, "describe iterations")}
    assert columns == set(query.described("iterations").columns)
    (seconds,) = [row for row in rows(results, "summarize iterations") if row["column_name"] == "seconds"]
    assert seconds["count"] == 2 * 4 * 40
    assert rows(results, "SHOW TABLES") == rows(results, "show tables")


@pytest.mark.parametrize(
    "sql",
    [
        "desc",
        "describe",
        "-- all\nshow all tables",
        "select name from (show tables)",
        "pragma show_tables",
        "select table_name from information_schema.tables",
        "select view_name from duckdb_views() where not internal",
        "select name from sqlite_master",
    ],
)
def test_every_table_is_there_for_whoever_asks_which_there_are(results, sql):
    assert set(query.names()) <= {value for row in rows(results, sql) for value in row.values() if str(value) == value}


def test_tables_that_a_query_does_not_name_are_not_made(results):
    with query.opened(Here(results), Here(results).every(), ["select", "spans"]) as connection:
        assert {name for (name,) in connection.sql("select name from (show tables)").fetchall()} == {
            "spans",
            "all_spans",
        }


def test_what_is_described_is_what_there_is(results):
    with query.opened(Here(results), Here(results).every(), query.names()) as connection:
        for name in query.names():
            found = connection.sql(f"from {name} limit 0")  # unquoted: none is a word of SQL's own
            assert found.columns == list(query.described(name).columns), name
            types = {"BIGINT": "int64", "DOUBLE": "float64", "VARCHAR": "string", "BOOLEAN": "bool"}
            told = [column.type for column in query.described(name).columns.values()]
            assert [types[str(kind)] for kind in found.types] == told, name


@pytest.mark.parametrize("name", query.names())
def test_every_column_can_be_written_without_quotes(name):
    with duckdb.connect(":memory:") as connection:
        for column, one in query.described(name).columns.items():
            kind = {"int64": "bigint", "float64": "double", "string": "varchar", "bool": "boolean"}[one.type]
            connection.execute(f'create or replace table t ("{column}" {kind})')
            connection.execute(f"from t select {column}, count(*) group by {column} order by {column}")


@pytest.mark.parametrize("name", query.names())
def test_every_column_says_what_it_means(name):
    table = query.described(name)
    assert table.row
    assert [column for column, one in table.columns.items() if not one.text] == []


def test_the_page_of_tables_is_that_of_the_code():
    page = generated.expanded((ROOT / "docs/tables.md").read_text())
    assert set(re.findall(r"^## `(\w+)`$", page, re.MULTILINE)) == set(query.names())
    assert query.tables_page() in page
    assert orch("tables", "--markdown")[1] == query.tables_page()


def test_tables_are_listed_and_described():
    status, out, _ = orch("tables")
    assert status == 0
    assert [line.split()[0] for line in out.splitlines()] == list(query.names())
    out = orch("tables", "capture_flows")[1]
    assert "wire_bytes      int64   layer 2" in out
    assert orch("tables", "nonsense")[0] == 2
    with pytest.raises(ConfigError, match="nonsense: no such table; accepted: runs"):
        query.described("nonsense")


def test_a_view_reads_no_more_files_than_it_needs():
    assert views.needed({"iterations"}) == {"iterations", "all_iterations"}
    assert views.needed({"select", "captured_flows_once"}) >= {"capture_flows", "hosts"}
    assert views.file_of("all_overlaps") == "overlaps"
    assert set(views.OF_WINDOWS.values()) <= {name for name in tables.TABLES if "window_name" in tables.TABLES[name]}


@pytest.mark.parametrize(
    ("sql", "remedy"),
    [
        ("select nope from iterations", "remedy: orch tables iterations"),
        ("select * from no", "remedy: tables are runs"),
    ],
)
def test_a_wrong_name_is_answered_with_what_there_is(results, sql, remedy):
    status, _, err = orch("query", sql, "--results", str(results))
    assert status == 2
    assert remedy in err


def test_figures_have_their_intervals_or_none(results):
    found = rows(results, "select * from windows")
    for row in found:
        for name in ("mean", "p50"):
            low, high = row[f"{name}_low_s"], row[f"{name}_high_s"]
            assert low is high is None or low <= row[f"{name}_s"] <= high
    assert found
