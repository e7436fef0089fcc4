"""A run whose flows are counted in the kernel: the tables of captures, beside a capture and without one."""

from __future__ import annotations

import os

import pytest

from tests.helpers.orch_runs import light, sealed

pytestmark = [
    pytest.mark.testbed,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root to load programs into the kernel"),
]


def payload(run, node, direction):
    """Payload of the training that a node sent or received, of all flows and of all their bins."""
    flows = [row for row in run.rows("capture_flows") if row["node"] == node]
    mine = {
        place: row["payload_bytes"]
        for place, row in enumerate(flows)
        if (row["name"], row["direction"]) == ("training", direction)
    }
    bins = [row for row in run.rows("flow_packets") if row["node"] == node and row["flow"] in mine]
    return sum(mine.values()), sum(row["payload_bytes"] for row in bins)


def test_where_nothing_is_captured_a_meter_gives_the_tables(tmp_path):
    collect = [{"tcpdump": {"hosts": ["h2", "h3"]}}, {"meter": {"hosts": ["h1", "h2"]}}, "nic"]
    run = sealed(tmp_path, light(collect=collect))
    made_by = {(row["node"], row["launch"]) for row in run.rows("capture_flows")}
    assert made_by == {("h1", "meter.h1"), ("h2", "tcpdump.h2"), ("h3", "tcpdump.h3")}
    assert {row["node"] for row in run.rows("metered")} == {"h2"}
    sent, sent_in_bins = payload(run, "h1", "out")
    arrived, _ = payload(run, "h2", "in")
    assert sent == sent_in_bins > 1_000_000
    assert arrived == pytest.approx(sent, rel=0.01)  # but for what the queue between them dropped
    (window,) = run.manifest.windows
    assert {gate.passed for gate in window.gates if gate.name in ("meter-in", "meter-out")} == {True}
    counted = {gate.message.split(":", 1)[0]: gate.passed for gate in window.gates if gate.name == "capture-nic"}
    assert counted == {"h1": True, "h2": True, "h3": True}
