"""`orch reduce`: tables made again from a sealed run's files, all of them or none; and what two signals end."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.analysis import reduction
from orchestrator.core.errors import Interrupted, StoreError
from orchestrator.core.interrupts import Interrupts
from orchestrator.execution import reducing, sealing
from orchestrator.store import atomic, baselines, index, retention, rundir
from orchestrator.store.compact import compacting
from orchestrator.store.manifests.records import Reduction
from orchestrator.store.retention import Policy
from orchestrator.store.tabular import tables
from tests.helpers import manifests
from tests.helpers.experiments import orch
from tests.helpers.killed_at import killed_at
from tests.helpers.made_packets import ethernet, ip4, pcap, tcp

DATA = Path(__file__).parents[2] / "data"
LISTENING = "tcpdump: listening on eth0, link-type EN10MB (Ethernet), snapshot length 96 bytes\n"
COUNTS = "50 packets captured\n50 packets received by filter\n0 packets dropped by kernel\n"
DAY_S = 86400.0
TOPOLOGY = {
    "kind": "inventory",
    "mtu": 1500,
    "nodes": [
        {"name": name, "kind": "host", "rails": [{"address": f"10.0.0.{k}", "prefix": 24, "device": "eth0"}]}
        for k, name in ((1, "h1"), (2, "h2"))
    ],
    "links": [],
}


def made(results: Path, **more: object) -> rundir.Entry:
    """A run of a rank and a capture, sealed without tables as one is whose reduction was killed."""
    job = {"name": "training", "workload": "ddp", "ranks": [{"rank": 0, "node": "h1"}]}
    folder = manifests.begun(
        results,
        topology=TOPOLOGY,
        jobs=[job],
        outcome="failed",
        stage="reduce",
        error="it crashed",
        unreduced="it crashed",
        planned_windows=0,
        notes=["of the run"],
        launches=[
            manifests.launch("rank0", job="training", rank=0),
            manifests.launch("tcpdump.h1", part="collector.tcpdump", role="collector"),
        ],
        **more,
    )
    (folder.path / "hosts/h1/rank0").mkdir(parents=True)
    shutil.copy(DATA / "ddp/iterations.jsonl", folder.path / "hosts/h1/rank0")
    captured = folder.path / "hosts/h1/tcpdump.h1"
    captured.mkdir()
    (captured / "stderr").write_text(LISTENING + COUNTS)
    frames = [(10**18 + k * 10**6, ethernet(ip4(tcp(bytes(100), seq=100 * k)))) for k in range(50)]
    (captured / "capture.pcap").write_bytes(pcap(frames))
    (folder.path / "experiment.yaml").write_text("testbed: {inventory: /nowhere/at-all.yaml}\n")
    folder.hash_files()
    return rundir.opened(folder.seal())


def rows(entry: rundir.Entry, name: str) -> list[dict[str, object]]:
    return tables.read(entry.path / "tables", name).to_pylist()


def whole(entry: rundir.Entry) -> bool:
    """Whether the folder is as its manifest says, and nothing lies beside it."""
    found = {path.relative_to(entry.path).as_posix(): path for path in entry.path.rglob("*") if path.is_file()}
    said = {one.path: one.sha256 for one in entry.manifest.artifacts}
    there = {name: rundir.sha256(path) for name, path in found.items() if name != "manifest.json"}
    return said == there and not list(entry.path.parent.glob(".*"))


def test_a_run_whose_reduction_was_killed_gets_its_tables(tmp_path, capsys):
    before = made(tmp_path)
    assert not rows(before, "iterations")
    assert reducing.reduce(tmp_path, ["r1"]) == 0
    assert "r1: its tables were made again; valid (it was failed (reduce))" in capsys.readouterr().out
    entry = rundir.find(tmp_path, "r1")
    assert rows(entry, "iterations")
    assert rows(entry, "capture_flows")
    assert rows(entry, "captures")[0]["captured"] == 50
    manifest = entry.manifest
    assert (manifest.outcome, manifest.stage, manifest.error, manifest.unreduced) == ("completed", "sealed", None, None)
    (again,) = manifest.reductions
    assert (again.why, again.versions["orch-testbed"] is not None) == ("orch reduce", True)
    assert manifest.notes == ("of the run",)
    assert whole(entry)


def test_what_made_the_tables_is_kept_each_time_and_notes_of_earlier_ones_are_not(tmp_path):
    entry = made(tmp_path)
    (entry.path / "page.html").write_text("a page")
    noted = replace(entry.manifest, reductions=(manifests_reduction("old"),), notes=("of the run", "old"))
    rundir.RunFolder(entry.path, noted).save(noted)
    reducing.again(entry)
    found = reducing.again(rundir.find(tmp_path, "r1"))
    assert [one.why for one in found.manifest.reductions] == ["orch run", "orch reduce", "orch reduce"]
    assert found.manifest.notes == ("of the run",)
    assert (found.path / "page.html").read_text() == "a page"


def manifests_reduction(*notes: str):
    return sealing.Reduction(when_ns=1, why="orch run", notes=notes)


@pytest.mark.parametrize("how", ["drop", "by hand"])
def test_rows_of_captures_that_are_gone_are_kept_and_told(tmp_path, capsys, how):
    entry = made(tmp_path)
    before = reducing.again(entry)
    kept = {name: rows(before, name) for name in (*reduction.OF_CAPTURES, "one_way")}
    assert kept["capture_flows"]
    if how == "drop":
        actions = retention.plan([before], Policy(drop_after_s=DAY_S), now_ns=before.manifest.began_ns * 2)
        retention.carry_out(before.path, actions)
    else:
        (before.path / "hosts/h1/tcpdump.h1/capture.pcap").unlink()
    assert reducing.reduce(tmp_path, ["r1"]) == 0
    assert "h1: tcpdump.h1: files of this capture are gone: its rows are those made before" in capsys.readouterr().out
    after = rundir.find(tmp_path, "r1")
    assert {name: rows(after, name) for name in kept} == kept
    assert [one.path for one in after.manifest.pruned] == ["hosts/h1/tcpdump.h1/capture.pcap"]
    assert whole(after)


def test_compressed_captures_are_read_as_before(tmp_path):
    before = reducing.again(made(tmp_path))
    actions = retention.plan([before], Policy(compress_after_s=DAY_S), now_ns=before.manifest.began_ns * 2)
    retention.carry_out(before.path, actions)
    after = reducing.again(rundir.find(tmp_path, "r1"))
    for name in (*reduction.OF_CAPTURES, "captures"):
        assert rows(after, name) == rows(before, name)


def test_what_is_not_what_was_sealed_makes_no_tables(tmp_path):
    before = reducing.again(made(tmp_path))
    log = before.path / "hosts/h1/rank0/iterations.jsonl"
    stamp = (before.path / "manifest.json").stat().st_ino
    text = log.read_bytes()
    log.write_bytes(b" " + text[1:])
    with pytest.raises(StoreError, match=r"iterations\.jsonl is not what was sealed"):
        reducing.again(before)
    log.unlink()
    with pytest.raises(StoreError, match=r"iterations\.jsonl is gone"):
        reducing.again(before)
    assert (before.path / "manifest.json").stat().st_ino == stamp
    assert rows(before, "iterations")
    assert not list(before.path.parent.glob(".*"))


def test_a_link_in_the_place_of_what_is_made_is_not_followed(tmp_path):
    before = made(tmp_path / "results")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    before.path.with_name(f".{before.path.name}.reduce").symlink_to(elsewhere)
    with pytest.raises(StoreError, match="cannot be written"):
        reducing.again(before)
    assert not list(elsewhere.iterdir())
    assert rundir.opened(before.path).manifest == before.manifest


def test_a_baseline_that_holds_the_run_is_told(tmp_path, capsys):
    entry = made(tmp_path)
    baselines.save(tmp_path, "main", of=["e"], runs=[str(entry.path.relative_to(tmp_path))])
    baselines.save(tmp_path, "other", of=["e"], runs=["e/r2"])
    assert reducing.reduce(tmp_path, ["r1"]) == 0
    told = [line for line in capsys.readouterr().out.splitlines() if "note: the baseline" in line]
    assert [line.split()[3] for line in told] == ["main"]


def test_an_unfinished_run_is_recovered_and_not_reduced(tmp_path, capsys):
    manifests.begun(tmp_path)
    assert reducing.reduce(tmp_path, ["r1"]) == 1
    assert "r1 goes on" in capsys.readouterr().out


class Copying:
    """Makes tables by copying those that there are, and adds one."""

    def reduce(self, folder, *_, before, **__):
        shutil.copytree(before, folder.path / "tables")
        (folder.path / "tables" / "new.parquet").touch()
        made = (*folder.manifest.reductions, Reduction(when_ns=1, why="orch reduce"))
        folder.manifest = replace(folder.manifest, reductions=made)

    def close(self):
        pass


@pytest.mark.parametrize("exchange", ["with", "without"])
def test_whatever_kills_it_leaves_the_old_tables_or_the_new_ones(tmp_path, monkeypatch, exchange):
    entry = reducing.again(made(tmp_path / "first"))
    monkeypatch.setattr(reducing, "Reducer", Copying)
    if exchange == "without":
        monkeypatch.setattr(atomic, "exchange", lambda *_: False)
    seen = set()
    step, killed = 0, True
    while killed:
        results = tmp_path / f"killed at step {(step := step + 1)}"
        shutil.copytree(tmp_path / "first", results)
        killed = killed_at(step, lambda results=results: reducing.reduce(results, ["r1"]))
        reducing.settle(results)
        after = rundir.find(results, "r1")
        said = {one.path: one.sha256 for one in after.manifest.artifacts}
        assert {name: rundir.sha256(after.path / name) for name in said} == said
        assert rows(after, "iterations") == rows(entry, "iterations")
        assert ("tables/new.parquet" in said) == (len(after.manifest.reductions) == 2)
        assert [listed.run for listed in index.entries(results)] == ["r1"]
        seen.add((killed, len(after.manifest.reductions)))
    assert {(True, 1), (False, 2)} <= seen


def test_compacted_copies_and_the_index_notice(tmp_path):
    entry = made(tmp_path)
    compacting.compact(tmp_path)
    assert index.entries(tmp_path)[0].manifest.outcome == "failed"
    reducing.again(entry)
    assert index.entries(tmp_path)[0].manifest.outcome == "completed"
    assert compacting.compact(tmp_path).written > 0
    status, out, err = orch("query", "--results", str(tmp_path), "--json", "select count(*) as n from captures")
    assert (status, err) == (0, "")
    assert '"n": 1' in out or '"n":1' in out


def test_a_run_that_a_pruning_holds_is_left_alone(tmp_path):
    entry = made(tmp_path)
    with retention.alone(entry.path), pytest.raises(StoreError, match="another process changes it"):
        reducing.again(entry)


def test_errors_name_the_command(tmp_path):
    entry = made(tmp_path)
    for command in (["ls"], ["show", "r1"]):
        assert "orch reduce r1" in orch(*command, "--results", str(tmp_path))[1]
    assert "it crashed" in orch("show", "r1", "--results", str(tmp_path))[1]
    assert entry.manifest.unreduced


# Two signals


def endless(monkeypatch) -> None:
    """What makes tables takes for ever, and has a process of its own."""
    program = "import subprocess, sys; subprocess.run(['sleep', '600'])"
    real = subprocess.Popen
    monkeypatch.setattr(sealing.subprocess, "Popen", lambda argv, **more: real([sys.executable, "-c", program], **more))


def signals(*after_s: float) -> None:
    def send() -> None:
        for seconds in after_s:
            time.sleep(seconds)
            os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=send, daemon=True).start()


def test_the_second_ctrl_c_ends_a_reduction_and_the_first_says_so(tmp_path, monkeypatch):
    endless(monkeypatch)
    folder = manifests.begun(tmp_path)
    (folder.path / "tables/half.parquet").write_bytes(b"PAR1")
    said: list[str] = []
    with Interrupts() as interrupts:
        interrupts.unwinding()
        reducer = sealing.Reducer()
        signals(0.5, 1.0)
        with pytest.raises(Interrupted, match="Ctrl-C ended that") as caught:
            reducer.reduce(folder, interrupts, said.append, why="orch run")
        process = reducer._process
        reducer.close()
    assert said == ["tables of r1 are being made: Ctrl-C ends that, and `orch reduce r1` makes them later"]
    assert caught.value.hint == "`orch reduce r1` makes them later"
    assert folder.manifest.unreduced
    assert not list((folder.path / "tables").iterdir())
    stats = [path.read_text().rpartition(")")[2].split() for path in Path("/proc").glob("[0-9]*/stat")]
    assert not [one for one in stats if one[2] == str(process.pid) and one[0] not in "ZX"], "of its group nothing lives"


def test_the_ctrl_c_that_ended_a_run_does_not_count(tmp_path, monkeypatch):
    endless(monkeypatch)
    folder = manifests.begun(tmp_path)
    said: list[str] = []
    with Interrupts() as interrupts:
        interrupts.unwinding()
        os.kill(os.getpid(), signal.SIGINT)
        reducer = sealing.Reducer()
        signals(0.5)
        with pytest.raises(StoreError, match="were not made within 3 s"):
            reducer.reduce(folder, interrupts, said.append, why="orch run", within_s=3.0)
        reducer.close()
    assert len(said) == 1


def test_a_reduction_that_is_killed_says_how(tmp_path, monkeypatch):
    real = subprocess.Popen
    monkeypatch.setattr(sealing.subprocess, "Popen", lambda _, **more: real(["sh", "-c", "kill -KILL $$"], **more))
    folder = manifests.begun(tmp_path)
    with Interrupts() as interrupts, pytest.raises(StoreError, match="it was killed, perhaps for want of memory"):
        sealing.Reducer().reduce(folder, interrupts, print, why="orch run")


def test_a_reduction_again_that_is_ended_leaves_the_run_as_it_was(tmp_path, monkeypatch, capsys):
    before = reducing.again(made(tmp_path))
    stamp = (before.path / "manifest.json").stat().st_ino
    with monkeypatch.context() as patch:
        endless(patch)
        signals(1.0, 0.5)
        assert reducing.reduce(tmp_path, ["r1"]) == 130
    assert "it is as it was" in capsys.readouterr().out
    assert (before.path / "manifest.json").stat().st_ino == stamp
    assert whole(rundir.find(tmp_path, "r1"))
