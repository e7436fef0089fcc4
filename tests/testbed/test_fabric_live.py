"""A fabric of namespaces: it carries its rates, flows go where the kernel says, and links break and heal."""

from __future__ import annotations

import json
import shlex
from contextlib import ExitStack

import pytest

from orchestrator.parts.conditions import link, loss, rate
from orchestrator.report.runs import Run
from orchestrator.testbed.local.local_spec import FabricSpec, Multipath
from orchestrator.testbed.local.netns_setup import takes_seed
from tests.helpers.netns_help import carries
from tests.helpers.orch_runs import light, measured, ring, write

pytestmark = [pytest.mark.testbed, pytest.mark.rights]

CONNECTIONS = 16
SERVER = """
import socket
server = socket.create_server(("198.18.0.3", 7000), backlog=64)
for _ in range(%d):
    server.accept()[0].close()
"""
CLIENT = """
import socket
for _ in range(%d):
    connection = socket.create_connection(("198.18.0.3", 7000), timeout=60)
    print(connection.getsockname()[1])
    connection.recv(1)
"""


@pytest.fixture
def fabric(up):
    spec = FabricSpec(leaves=2, spines=2, hosts=2, oversubscription=2, multipath=Multipath(seed=7))
    return up(4, rate=1e9, scale=10, fabric=spec, uplink=spec.uplink_rate(1e9))


class Applied:
    """Carries a change out as an agent would, verified, and takes it back at the end."""

    def __init__(self, on, testbed, change):
        self.on, self.testbed, self.change = on, testbed, change

    def state(self):
        return self.change.parse(self.on(self.testbed, self.change.node, shlex.join(self.change.read)))

    def run(self, argvs):
        for argv in argvs:
            self.on(self.testbed, self.change.node, shlex.join(argv))

    def __enter__(self):
        self.old = self.state()
        self.run(self.change.apply(self.old))
        assert self.state() == self.change.expect(self.old) != self.old
        return self

    def __exit__(self, *error):
        self.run(self.change.undo(self.old))
        assert self.state() == self.old


def connected(on, testbed):
    """The ports of connections from h1, on leaf1, to h3, on leaf2."""
    listens = "until ss -Htln sport = :7000 | grep -q .; do sleep 0.02; done"
    on(testbed, "h3", f"(python3 -c '{SERVER % CONNECTIONS}' >/dev/null 2>&1 &); {listens}")
    return [int(port) for port in on(testbed, "h1", f"python3 -c '{CLIENT % CONNECTIONS}'").split()]


def chosen(on, testbed, ports):
    """The spine that the kernel's routes on leaf1 name for each of these ports of h1."""
    line = "ip -j route get 198.18.0.3 from 198.18.0.1 iif p-h1 ipproto tcp sport %d dport 7000"
    said = on(testbed, "leaf1", "; ".join(line % port for port in ports))
    devices = [json.loads(line)[0]["dev"] for line in said.splitlines()]
    return {port: device.removeprefix("p-") for port, device in zip(ports, devices, strict=True)}


def captured(on, testbed, ports):
    """The spines at whose port towards leaf1 packets of each of these ports of h1 came in."""
    start = (
        "cd /run/orch; tcpdump -Z root -i p-leaf1 -n -U --immediate-mode -w c.pcap 'src 198.18.0.1 and dst port 7000'"
        " 2>err >/dev/null & until grep -q listening /run/orch/err; do sleep 0.02; done 2>/dev/null"
    )
    for spine in ("spine1", "spine2"):
        on(testbed, spine, f"setsid sh -c {shlex.quote(start)} </dev/null >/dev/null 2>&1")
    found = ports()
    seen = {}
    for spine in ("spine1", "spine2"):
        said = on(testbed, spine, "sleep 0.2; tcpdump -r /run/orch/c.pcap -n 2>/dev/null; true")
        for line in said.splitlines():
            seen.setdefault(int(line.split(" > ")[0].rpartition(".")[2]), set()).add(spine)
    return found, seen


