from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from orchestrator.analysis.traffic import bottleneck, traffic, view
from orchestrator.parts.rows import TABLES
from orchestrator.parts.topology import Node, Rail
from tests.helpers.made_traffic import BEGAN_NS, BYTES_A_MS, ITERATION_MS, MS, SENDS_MS, made

NODES = [
    Node(name="h1", rails=(Rail(address="10.0.0.1"),)),
    Node(name="h2", rails=(Rail(address="10.0.0.2"),)),
    Node(name="switch", kind="switch"),
]


def tables_of(rows, bins):
    """`capture_flows` of (node, src, dst, bytes, kind) and `flow_packets` of (node, flow, ms, bytes)."""
    flows = {name: [] for name in ("node", "launch", *TABLES["capture_flows"])}
    for node, src, dst, size, kind in rows:
        row = {
            "node": node,
            "launch": f"tcpdump.{node}",
            "port": "eth0",
            "direction": "out",
            "protocol": "tcp",
            "src": src,
            "src_port": 1,
            "dst": dst,
            "dst_port": 2,
            "tunnel": "",
            "outer_src": "",
            "outer_dst": "",
            "kind": kind,
            "name": "job",
            "packets": 1,
            "wire_bytes": size,
            "payload_bytes": size,
            "repeated_bytes": 1,
            "first_ns": 0,
            "last_ns": 5 * MS,
        }
        for key, value in row.items():
            flows[key].append(value)
    packets = {name: [] for name in ("node", "launch", *TABLES["flow_packets"])}
    for node, flow, at, size, width in bins:
        row = {
            "node": node,
            "launch": f"tcpdump.{node}",
            "port": "eth0",
            "flow": flow,
            "bin_ns": at * MS,
            "width_ns": width * MS,
            "packets": 1,
            "wire_bytes": size,
            "payload_bytes": size,
            "repeated_bytes": 1,
        }
        for key, value in row.items():
            packets[key].append(value)
    return pa.table(flows), pa.table(packets)


def test_a_flow_counts_where_it_is_sent_from_and_else_where_it_arrives():
    flows, packets = tables_of(
        [
            ("h2", "10.0.0.1", "10.0.0.2", 90, "training"),  # what h2 got of what h1 sent
            ("h2", "10.0.0.9", "10.0.0.2", 30, "other"),  # its sender was not captured
            ("h1", "10.0.0.1", "10.0.0.2", 100, "training"),
        ],
        [("h2", 0, 0, 90, 1), ("h2", 1, 1, 30, 1), ("h1", 0, 0, 60, 1), ("h1", 0, 4, 40, 1)],
    )
    found = traffic.from_tables(flows, packets, nodes=NODES)
    assert found.hosts == ("h1", "h2", "10.0.0.9")
    assert sorted(found.wire_bytes.tolist()) == [30, 100]
    assert found.bin_wire.tolist() == [60, 30, 40]
    assert [found.label(row) for row in found.bin_flow] == ["h1:1 → h2:2", "10.0.0.9:1 → h2:2", "h1:1 → h2:2"]
    assert traffic.matrix(found, found.of("training"))[0, 1] == 99


def test_bins_of_captures_of_unequal_width_are_brought_to_the_widest():
    flows, packets = tables_of(
        [("h1", "10.0.0.1", "10.0.0.2", 9, "training"), ("h2", "10.0.0.2", "10.0.0.1", 9, "training")],
        [("h1", 0, 5, 9, 1), ("h2", 0, 4, 9, 4)],
    )
    found = traffic.from_tables(flows, packets, nodes=NODES)
    assert (found.width_ns, found.bin_ns.tolist()) == (4 * MS, [4 * MS, 4 * MS])


def test_nothing_captured_is_no_traffic():
    assert traffic.from_tables(*tables_of([], []), nodes=NODES) is None


