"""Bad days whose figures matter; `tests/faults` has what holds in all of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pyarrow.parquet as pq
import pytest

from tests.helpers.orch_runs import (
    in_its_window,
    last_json,
    light,
    manifest_of,
    nothing_is_left,
    orch,
    processes,
    rank_of,
    small,
    write,
)

pytestmark = pytest.mark.testbed

LONG = {"warmup": 1, "at_most": "60s", "stall_timeout": "4s"}


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
    assert kept_iterations(folder) >= 8 + 7  # the other rank may have died before it wrote its eighth
    assert (folder / "hosts/h3/tcpdump.h3/capture.pcap").stat().st_size > 1000


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
