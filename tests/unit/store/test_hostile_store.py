"""Stores and run folders that are somebody else's: no name in them leads out of where it belongs."""

from __future__ import annotations

import json
import os
import time
import zipfile
from pathlib import Path

import pytest
import yaml

from orchestrator.cli.main import main
from orchestrator.core.errors import OrchError
from orchestrator.execution import recovery
from orchestrator.execution.run_options import RunOptions
from orchestrator.experiment import loading, sweepfile
from orchestrator.hosts import dropping
from orchestrator.store import index, query, rundir, sweeps
from orchestrator.store.stores import Here
from orchestrator.sweep import run_sweep
from orchestrator.sweep.ledger import Ledger
from tests.helpers import manifests
from tests.helpers.sealed_run import make_run

DAY_NS = 86_400_000_000_000
CAPTURE = "hosts/h1/tcpdump/capture.pcap"


@pytest.fixture
def precious(tmp_path):
    """A capture of the user's own that no store has to do with."""
    path = tmp_path / "precious" / "mine.pcap"
    path.parent.mkdir()
    path.write_bytes(b"mine")
    return path


def foreign(results: Path, name: str = "r1", *, age_days: int = 20, **manifest) -> Path:
    """A sealed run with a capture, whose manifest says this besides."""
    ended = time.time_ns() - age_days * DAY_NS
    folder = manifests.begun(results, name, outcome="completed", ended_ns=ended, began_ns=ended)
    (folder.path / CAPTURE).parent.mkdir(parents=True)
    (folder.path / CAPTURE).write_bytes(b"theirs")
    folder.hash_files()
    run = folder.seal()
    if manifest:
        own = json.loads((run / "manifest.json").read_text())
        (run / "manifest.json").write_text(json.dumps({**own, **manifest}))
    return run


def record(path: object, size: int = 4) -> dict:
    return {"path": path, "bytes": size, "sha256": "0" * 64}


def prune(results: Path, *options: str) -> int:
    return main(["prune", "--results", str(results), *(options or ("--drop-after", "1d"))])


NAMES = [
    "{precious}",
    "../../../precious/mine.pcap",
    "hosts/../../../../precious/mine.pcap",
    "hosts/link/mine.pcap",
    "hosts//../../../../precious/mine.pcap",
    "hosts/linked.pcap",
]


@pytest.mark.parametrize("key", ["artifacts", "pruned"])
@pytest.mark.parametrize("name", NAMES)
def test_pruning_deletes_nothing_outside_of_the_run(tmp_path, precious, key, name, capsys):
    results = tmp_path / "results"
    run = foreign(results, **{key: [record(name.format(precious=precious))]})
    (run / "hosts/link").symlink_to(precious.parent)
    (run / "hosts/linked.pcap").symlink_to(precious)
    good = foreign(results, "r2")
    assert prune(results) == 1
    said = capsys.readouterr().err
    assert "r1: " in said
    assert "Traceback" not in said
    assert precious.read_bytes() == b"mine"
    assert not (good / CAPTURE).exists(), "the other run is pruned all the same"


@pytest.mark.parametrize(
    "artifacts",
    [
        "x",
        {"a": 1},
        [1],
        [{}],
        [record(3)],
        [record("x", -1)],
        [{**record("x"), "bytes": "4"}],
        [{**record("x"), "sha256": None}],
        [record(CAPTURE)] * 2,
        [record("x\x1b[2J\n")],
    ],
)
def test_a_manifest_that_records_no_files_is_told_and_left_alone(tmp_path, artifacts, capsys):
    run = foreign(tmp_path, artifacts=artifacts)
    assert prune(tmp_path) == 1
    assert "it is left alone" in capsys.readouterr().err
    assert (run / CAPTURE).exists()


def test_what_is_recorded_as_pruned_and_is_no_capture_stays(tmp_path):
    run = foreign(tmp_path, age_days=0, pruned=[record("experiment.yaml"), record("manifest.json")])
    (run / "experiment.yaml").write_text("name: e\n")
    prune(tmp_path)
    assert (run / "experiment.yaml").exists()
    assert (run / "manifest.json").exists()