def test_a_span_holds_what_was_carried_in_it():
    found = made(iterations=10)
    part = traffic.within(found, BEGAN_NS + 200 * MS, BEGAN_NS + 400 * MS)
    assert part.payload_bytes[0] == 2 * SENDS_MS * BYTES_A_MS
    assert part.wire_bytes[-1] == 0
    assert len(traffic.series(part, part.of("training"))) == 200


def test_a_series_keeps_all_bytes_whatever_its_step():
    found = made(iterations=10)
    mine = found.of("training")
    for step in (MS, 7 * MS, 50 * MS):
        values = traffic.series(found, mine, payload=True, width_ns=step)
        lost = found.payload_bytes[mine].sum() - values.sum()
        assert 0 <= lost <= 4 * BYTES_A_MS * step / MS
    assert traffic.series(found, mine, payload=True).sum() == found.payload_bytes[mine].sum()


def test_big_flows_are_the_fewest_with_their_share():
    found = made(cross=0)
    assert sorted(traffic.big_flows(found, found.of("training")).tolist()) == [0, 2, 4, 6]
    assert len(traffic.big_flows(found, found.of("cross"))) == 0


@pytest.mark.parametrize("cross", [0, 4_000, 60_000])
def test_flows_are_told_apart_by_their_shape(cross):
    known = made(cross=cross)
    found = view.told_apart(made(cross=cross, told=False))
    assert found.kind.tolist() == known.kind.tolist()
    assert found.name[-1] == "ssh"


def test_without_a_beat_nothing_is_called_training():
    found = view.told_apart(made(iterations=2, told=False))
    assert not found.of("training").any()


def test_the_view_of_a_training():
    found = view.look(made(), ranks={"train": ["h1", "h2", "h3", "h4"]})
    (job,) = found.jobs
    assert [pattern.shape for pattern in job.patterns] == ["ring"]
    assert job.order.startswith("against launch order")
    assert job.iterations.period.period_s == pytest.approx(ITERATION_MS / 1e3, rel=0.01)
    assert job.iterations.amount.value == pytest.approx(4 * SENDS_MS * BYTES_A_MS)
    assert len(job.iterations.starts_ns) == 40
    assert set(job.messages.tolist()) == {SENDS_MS * BYTES_A_MS}
    assert {row.kind: row.flows for row in found.kinds} == {"training": 8, "cross": 2, "control": 1, "other": 0}
    assert sum(row.share for row in found.kinds) == pytest.approx(1)
    assert job.total.mean.value == pytest.approx(4 * 0.4 * BYTES_A_MS * 1514 / 1448 * 8e3, rel=0.01)


def test_a_ring_on_some_ranks_twice_has_no_launch_order():
    assert view.look(made(), ranks={"train": ["h1", "h1", "h2", "h3", "h4"]}).jobs[0].order == ""


def test_the_three_flows_of_a_bottleneck():
    found = made()
    one, two, three = bottleneck.three(found)
    assert two.label == "flow 2: training out of h1, shared"
    assert three.label == "flow 3: cross traffic out of h1"
    assert "alone" in one.label
    assert "h1" not in one.label
    assert found.payload_bytes[two.flows].sum() == 40 * SENDS_MS * BYTES_A_MS
    assert np.all(found.kind[three.flows] == "cross")


def test_without_cross_traffic_on_a_trainings_link_there_are_no_three_flows():
    assert bottleneck.three(made(cross=0)) == []


def test_stamps_years_apart_make_wide_bins_and_no_endless_series():
    flows, packets = tables_of(
        [("h1", "10.0.0.1", "10.0.0.2", 9, "training"), ("h2", "10.0.0.2", "10.0.0.1", 9, "training")],
        [("h1", 0, 5, 9, 1), ("h2", 0, 4, 9, 4)],
    )
    late = pa.array([5 * MS, 10**18])
    flows = flows.set_column(flows.schema.get_field_index("last_ns"), "last_ns", late)
    found = traffic.from_tables(flows, packets, nodes=NODES)
    assert len(traffic.series(found, found.of("training"))) <= traffic.MOST_STEPS + 1
    assert view.look(found).jobs[0].patterns[0].shape == "pair"
