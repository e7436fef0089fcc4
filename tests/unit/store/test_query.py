"""Runs are picked, asked in SQL, exported and zipped."""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path

import duckdb
import pytest

from orchestrator.api.results import Store
from orchestrator.core.errors import ConfigError
from orchestrator.report.run import report_page
from orchestrator.store import listing, stores
from orchestrator.store.tabular import tables
from tests.helpers.experiments import orch
from tests.helpers.night_runs import sweep_id, write_night
from tests.helpers.sealed_run import loose, make_run
from tests.helpers.sweep_files import leave, window


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Two valid runs at 15 Gbit/s, an invalid one without traffic, and one that is under way."""
    folder = tmp_path_factory.mktemp("store")
    for number, load, more in ((1, 150e6, {}), (2, 150e6, {}), (3, 0.0, {"dropped": 10**6})):
        make_run(folder / "resnet-load", repetition=number, load_bps=load, iterations=40, tolerances=loose(), **more)
    leave(folder, {"name": "s", "id": "i", "points": {}}, outcome="running", sealed=False, jobs=[])
    return folder


def ask(results, *argv):
    status, out, err = orch(*argv, "--results", str(results))
    assert status == 0, err
    return out


def rows(results, sql, *more):
    return [json.loads(line) for line in ask(results, "query", sql, "--json", *more).splitlines()]


def test_runs_and_windows_are_tables(results):
    found = rows(results, "select outcome, valid, count(*) as n from runs group by all order by n desc, valid")
    assert {(row["outcome"], row["valid"], row["n"]) for row in found} == {
        ("completed", True, 2),
        ("completed", False, 1),
        ("running", False, 1),
    }
    (row,) = rows(results, "select avg(requested_bps) as bps, min(mean_s) as s from windows where valid")
    assert row["bps"] == pytest.approx(15e9)
    assert 0.15 < row["s"] < 0.3


def test_tables_of_all_runs_are_one(results):
    found = rows(results, "select run, count(*) n from iterations group by run")
    assert [row["n"] for row in found] == [40 * 4] * 3
    joined = rows(
        results, "select experiment, sum(wire_bytes) > 0 as some from packets join runs using (run) group by 1"
    )
    assert joined == [{"experiment": "resnet-load", "some": True}]
    assert rows(results, "select * from flows") == []


OLDER = Path(__file__).parents[2] / "data/sealed/tables-1"  # a run as it was sealed with version 1 of the tables


def test_tables_of_older_runs_answer_by_the_names_of_today(results, tmp_path):
    """Beside newer runs: one query over both, whichever file comes first."""
    alone, mixed = tmp_path / "alone", tmp_path / "results"
    shutil.copytree(OLDER, alone)  # whoever reads a store leaves an index there
    shutil.copytree(OLDER, mixed)
    shutil.copytree(next((results / "resnet-load").glob("*abc1")), mixed / "resnet-load" / "20261121T020001-abc1")
    found = rows(mixed, "select run, window_name, count(*) n from all_iterations group by all order by all")
    assert [(row["window_name"], row["n"]) for row in found if row["run"].startswith("20261121")] == [
        ("", 20),
        ("w1", 160),
    ]
    older = rows(alone, "select * from all_iterations order by rank, iteration")
    assert [
        row
        for row in rows(mixed, "select * from all_iterations order by rank, iteration")
        if row["run"].startswith("20261122")
    ] == older
    assert list(older[0]) == [field.name for field in tables.schema("iterations")]
    assert rows(mixed, "select window_name, others_wait_share < 1 as some from processors group by all order by all")
    (delayed,) = rows(alone, "select requested_s, packets > 0 as some from delays")
    assert delayed == {"requested_s": 0.01, "some": True}


def test_filters_pick_the_runs_that_are_asked(results):
    count = "select count(*) as n from runs"
    for more, n in (
        ((), 4),
        (("--valid",), 2),
        (("--experiment", "s"), 1),
        (("--where", "load>8gbit"), 2),
        (("--where", "load=0bit"), 1),
        (("--where", "model=resnet50", "--where", "mean_s<1s"), 3),
        (("--since", "2200-01-01"), 0),
        (("--since", "100000w"), 4),
        (("--where", "outcome=running"), 1),
    ):
        assert rows(results, count, *more) == [{"n": n}], more
        lines = ask(results, "ls", "--json", *more).splitlines()
        assert len(lines) == n, more


def test_text_and_csv(results):
    text = ask(results, "query", "select 1.5 as a, null as b").splitlines()
    assert [line.split() for line in text] == [["a", "b"], ["---", "-"], ["1.5"]]
    assert ask(results, "query", "select 1 as a, 'x,y' as b", "--csv") == 'a,b\n1,"x,y"\n'


def test_columns_of_one_name_are_named_apart(results):
    sql = "select 1 as a, 2 as a, 3 as a_2, 4 as a"
    assert ask(results, "query", sql).splitlines()[0].split() == ["a", "a_3", "a_2", "a_4"]
    assert json.loads(ask(results, "query", sql, "--json")) == {"a": 1, "a_3": 2, "a_2": 3, "a_4": 4}
    assert ask(results, "query", sql, "--csv") == "a,a_3,a_2,a_4\n1,2,3,4\n"


@pytest.mark.parametrize(
    ("sql", "told"),
    [
        ("select * from nothing", "remedy: tables are runs, windows, hosts, iterations"),
        ("selec 1", "syntax error"),
        ("-- nothing", "the statement gives no rows; accepted: select"),
        ("", "the statement gives no rows; accepted: select"),
        ("select '\udcff'", "the query is not text in UTF-8"),
    ],
)
def test_a_query_that_is_none_is_said_in_duckdbs_words(results, sql, told):
    status, _, err = orch("query", sql, "--results", str(results))
    assert status == 2
    assert told in err
    assert "Traceback" not in err


@pytest.mark.parametrize("kind", ["csv", "parquet", "json"])
def test_a_table_over_runs_is_exported(results, tmp_path, kind):
    output = tmp_path / f"it's.{kind}"
    told = ask(results, "export", "all_iterations", "--valid", "-o", str(output))
    assert told == f"{output}: {2 * 4 * 45} rows of 2 runs\n"
    with duckdb.connect() as connection:
        connection.execute("set file_search_path = ''")
        name = str(output).replace("'", "''")
        found = connection.execute(f"select count(*), count(distinct run) from '{name}'").fetchall()  # noqa: S608
    assert found == [(360, 2)]
    assert [path.name for path in tmp_path.iterdir()] == [output.name]


def test_what_cannot_be_exported_is_said(results, tmp_path):
    for what, output, told in (
        ("nothing", "a.csv", "no such table; accepted: runs, windows"),
        ("runs", "a.xls", "accepted: a name that ends in one of .csv"),
        ("runs", "/dev/null/no/a.csv", "its folder cannot be made"),
        ("zip", "a.zip", "4 runs are selected; accepted: one"),
    ):
        status, _, err = orch("export", what, "-o", str(tmp_path / output), "--results", str(results))
        assert status in (1, 2)
        assert told in err
    assert list(tmp_path.iterdir()) == []
    status, _, err = orch("export", "runs", "-o", "s3://bucket/a.csv", "--results", str(results))
    assert status == 2
    assert "-o s3://bucket/a.csv: not on this machine; accepted: a path, or an address for mlflow" in err


def test_a_run_is_zipped_whole(results, tmp_path):
    output = tmp_path / "run.zip"
    ask(results, "export", "zip", "abc2", "-o", str(output))
    folder = next((results / "resnet-load").glob("*abc2"))
    with zipfile.ZipFile(output) as archive:
        assert archive.testzip() is None
        names = {f"{folder.name}/{path.relative_to(folder)}" for path in folder.rglob("*") if path.is_file()}
        assert set(archive.namelist()) == names


@pytest.mark.parametrize("text", ["yesterday", "12", "7 d", "2026-13-01"])
def test_a_time_that_is_none_is_said(text):
    with pytest.raises(ConfigError, match="not a time; accepted: 2026-11-20"):
        listing.began_since(text)


def test_windows_of_a_sweep_carry_their_point(tmp_path):
    point = {"point": "ab", "values": {"traffic.0.iperf.load": "4gbit"}, "repetition": 2, "recheck": False}
    about = {"name": "s", "id": "i", "points": {"w1": point}}
    leave(tmp_path, about, windows=[window("w1")], jobs=[])
    (row,) = rows(tmp_path, "select sweep, sweep_point, repetition, axis_values as v from windows")
    assert (row["sweep"], row["sweep_point"], row["repetition"]) == ("i", "ab", 2)
    assert json.loads(row["v"]) == {"traffic.0.iperf.load": "4gbit"}
    assert len(ask(tmp_path, "ls", "--json", "--where", "iperf.load=4gbit").splitlines()) == 1


def test_names_of_sweeps_stand_for_runs_wherever_runs_are_named(tmp_path, monkeypatch):
    """As figure, compare and history take them: the newest instance of a sweep, a day of it, a baseline."""
    results = tmp_path / "r"
    nights = [write_night(results, night, repetitions=2) for night in (1, 2)]
    first, newest = ({path.name for path in night} for night in nights)
    option = ("--results", str(results))
    day = stores.day_of(stores.of_name(stores.opened(str(results)), "nightly")[0])

    def exported(*named: str) -> set[str]:
        status, _, err = orch("export", "windows", *named, "-o", str(tmp_path / "w.json"), *option)
        assert status == 0, err
        return {json.loads(line)["run"] for line in (tmp_path / "w.json").read_text().splitlines()}

    assert orch("baseline", "set", "main", f"nightly@{day}", *option)[0] == 0
    assert exported("nightly") == exported(sweep_id(2)) == newest
    assert exported(f"nightly@{day}") == exported("main") == first
    assert exported("nightly", "main") == first | newest
    shown: list[set[str]] = []
    monkeypatch.setattr(
        report_page, "render", lambda folders, output, **_: shown.append({one.name for one in folders}) or output
    )
    for named in ("nightly", "main"):
        assert orch("report", named, "-o", str(tmp_path / "page.html"), *option)[::2] == (0, "")
    assert shown == [newest, first]
    for command in ("show", "timeline"):
        status, _, err = orch(command, "nightly", *option)
        assert status == 1
        assert "nightly: 2 runs; accepted: one of them, such as " in err
    status, _, err = orch("report", "nightlyy", *option)
    assert status == 1
    assert "nightlyy: no such run" in err


READS = {
    "a file of this machine's": "select * from read_text('{secret}')",
    "a file by its name alone": "select * from '{secret}'",
    "a file from a table's folder": "select * from read_blob('{results}/x/../../secret.csv')",
    "names of files": "select * from glob('{folder}/*')",
    "what a file of another kind has": "select * from sniff_csv('{secret}')",
    "a manifest, which is no table": "select * from read_text('{results}/.index.json')",
    "another machine's file": "select * from read_csv('http://127.0.0.1:9/x.csv')",
    "a variable of Python's": "select * from mine",
    "a file, by a subquery": "select (select content from read_text('{secret}'))",
    "a file, in a pivot": "pivot (select content a from read_text('{secret}')) on a",
    "a file, explained": "explain analyze select * from read_text('{secret}')",
    "text as SQL": "select * from query('select 42')",
    "text as SQL, by another spelling": "select * from /* x */ main.\"Query\" -- y\n ('select 42')",
}
ACTS = {
    "a copy": "copy (select 1 a) to '{written}'",
    "a copy, explained": "explain analyze copy (select 1 a) to '{written}'",
    "a copy within a select": "with a as (copy (select 1 a) to '{written}') select * from a",
    "a copy over a table's own file": "with a as (copy (select 1 a) to '{table}' (format parquet, use_tmp_file false)) "
    "select * from all_iterations, a",
    "a copy within a pivot": "pivot (with a as (copy (select 1 a) to '{written}') select * from a) on a",
    "a copy as text": "select * from query('with a as (copy (select 1 a) to ''{table}'') select * from a')",
    "a database": "attach '{written}'",
    "an export": "export database '{written}'",
    "several statements": "select 1; copy (select 1 a) to '{written}'",
    "an extension": "install httpfs",
    "an extension that is there": "load json",
    "a setting": "set memory_limit = '1TB'",
    "a setting, by another word": "pragma memory_limit = '1TB'",
    "a table": "create table mine as select 1 a",
    "a view that is replaced": "create or replace view runs as select 1 a",
    "a call": "call pragma_version()",
    "a prepared statement": "prepare p as select 1",
}


@pytest.fixture
def places(results, tmp_path):
    """A file that is nobody's table, a place where nothing is to be written, and a table of a run."""
    (tmp_path / "secret.csv").write_text("password\nhunter2\n")
    return {
        "secret": tmp_path / "secret.csv",
        "written": tmp_path / "written.csv",
        "folder": tmp_path,
        "results": results,
        "table": min(results.glob("*/*/tables/iterations.parquet")),
    }


