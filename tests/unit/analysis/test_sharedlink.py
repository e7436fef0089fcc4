"""What counters of queues say of the link that training and cross traffic share."""

from __future__ import annotations

import pyarrow as pa
import pytest

from orchestrator.analysis.traffic.sharedlink import capacity_bps, shared_link
from orchestrator.parts.topology import Link, Topology
from tests.helpers import manifests

SECOND = 1_000_000_000
TOPOLOGY = Topology(
    kind="local",
    nodes=(),
    links=(
        Link(host="h1", device="eth0", switch="switch", switch_port="p-h1", rate=25e9),
        Link(host="h2", device="eth0", switch="switch", switch_port="p-h2", rate=10e9),
    ),
)


def counters(*rows):
    names = ("node", "port", "counter", "time_ns", "value")
    return pa.table({name: [row[place] for row in rows] for place, name in enumerate(names)})


def queue(node, port, *, backlog, sent=(0.0, 0.0), drops=(0.0, 0.0), name="qdisc.tbf"):
    rows = [(node, port, f"{name}.backlog_bytes", int(at * SECOND), float(value)) for at, value in backlog]
    for what, (first, last) in (("bytes", sent), ("drops", drops)):
        rows += [(node, port, f"{name}.{what}", 0, first), (node, port, f"{name}.{what}", 10 * SECOND, last)]
    return rows


def test_the_fullest_queue_is_the_shared_one_and_values_stand_until_the_next_sample():
    table = counters(
        *queue("h1", "eth0", backlog=[(0, 0), (2, 100_000), (3, 0)]),
        *queue("switch", "p-h2", backlog=[(0, 50_000), (4, 0), (6, 25_000)], sent=(0, 1e9), drops=(10, 30)),
    )
    found = shared_link(table, TOPOLOGY, span_ns=(2 * SECOND, 8 * SECOND), scale=100)
    assert found is not None
    assert found.port == "switch:p-h2"
    mean_bytes = (2 * 50_000 + 2 * 25_000) / 6
    assert found.waiting_s == pytest.approx(mean_bytes * 8 / (10e9 / 100))
    assert found.sent_bps == pytest.approx(1e8 * 8 * 100)
    assert found.drops_per_s == pytest.approx(2)


def test_children_of_a_queueing_discipline_do_not_count_twice_and_without_samples_nothing_is_told():
    child = counters(*queue("h1", "eth0", backlog=[(0, 9)], name="qdisc.pfifo@8001"))
    assert shared_link(child, TOPOLOGY, span_ns=(0, SECOND), scale=1) is None
    assert shared_link(child.slice(0, 0), TOPOLOGY, span_ns=(0, SECOND), scale=1) is None


@pytest.mark.parametrize(
    ("kind", "mtu", "carried"), [("inventory", 1500, 24.61e9), ("inventory", 9000, 24.934e9), ("local", 1500, 25e9)]
)
def test_the_capacity_of_a_real_link_is_in_the_unit_of_loads(kind, mtu, carried):
    links = [{"host": f"h{place}", "device": "eth0", "rate": rate} for place, rate in enumerate((25e9, 100e9))]
    manifest = manifests.made(topology={"kind": kind, "mtu": mtu, "nodes": [], "links": links})
    assert capacity_bps(manifest.topology) == pytest.approx(carried, rel=1e-4)
