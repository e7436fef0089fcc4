"""Run folders: made, sealed whole, listed as what they are, and found again."""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from orchestrator.core.errors import ConfigError, StoreError
from orchestrator.execution import recovery
from orchestrator.store import rundir
from orchestrator.store.manifests import summaries
from orchestrator.store.manifests.records import Artifact
from orchestrator.store.rundir import Entry, RunFolder, entries, find, new_run_id, process_start
from tests.helpers import manifests


def made(results: Path, run: str, experiment: str = "e", **manifest) -> RunFolder:
    return manifests.begun(results, run, experiment=experiment, **manifest)


def sealed(results: Path, run: str, **manifest) -> Path:
    return made(results, run, **{"outcome": "completed", "valid": True, **manifest}).seal()


def test_a_visible_folder_is_a_complete_one(tmp_path):
    folder = made(tmp_path, "r1", seed=5)
    assert folder.path == tmp_path / "e/r1.partial"
    (folder.path / "tables/x.parquet").write_bytes(b"abc")
    (folder.path / "hosts/h1").mkdir()
    (folder.path / "hosts/h1/log").write_bytes(b"")
    folder.hash_files()
    folder.manifest = replace(folder.manifest, outcome="completed")
    assert not (tmp_path / "e/r1").exists()
    final = folder.seal()
    assert final == folder.path == tmp_path / "e/r1"
    assert not (tmp_path / "e/r1.partial").exists()
    manifest = json.loads((final / "manifest.json").read_text())
    assert (manifest["format"], manifest["run"], manifest["seed"], manifest["outcome"]) == (
        summaries.FORMAT,
        "r1",
        5,
        "completed",
    )
    assert manifest["artifacts"] == [
        {"path": "hosts/h1/log", "bytes": 0, "sha256": hashlib.sha256(b"").hexdigest()},
        {"path": "tables/x.parquet", "bytes": 3, "sha256": hashlib.sha256(b"abc").hexdigest()},
    ]
    assert not [path for path in final.rglob("*") if path.name.endswith(".new")]


def test_what_is_no_file_does_not_hold_up_the_seal(tmp_path):
    folder = made(tmp_path, "r1")
    os.mkfifo(folder.path / "hosts/fifo")
    (folder.path / "hosts/broken").symlink_to("nowhere")
    (folder.path / "hosts/away").symlink_to("/proc/self/environ")
    (folder.path / "hosts/log").write_bytes(b"abc")
    folder.hash_files()
    assert [artifact.path for artifact in folder.manifest.artifacts] == ["hosts/log"]
    assert folder.seal().name == "r1"


def test_a_machine_that_lets_no_thread_start_seals_all_the_same(tmp_path, monkeypatch):
    def refuse(_thread):
        raise RuntimeError("can't start new thread")

    folder = made(tmp_path, "r1")
    (folder.path / "a").write_bytes(b"1")
    monkeypatch.setattr(threading.Thread, "start", refuse)
    folder.hash_files()
    assert folder.manifest.artifacts == (Artifact(path="a", bytes=1, sha256=hashlib.sha256(b"1").hexdigest()),)


def test_the_same_run_is_not_made_twice(tmp_path):
    made(tmp_path, "r1")
    with pytest.raises(StoreError, match=r"r1\.partial: cannot be made: File exists"):
        made(tmp_path, "r1")


def test_a_store_that_cannot_be_written_to_is_said(tmp_path):
    (tmp_path / "results").write_text("a file")
    with pytest.raises(StoreError, match="cannot be made: Not a directory") as caught:
        made(tmp_path / "results", "r1")
    assert "--results" in str(caught.value.hint)


def test_an_unsealed_run_is_running_while_its_controller_lives(tmp_path):
    made(tmp_path, "r1", outcome="running")
    (entry,) = entries(tmp_path)
    assert (entry.sealed, entry.alive, entry.outcome) == (False, True, "running")


def unsealed(tmp_path, **controller) -> Entry:
    made(tmp_path, "r1", controller={**asdict(rundir.controller()), **controller})
    (entry,) = entries(tmp_path)
    return entry


def test_a_pid_that_somebody_else_has_now_is_told_by_its_start(tmp_path):
    entry = unsealed(tmp_path, start=process_start(os.getpid()) - 1)
    assert (entry.alive, entry.outcome) == (False, "lost")


def test_a_controller_that_is_gone_left_its_run_lost(tmp_path):
    child = os.fork()
    if child == 0:
        os._exit(0)
    start = None
    while start is None and (Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0]) != "Z":
        time.sleep(0.001)
    # Dead, though nobody has asked for its status yet.
    start = int(Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[19])
    entry = unsealed(tmp_path, pid=child, start=start)
    assert entry.outcome == "lost"
    os.waitpid(child, 0)
    assert entry.outcome == "lost"
    assert process_start(child) is None


@pytest.mark.parametrize("controller", [{"pid": None}, {"start": None}, {"pid": -1}, {"pid": 1 << 40, "start": None}])
def test_a_controller_that_says_nothing_sensible_is_gone(tmp_path, controller):
    assert unsealed(tmp_path, **controller).outcome == "lost"


GONE = {"pid": 1, "start": 1}


@pytest.mark.parametrize(
    ("controller", "outcome", "elsewhere"),
    [
        ({"host": "desk", "boot": "another"}, "running", "desk"),
        ({"host": "desk"}, "lost", ""),  # renamed meanwhile
        ({"boot": "another"}, "lost", ""),  # booted again
        ({"pids": "pid:[1]"}, "running", None),  # a container of the same name: its numbers are not ours
        ({"host": "box", "pids": "pid:[1]"}, "running", "box"),
    ],
)
def test_a_run_of_another_machine_is_taken_to_go_on(tmp_path, controller, outcome, elsewhere):
    entry = unsealed(tmp_path, **{**GONE, **controller})
    assert entry.outcome == outcome
    assert entry.elsewhere == (rundir.controller().host if elsewhere is None else elsewhere)


