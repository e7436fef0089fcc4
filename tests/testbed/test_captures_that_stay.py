"""Captures that stay on the hosts of an inventory, which reduce them: tables and hashes come home."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import stat
import sys

import pyarrow.parquet as pq
import pytest

from orchestrator.analysis import reduction
from orchestrator.store import rundir
from tests.helpers.orch_runs import ended_or, measured, orch, processes, start, told_of, wait_for, write
from tests.helpers.rack import rack

pytestmark = [pytest.mark.testbed, pytest.mark.variants]

TABLES = ("captures", "capture_flows", "packets", "flow_packets", "cross_packets", "one_way")
STAY = {"captures": {"stay": True}, "collect": ["tcpdump", "nic"]}
AS_THEY_CLOSE = {
    "captures": {"stay": True, "reduce": "as-they-close"},
    "collect": [{"tcpdump": {"rotate_every": "1s"}}, "nic"],
    "measure": {"warmup": 1, "iterations": 120},
    "validity": {"min_iterations": 5, "load_course": "ignore"},  # a busy machine decides when packets are sent
}


@pytest.fixture
def up(tmp_path):
    with rack(tmp_path) as hosts:
        yield hosts


def rows(folder, table):
    path = folder / "tables" / f"{table}.parquet"
    return sorted(map(repr, pq.read_table(path).to_pylist())) if path.exists() else None


def there(up, one):
    """A capture that stays, as seen from here."""
    return up.files(one["node"]) / one["folder"].lstrip("/") / one["path"].removeprefix(f"hosts/{one['node']}/")


def must_be_tables_of_home(up, folder, home):
    """What hosts made of their captures is what is made of these, once they are brought home."""
    manifest = manifest_of(folder)
    shutil.copytree(folder, home)
    shutil.rmtree(home / "tables")
    for one in manifest["stayed"]:
        shutil.copy(there(up, one), home / one["path"])
        shutil.rmtree(home / "hosts" / one["node"] / "captures", ignore_errors=True)
    (home / "manifest.json").write_text(json.dumps({**manifest, "stayed": []}))
    reduction.reduce(home)
    for table in TABLES:
        assert rows(folder, table) == rows(home, table), table


def read_early(folder, host):
    """When a host's files of captures were read while the run went on, in nanoseconds, by their paths."""
    lines = (folder / "hosts" / host / "captures.as-they-close/stdout").read_text().splitlines()
    return {path: int(instant) for instant, path in (line.split() for line in lines[1:])}


def readers(up, host):
    """What reads captures as they close on a host."""
    return [pid for pid in processes(ORCH_LAUNCH="captures.as-they-close") if pid in up.below(host)]


def manifest_of(folder):
    return json.loads((folder / "manifest.json").read_bytes())


def killing(tmp_path, host, what):
    """An interpreter that kills `what` of the first reduction on a host, and is Python's otherwise."""
    told = tmp_path / f"{host}-has-killed"
    script = tmp_path / f"python-of-{host}"
    script.write_text(
        f'#!/bin/sh\ncase "$*" in *reduce.pyz*) [ -e {told} ] || {{ touch {told}; kill -9 {what}; }};; esac\n'
        f'exec {sys.executable} "$@"\n'
    )
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return str(script)


