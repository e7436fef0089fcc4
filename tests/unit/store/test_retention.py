from __future__ import annotations

import gzip
import json
import threading
import time
from dataclasses import asdict
from pathlib import Path

import pytest

from orchestrator.analysis.compare import selection
from orchestrator.cli.main import main
from orchestrator.core.errors import StoreError
from orchestrator.store import atomic, retention, rundir
from orchestrator.store.retention import Policy
from tests.helpers import manifests
from tests.helpers.night_runs import write_night

DAY_NS = 86_400_000_000_000
CONTENT = b"\xd4\xc3\xb2\xa1" + bytes(range(256)) * 400
CAPTURES = ("hosts/h1/tcpdump/capture.pcap", "hosts/h1/tcpdump/capture.pcap1", "hosts/h2/tcpdump/capture.pcap")


def sealed(results, name, *, age_days):
    ended = time.time_ns() - age_days * DAY_NS
    folder = manifests.begun(results, name, outcome="completed", ended_ns=ended, began_ns=ended)
    for path in (*CAPTURES, "hosts/h1/tcpdump/stderr", "tables/packets.parquet"):
        (folder.path / path).parent.mkdir(parents=True, exist_ok=True)
        (folder.path / path).write_bytes(CONTENT)
    folder.hash_files()
    return folder.seal()


def prune(results, *argv):
    return main(["prune", "--results", str(results), *argv])


def broken(run):
    """The artefacts that are missing or are not what the manifest says."""
    sealed_as = {one["path"]: one["sha256"] for one in manifest_of(run)["artifacts"]}
    return [
        path for path, sha256 in sealed_as.items() if not (run / path).is_file() or rundir.sha256(run / path) != sha256
    ]


def manifest_of(run):
    return json.loads((run / "manifest.json").read_text())


def test_old_captures_are_compressed_older_ones_dropped_and_the_manifest_holds(tmp_path):
    runs = {age: sealed(tmp_path, f"2026-{age:02d}", age_days=age) for age in (1, 5, 20)}
    assert prune(tmp_path, "--compress-after", "2d", "--drop-after", "14d") == 0
    for run in runs.values():
        assert broken(run) == []
        assert (run / "tables/packets.parquet").read_bytes() == CONTENT
        assert (run / "hosts/h1/tcpdump/stderr").exists()
    assert all((runs[1] / path).exists() for path in CAPTURES)
    assert gzip.decompress((runs[5] / f"{CAPTURES[1]}.gz").read_bytes()) == CONTENT
    assert not any((runs[5] / path).exists() for path in CAPTURES)
    assert not list(runs[20].rglob("*.pcap*"))
    record = manifest_of(runs[20])["pruned"]
    assert {(one["path"], one["what"], one["bytes"]) for one in record} == {(p, "drop", len(CONTENT)) for p in CAPTURES}
    assert all(len(one["sha256"]) == 64 and "older than 14 days" in one["why"] for one in record)


def test_a_compressed_capture_is_dropped_in_its_turn_and_nothing_is_done_twice(tmp_path):
    run = sealed(tmp_path, "r", age_days=5)
    prune(tmp_path, "--compress-after", "2d")
    once = manifest_of(run)
    prune(tmp_path, "--compress-after", "2d")
    assert manifest_of(run) == once
    prune(tmp_path, "--drop-after", "3d")
    assert not list(run.rglob("*.pcap*"))
    assert [one["what"] for one in manifest_of(run)["pruned"]] == ["compress"] * 3 + ["drop"] * 3
    assert broken(run) == []


def test_the_oldest_go_first_until_all_fit(tmp_path):
    runs = [sealed(tmp_path, f"r{age}", age_days=age) for age in (9, 6, 3)]
    assert prune(tmp_path, "--keep", f"{4 * len(CONTENT)}b") == 0
    assert [len(list(run.rglob("*.pcap*"))) for run in runs] == [0, 1, 3]


