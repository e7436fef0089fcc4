"""Causes on the links between switches: one below its rate, flows that collide, and one that was down for a time."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from orchestrator.analysis.causes import fabric, naming
from orchestrator.parts.topology import Fabric, Link, Node, Rail, Topology, Uplink
from tests.helpers.made_ring import BEGAN_NS, HOSTS, LINK_BPS, MS, Ring, alike
from tests.helpers.made_tables import table

N = 30
FULL = LINK_BPS / 8e3  # bytes a millisecond
LEAF_OF = {"h1": "leaf1", "h2": "leaf2", "h3": "leaf1", "h4": "leaf2"}  # every hop of the ring crosses the spines


class OnFabric(Ring):
    """A ring across two leaves and two spines; `spine_of` is the spine by which each host's hop goes, by sample."""

    spine_of: dict[str, tuple[str, ...]]
    uplink_backlogs: dict[str, float]

    @property
    def manifest(self):
        uplinks = tuple(
            Uplink(
                leaf=f"leaf{leaf}",
                leaf_port=f"u{leaf}{spine}",
                spine=f"spine{spine}",
                spine_port=f"d{leaf}{spine}",
                rate=LINK_BPS,
            )
            for leaf in (1, 2)
            for spine in (1, 2)
        )
        switches = ("leaf1", "leaf2", "spine1", "spine2")
        rails = [(Rail(device="eth0", address=f"10.0.0.{place + 1}"),) for place in range(len(HOSTS))]
        hosts = [Node(name=host, rails=rail) for host, rail in zip(HOSTS, rails, strict=True)]
        topology = Topology(
            kind="local",
            nodes=(*hosts, *(Node(name=name, kind="switch") for name in switches)),
            links=tuple(
                Link(host=host, device="eth0", switch=LEAF_OF[host], switch_port=f"p-{host}", rate=LINK_BPS)
                for host in HOSTS
            ),
            fabric=Fabric(leaves=("leaf1", "leaf2"), spines=("spine1", "spine2"), uplinks=uplinks),
        )
        return replace(super().manifest, topology=topology)

    def table(self, name):
        return table(name, list(self._paths())) if name == "paths" else super().table(name)

    def _paths(self):
        samples = len(next(iter(self.spine_of.values())))
        bounds = np.linspace(0, self.end_ms, samples + 1)
        for place, host in enumerate(HOSTS):
            to = HOSTS[place - 1]
            ends = {"src": f"10.0.0.{place + 1}", "src_port": 1, "dst": f"10.0.0.{HOSTS.index(to) + 1}", "dst_port": 2}
            leaves = {"node": LEAF_OF[host], "to_leaf": LEAF_OF[to], "protocol": 6}
            for spine, (begin, end) in zip(self.spine_of[host], pairwise(bounds), strict=True):
                at = {"begin_ns": BEGAN_NS + round(begin * MS), "end_ns": BEGAN_NS + round(end * MS)}
                yield {**ends, **leaves, **at, "spine": spine, "packets": 1000, "bytes": 1_500_000}

    def counter_rows(self, pattern):
        rows = super().counter_rows(pattern).to_pylist()
        rows += [
            {
                "node": node,
                "port": port,
                "counter": "qdisc.tbf.backlog_bytes",
                "time_ns": BEGAN_NS + round(at * MS),
                "value": value,
            }
            for node, port, queued in self._queues()
            for begin, end in self.sending
            for at, value in ((begin, queued), (end, 0.0))
        ]
        return table("counters", rows)

    def _queues(self):
        for leaf in (1, 2):
            for spine in (1, 2):
                yield f"leaf{leaf}", f"u{leaf}{spine}", self.uplink_backlogs.get(f"leaf{leaf}-spine{spine}", 0.0)


def ring(spine_of, hops, backlogs=(), services=None):
    found = OnFabric(
        passes=alike([60.0] * 4, N), services=alike([50, 50], N) if services is None else services, hops=hops
    )
    found.spine_of = spine_of
    found.uplink_backlogs = dict.fromkeys(backlogs, 60_000.0)
    return found


def named(made):
    (found,) = naming.of_window(made, made.window)
    return [(one.cause, one.hosts) for one in found.findings]


APART = {"h1": ("spine1",), "h3": ("spine2",), "h2": ("spine1",), "h4": ("spine2",)}
TOGETHER = {**APART, "h3": ("spine1",)}


def test_an_uplink_below_its_rate_is_named_by_its_name():
    assert named(ring(APART, dict.fromkeys(HOSTS, 0.3 * FULL), ["leaf1-spine1"])) == [("link-rate", ("leaf1-spine1",))]


def test_flows_that_share_a_full_uplink_beside_an_idle_one_collide():
    made = ring(TOGETHER, dict.fromkeys(HOSTS, 0.5 * FULL), ["leaf1-spine1"])
    (found,) = naming.of_window(made, made.window)
    first = found.findings[0]
    assert (first.cause, first.hosts) == ("collision", ("leaf1-spine1",))
    assert first.seconds == pytest.approx(0.085 / 2, rel=0.1)  # half of the time that the network is waited for


def test_flows_apart_from_each_other_do_not_collide():
    assert named(ring(APART, dict.fromkeys(HOSTS, FULL), ["leaf1-spine1"])) == []


def test_a_link_that_was_down_is_named_by_what_its_flows_cost_meanwhile():
    services = alike([50, 50], N)
    services[:, 10:15] *= 3
    way = {host: tuple("spine2" if 10 <= place < 24 else "spine1" for place in range(40)) for host in ("h1", "h2")}
    way |= dict.fromkeys(("h3", "h4"), ("spine2",) * 40)
    made = ring(way, dict.fromkeys(HOSTS, 0.4 * FULL), services=services)
    (found,) = naming.of_window(made, made.window)
    first = found.findings[0]
    assert (first.cause, first.hosts) == ("link-down", ("leaf1-spine1", "leaf2-spine1"))
    assert first.seconds == pytest.approx(0.2 * 5 / N, rel=0.2)


def test_flows_that_never_move_tell_of_no_failure():
    rows = table("paths", list(ring(APART, {})._paths()))
    assert fabric.away(rows) == []