@pytest.mark.parametrize("planted", [f"{CAPTURE}.gz", "hosts/h1/tcpdump/.capture.pcap.gz.new", ".manifest.json.new"])
def test_compressing_writes_through_no_link(tmp_path, precious, planted):
    run = foreign(tmp_path / "results")
    (run / planted).symlink_to(precious)
    prune(tmp_path / "results", "--compress-after", "1d")
    assert precious.read_bytes() == b"mine"


@pytest.mark.parametrize("key", ["run", "experiment"])
@pytest.mark.parametrize("name", ["../../../precious", "/tmp/x", "", ".", "a/b", "a\nb", 3, None, ["x"]])
def test_a_run_whose_name_is_none_is_no_run(tmp_path, key, name):
    run = foreign(tmp_path)
    manifest = json.loads((run / "manifest.json").read_text())
    (run / "manifest.json").write_text(json.dumps({**manifest, key: name}))
    assert rundir.entry_at(run) is None
    assert list(rundir.entries(tmp_path)) == []
    assert index.entries(tmp_path) == []


def test_an_index_that_came_with_the_store_is_not_believed_blindly(tmp_path):
    foreign(tmp_path)
    assert len(index.entries(tmp_path)) == 1
    cache = json.loads((tmp_path / index.FILE).read_text())
    for wrong in ({**cache["runs"]["e/r1"]["manifest"], "run": "../x"}, [], "x"):
        cache["runs"]["e/r1"]["manifest"] = wrong
        (tmp_path / index.FILE).write_text(json.dumps(cache))
        assert [one.run for one in index.entries(tmp_path)] == ["r1"]
    for runs in ({"e/r1": 7}, {"e/r1": {"stamp": []}}, {"e/r1": []}):
        (tmp_path / index.FILE).write_text(json.dumps({**cache, "runs": runs}))
        assert [one.run for one in index.entries(tmp_path)] == ["r1"]


def test_a_zip_holds_the_runs_own_files_alone(tmp_path, precious):
    run = foreign(tmp_path / "results")
    (run / "hosts/linked").symlink_to(precious)
    (run / "hosts/folder").symlink_to(precious.parent)
    query.zipped(Here(tmp_path / "results"), rundir.entry_at(run), tmp_path / "run.zip")
    with zipfile.ZipFile(tmp_path / "run.zip") as archive:
        assert sorted(archive.namelist()) == [f"r1/{CAPTURE}", "r1/manifest.json"]


def test_a_folder_whose_name_is_a_pattern_stands_for_itself_in_queries(tmp_path, capsys):
    runs = [make_run(tmp_path / "e", repetition=number) for number in (1, 2)]
    runs[0].rename(runs[0].with_name("*"))
    assert (
        main(["query", "select run, count(*) as n from iterations group by 1", "--results", str(tmp_path), "--csv"])
        == 0
    )
    lines = capsys.readouterr().out.splitlines()[1:]
    assert len(lines) == len({line.partition(",")[0] for line in lines}) == 2
    assert len({line.partition(",")[2] for line in lines}) == 1, "no table is read twice"


RECOVERED = """\
name: e
testbed: {local: {hosts: 2, link: 1gbit}}
workload: {ddp: {model: resnet50, batch: 1, compute: emulated, hosts: [h1, h2]}}
measure: {iterations: 5}
"""