@pytest.mark.parametrize(("host", "outcome"), [("desk", "running"), (None, "lost")])
def test_a_run_that_does_not_tell_its_boot_is_told_by_its_host(tmp_path, host, outcome):
    made(tmp_path, "r1", controller={"host": host or rundir.controller().host, **GONE})
    (entry,) = entries(tmp_path)
    assert entry.outcome == outcome


def test_only_force_recovers_a_run_of_another_machine(tmp_path, capsys):
    unsealed(tmp_path, host="desk", boot="another")
    with pytest.raises(StoreError, match="r1 needs no recovery") as caught:
        recovery.recover(tmp_path, ["r1"])
    assert caught.value.hint == "if desk is gone, or has ended it: --force"
    assert recovery.recover(tmp_path, ["r1"], force=True) == 1  # taken on: it has no experiment in it
    assert "experiment.yaml" in capsys.readouterr().out


def test_a_sealed_run_is_what_it_says_whoever_is_alive(tmp_path):
    sealed(tmp_path, "r1", controller={"host": "elsewhere"})
    (entry,) = entries(tmp_path)
    assert (entry.sealed, entry.outcome) == (True, "completed")


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '{"run": "r2"}', "\x00\x00", '{"run":"r","outcome":"x"}'])
def test_a_torn_manifest_is_passed_over(tmp_path, text):
    path = sealed(tmp_path, "r1")
    torn = tmp_path / "e/r2.partial"
    torn.mkdir()
    (torn / "manifest.json").write_text(text)
    (tmp_path / "e/empty").mkdir()
    (tmp_path / "report.html").write_text("")
    assert [entry.path for entry in entries(tmp_path)] == [path]
    for wanted in (str(torn), "r2", "last"):
        with pytest.raises(StoreError, match=r"r2\.partial/manifest\.json: "):
            find(tmp_path, wanted)


def test_a_manifest_is_old_or_new_never_half(tmp_path):
    folder = made(tmp_path, "r1")
    before = (folder.path / "manifest.json").read_text()

    with pytest.raises(TypeError):
        folder.save(replace(folder.manifest, error=Path()))
    assert (folder.path / "manifest.json").read_text() == before


def test_runs_are_found_by_id_part_folder_and_as_last(tmp_path):
    first = sealed(tmp_path, "20260101T000000000-aaaa1111")
    second = sealed(tmp_path, "20260102T000000000-bbbb2222", experiment="a")
    third = made(tmp_path, "20260103T000000000-aaaa1111").path
    assert find(tmp_path, "20260101T000000000-aaaa1111").path == first
    assert find(tmp_path, "20260102").path == second
    assert find(tmp_path, "bbbb2222").path == second
    assert find(tmp_path, str(first)).path == first
    assert find(tmp_path, "last").path == third
    with pytest.raises(StoreError, match=r"aaaa1111: 2 runs match: 20260101T.*, 20260103T"):
        find(tmp_path, "aaaa1111")
    for wanted in ("nothing", "", str(tmp_path)):
        with pytest.raises(StoreError, match="no such run") as caught:
            find(tmp_path, wanted)
        assert caught.value.hint == "orch ls"


@pytest.mark.parametrize("wanted", ["last", "r1"])
def test_an_empty_store_has_no_runs(tmp_path, wanted):
    assert list(entries(tmp_path / "nowhere")) == []
    with pytest.raises(StoreError, match="no such run"):
        find(tmp_path / "nowhere", wanted)


def test_ids_sort_by_time_and_name_the_point():
    assert new_run_id("cafe0123", 1_767_225_600_007_000_000) == "20260101T000000007-cafe0123"
    ids = [new_run_id("x", second * 10**9) for second in (1, 100, 10_000, 1_000_000_000, 2_000_000_000)]
    assert ids == sorted(ids)


@pytest.mark.parametrize("newer", [summaries.FORMAT + 1, "2027.1", None, [1]])
def test_what_a_later_version_made_is_refused_by_name_and_left_as_it_is(tmp_path, capsys, newer):
    folder = made(tmp_path, "r1", controller={**asdict(rundir.controller()), **GONE})
    written = json.loads((folder.path / "manifest.json").read_text())
    (folder.path / "manifest.json").write_text(json.dumps({**written, "format": newer}))
    before = (folder.path / "manifest.json").read_bytes()
    with pytest.raises(
        StoreError, match=r"manifest\.json: is of format .*, and this orch reads formats up to"
    ) as caught:
        find(tmp_path, "r1")
    assert caught.value.hint == "use the version of orch that made it, or a later one"
    assert recovery.recover(tmp_path, []) == 1
    assert "and this orch reads formats up to" in capsys.readouterr().out
    assert (folder.path / "manifest.json").read_bytes() == before


def test_hosts_that_no_run_has_cannot_be_given_up(tmp_path):
    launches = [manifests.launch(node="h2"), manifests.launch(node="h1")]
    made(tmp_path, "r1", controller={**asdict(rundir.controller()), **GONE}, launches=launches)
    with pytest.raises(ConfigError, match="--without h7: no host of r1; accepted: h1, h2"):
        recovery.recover(tmp_path, [], without=["h1", "h7"])
    assert [entry.outcome for entry in entries(tmp_path)] == ["lost"]
