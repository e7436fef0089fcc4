from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.analysis.capture import capture_sets, trace
from orchestrator.analysis.capture.stages.decoding import LINK_TYPES
from tests.helpers.made_packets import (
    UDP,
    cooked,
    cooked2,
    enhanced,
    ethernet,
    interface,
    ip4,
    ip6,
    loopback,
    obsolete,
    pcap,
    section,
    tcp,
    udp,
)

ADDRESSES = (("10.9.0.1", "10.9.0.2", "10.9.0.3"), ("fd09::1", "fd09::2", "fd09::3"))
FRAMED = {
    1: ethernet,
    113: cooked,
    276: cooked2,
    0: lambda body, kind: loopback(body, 2 if kind == 0x0800 else 30),
    108: lambda body, kind: loopback(body, 2 if kind == 0x0800 else 24, ">"),
    101: lambda body, kind: body,
}
PACKETS = st.lists(
    st.tuples(
        st.integers(0, 10**12),
        st.booleans(),
        st.booleans(),
        st.integers(0, 2),
        st.integers(0, 2),
        st.integers(1, 3),
        st.integers(0, 60),
    ),
    max_size=40,
)


def packet(ends):
    six, is_tcp, src, dst, port, size = ends
    src, dst = ADDRESSES[six][src], ADDRESSES[six][dst]
    body = tcp(bytes(size), sport=port, dport=9) if is_tcp else udp(bytes(size), sport=port, dport=9)
    number = 6 if is_tcp else UDP
    return ip6(body, src=src, dst=dst, following=number) if six else ip4(body, src=src, dst=dst, protocol=number)


def reread(data, **options):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "x")
        path.write_bytes(data)
        return capture_sets.read([capture_sets.CaptureSet(name="x", files=(path,))], **options)


def flows(found):
    table = found.flows
    return Counter(
        {
            (
                trace.protocol_name(int(table.protocol[row])),
                found.hosts[table.src[row]],
                int(table.src_port[row]),
                found.hosts[table.dst[row]],
                int(table.dst_port[row]),
            ): (
                int(table.packets[row]),
                int(table.wire_bytes[row]),
                int(table.payload_bytes[row]),
                int(table.first_ns[row]),
                int(table.last_ns[row]),
            )
            for row in range(len(table))
        }
    )


@settings(max_examples=150, deadline=None)
@given(
    packets=PACKETS, link=st.sampled_from(sorted(FRAMED)), big=st.booleans(), kind=st.sampled_from(["us", "ns", "ng"])
)
def test_what_was_written_is_what_is_read(packets, link, big, kind):
    order, unit = ">" if big else "<", 1000 if kind == "us" else 1
    expected, frames = {}, []
    for at, six, is_tcp, src, dst, port, size in packets:
        body = FRAMED[link](packet((six, is_tcp, src, dst, port, size)), 0x86DD if six else 0x0800)
        frames.append((at, body))
        stamp = at // unit * unit
        key = ("tcp" if is_tcp else "udp", ADDRESSES[six][src], port, ADDRESSES[six][dst], 9)
        count, wire, payload, first, last = expected.get(key, (0, 0, 0, stamp, stamp))
        expected[key] = (count + 1, wire + len(body), payload + size, min(first, stamp), max(last, stamp))
    if kind == "ng":
        data = section(order) + interface(link, order=order, resolution=9)
        for number, (at, body) in enumerate(frames):
            data += (enhanced if number % 2 else obsolete)(at, body, order=order)
    else:
        data = pcap(frames, big=big, nano=kind == "ns", link=link)
    found = reread(data)
    assert found.points[0].damage == ()
    assert flows(found) == expected
    assert found.points[0].link_types == (LINK_TYPES[link],)
    for column in ("packets", "wire_bytes", "payload_bytes"):
        assert getattr(found.bins, column).sum() == getattr(found.flows, column).sum()


@settings(max_examples=60, deadline=None)
@given(packets=PACKETS, bin_ns=st.integers(1000, 10**13), budget=st.integers(1, 50))
def test_bins_hold_every_packet_however_few_they_may_be(packets, bin_ns, budget):
    frames = [(at, ethernet(packet(ends), 0x86DD if ends[0] else 0x0800)) for at, *ends in packets]
    found = reread(pcap(frames), bin_ns=bin_ns, bin_budget=budget)
    bins, table = found.bins, found.flows
    assert bins.packets.sum() == len(packets)
    small = table.protocol == trace.OVERFLOW  # what holds the bins of flows that the budget leaves none
    assert bins.wire_bytes.sum() == table.wire_bytes.sum()
    assert len(set(zip(bins.flow.tolist(), bins.start_ns.tolist(), strict=True))) == len(bins)
    for row in set(bins.flow[~small[bins.flow]].tolist()):
        mine = bins.flow == row
        assert bins.wire_bytes[mine].sum() == table.wire_bytes[row]
        starts = bins.start_ns[mine]
        assert starts.min() <= table.first_ns[row] < starts.min() + bins.width_ns
        assert starts.max() <= table.last_ns[row] < starts.max() + bins.width_ns
    if not small.any():
        assert set(bins.flow.tolist()) == set(range(len(table)))