@pytest.mark.parametrize("link", ["hosts", "tables", "experiment.yaml", "tables/windows.parquet", "hosts/h1/r1.h1"])
def test_recovery_follows_no_link_of_the_folder(tmp_path, precious, link):
    nodes = [{"name": name} for name in ("h1", "h2")]
    folder = manifests.begun(tmp_path / "results", topology={"kind": "local", "nodes": nodes, "links": []})
    (folder.path / "experiment.yaml").write_text(RECOVERED)
    (folder.path / "hosts/h1").mkdir()
    if link in ("hosts", "tables"):
        (folder.path / link).rename(folder.path / "aside")
    (folder.path / link).unlink(missing_ok=True)
    (folder.path / link).symlink_to(precious if "." in link else precious.parent)
    with pytest.raises(OrchError, match="symbolic link"):
        recovery.seal(rundir.entry_at(folder.path), [])
    assert [path.name for path in precious.parent.iterdir()] == ["mine.pcap"]
    assert precious.read_bytes() == b"mine"
    assert folder.path.exists()


# Nothing in a run's folder says how its hosts are reached.

HOST = {"name": "h1", "rails": [{"device": "eth0", "address": "198.18.0.1", "prefix": 24}]}
ON_A_RACK = {
    "topology": {"kind": "inventory", "nodes": [HOST], "links": [{"host": "h1", "device": "eth0", "rate": 1e9}]},
    "launches": [manifests.launch(node="h1")],
}
RACK = """\
link: 1gbit
defaults: {{config: "{config}"{more}}}
hosts:
  h1: {{ssh: h1, data: {{address: {address}/24, device: eth0}}}}
"""
OF_A_RACK = """\
name: e
testbed: {inventory: %s}
workload: {ddp: {model: resnet50, compute: emulated, hosts: [h1, h1]}}
measure: {at_most: 5s}
"""


def marking(folder: Path, name: str) -> Path:
    """An SSH configuration whose ProxyCommand leaves a file of this name in its folder, and leads nowhere."""
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / f"{name}.config"
    config.write_text(f"Host *\n  ProxyCommand /usr/bin/touch {folder / name}\n")
    return config


def rack(folder: Path, name: str = "named", *, address: str = "198.18.0.1", more: str = "") -> Path:
    """An inventory of one host, by whose way there its name appears beside it."""
    path = folder / f"{name}.yaml"
    path.write_text(RACK.format(config=marking(folder, name), address=address, more=more))
    return path


def planted(results: Path, *, unsealed: bool = True, **more: object) -> Path:
    """A run on a rack whose folder brings an inventory of its own, with a program, a key and a jump host of its own."""
    gone = {"controller": {"host": rundir.controller().host, "boot": "another", "pid": 1, "start": 1}}
    folder = manifests.begun(results, **{**ON_A_RACK, **(gone if unsealed else {}), **more})
    tools = folder.path / "tools"
    program = tools / "python"
    tools.mkdir()
    program.write_text(f"#!/bin/sh\ntouch {tools}/ran\n")
    program.chmod(0o755)
    reach = f", python: {program}, sudo: {program}, key: {program}"
    text = rack(tools, "planted", more=reach).read_text()
    data = json.dumps(yaml.safe_load(text))
    (folder.path / "experiment.yaml").write_text(OF_A_RACK % data)
    return folder.path if unsealed else folder.seal()


def nothing_ran(run: Path) -> bool:
    return not (run / "tools/planted").exists() and not (run / "tools/ran").exists()