def test_tables_are_those_of_captures_that_come_home(up, tmp_path):
    summary, results = measured(write(tmp_path, up.experiment(**STAY)), tmp_path / "results", "--no-report")
    (run,) = summary["runs"]
    folder = results / "small" / run["run"]
    manifest = manifest_of(folder)
    assert {one["node"] for one in manifest["stayed"]} == {"h1", "h2", "h3"}
    assert not list(folder.glob("hosts/**/*.pcap*"))
    assert not list(folder.glob("hosts/*/captures*/*.pyz"))
    for one in manifest["stayed"]:
        file = there(up, one)
        assert (file.stat().st_size, rundir.sha256(file)) == (one["bytes"], one["sha256"])
    must_be_tables_of_home(up, folder, tmp_path / "home")
    assert len(rows(folder, "flow_packets")) > 100
    packed = sum(file.stat().st_size for file in folder.glob("hosts/*/captures*/*"))
    assert packed < 0.2 * sum(one["bytes"] for one in manifest["stayed"])

    status, out, _ = orch("show", folder)
    assert (status, "captures stay on h1: 1 file" in " ".join(out.split())) == (0, True), out
    status, out, _ = orch("export", "zip", run["run"], "--results", results, "-o", tmp_path / "run.zip")
    assert (status, len(re.findall("they are not in it", out))) == (0, 3), out
    status, out, _ = orch("clean", write(tmp_path, up.inventory(), "rack.yaml"), "--data")
    named = ("--testbed", tmp_path / "rack.yaml")
    assert (status, len(re.findall(f"left captures of run {run['run']} that stayed for", out))) == (0, 3), out
    assert all(there(up, one).is_file() for one in manifest["stayed"])
    with up.cut("h3"):
        status, out, err = orch("prune", "--results", results, "--drop-after", "1ms", *named)
    assert (status, "h3: 1 capture could not be removed" in err) == (1, True), err
    assert "h3" in {one["node"] for one in manifest_of(folder)["stayed"]}  # a busy host may have been too slow
    status, out, _ = orch("prune", "--results", results, "--drop-after", "1ms", *named)
    assert (status, out.count("drop ") >= 1) == (0, True), out
    assert manifest_of(folder)["stayed"] == []
    assert len(manifest_of(folder)["pruned"]) == 3
    assert [up.on(host, "find", "/run/orch", "-mindepth", "1").strip() for host in up.names] == ["", "", ""]


def test_a_reduction_that_is_killed_begins_again(up, tmp_path):
    inventory = up.inventory()
    inventory["hosts"]["h2"]["python"] = killing(tmp_path, "h2", "$$")
    experiment = {**up.experiment(**STAY), "testbed": {"inventory": inventory}}
    summary, results = measured(write(tmp_path, experiment), tmp_path / "results", "--no-report")
    folder = results / "small" / summary["runs"][0]["run"]
    assert (tmp_path / "h2-has-killed").exists()
    assert all(one["sha256"] for one in manifest_of(folder)["stayed"])
    assert {row["node"] for row in pq.read_table(folder / "tables/capture_flows.parquet").to_pylist()} == set(up.names)


def test_captures_are_read_as_they_close(up, tmp_path):
    summary, results = measured(write(tmp_path, up.experiment(**AS_THEY_CLOSE)), tmp_path / "results", "--no-report")
    folder = results / "small" / summary["runs"][0]["run"]
    manifest = manifest_of(folder)
    (window,) = manifest["windows"]
    for host in up.names:
        early = read_early(folder, host)
        assert [instant for instant in early.values() if instant < window["end_ns"]], host
        mine = {one["path"].removeprefix(f"hosts/{host}/") for one in manifest["stayed"] if one["node"] == host}
        assert set(early) < mine
    assert all(rundir.sha256(there(up, one)) == one["sha256"] for one in manifest["stayed"])
    assert {path.name for path in folder.glob("hosts/*/captures.as-they-close/*")} == {"stdout", "stderr"}
    must_be_tables_of_home(up, folder, tmp_path / "home")


