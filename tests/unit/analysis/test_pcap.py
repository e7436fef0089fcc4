from __future__ import annotations

import pickle
import struct
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest

from orchestrator.analysis.capture.captures import Job, reduce
from orchestrator.analysis.capture.stages.segments import MOST_HOLES
from orchestrator.core.errors import CaptureError
from orchestrator.parts.launch import Flow
from orchestrator.parts.rows import BIN_NS

DATA = Path(__file__).parents[2] / "data" / "pcap"
CROSS = Flow(kind="cross", name="iperf0", port=5201)
OWN = ("10.9.0.1", "fd09::1")


def look(files, *, port="eth0", addresses=OWN, flows=(CROSS,), **settings):
    found = reduce(Job(files=tuple(files), port=port, addresses=addresses, flows=flows, **settings))
    return found.capture_flows, found.packets, list(found.problems)


def rows(columns):
    keys = list(columns)
    return [dict(zip(keys, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def one(columns, **match):
    (row,) = [row for row in rows(columns) if all(row[key] == value for key, value in match.items())]
    return row


def frame(payload=b"", *, seq=0, sport=1000, dport=5201, flags=0x10, tags=(), src=1, dst=2, pad=0):
    tcp = struct.pack(">HHIIBBHHH", sport, dport, seq % 2**32, 0, 0x50, flags, 0, 0, 0)
    ip = struct.pack(
        ">BBHHHBBH4s4s", 0x45, 0, 40 + len(payload), 0, 0, 64, 6, 0, bytes([10, 9, 0, src]), bytes([10, 9, 0, dst])
    )
    ether = bytes([2, 0, 0, 0, 0, dst, 2, 0, 0, 0, 0, src])
    for tag in tags:
        ether += struct.pack(">HH", 0x8100, tag)
    return ether + b"\x08\x00" + ip + tcp + payload + bytes(pad)


def pcap(path, frames, *, big=False, nano=True, snap=96, link=1, start=1000):
    order = ">" if big else "<"
    data = struct.pack(order + "IHHiIII", 0xA1B23C4D if nano else 0xA1B2C3D4, 2, 4, 0, 0, snap, link)
    for number, body in enumerate(frames):
        kept = body[:snap]
        data += struct.pack(order + "IIII", start, number * 1000, len(kept), len(body)) + kept
    path.write_bytes(data)
    return path


def test_a_transfer_is_counted_to_the_byte():
    flows, packets, problems = look([DATA / "nano_tcp.pcap"])
    assert problems == []
    sent = one(flows, direction="out", protocol="tcp")
    assert (sent["src"], sent["dst"], sent["dst_port"], sent["kind"], sent["name"]) == (
        "10.9.0.1",
        "10.9.0.2",
        5201,
        "cross",
        "iperf0",
    )
    assert sent["payload_bytes"] == 200_000
    assert sent["repeated_bytes"] == 0
    assert one(flows, direction="in", protocol="tcp")["payload_bytes"] == 0
    assert 0 < sent["last_ns"] - sent["first_ns"] < 1e9
    assert sum(packets["wire_bytes"]) == sum(flows["wire_bytes"])
    assert all(start % BIN_NS == 0 for start in packets["bin_ns"])


def test_arp_has_a_direction_by_hardware_address():
    flows, _, _ = look([DATA / "nano_tcp.pcap"])
    asked = one(flows, protocol="arp", direction="out")
    assert (asked["src"], asked["dst"]) == ("02:00:00:00:00:01", "ff:ff:ff:ff:ff:ff")
    assert one(flows, protocol="arp", direction="in")["kind"] == "other"


def test_super_packets_of_segmentation_offload_keep_their_size():
    flows, _, _ = look([DATA / "micro_tso.pcap"])
    sent = one(flows, direction="out")
    assert sent["payload_bytes"] == 400_000
    assert sent["packets"] < 40


def test_ipv6_and_udp():
    flows, _, _ = look([DATA / "ipv6.pcap"])
    assert one(flows, protocol="tcp", direction="out")["payload_bytes"] == 50_000
    datagrams = one(flows, protocol="udp")
    assert (datagrams["packets"], datagrams["payload_bytes"], datagrams["src"]) == (3, 300, "fd09::1")


def test_retransmissions_at_the_sender_are_what_was_sent_beyond_the_transfer():
    flows, _, _ = look([DATA / "loss.pcap"])
    sent = one(flows, direction="out")
    assert sent["repeated_bytes"] > 0
    assert sent["payload_bytes"] - sent["repeated_bytes"] == 200_000


@pytest.mark.parametrize("big", [False, True])
@pytest.mark.parametrize("nano", [False, True])
def test_byte_orders_and_resolutions(tmp_path, big, nano):
    path = pcap(tmp_path / "x.pcap", [frame(b"a" * 10), frame(b"b" * 10, seq=10)], big=big, nano=nano)
    flows, _, problems = look([path])
    row = one(flows)
    assert problems == []
    assert row["payload_bytes"] == 20
    assert row["last_ns"] - row["first_ns"] == (1_000 if nano else 1_000_000)


def test_vlan_tags_are_stepped_over_and_ethernet_padding_is_no_payload(tmp_path):
    path = pcap(tmp_path / "x.pcap", [frame(b"abc", tags=(7,), pad=9), frame(b"abc", tags=(7, 8), seq=3)])
    row = one(look([path])[0])
    assert row["payload_bytes"] == 6
    assert row["wire_bytes"] == 54 + 4 + 3 + 9 + 54 + 8 + 3


def test_sequence_numbers_wrap(tmp_path):
    top = 2**32 - 50
    bodies = [(top, 100), (50, 100), (top + 25, 75), (100, 100), (150, 10)]
    path = pcap(tmp_path / "x.pcap", [frame(bytes(size), seq=seq) for seq, size in bodies])
    row = one(look([path])[0])
    assert row["repeated_bytes"] == 75 + 50 + 10


def test_a_new_connection_on_the_same_ports_has_a_row_of_its_own_and_repeats_nothing(tmp_path):
    frames = [frame(flags=2, seq=9999), frame(bytes(100), seq=10_000), frame(flags=2, seq=0), frame(bytes(100), seq=1)]
    both = rows(look([pcap(tmp_path / "x.pcap", frames)])[0])
    assert [(row["packets"], row["payload_bytes"], row["repeated_bytes"]) for row in both] == [(2, 100, 0), (2, 100, 0)]


def sequences(path, bodies, **options):
    frames = [frame(bytes(size), seq=seq) for seq, size in bodies]
    return look([pcap(path / "x.pcap", frames)], **options)


def test_a_segment_that_is_captured_late_for_the_first_time_is_no_repetition(tmp_path):
    flows, packets, problems = sequences(tmp_path, [(0, 100), (200, 100), (100, 100), (100, 100), (150, 100)])
    assert problems == []
    assert one(flows)["repeated_bytes"] == sum(packets["repeated_bytes"]) == 100 + 100


def test_what_fills_a_hole_in_part_or_reaches_over_its_edges_is_told_apart_to_the_byte(tmp_path):
    middle_of_a_hole, over_both_edges, all_again = (140, 20), (90, 120), (0, 300)
    flows, _, _ = sequences(tmp_path, [(0, 100), (200, 100), middle_of_a_hole, over_both_edges, all_again])
    assert one(flows)["repeated_bytes"] == (10 + 20 + 10) + 300


def test_a_hole_reaches_over_the_wrap_of_sequence_numbers(tmp_path):
    top = 2**32 - 50
    flows, _, _ = sequences(tmp_path, [(top - 100, 100), (50, 100), (top, 100), (top, 100)])
    assert one(flows)["repeated_bytes"] == 100


def test_what_lies_before_the_first_captured_segment_is_new_once(tmp_path):
    flows, _, _ = sequences(tmp_path, [(1000, 100), (900, 100), (900, 200)])
    assert one(flows)["repeated_bytes"] == 200


def test_a_new_connection_forgets_the_holes_of_the_one_before(tmp_path):
    frames = [
        frame(flags=2, seq=0),
        frame(bytes(10), seq=501),
        frame(flags=2, seq=0),
        frame(bytes(600), seq=1),
        frame(bytes(100), seq=101),
    ]
    assert one(look([pcap(tmp_path / "x.pcap", frames)])[0])["repeated_bytes"] == 100


def every_second(count):
    return [(20 * number, 10) for number in range(count)]


def test_as_many_holes_as_are_kept_need_no_word(tmp_path):
    filled = [(seq + 10, 10) for seq, _ in every_second(MOST_HOLES - 1)]
    flows, _, problems = sequences(tmp_path, [*every_second(MOST_HOLES), *filled])
    assert problems == []
    assert one(flows)["repeated_bytes"] == 0


def test_more_holes_than_are_kept_are_told_once_it_matters(tmp_path):
    bodies = every_second(MOST_HOLES + 11)
    flows, _, problems = sequences(tmp_path, bodies)
    assert problems == []
    filled = [(seq + 10, 10) for seq, _ in bodies[:-1]]
    flows, _, problems = sequences(tmp_path, [*bodies, *filled])
    # The hole before the first segment is the oldest, so that ten of these are forgotten.
    assert one(flows)["repeated_bytes"] == 100
    assert problems == ["eth0: 100 bytes that count as repeated may be new: over 256 gaps were open at once"]


def test_rows_of_holes_are_handed_on_from_flow_to_flow(tmp_path):
    frames = []
    for port in range(1, 2001):
        frames += [frame(flags=2, seq=0, sport=port), frame(bytes(10), seq=11, sport=port)]
        frames += [frame(bytes(10), seq=1, sport=port)] * 2
    flows, _, _ = look([pcap(tmp_path / "x.pcap", frames)])
    assert set(flows["repeated_bytes"]) == {10}
    assert len(flows["src"]) == 2000


@pytest.mark.parametrize(
    ("size", "tags", "wire"),
    [
        (1460, (), 1460 + 54),  # fits
        (1461, (), 1461 + 2 * 54),
        (14600, (), 14600 + 10 * 54),
        (14601, (7,), 14601 + 11 * 58),
    ],
)
def test_what_the_device_cuts_into_frames_counts_their_headers(tmp_path, size, tags, wire):
    path = pcap(tmp_path / "x.pcap", [frame(bytes(size), tags=tags)])
    flows, packets, _ = look([path], segment=1500)
    row = one(flows)
    assert (row["wire_bytes"], row["payload_bytes"], row["packets"]) == (wire, size, 1)
    headers = 54 + 4 * len(tags)
    assert packets["wire_bytes"].tolist() == [wire]
    assert packets["captured_bytes"].tolist() == [size + headers]
    assert packets["frames"].tolist() == [(wire - size) // headers]
    assert one(look([path])[0])["wire_bytes"] == size + headers


def test_the_frames_of_a_packet_beyond_64_kilobytes_whose_length_is_left_out(tmp_path):
    size = 100_000
    ip = struct.pack(">IHBB16s16s", 6 << 28, 0, 6, 64, bytes(15) + b"\x01", bytes(15) + b"\x02")
    tcp = struct.pack(">HHIIBBHHH", 1000, 5201, 0, 0, 0x80, 0x10, 0, 0, 0) + bytes(12)
    body = bytes(12) + b"\x86\xdd" + ip + tcp + bytes(size)
    row = one(look([pcap(tmp_path / "x.pcap", [body])], segment=1500)[0])
    assert row["payload_bytes"] == size
    assert row["wire_bytes"] == size + -(-size // (1500 - 40 - 32)) * (14 + 40 + 32)


def test_what_is_no_ip_is_never_cut(tmp_path):
    body = bytes(12) + b"\x88\xb5" + bytes(3000)
    assert one(look([pcap(tmp_path / "x.pcap", [body])], segment=1500)[0])["wire_bytes"] == len(body)


def test_a_cut_record_ends_the_file_and_what_was_before_counts(tmp_path):
    path = pcap(tmp_path / "x.pcap", [frame(b"x" * 30, seq=30 * k) for k in range(5)])
    path.write_bytes(path.read_bytes()[:-7])
    flows, _, problems = look([path])
    assert one(flows)["packets"] == 4
    assert "ends inside a record; the 4 packets" in problems[0]


def test_damage_stops_the_reading_and_is_told(tmp_path):
    path = pcap(tmp_path / "x.pcap", [frame(b"x" * 30, seq=30 * k) for k in range(5)])
    data = bytearray(path.read_bytes())
    second = 24 + 16 + 84
    data[second + 8 : second + 12] = b"\xff\xff\xff\xff"
    path.write_bytes(data)
    flows, _, problems = look([path])
    assert one(flows)["packets"] == 1
    assert f"damaged at byte {second}" in problems[0]


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"", "is empty"),
        (b"\x0a\x0d\x0d\x0a" + bytes(40), "damaged at byte 0"),
        (b"hello, here I am", "no capture"),
        (b"\x1f\x8b" + bytes(40), "cannot be unpacked"),
        (struct.pack("<IHHi", 0xA1B2C3D4, 2, 4, 0), "no capture"),
        (b"\xfd7zXZ" + bytes(40), "compressed with xz"),
    ],
)
def test_what_is_no_pcap_is_named_and_the_other_files_still_count(tmp_path, data, told):
    (tmp_path / "bad").write_bytes(data)
    flows, _, problems = look([tmp_path / "bad", DATA / "nano_tcp.pcap", tmp_path / "none"])
    assert len(problems) == 2
    assert any(told in problem for problem in problems)
    assert one(flows, direction="out", protocol="tcp")["payload_bytes"] == 200_000


def test_another_link_type_is_refused_with_a_remedy(tmp_path):
    from orchestrator.analysis.capture.flowtable import FlowTable

    table = FlowTable(bin_ns=BIN_NS)
    with pytest.raises(CaptureError, match="link type 127") as caught:
        table.add(pcap(tmp_path / "x.pcap", [frame()], link=127))
    assert "Linux cooked v2 (276)" in caught.value.hint


def test_rotated_files_are_one_conversation_in_whatever_order(tmp_path):
    late = pcap(tmp_path / "x.pcap0", [frame(bytes(100), seq=100), frame(bytes(100), seq=50)], start=2000)
    early = pcap(tmp_path / "x.pcap1", [frame(bytes(100), seq=0)], start=1000)
    row = one(look([late, early])[0])
    assert (row["packets"], row["repeated_bytes"]) == (3, 100)
    assert row["first_ns"] == 1000 * 10**9


def test_more_flows_than_the_table_starts_with(tmp_path):
    frames = [frame(bytes(10), sport=1 + n % 5000, seq=10 * (n // 5000)) for n in range(10_000)]
    flows, packets, _ = look([pcap(tmp_path / "x.pcap", frames)])
    assert len(flows["src"]) == 5000
    assert set(flows["packets"]) == {2}
    assert set(flows["repeated_bytes"]) == {0}
    assert sum(packets["payload_bytes"]) == 100_000


def test_the_first_flow_that_matches_in_either_direction_names_it(tmp_path):
    rules = [
        Flow(kind="training", name="a", src="10.9.0.1", dst="10.9.0.2", port=29500),
        Flow(kind="training", name="b", src="10.9.0.2", dst="10.9.0.3"),
        Flow(kind="cross", name="c", port=5201),
    ]
    frames = [
        frame(sport=29500, dport=1),
        frame(sport=1, dport=29500, src=2, dst=1),
        frame(src=3, dst=2, dport=5201),
        frame(dport=5201),
        frame(dport=22),
        frame(dport=99),
    ]
    flows, _, _ = look([pcap(tmp_path / "x.pcap", frames)], flows=tuple(rules))
    assert list(zip(flows["kind"], flows["name"], strict=True)) == [
        ("training", "a"),
        ("training", "a"),
        ("training", "b"),
        ("cross", "c"),
        ("control", "ssh"),
        ("other", ""),
    ]


def test_at_a_switch_port_the_direction_is_seen_from_the_switch():
    flows, _, _ = look([DATA / "nano_tcp.pcap"], port="p1", addresses=(), peers=("10.9.0.1",))
    assert one(flows, protocol="tcp", src="10.9.0.1")["direction"] == "in"
    assert one(flows, protocol="tcp", src="10.9.0.2")["direction"] == "out"


def test_offset_and_bins(tmp_path):
    path = pcap(tmp_path / "x.pcap", [frame(bytes(10), seq=10 * k) for k in range(100)])
    widths = {"bin_ns": 10_000, "fine_ns": 5_000}
    plain, moved = look([path], **widths)[1], look([path], **widths, offset_ns=-5_000)[1]
    assert plain["packets"].tolist() == [10] * 10
    assert moved["packets"].tolist() == [5] + [10] * 9 + [5]
    assert np.all(np.diff(moved["bin_ns"]) == 10_000)


def test_it_can_run_in_a_worker_process():
    job = Job(files=(DATA / "nano_tcp.pcap",), port="eth0", flows=(CROSS,))
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        found = pool.submit(reduce, job).result(timeout=60)
    assert found.problems == ()
    assert pickle.loads(pickle.dumps(found)).capture_flows["packets"].sum() > 100  # noqa: S301