STAYED = {"path": "hosts/h1/tcpdump.h1/capture.pcap", "bytes": 9, "sha256": "", "node": "h1", "folder": "/w/r1.h1"}
OLD = {"outcome": "completed", "unsealed": False, "ended_ns": 10**18, "began_ns": 10**18}
COMMANDS = {
    "recover": ((), {}),
    "recover r1": (("r1",), {"given_up": ["h1"], **OLD}),
    "prune": (("--drop-after", "1d"), {"stayed": [STAYED], **OLD}),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_hosts_are_reached_by_what_the_caller_names_and_by_nothing_in_a_runs_folder(tmp_path, command, capsys):
    options, more = COMMANDS[command]
    run = planted(tmp_path / "results", **more)
    argv = [command.split()[0], *options, "--results", str(tmp_path / "results")]
    assert main(argv) == 1
    said = "".join(capsys.readouterr())
    assert "--testbed FILE, the inventory, experiment or sweep file by which it ran" in said
    assert nothing_ran(run), said

    for wrong, told in (("other.yaml", "its h1 is another host, of address 198.18.0.9"), ("w.yaml", "its `work`")):
        more = ", work: /var/tmp/elsewhere" if wrong == "w.yaml" else ""
        address = "198.18.0.1" if more else "198.18.0.9"
        path = rack(tmp_path, wrong.removesuffix(".yaml"), address=address, more=more)
        assert main([*argv, "--testbed", str(path)]) == 1
        assert told in "".join(capsys.readouterr())

    named = rack(tmp_path)
    assert main([*argv, "--testbed", str(named)]) == 1
    said = "".join(capsys.readouterr())
    assert (tmp_path / "named").exists(), said
    assert nothing_ran(run), said
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("own", ["an inventory", "an experiment", "a sweep"])
def test_a_testbed_is_named_by_each_kind_of_file(tmp_path, own, capsys):
    path = rack(tmp_path)
    if own != "an inventory":
        path = tmp_path / "own.yaml"
        path.write_text(OF_A_RACK % "named.yaml")
    if own == "a sweep":
        path = tmp_path / "s.yaml"
        path.write_text("name: s\nexperiment: own.yaml\naxes: {workload.ddp.batch: [1, 2]}\n")
    planted(tmp_path / "results")
    assert main(["recover", "--results", str(tmp_path / "results"), "--testbed", str(path)]) == 1
    assert (tmp_path / "named").exists(), capsys.readouterr()


def test_a_sweep_recovers_its_runs_by_its_own_testbed(tmp_path, capsys):
    rack(tmp_path)
    (tmp_path / "own.yaml").write_text(OF_A_RACK % "named.yaml")
    (tmp_path / "s.yaml").write_text("name: s\nexperiment: own.yaml\naxes: {workload.ddp.batch: [1, 2]}\n")
    definition, results = sweepfile.load(tmp_path / "s.yaml"), tmp_path / "results"
    sweep = run_sweep.begun(definition, results, salt="s")
    run = planted(results, sweep={"id": sweep.id, "name": "s", "points": {}})
    assert [entry.path for entry in sweeps.runs(results, sweep)] == [run]
    ledger = Ledger(attempts=1, quarantine=0)
    run_sweep._Sweeping(definition, sweep, ledger, (), RunOptions(results=results), [], None, ()).recover()
    said = "".join(capsys.readouterr())
    assert (tmp_path / "named").exists(), said
    assert nothing_ran(run), said


def test_nobody_recovers_or_drops_by_a_folder_of_another_user(tmp_path, monkeypatch):
    run = planted(tmp_path / "a")
    old = planted(tmp_path / "b", stayed=[STAYED], **OLD)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(OrchError, match=f"its folder belongs to user {os.getuid()}, and you are user"):
        recovery.seal(rundir.opened(run), [])
    gone, failed = dropping.drop(rundir.opened(old), "old", [])
    assert (gone, len(failed), "its folder belongs to user" in failed[0]) == ([], 1, True), failed


@pytest.mark.parametrize("command", [("show", "r1"), ("ls",), ("report", "r1"), ("clean",)])
def test_looking_at_a_run_reaches_for_no_host(tmp_path, command, capsys):
    run = planted(tmp_path / "results", unsealed=False, outcome="completed")
    results = () if command == ("clean",) else ("--results", str(tmp_path / "results"))
    main([*command, *results])
    assert nothing_ran(run), capsys.readouterr()


def test_a_sealed_experiment_opens_no_file_that_it_names(tmp_path):
    (tmp_path / "secret.yaml").write_text(RACK.format(config="x", address="198.18.0.1", more=""))
    (tmp_path / "experiment.yaml").write_text(OF_A_RACK % (tmp_path / "secret.yaml"))
    with pytest.raises(OrchError, match=r"testbed\.inventory"):
        loading.sealed(tmp_path)
