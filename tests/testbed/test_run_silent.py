"""A host that falls silent in the middle of a run: it is named, and the others are put back without it."""

from __future__ import annotations

import os
import signal

import pytest

from tests.helpers.orch_runs import in_its_window, manifest_of, nothing_is_left, parent_of, processes, write
from tests.helpers.rack import rack

pytestmark = pytest.mark.testbed

CHANGED = ("h1", "h3")


@pytest.fixture
def racked(tmp_path):
    with rack(tmp_path) as hosts:
        yield hosts


def endless(racked):
    """Ranks on h1 and h2, cross traffic from h1 to h3, and a slower link of both."""
    conditions = [{"rate": {"where": "nic", "host": host, "rate": "120mbit"}} for host in CHANGED]
    return racked.experiment(conditions=conditions, measure={"warmup": 1, "at_most": "300s"})


def queues(racked):
    return {host: racked.inside(host, "tc", "qdisc", "show", "dev", "eth0") for host in CHANGED}


def test_a_host_whose_control_network_is_cut(racked, tmp_path):
    """The others are as before while nobody can tell it of the end; it ends by itself once it can hear that."""
    before = queues(racked)
    path = write(tmp_path, endless(racked))
    with in_its_window(path, tmp_path / "results", "--no-report", iterations=0) as (process, _, run):
        with racked.cut("h2"):
            out, err = process.communicate(timeout=300)
            assert process.returncode == 1
            assert "h2: nothing was heard of it" in out + err
            assert queues(racked) == before
        nothing_is_left(run, 180.0)


@pytest.mark.variants
def test_an_agent_that_is_stopped(racked, tmp_path):
    """Its host can be reached: a new agent takes over, puts the run's part there down, and brings its files home."""
    before = queues(racked)
    path = write(tmp_path, endless(racked))
    with in_its_window(path, tmp_path / "results", "--no-report", iterations=0) as (process, results, run):
        (capture,) = processes(ORCH_RUN=run, ORCH_LAUNCH="tcpdump.h3")
        os.kill(parent_of(capture), signal.SIGSTOP)
        _, err = process.communicate(timeout=300)
    manifest, folder = manifest_of(results)
    assert process.returncode == 1
    assert "h3: nothing was heard of it" in err
    assert (manifest["outcome"], manifest["failed_node"]) == ("failed", "h3")
    assert queues(racked) == before
    assert (folder / "hosts/h3/tcpdump.h3/capture.pcap").stat().st_size > 1000
    nothing_is_left(run)