@pytest.mark.parametrize(("ends", "status"), [("the reader", 0), ("the run", 130), ("the controller", -signal.SIGKILL)])
def test_what_reads_captures_as_they_close_ends_with_its_run(up, tmp_path, ends, status):
    """Killed, it costs nothing: captures are read after the last window."""
    results = tmp_path / "results"
    run = start("run", write(tmp_path, up.experiment(**AS_THEY_CLOSE)), "--results", results, "--no-report")
    wait_for(ended_or(run, told_of(results, event="phase", name="window")), what="the window")
    assert all(readers(up, host) for host in up.names)
    if ends == "the run":
        run.send_signal(signal.SIGINT)
    elif ends == "the controller":
        run.kill()
    else:
        os.kill(readers(up, "h2")[0], signal.SIGKILL)
    _, err = run.communicate(timeout=240)
    assert run.returncode == status, (err, [manifest_of(one)["reasons"] for one in results.glob("small/*")])
    if ends == "the controller":
        named = ("--testbed", write(tmp_path, up.inventory(), "rack.yaml"))
        recovered, out, err = orch("recover", "--results", results, *named)
        assert recovered == 0, out + err
    assert [readers(up, host) for host in up.names] == [[], [], []]
    (folder,) = results.glob("small/*")
    assert {one["node"] for one in manifest_of(folder)["stayed"] if one["sha256"]} == set(up.names)
    assert not list(folder.glob("hosts/*/captures*/code"))
    must_be_tables_of_home(up, folder, tmp_path / "home")


def test_a_host_that_is_lost_while_it_reduces_is_named_and_the_rest_is_sealed(up, tmp_path):
    inventory = up.inventory()
    inventory["hosts"]["h3"]["python"] = killing(tmp_path, "h3", "$PPID")
    path = write(tmp_path, {**up.experiment(**STAY), "testbed": {"inventory": inventory}})
    status, _, err = orch("run", path, "--results", tmp_path / "results", "--json", "--no-report")
    assert (status, "h3" in err) == (1, True), err
    (folder,) = (tmp_path / "results").glob("small/*")
    manifest = manifest_of(folder)
    assert not folder.name.endswith(".partial")
    assert (manifest["given_up"], len(manifest["windows"])) == (["h3"], 1)
    assert {one["node"] for one in manifest["stayed"]} == {"h1", "h2"}
    flows = pq.read_table(folder / "tables/capture_flows.parquet").to_pylist()
    assert {row["node"] for row in flows} == {"h1", "h2"}
    assert any("`orch recover" in note for note in manifest["notes"])
    status, out, err = orch("recover", "--results", tmp_path / "results", manifest["run"], "--testbed", path)
    assert status == 0, out + err
    manifest = manifest_of(folder)
    assert {one["node"] for one in manifest["stayed"] if one["sha256"]} == {"h1", "h2", "h3"}
    flows = pq.read_table(folder / "tables/capture_flows.parquet").to_pylist()
    assert {row["node"] for row in flows} == {"h1", "h2", "h3"}
    assert not list(folder.glob("hosts/**/*.pcap*"))


def test_captures_that_fill_their_budget_end_and_the_run_does_not(up, tmp_path):
    """In files of a second each, which stay on their hosts."""
    collect = [{"tcpdump": {"rotate_every": "1s", "budget": "1mb"}}, "nic"]
    experiment = up.experiment(**{**STAY, "collect": collect}, measure={"warmup": 1, "iterations": 60})
    status, _, err = orch(
        "run", write(tmp_path, experiment), "--results", tmp_path / "results", "--json", "--no-report"
    )
    assert status == 3, err
    (folder,) = (tmp_path / "results").glob("small/*")
    manifest = manifest_of(folder)
    assert manifest["outcome"] == "completed"
    assert any("ended early (its host's budget of disk was used up)" in reason for reason in manifest["reasons"])
    ended = [row for row in pq.read_table(folder / "tables/captures.parquet").to_pylist() if row["ended_ns"]]
    assert ended
    (window,) = manifest["windows"]
    for row in ended:
        assert row["ended_ns"] < window["end_ns"]
        mine = [one for one in manifest["stayed"] if one["node"] == row["node"]]
        assert (len(mine), sum(one["bytes"] for one in mine)) == (row["files"], row["bytes"])
        assert row["files"] > 1
        assert all(re.search(r"capture\.pcap\d{10}$", one["path"]) for one in mine)
