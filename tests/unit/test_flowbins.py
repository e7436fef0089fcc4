from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from orchestrator.analysis.capture import captures, flowbins

PCAPS = sorted((Path(__file__).parents[1] / "data" / "pcap").glob("*.pcap"))


@pytest.mark.parametrize("path", PCAPS, ids=lambda path: path.stem)
@pytest.mark.parametrize("most", [flowbins.MOST_ROWS, 20])
def test_bins_add_up_to_the_flows_that_they_name(path, most):
    flows, _, _ = captures.reduce([path], port="eth0", offset_ns=12_345)
    bins, _ = flowbins.reduce([path], port="eth0", offset_ns=12_345, most=most)
    assert len(bins["flow"]) <= max(most, len(flows["port"]))
    for column in ("packets", "wire_bytes", "payload_bytes", "repeated_bytes"):
        sums = np.bincount(bins["flow"], bins[column], len(flows["port"]))
        assert sums.tolist() == list(flows[column])
    (width,) = set(bins["width_ns"].tolist())
    assert (width == flowbins.FINEST_NS) or most == 20
    first = np.full(len(flows["port"]), np.iinfo(np.int64).max)
    np.minimum.at(first, bins["flow"], bins["bin_ns"])
    assert np.all(np.abs(first - flows["first_ns"]) < width)


def test_what_cannot_be_read_has_no_bins(tmp_path):
    (tmp_path / "x.pcap").write_bytes(b"no capture")
    bins, seen = flowbins.reduce([tmp_path / "x.pcap"], port="eth0")
    assert [len(values) for values in bins.values()] == [0] * len(bins)
    assert len(seen) == 0