def test_a_dry_run_does_nothing(tmp_path, capsys):
    run = sealed(tmp_path, "r", age_days=30)
    before = manifest_of(run)
    assert prune(tmp_path, "--drop-after", "1d", "--dry-run") == 0
    assert "3 captures to prune; nothing was done" in capsys.readouterr().out
    assert manifest_of(run) == before
    assert broken(run) == []


@pytest.mark.parametrize("policy", [Policy(compress_after_s=0.0), Policy(drop_after_s=0.0)])
def test_a_capture_that_is_not_what_was_sealed_stays(tmp_path, policy):
    run = sealed(tmp_path, "r", age_days=1)
    (run / CAPTURES[0]).write_bytes(CONTENT[:-1] + (b"x" if policy.compress_after_s is not None else b""))
    actions = retention.plan(rundir.entries(tmp_path), policy, now_ns=time.time_ns())
    with pytest.raises(StoreError, match="left alone"):
        retention.carry_out(run, actions)
    assert (run / CAPTURES[0]).exists()
    assert not list(run.rglob(".*.new"))


@pytest.mark.parametrize("at", ["the manifest", "the removal"])
def test_what_a_crash_left_goes_the_next_time(tmp_path, monkeypatch, at):
    run = sealed(tmp_path, "r", age_days=5)
    unlink = Path.unlink

    def crash(*_):
        raise KeyboardInterrupt

    def crash_at_captures(path, missing_ok=False):
        return crash() if path.suffix == ".pcap" else unlink(path, missing_ok)

    with monkeypatch.context() as patch:
        if at == "the manifest":
            patch.setattr(atomic, "write", crash)
        else:
            patch.setattr(Path, "unlink", crash_at_captures)
        actions = retention.plan(rundir.entries(tmp_path), Policy(compress_after_s=0.0), now_ns=time.time_ns())
        with pytest.raises(KeyboardInterrupt):
            retention.carry_out(run, actions[:1])
    assert {"capture.pcap", "capture.pcap.gz"} <= {path.name for path in (run / CAPTURES[0]).parent.iterdir()}
    assert broken(run) == []
    assert prune(tmp_path, "--drop-after", "100d") == 0
    kept = {str(path.relative_to(run)) for path in run.rglob("*.pcap*")}
    assert kept == ({*CAPTURES} if at == "the manifest" else {*CAPTURES[1:], f"{CAPTURES[0]}.gz"})
    assert broken(run) == []


def test_one_prunes_at_a_time(tmp_path):
    run = sealed(tmp_path, "r", age_days=5)
    inside, done = threading.Event(), threading.Event()

    def hold():
        with retention.alone(run):
            inside.set()
            done.wait(60)

    holder = threading.Thread(target=hold)
    holder.start()
    try:
        assert inside.wait(60)
        with pytest.raises(StoreError, match="another process"):
            retention.carry_out(run, [])
    finally:
        done.set()
        holder.join()


def test_unsealed_runs_and_those_of_baselines_are_left_alone(tmp_path):
    unsealed = manifests.begun(tmp_path, "r", ended_ns=1).path
    (unsealed / "capture.pcap").write_bytes(CONTENT)
    held = write_night(tmp_path, 0, repetitions=1)[0]
    (held / "capture.pcap").write_bytes(CONTENT)
    manifest = manifest_of(held)
    manifest["artifacts"] = list(map(asdict, rundir.hashed(held)))
    (held / "manifest.json").write_text(json.dumps(manifest))
    selection.set_baseline(tmp_path, "main", ["nightly"])
    assert prune(tmp_path, "--drop-after", "1ns") == 0
    assert (unsealed / "capture.pcap").exists()
    assert (held / "capture.pcap").exists()
    assert prune(tmp_path, "--drop-after", "1ns", "--baselines-too") == 0
    assert (held / "capture.pcap").exists() == (manifest["began_ns"] > time.time_ns())


@pytest.mark.parametrize("argv", [[], ["--keep", "5"], ["--drop-after", "soon"], ["--compress-after", "5gb"]])
def test_a_policy_that_is_none_is_refused(tmp_path, argv, capsys):
    assert prune(tmp_path, *argv) == 2
    assert "accepted" in capsys.readouterr().err
