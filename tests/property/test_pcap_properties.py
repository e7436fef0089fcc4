from __future__ import annotations

import struct
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.analysis.capture.captures import Job, reduce

DATA = Path(__file__).parents[1] / "data" / "pcap"
WHOLE = (DATA / "nano_tcp.pcap").read_bytes()


def reduced(data, **options):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "x.pcap")
        path.write_bytes(data)
        found = reduce(Job(files=(path,), port="eth0", addresses=("10.9.0.1",), **options))
        return found.capture_flows, found.packets, list(found.problems)


def segments(parts):
    data = struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 96, 1)
    for number, (sequence, size) in enumerate(parts):
        tcp = struct.pack(">HHIIBBHHH", 1000, 5201, sequence % 2**32, 0, 0x50, 0x10, 0, 0, 0)
        ip = struct.pack(
            ">BBHHHBBH4s4s", 0x45, 0, 40 + size, 0, 0, 64, 6, 0, bytes([10, 9, 0, 1]), bytes([10, 9, 0, 2])
        )
        body = bytes(12) + b"\x08\x00" + ip + tcp
        data += struct.pack("<IIII", 1, number, len(body), len(body) + size) + body
    return data


@settings(max_examples=200, deadline=None)
@given(cut=st.integers(0, len(WHOLE)), flips=st.lists(st.tuples(st.integers(24, len(WHOLE) - 1), st.integers(0, 255))))
def test_no_damage_crashes_it_and_sums_always_agree(cut, flips):
    data = bytearray(WHOLE)
    for at, value in flips:
        data[at] = value
    flows, packets, problems = reduced(bytes(data[:cut]))
    for column in ("packets", "wire_bytes", "payload_bytes", "repeated_bytes"):
        assert sum(flows[column]) == sum(packets[column])
        assert all(value >= 0 for value in flows[column])
    assert len(problems) == len(set(problems)) <= 5  # an end, and what is odd of classic pcap, each once


@settings(max_examples=200, deadline=None)
@given(
    start=st.integers(0, 2**32 - 1),
    steps=st.lists(st.tuples(st.integers(-3000, 3000), st.integers(0, 1448)), min_size=1, max_size=60),
)
def test_repeated_bytes_are_those_of_which_every_single_one_was_captured_before(start, steps):
    at, parts, known, repeated = 10_000, [], set(), 0
    for move, size in steps:
        at = max(0, at + move)
        parts.append((start + at, size))
        here = set(range(at, at + size))
        repeated += len(here & known)
        known |= here
    flows, _, problems = reduced(segments(parts))
    assert problems == []
    assert sum(flows["repeated_bytes"]) == repeated
    assert sum(flows["payload_bytes"]) == sum(size for _, size in steps)


@settings(max_examples=50, deadline=None)
@given(start=st.integers(0, 2**32 - 1), order=st.permutations(range(120)), again=st.lists(st.integers(0, 119)))
def test_segments_in_any_order_are_repeated_only_the_second_time(start, order, again):
    parts = [(start + 100 * number, 100) for number in (*order, *again)]
    flows, _, problems = reduced(segments(parts))
    assert problems == []
    assert sum(flows["repeated_bytes"]) == 100 * len(again)


@settings(max_examples=50, deadline=None)
@given(bin_ns=st.integers(1, 10**9), offset_ns=st.integers(-(10**12), 10**12))
def test_bins_and_offsets_move_packets_and_lose_none(bin_ns, offset_ns):
    flows, packets, _ = reduced(WHOLE, bin_ns=bin_ns, fine_ns=bin_ns, offset_ns=offset_ns)
    plain, _, _ = reduced(WHOLE)
    assert sum(packets["packets"]) == sum(plain["packets"])
    assert (flows["first_ns"] - plain["first_ns"] == offset_ns).all()
    assert packets["bin_ns"].min() <= flows["first_ns"].min() < packets["bin_ns"].min() + bin_ns
