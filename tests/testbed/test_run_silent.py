"""A host that falls silent in the middle of a run: it is named, and the others are put back without it."""

from __future__ import annotations

import os
import signal
import subprocess

import pytest
from orch_runs import in_its_window, light, manifest_of, nothing_is_left, parent_of, processes, write

pytestmark = pytest.mark.testbed

ENDLESS = {"warmup": 1, "at_most": "300s"}
# Packets of SSH vanish, both ways, once the login that asks for it is over, and pass again when the file is gone.
CUT = """(sleep 1; nft 'table inet cut {{ chain in {{ type filter hook input priority 0; tcp dport 22 drop; }}; }}'
while [ -e {file} ]; do sleep 0.2; done; nft delete table inet cut) > /dev/null 2>&1 &"""


def experiment(inventory):
    """Ranks on h1 and h2, cross traffic to h3, and a change on h1 and on h3."""
    conditions = [{"rate": {"where": "nic", "host": host, "rate": "120mbit"}} for host in ("h1", "h3")]
    traffic = [{"iperf": {"from": "h1", "to": "h3", "load": "30mbit", "streams": 2}}]
    return light(testbed={"inventory": inventory}, conditions=conditions, traffic=traffic, measure=ENDLESS)


def queues(on, host):
    return on(host, "tc", "qdisc", "show", "dev", "eth0")


def test_a_host_whose_control_network_is_cut(hosts, tmp_path):
    """The others are as before while it is still cut off; what it had is brought home once it is not."""
    inventory, on = hosts
    before = {host: queues(on, host) for host in ("h1", "h3")}
    path = write(tmp_path, experiment(inventory))
    cut = tmp_path / "cut"
    cut.touch()
    with in_its_window(path, tmp_path / "results", "--no-report", iterations=0) as (process, _, run):
        on("h2", CUT.format(file=cut))
        out, err = process.communicate(timeout=300)
        assert process.returncode == 1
        assert "h2: nothing was heard of it for" in out + err
        assert {host: queues(on, host) for host in before} == before
        with pytest.raises(subprocess.CalledProcessError):
            on("h2", "-o", "ConnectTimeout=1", "true")
        assert processes(ORCH_RUN=run, ORCH_LAUNCH="training-rank1"), "nobody could tell it of the end"
    cut.unlink()
    nothing_is_left(run, 180.0)


def test_an_agent_that_is_stopped(hosts, tmp_path):
    """Its host can be reached: a new agent takes over, puts the run's part there down, and brings its files home."""
    inventory, on = hosts
    before = {host: queues(on, host) for host in ("h1", "h3")}
    path = write(tmp_path, experiment(inventory))
    with in_its_window(path, tmp_path / "results", "--no-report", iterations=0) as (process, results, run):
        (server,) = processes(ORCH_RUN=run, ORCH_LAUNCH="tcpdump.h3")
        os.kill(parent_of(server), signal.SIGSTOP)
        _, err = process.communicate(timeout=300)
    manifest, folder = manifest_of(results)
    assert process.returncode == 1
    assert "h3: nothing was heard of it for" in err
    assert (manifest["outcome"], manifest["failed_node"]) == ("failed", "h3")
    assert {host: queues(on, host) for host in before} == before
    assert (folder / "hosts/h3/tcpdump.h3/capture.pcap").stat().st_size > 1000
    nothing_is_left(run)
