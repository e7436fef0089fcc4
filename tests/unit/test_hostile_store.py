"""Stores and run folders that are somebody else's: no name in them leads out of where it belongs."""

from __future__ import annotations

import json
import time
import zipfile
from pathlib import Path

import manifests
import pytest
from sealed_run import make_run

from orchestrator.cli.main import main
from orchestrator.core.errors import OrchError
from orchestrator.execution import recovery
from orchestrator.store import index, rundir
from orchestrator.store.here import Here
from orchestrator.store.queries import query

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


NAMES = ["{precious}", "../../../precious/mine.pcap", "hosts/../../../../precious/mine.pcap", "hosts/link/mine.pcap",
         "hosts//../../../../precious/mine.pcap", "hosts/linked.pcap"]  # fmt: skip


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
    "artifacts", ["x", {"a": 1}, [1], [{}], [record(3)], [record("x", -1)], [{**record("x"), "bytes": "4"}],
                  [{**record("x"), "sha256": None}], [record(CAPTURE)] * 2, [record("x\x1b[2J\n")]],
)  # fmt: skip
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
    folder = manifests.begun(tmp_path / "results")
    (folder.path / "experiment.yaml").write_text(RECOVERED)
    (folder.path / "hosts/h1").mkdir()
    if link in ("hosts", "tables"):
        (folder.path / link).rename(folder.path / "aside")
    (folder.path / link).unlink(missing_ok=True)
    (folder.path / link).symlink_to(precious if "." in link else precious.parent)
    with pytest.raises(OrchError, match="symbolic link"):
        recovery.seal(rundir.entry_at(folder.path))
    assert [path.name for path in precious.parent.iterdir()] == ["mine.pcap"]
    assert precious.read_bytes() == b"mine"
    assert folder.path.exists()
