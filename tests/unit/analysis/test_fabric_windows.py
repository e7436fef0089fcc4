"""Elephants that share an uplink, and the use of links, from rows of `paths` and samples of queues."""

from __future__ import annotations

import pytest

from orchestrator.analysis.traffic import throughput
from orchestrator.analysis.windows import fabric
from orchestrator.testing import TOPOLOGIES
from tests.helpers.made_tables import table

SECOND = 1_000_000_000
TOPOLOGY = TOPOLOGIES["fabric"]  # uplinks of 1 Gbit/s at scale 10: a large flow takes 1.25 MB of a second
SPAN = (0, 10 * SECOND)


def sent(second, port, spine, size, leaf="leaf1"):
    return {
        "node": leaf, "begin_ns": second * SECOND, "end_ns": (second + 1) * SECOND, "src": "198.18.0.1",
        "src_port": port, "dst": "198.18.0.3", "dst_port": 7, "protocol": 6, "spine": spine, "to_leaf": "leaf2",
        "chosen": spine, "packets": 1, "bytes": size,
    }  # fmt: skip


def collided(*rows):
    return fabric.collisions(table("paths", rows), TOPOLOGY, SPAN)


def test_two_elephants_on_one_uplink_collide_while_the_other_is_idle():
    (one,) = collided(sent(0, 1, "spine1", 2e6), sent(0, 2, "spine1", 2e6), sent(1, 1, "spine1", 2e6))
    assert (one.leaf, one.samples, one.collided, one.share, one.pairs) == ("leaf1", 2, 1, 0.5, 1)


@pytest.mark.parametrize(
    "rows",
    [
        [sent(0, 1, "spine1", 2e6), sent(0, 2, "spine2", 2e6)],  # each has its own
        [sent(0, 1, "spine1", 2e6), sent(0, 2, "spine1", 1e6)],  # a mouse
        [sent(0, 1, "spine1", 2e6), sent(0, 2, "spine1", 2e6), sent(0, 3, "spine2", 2e6)],  # none is idle
        [sent(0, 1, "spine1", 2e6), sent(1, 2, "spine1", 2e6)],  # one after the other
    ],
)
def test_what_is_no_collision_is_not_counted(rows):
    (one,) = collided(*rows)
    assert (one.collided, one.share, one.pairs) == (0, 0.0, 0)


def test_samples_outside_of_the_window_do_not_count():
    assert collided(sent(10, 1, "spine1", 2e6), sent(10, 2, "spine1", 2e6)) == ()


def test_a_link_is_used_by_what_its_port_sent_and_crossed_by_large_flows():
    rows = []
    for name, first, last in (("backlog_bytes", 12_500, 12_500), ("bytes", 0, 62.5e6), ("drops", 3, 8)):
        rows += [
            {"node": "leaf1", "port": "p-spine1", "counter": f"qdisc.tbf.{name}", "time_ns": at, "value": float(value)}
            for at, value in ((0, first), (10 * SECOND, last))
        ]
    counters = throughput.CachedTable(table("counters", rows))
    (found,) = fabric.links(counters, table("paths", [sent(0, 1, "spine1", 2e6)]), TOPOLOGY, SPAN)
    assert (found.link, found.node, found.port, found.flows) == ("leaf1-spine1", "leaf1", "p-spine1", 1)
    assert found.used == pytest.approx(62.5e6 * 8 / 10 / (1e9 / 10))
    assert found.waiting_s == pytest.approx(12_500 * 8 / 1e8)
    assert found.drops == pytest.approx(5)
    (unknown,) = fabric.links(counters, table("paths", []), TOPOLOGY, SPAN)
    assert unknown.flows is None
