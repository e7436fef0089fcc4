from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from orchestrator.analysis.capture import captures
from orchestrator.analysis.capture.captures import Job

PCAPS = sorted((Path(__file__).parents[2] / "data" / "pcap").glob("*.pcap"))
FIGURES = ("packets", "wire_bytes", "payload_bytes", "repeated_bytes")


@pytest.mark.parametrize("path", PCAPS, ids=lambda path: path.stem)
def test_bins_add_up_to_the_flows_that_they_name(path):
    found = captures.reduce(Job(files=(path,), port="eth0", offset_ns=12_345))
    flows, bins = found.capture_flows, found.flow_packets
    for column in FIGURES:
        assert np.bincount(bins["flow"], bins[column], len(flows["port"])).tolist() == list(flows[column])
    assert set(bins["width_ns"].tolist()) == {captures.FINE_NS}
    first = np.full(len(flows["port"]), np.iinfo(np.int64).max)
    np.minimum.at(first, bins["flow"], bins["bin_ns"])
    assert np.all(np.abs(first - flows["first_ns"]) < captures.FINE_NS)


@pytest.mark.parametrize("path", PCAPS, ids=lambda path: path.stem)
def test_beyond_a_budget_the_largest_flows_keep_their_bins_and_the_others_are_summed(path):
    whole = captures.reduce(Job(files=(path,), port="eth0"))
    few = captures.reduce(Job(files=(path,), port="eth0", most_fine=20))
    if len(whole.flow_packets["flow"]) <= 20:
        assert [list(values) for values in few.flow_packets.values()] == [
            list(values) for values in whole.flow_packets.values()
        ]
        return
    flows, bins = few.capture_flows, few.flow_packets
    assert (flows["protocol"][0], flows["packets"][0]) == ("others", 0)
    assert list(flows["wire_bytes"][1:]) == list(whole.capture_flows["wire_bytes"])
    kept = set(bins["flow"].tolist()) - {0}
    assert np.isin(bins["flow"], list(kept)).sum() <= 20
    smallest = min((flows["wire_bytes"][flow] for flow in kept), default=None)
    if smallest is not None:
        assert max(np.delete(flows["wire_bytes"], [0, *kept]), default=0) <= smallest
    for column in FIGURES:
        sums = np.bincount(bins["flow"], bins[column], len(flows["port"]))
        assert all(sums[flow] == flows[column][flow] for flow in kept)
        assert sums.sum() == sum(whole.capture_flows[column])
    for name in ("bin_ns", "width_ns"):
        assert set(bins[name].tolist()) == set(whole.flow_packets[name].tolist())
    assert [list(values) for values in few.packets.values()] == [list(values) for values in whole.packets.values()]


def test_what_cannot_be_read_has_no_bins(tmp_path):
    (tmp_path / "x.pcap").write_bytes(b"no capture")
    found = captures.reduce(Job(files=(tmp_path / "x.pcap",), port="eth0"))
    assert [len(values) for values in found.flow_packets.values()] == [0] * len(found.flow_packets)
    assert len(found.sightings) == 0
