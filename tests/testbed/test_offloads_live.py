"""Hosts as they come, with TSO, GSO and GRO on: captures, interfaces' counters and loads agree all the same."""

from __future__ import annotations

import json
import re

import pytest

from tests.helpers.orch_runs import light, measured, orch, write

pytestmark = [pytest.mark.testbed, pytest.mark.rights]

NAMES = ("h1", "h2", "h3")


def experiment(inventory, **changes):
    return light(
        **{
            "testbed": {"inventory": inventory},
            "conditions": None,
            "traffic": [{"iperf": {"from": "h1", "to": "h3", "load": "100mbit"}}],
            "collect": ["tcpdump", "nic", "cpu"],
            "measure": {"warmup": 1, "iterations": 60, "at_most": "60s"},
            **changes,
        }
    )


def switched(on, state, *hosts):
    """Offloads of hosts that shape nothing: a token bucket cuts packets that are longer than it is deep."""
    for host in NAMES:
        on(host, "tc", "qdisc", "del", "dev", "eth0", "root")
    for host in hosts:
        on(host, "ethtool", "-K", "eth0", *(word for what in ("tso", "gso", "gro") for word in (what, state)))


def gates_of(folder, run):
    (window,) = json.loads((folder / "small" / run["run"] / "manifest.json").read_bytes())["windows"]
    return window["gates"]


# Who joins frames: the sender's TCP, and the receiver's kernel of single frames that its device has counted.
@pytest.mark.parametrize("joining", [NAMES, pytest.param(("h3",), marks=pytest.mark.variants)], ids=["all", "receiver"])
def test_offloads_as_they_come_do_not_spoil_a_run(hosts, tmp_path, monkeypatch, joining):
    inventory, on = hosts
    switched(on, "on", *joining)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    status, out, _ = orch("doctor", write(tmp_path, inventory, "rack.yaml"))
    told = re.findall(r"^h\d: eth0: its counters count in: .*; out: .* \(measured now\)$", out, re.MULTILINE)
    assert (status, len(told)) == (0, 3), out
    path = write(tmp_path, experiment(inventory))
    summary, folder = measured(path, tmp_path / "results", "--no-report", borne={"load"})
    (run,) = summary["runs"]
    held = [gate for gate in gates_of(folder, run) if gate["name"] == "capture-nic" and gate["passed"] is not None]
    assert len(held) >= 5  # h3 sends next to nothing
    assert all(gate["passed"] for gate in held), held
    assert any("MB as frames" in gate["message"] for gate in held)
    assert all(re.search(r"it counts .*, by `orch doctor` on \d", gate["message"]) for gate in held), held
    assert max(abs(gate["measured"]) for gate in held) < 0.02
    assert run["windows"][0]["cross_traffic"][0]["achieved_bps"] == pytest.approx(100e6, rel=0.3)


def test_offloads_are_off_for_the_length_of_a_run(hosts, tmp_path):
    inventory, on = hosts
    switched(on, "on", *NAMES)
    before = [on(host, "ethtool", "-k", "eth0") for host in NAMES]
    path = write(tmp_path, experiment(inventory, conditions=[{"offloads": "off"}]))
    summary, folder = measured(path, tmp_path / "results", "--no-report")
    assert not any("as frames" in gate["message"] for gate in gates_of(folder, summary["runs"][0]))
    assert [on(host, "ethtool", "-k", "eth0") for host in NAMES] == before
