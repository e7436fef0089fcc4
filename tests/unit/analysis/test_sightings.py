"""What captures at both ends of a link say of how long single packets took."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from orchestrator.analysis.capture import oneway
from orchestrator.analysis.capture.captures import Job, reduce
from tests.helpers.made_packets import ethernet, ip4, ip6, pcap, tcp, udp

ADDRESSES = {"h1": "10.9.0.1", "h2": "10.9.0.2", "switch": ""}


def segment(number, *, back=False, size=100, v6=False):
    ports = {"sport": 5201, "dport": 1000} if back else {"sport": 1000, "dport": 5201}
    body = tcp(bytes(size), seq=1000 * number, **ports)
    ends = ("fd09::2", "fd09::1") if v6 else ("10.9.0.2", "10.9.0.1")
    src, dst = ends if back else ends[::-1]
    return ethernet(ip6(body, src=src, dst=dst), kind=0x86DD) if v6 else ethernet(ip4(body, src=src, dst=dst))


def seen(folder, name, packets):
    """Sightings of a capture of (microseconds, frame)."""
    path = folder / f"{name}.pcap"
    head = pcap([])
    packets = sorted(packets, key=lambda one: one[0])
    path.write_bytes(
        head
        + b"".join(
            struct.pack("<IIII", 1000 + int(at // 10**6), round(at % 10**6 * 1000), len(frame), len(frame)) + frame
            for at, frame in packets
        )
    )
    return reduce(Job(files=(path,), port="eth0")).sightings


def rows(seen_at, addresses=ADDRESSES):
    columns = oneway.one_way(
        seen_at.items(), {node: (address,) if address else () for node, address in addresses.items()}
    )
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


@pytest.mark.parametrize("v6", [False, True])
def test_both_ways_are_told_with_what_is_early(tmp_path, v6):
    there = [(100 * k, segment(k, v6=v6)) for k in range(2000)]
    back = [(100 * k + 50, segment(k, back=True, v6=v6)) for k in range(1000)]
    took = np.r_[np.full(5, -3), np.full(1995, 80)]
    h1 = there + [(at + 30, frame) for at, frame in back]
    h2 = [(at + late, frame) for (at, frame), late in zip(there, took, strict=True)] + back
    addresses = {"h1": "fd09::1", "h2": "fd09::2"} if v6 else ADDRESSES
    found = rows({"h1": seen(tmp_path, "h1", h1), "h2": seen(tmp_path, "h2", h2)}, addresses)
    assert [(row["src"], row["dst"], row["packets"], row["early"]) for row in found] == [
        ("h1", "h2", 2000, 5),
        ("h2", "h1", 1000, 0),
    ]
    assert [row["p50_s"] for row in found] == [pytest.approx(80e-6), pytest.approx(30e-6)]
    assert [row["low_s"] for row in found] == [pytest.approx(-3e-6), pytest.approx(30e-6)]


def test_what_was_sent_again_lost_or_seen_on_the_way_is_nobodys_delay(tmp_path):
    there = [(100 * k, segment(k)) for k in range(10)]
    again = [(5000.0, segment(3)), (6000.0, segment(4))]  # the first copy of 3 was lost, 4 came twice
    came = [(at + 80, frame) for at, frame in there if frame != segment(3)] + [(at + 80, frame) for at, frame in again]
    acks = [(7000.0, segment(20, size=0)), (7001.0, ethernet(ip4(udp(bytes(9)), protocol=17)))]
    at_switch = [(at + 40, frame) for at, frame in there]
    found = rows(
        {
            "h1": seen(tmp_path, "h1", there + again + acks),
            "h2": seen(tmp_path, "h2", came + acks),
            "switch": seen(tmp_path, "switch", at_switch),
        }
    )
    assert [(row["src"], row["dst"], row["packets"], row["early"]) for row in found] == [("h1", "h2", 8, 0)]


def test_of_long_captures_both_ends_note_the_same_packets(tmp_path, monkeypatch):
    monkeypatch.setattr(oneway, "MOST", 256)
    there = [(10 * k, segment(k)) for k in range(4000)]
    sent = seen(tmp_path, "h1", there)
    came = seen(tmp_path, "h2", [(at + 80, frame) for at, frame in there[:1000]])  # fewer are thinned out less
    assert 100 < len(sent) <= 256
    assert 100 < len(came) <= 256
    (row,) = rows({"h1": sent, "h2": came})
    assert row["packets"] == pytest.approx(len(sent) / 4, rel=0.3)
    assert row["p50_s"] == pytest.approx(80e-6)


def test_one_end_alone_says_nothing(tmp_path):
    assert rows({"h1": seen(tmp_path, "h1", [(0.0, segment(1))])}) == []
    assert rows({}) == []