def test_flows_take_the_uplink_that_the_kernel_names_and_no_other(fabric, on):
    """By captures at the spines; a hash that a packet brings along would send retransmissions elsewhere."""
    settings = on(fabric, "leaf1", "sysctl net.ipv4.fib_multipath_hash_policy net.ipv4.fib_multipath_hash_fields")
    assert settings.split()[2::3] == ["3", "55"]
    if takes_seed():
        assert on(fabric, "leaf1", "sysctl -n net.ipv4.fib_multipath_hash_seed").strip() == "7"
    ports, seen = captured(on, fabric, lambda: connected(on, fabric))
    assert seen == {port: {spine} for port, spine in chosen(on, fabric, ports).items()}
    assert len(set(chosen(on, fabric, range(20000, 20064)).values())) == 2, "both uplinks are used"
    assert fabric.about()["multipath"] == "per-5-tuple"


@pytest.mark.alone
def test_links_carry_their_rates(fabric, on):
    carries(on, fabric, "h1", "h2", line_bps=100e6)  # within a leaf
    carries(on, fabric, "h1", "h3", line_bps=50e6)  # one flow takes one uplink


def test_a_link_that_is_down_is_gone_around_and_comes_back(fabric, on):
    changes = link.changes(link.Config(name="leaf1-spine2", down="1s", up="2s"), fabric.topology)
    assert [change.node for change in changes] == ["leaf1", "leaf2"]
    routes = "ip nexthop; ip route; ip neigh show nud permanent | sort"
    before = {leaf: on(fabric, leaf, routes) for leaf in ("leaf1", "leaf2")}
    with ExitStack() as stack:
        for change in changes:
            stack.enter_context(Applied(on, fabric, change))
        assert set(chosen(on, fabric, range(20000, 20016)).values()) == {"spine1"}
        assert len(connected(on, fabric)) == CONNECTIONS
    assert {leaf: on(fabric, leaf, routes) for leaf in ("leaf1", "leaf2")} == before


def test_a_link_is_changed_by_its_name_at_both_of_its_ends(fabric, on):
    found = [
        *rate.changes(rate.Config(link="leaf1-spine1", rate="200mbit"), fabric.topology),
        *(one for one in loss.changes(loss.Config(link="leaf2-h3", share="50%"), fabric.topology) if one.hits),
    ]
    assert [change.name for change in found] == [
        "rate of leaf1:p-spine1",
        "rate of spine1:p-leaf1",
        "loss at leaf2:p-h3",
        "loss at leaf2:p-h3 from its host",
    ]
    for change in found:
        with Applied(on, fabric, change):
            pass


def test_an_experiment_on_a_fabric_tells_paths_links_and_what_went_down(tmp_path):
    data = light(
        testbed={"local": {"fabric": {"leaves": 2, "spines": 2, "hosts": 2}, "link": "25gbit", "scale": 100}},
        conditions=[{"link": {"name": "leaf1-spine2", "down": "0.5s", "up": "1s"}}],
        workload=ring(0.04, hosts=["h1", "h3", "h2", "h4"]),
        traffic=None,
        collect=["qdisc", {"paths": {"every": "200ms"}}, {"tcpdump": {"hosts": ["spine1", "spine2"]}}],
        measure={"warmup": 2, "iterations": 60, "at_most": "30s"},
    )
    summary, results = measured(write(tmp_path, data), tmp_path / "results", "--no-report", borne={"events"})
    (about,) = summary["runs"]
    run = Run(results / data["name"] / about["run"])
    (event,) = run.manifest.events
    assert event.event == "link leaf1-spine2 down"
    assert run.manifest.windows[0].start_ns < event.began_ns < event.ended_ns
    paths = run.rows("paths")
    assert paths
    for row in paths:
        if event.began_ns > row["end_ns"]:  # a choice is asked for once a flow is seen, and by then may be another
            assert row["spine"] == row["chosen"]
    at_spines = {
        (row["node"], row["src"], row["src_port"], row["dst"], row["dst_port"])
        for row in run.rows("capture_flows")
        if row["node"] in ("spine1", "spine2")
    }
    ours = {(row["spine"], row["src"], row["src_port"], row["dst"], row["dst_port"]) for row in paths}
    assert ours <= at_spines
    between = [row for row in run.rows("fabric_links") if "spine" in row["link"]]
    assert len(between) == 8
    assert 0 < max(row["used"] for row in between) < 1.02
    assert {row["leaf"] for row in run.rows("collisions")} <= {"leaf1", "leaf2"}
