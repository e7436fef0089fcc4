"""What is watched: the newest run, a run that is named, a sweep; and what becomes of each."""

from __future__ import annotations

import json

import pytest

from orchestrator.core import lock
from orchestrator.core.errors import StoreError
from orchestrator.execution.session import holder
from orchestrator.store import live, rundir, sweeps
from orchestrator.store.live import Live
from orchestrator.store.stamps import MANIFEST
from orchestrator.store.sweeps import Plan, PlannedPoint
from orchestrator.watching.following import Following
from tests.helpers import manifests
from tests.helpers.sweep_files import leave, window


def going(results, run="r1", label="run 1 of 1", **more):
    folder = manifests.begun(results, run, **more)
    live.begin(folder.path)
    live.save(folder.path, Live(label=label, phase="ranks"))
    return folder


def sealed(folder):
    live.remove(folder.path)
    return folder.seal()


def test_a_run_is_waited_for_and_watched_to_its_verdict(tmp_path):
    followed = Following(tmp_path, None)
    assert followed.look().title == f"waiting for a run in {tmp_path}"
    folder = going(tmp_path)
    found = followed.look()
    assert (found.title, found.label, found.phase, found.ended) == ("e: r1", "run 1 of 1", "ranks", False)
    live.save(folder.path, Live(label="run 1 of 1", phase="window"))
    assert followed.look().phase == "window"
    folder.manifest = manifests.made(run="r1", valid=True)
    path = sealed(folder)
    found = followed.look()
    assert (found.verdict, found.ended, found.failed) == (f"r1: valid ({path})", True, False)


def test_the_newest_run_under_way_is_watched_and_no_sealed_one(tmp_path):
    going(tmp_path, "r1")
    sealed(going(tmp_path, "r3"))
    going(tmp_path, "r2")
    assert Following(tmp_path, None).look().title == "e: r2"
    assert Following(tmp_path, "r1").look().title == "e: r1"


def test_whoever_watches_is_known_to_the_controller_and_leaves_nothing(tmp_path):
    folder = going(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    assert not live.is_watched(folder.path)
    Following(tmp_path, None).look()
    assert live.is_watched(folder.path)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_run_that_is_sealed_already_has_its_verdict(tmp_path):
    sealed(going(tmp_path))
    found = Following(tmp_path, "last").look()
    assert found.ended
    assert found.verdict.startswith("r1: ")


def test_a_run_whose_controller_is_gone_is_lost(tmp_path):
    folder = going(
        tmp_path,
        controller={
            "host": rundir.controller().host,
            "boot": rundir.controller().boot,
            "pids": rundir.controller().pids,
            "pid": 1,
            "start": 0,
        },
    )
    found = Following(tmp_path, "r1").look()
    assert (found.ended, found.failed) == (True, True)
    assert "orch recover" in found.verdict
    assert Following(tmp_path, None).look().title.startswith("waiting"), "it is not under way"
    assert folder.path.exists()


def test_a_controller_that_seals_and_ends_between_two_looks_at_its_folder_is_not_gone(tmp_path, monkeypatch):
    folder = going(tmp_path)
    followed = Following(tmp_path, "r1")
    followed.look()

    def ended(_):
        if not folder.path.name.endswith(".partial"):
            return False
        sealed(folder)
        return False

    monkeypatch.setattr(rundir.Listed, "alive", property(ended))
    found = followed.look()
    assert found.verdict.endswith(f"({folder.path})")
    assert not found.failed


def test_a_run_that_is_left_open_has_its_verdict_while_its_process_goes_on(tmp_path):
    going(tmp_path, outcome="failed", stage="fetch", ended_ns=2, reasons=["h2 still has files of the run"])
    assert "h2 still has files of the run" in Following(tmp_path, "r1").look().verdict
    assert Following(tmp_path, None).look().title.startswith("waiting")


def test_a_run_that_is_just_being_sealed_has_no_verdict_yet(tmp_path):
    artifact = {"path": "experiment.yaml", "bytes": 1, "sha256": "0" * 64}
    folder = going(tmp_path, outcome="completed", stage="sealed", ended_ns=2, artifacts=[artifact])
    live.remove(folder.path)
    followed = Following(tmp_path, "r1")
    assert (followed.look().verdict, followed.look().phase) == ("", "sealed")
    sealed_path = folder.path.rename(tmp_path / "e/r1")  # the very file that was seen
    assert f"({sealed_path})" in followed.look().verdict


def test_a_run_that_goes_away_while_it_is_watched(tmp_path):
    folder = going(tmp_path)
    named, newest = Following(tmp_path, "r1"), Following(tmp_path, None)
    newest.look()
    (folder.path / MANIFEST).unlink()
    assert "its folder is gone" in named.look().verdict
    assert newest.look().title.startswith("waiting")


def test_what_is_no_run_or_no_live_file_is_told_in_a_line(tmp_path):
    with pytest.raises(StoreError, match="nothing: no such run"):
        Following(tmp_path, "nothing")
    folder = going(tmp_path)
    (folder.path / live.FILE).write_text(json.dumps({"label": ["\x1b[31m"]}))
    with pytest.raises(StoreError, match="is not what a controller writes"):
        Following(tmp_path, None).look()


@pytest.fixture
def sweep(tmp_path):
    points = tuple(PlannedPoint(point=f"p{n}", values={"x": n}) for n in (1, 2))
    plan = Plan(id="s1", name="s", began_ns=0, definition="d", axes=("x",), points=points)
    return sweeps.create(tmp_path, plan)


def about(point):
    measured = {"point": point, "values": {}, "repetition": 1, "recheck": False}
    return {"id": "s1", "name": "s", "points": {"w1": measured}}


def test_a_sweep_is_watched_from_run_to_run_until_its_process_ends(tmp_path, sweep):
    with lock.within(sweep.path.parent, "sweep-s1", holder("s1")):
        leave(tmp_path, about("p1"), windows=[window("w1")])
        path = leave(tmp_path, about("p2"), outcome="running", sealed=False)
        followed = Following(tmp_path, None)
        found = followed.look()
        assert found.title.startswith("s: ")
        assert found.tables[-1].title == "Sweep s: 1 measured of 2 planned"
        folder = rundir.RunFolder(path, rundir.opened(path).manifest)
        folder.manifest = manifests.made(
            run=folder.manifest.run, experiment="s", valid=True, sweep=about("p2"), windows=[window("w1")]
        )
        folder.seal()
        over = followed.look()
        assert (": valid (" in over.verdict, over.ended) == (True, False)
        assert over.tables[-1].title == "Sweep s: 2 measured of 2 planned"
        assert followed.look() == over, "until the next run begins"
        assert Following(tmp_path, "s").look().phase == "between runs", "it can be named, too"
    found = followed.look()
    assert (found.verdict, found.ended) == ("Sweep s: 2 measured of 2 planned", True)


def test_a_sweep_whose_process_was_killed_is_over(tmp_path, sweep):
    said = {**holder("s1"), "pid": 2**22 + 1}
    (sweep.path.parent / ".sweep-s1.lock").write_text(json.dumps(said))
    assert Following(tmp_path, "s").look().ended
