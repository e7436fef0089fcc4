"""Bad days: whatever happens, nothing of the run is left, and what was collected is kept."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pyarrow.parquet as pq
import pytest
from orch_runs import (
    ROOT,
    TRIES,
    as_root,
    ended_or,
    in_its_window,
    last_json,
    light,
    manifest_of,
    nothing_is_left,
    orch,
    parent_of,
    processes,
    rank_of,
    small,
    start,
    told_of,
    wait_for,
    write,
)

pytestmark = pytest.mark.testbed

LONG = {"warmup": 1, "at_most": "60s", "stall": "4s"}


@pytest.fixture
def measuring(tmp_path):
    """`orch run` in the middle of its window; it is ended with the test."""
    path = write(tmp_path, light(measure=LONG))
    with in_its_window(path, tmp_path / "results", iterations=8) as running:
        yield running


def ended(process, run, within_s=120.0):
    """Exit status and output, with nothing of the run left."""
    out, err = process.communicate(timeout=within_s)
    nothing_is_left(run)
    return process.returncode, out, err


def kept_iterations(folder):
    return pq.read_table(folder / "tables" / "iterations.parquet").num_rows


def test_a_rank_that_crashes(tmp_path):
    path = write(tmp_path, small(measure=LONG))
    with in_its_window(path, tmp_path / "results", iterations=8) as (process, results, run):
        os.kill(rank_of(run, 1), signal.SIGKILL)
        status, out, err = ended(process, run)
    manifest, folder = manifest_of(results)
    assert status == 1
    assert "h2: training-rank1 ended with status -9 before it was asked to" in err
    assert (manifest["outcome"], manifest["stage"]) == ("failed", "window")
    assert last_json(out)["runs"][0]["error"].startswith("h2:")
    assert not folder.name.endswith(".partial")
    assert kept_iterations(folder) >= 2 * 8
    assert (folder / "hosts/h3/tcpdump.h3/capture.pcap").stat().st_size > 1000


def test_a_rank_that_hangs(measuring):
    process, results, run = measuring
    os.kill(rank_of(run, 1), signal.SIGSTOP)
    status, _, err = ended(process, run)
    manifest, _ = manifest_of(results)
    assert status == 1
    assert "no iteration of job training has ended for 4s" in err
    assert (manifest["outcome"], manifest["stage"]) == ("failed", "window")


def test_an_agent_that_dies(measuring):
    process, results, run = measuring
    (started, _) = processes(ORCH_RUN=run, ORCH_LAUNCH="training-rank1")
    os.kill(parent_of(started), signal.SIGKILL)
    status, _, err = ended(process, run)
    manifest, folder = manifest_of(results)
    assert status == 1
    assert "h2: its agent is gone" in err
    assert manifest["outcome"] == "failed"
    assert kept_iterations(folder) >= 8


def test_ctrl_c(measuring):
    process, results, run = measuring
    process.send_signal(signal.SIGINT)
    status, _, err = ended(process, run)
    manifest, folder = manifest_of(results)
    assert status == 130
    assert "stopped by SIGINT" in err
    assert (manifest["outcome"], manifest["stage"]) == ("interrupted", "window")
    assert kept_iterations(folder) >= 2 * 8
    (captures,) = {sum(row) for row in [pq.read_table(folder / "tables/captures.parquet")["dropped"].to_pylist()]}
    assert captures == 0, "captures were ended as they should be"


@pytest.mark.parametrize("stage", ["open", "collectors", "ranks", "preflight"])
def test_ctrl_c_before_anything_is_measured(tmp_path, stage):
    """A stage may last a tenth of a second, so that a busy machine ends it before the signal comes."""
    path = write(tmp_path, light(measure=LONG))
    for attempt in range(TRIES):
        results = tmp_path / f"results{attempt}"
        process = start("run", path, "--results", results)
        wait_for(ended_or(process, told_of(results, event="phase", name=stage)), 360, stage)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=120)
        manifest, folder = manifest_of(results)
        assert process.returncode == 130
        assert (manifest["outcome"], folder.name) == ("interrupted", manifest["run"])
        assert "putting back" not in err
        nothing_is_left(manifest["run"])
        if manifest["stage"] == stage:
            break
    assert manifest["stage"] == stage


def test_two_ctrl_c_skip_the_grace_and_still_bring_the_data_home(measuring):
    process, results, run = measuring
    process.send_signal(signal.SIGINT)
    wait_for(told_of(results, event="error", stage="window"), 60, "the end by the first one")  # or the two would be one
    process.send_signal(signal.SIGINT)
    status, _, _ = ended(process, run)
    manifest, folder = manifest_of(results)
    assert status == 130
    assert manifest["outcome"] == "interrupted"
    assert manifest["phases"].get("drain", 0) < 1.2
    assert kept_iterations(folder) >= 2 * 8


def test_kill_9_of_the_controller(measuring):
    process, results, run = measuring
    process.kill()
    process.communicate()
    nothing_is_left(run)
    status, out, _ = orch("ls", "--results", results)
    assert (status, run in out, "lost (window)" in out, "orch recover" in out) == (0, True, True, True)
    status, out, err = orch("recover", "--results", results)
    assert status == 0, out + err
    manifest, folder = manifest_of(results)
    assert (manifest["outcome"], manifest["valid"]) == ("lost", False)
    assert folder.name == run
    assert kept_iterations(folder) >= 2 * 8
    assert pq.read_table(folder / "tables/packets.parquet").num_rows > 0
    assert orch("recover", "--results", results)[1] == "nothing to recover\n"


def test_the_second_of_two_runs_is_refused_and_told_who_holds_it(measuring, tmp_path):
    _, _, run = measuring
    status, _, err = orch(
        "run", write(tmp_path, light(), "second.yaml"), "--results", tmp_path / "second", "--wait", "0s"
    )
    assert status == 1
    assert f"run {run}" in err
    assert "taken by" in err
    assert not list((tmp_path / "second").glob("*/*"))


def test_no_figure_is_taken_from_a_capture_that_ended_early(tmp_path):
    path = write(tmp_path, light(measure={"warmup": 1, "iterations": 80, "at_most": "60s"}))
    with in_its_window(path, tmp_path / "results", "--no-report", iterations=8) as (process, _, run):
        (tcpdump,) = processes(ORCH_RUN=run, ORCH_LAUNCH="tcpdump.h2")
        os.kill(tcpdump, signal.SIGTERM)
        status, out, _ = ended(process, run)
    (told,) = last_json(out)["runs"]
    assert (status, told["outcome"], told["valid"]) == (3, "completed", False)
    assert any("capture at h2:eth0 ended early" in reason for reason in told["reasons"])
    assert told["windows"][0]["jobs"][0]["bytes_per_iteration"]["measured"] is None


def test_a_failing_collector_is_told_and_does_not_stop_the_measurement(tmp_path):
    """A filter that tcpdump does not understand ends it at once."""
    experiment = light(collect=[{"tcpdump": {"filter": "this is no filter"}}, "nic"], traffic=None)
    path = write(tmp_path, experiment)
    status, out, err = orch("run", path, "--results", tmp_path / "a", "--json", "--no-report")
    (run,) = last_json(out)["runs"]
    assert run["outcome"] == "completed", err
    assert any("tcpdump.h1 did not start" in note for note in run["notes"])
    assert run["windows"][0]["jobs"][0]["iterations"] == 20
    assert status in (0, 3)
    required = ("--set", "collect.0.tcpdump.required=true")
    status, out, err = orch("run", path, *required, "--results", tmp_path / "b", "--json", "--no-report")
    assert (status, last_json(out)["runs"][0]["stage"]) == (1, "collectors")
    assert "syntax error" in err
    nothing_is_left(last_json(out)["runs"][0]["run"])


@pytest.mark.skipif(not as_root(), reason="a small disk to fill is a mount, which root alone can make")
def test_a_full_disk(tmp_path):
    """Results on a tmpfs that the captures fill within seconds."""
    results = tmp_path / "results"
    results.mkdir()
    taken = {"load": "as-achieved"}  # or a busy machine might refuse it in the preflight
    path = write(tmp_path, light(measure={"warmup": 1, "at_most": "30s"}, validity=taken))
    inside = (
        f"mount -t tmpfs -o size=12m none {results} && "
        f"{sys.executable} -m orchestrator.cli run {path} --results {results} --no-report; "
        f"echo status $?; cd {results} && find . -name manifest.json -exec cat {{}} +; cp -r {results} {tmp_path}/seen"
    )
    done = subprocess.run(
        ["unshare", "--mount", "--propagation", "private", "sh", "-c", inside],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert "Traceback" not in done.stdout + done.stderr, done.stderr
    assert "status 1" in done.stdout or "status 3" in done.stdout, done.stdout + done.stderr
    assert "o space left" in done.stdout + done.stderr
    manifest = json.loads(next((tmp_path / "seen").glob("*/*/manifest.json")).read_bytes())
    assert not manifest["valid"]
    nothing_is_left(manifest["run"])
    assert list((tmp_path / "seen").glob("*/*/hosts/h1/**/iterations.jsonl"))


def test_nothing_of_a_failed_start_is_left(tmp_path):
    """A python without torch is found before anything is started."""
    bare = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", bare], check=True)
    inventory = {
        "link": "1gbit",
        "hosts": {
            f"h{i}": {"ssh": "nowhere.invalid", "data": {"address": f"198.18.0.{i}/24", "device": "eth0"}}
            for i in (1, 2)
        },
    }
    experiment = small(testbed={"inventory": inventory}, traffic=None, conditions=None)
    status, _, err = orch("run", write(tmp_path, experiment), "--results", tmp_path / "results", "--no-report")
    assert status == 1
    assert "h1:" in err
    assert "h2:" in err
    assert "nowhere.invalid" in err
    assert "Traceback" not in err