@pytest.mark.parametrize("what", [*READS, *ACTS])
def test_sql_reads_the_tables_and_does_nothing_else(results, places, what):
    mine = [1]  # noqa: F841 - what DuckDB would find by its name
    sql = {**READS, **ACTS}[what].format(**places)
    before = {path: path.read_bytes() for path in results.rglob("*") if path.is_file()}
    status, out, err = orch("query", sql, "--results", str(results), "--csv")
    assert (status, out) == (2, "")
    assert "Traceback" not in err
    assert "hunter2" not in err
    assert not places["written"].exists()
    assert {path: path.read_bytes() for path in results.rglob("*") if path.is_file()} == before
    with pytest.raises(ConfigError):
        Store(results).query(sql)


def test_sql_reads_nothing_of_the_folder_where_duckdb_would_put_what_is_too_large(results, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".tmp").mkdir()
    (tmp_path / ".tmp" / "secret.csv").write_text("hunter2\n")
    for name in (".tmp/secret.csv", f"{tmp_path}/.tmp/secret.csv"):
        sql = f"select * from read_text('{name}')"  # noqa: S608 - a name of the test's
        status, out, err = orch("query", sql, "--results", str(results))
        assert (status, out) == (2, ""), err


@pytest.mark.parametrize(
    "sql",
    [
        "with a as (select run from runs), b as (select * from a) select count(*) n from b join windows using (run)",
        "from iterations select count(*) n",
        "values (1)",
        "pivot windows on valid using count(*)",
        "pivot windows on valid in (true, false) using count(*)",
        "summarize iterations",
        "describe runs",
        "show tables",
        "explain select * from runs",
        "explain analyze select count(*) from iterations",
        "select 'copy; insert' as \"update\" -- delete",
        "select count(*) n from capture_flows a, captured_flows_once b",
        "select 1 n;",
    ],
)
def test_what_reads_the_tables_in_another_way_is_answered(results, sql):
    assert ask(results, "query", sql, "--csv").splitlines()


def test_unrestricted_sql_does_what_its_user_may(results, places):
    sql = f"select * from read_text('{places['secret']}')"  # noqa: S608 - a name of the test's
    assert "hunter2" in ask(results, "query", sql, "--csv", "--unrestricted")
    assert "hunter2" in Store(results).query(sql, unrestricted=True)["content"][0].as_py()
    two = f"copy (select run from runs) to '{places['written']}'; select count(*) n from runs"  # noqa: S608 - likewise
    assert ask(results, "query", two, "--csv", "--unrestricted") == "n\n4\n"
    assert places["written"].exists()


def test_sql_of_many_rows_may_go_to_disk_and_raises_no_bound(results):
    sql = "select current_setting('memory_limit') a, current_setting('max_temp_directory_size') b"
    assert rows(results, sql) == rows(results, sql, "--unrestricted")
