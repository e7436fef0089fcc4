from __future__ import annotations

import pickle
import struct
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest

from orchestrator.analysis.captures import BIN_NS, reduce
from orchestrator.errors import CaptureError
from orchestrator.launch import Flow

DATA = Path(__file__).parents[1] / "data" / "pcap"
CROSS = Flow(kind="cross", name="iperf0", port=5201)
look = partial(reduce, port="eth0", addresses=["10.9.0.1", "fd09::1"], flows=[CROSS])


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
        "10.9.0.1", "10.9.0.2", 5201, "cross", "iperf0",
    )  # fmt: skip
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


def test_a_new_connection_on_the_same_ports_repeats_nothing(tmp_path):
    frames = [frame(flags=2, seq=9999), frame(bytes(100), seq=10_000), frame(flags=2, seq=0), frame(bytes(100), seq=1)]
    assert one(look([pcap(tmp_path / "x.pcap", frames)])[0])["repeated_bytes"] == 0


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
    [(b"", "is empty"), (b"\x0a\x0d\x0d\x0a" + bytes(40), "pcapng"), (b"hello, world, here I am", "no pcap"),
     (b"\x1f\x8b" + bytes(40), "compressed"), (struct.pack("<IHHi", 0xA1B2C3D4, 2, 4, 0), "no pcap")],
)  # fmt: skip
def test_what_is_no_pcap_is_named_and_the_other_files_still_count(tmp_path, data, told):
    (tmp_path / "bad").write_bytes(data)
    flows, _, problems = look([tmp_path / "bad", DATA / "nano_tcp.pcap", tmp_path / "none"])
    assert len(problems) == 2
    assert told in problems[0]
    assert one(flows, direction="out", protocol="tcp")["payload_bytes"] == 200_000


def test_another_link_type_is_refused_with_a_remedy(tmp_path):
    from orchestrator.analysis.pcap import FlowTable

    table = FlowTable(bin_ns=BIN_NS, on_bins=lambda table, bins: None)
    with pytest.raises(CaptureError, match="link type 113") as caught:
        table.add(pcap(tmp_path / "x.pcap", [frame()], link=113))
    assert "any" in caught.value.hint


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
    frames = [frame(sport=29500, dport=1), frame(sport=1, dport=29500, src=2, dst=1), frame(src=3, dst=2, dport=5201),
              frame(dport=5201), frame(dport=22), frame(dport=99)]  # fmt: skip
    flows, _, _ = reduce([pcap(tmp_path / "x.pcap", frames)], port="eth0", addresses=["10.9.0.1"], flows=rules)
    assert list(zip(flows["kind"], flows["name"], strict=True)) == [
        ("training", "a"), ("training", "a"), ("training", "b"), ("cross", "c"), ("control", "ssh"), ("other", ""),
    ]  # fmt: skip


def test_at_a_switch_port_the_direction_is_seen_from_the_switch():
    flows, _, _ = reduce([DATA / "nano_tcp.pcap"], port="p1", peers=["10.9.0.1"], flows=[CROSS])
    assert one(flows, protocol="tcp", src="10.9.0.1")["direction"] == "in"
    assert one(flows, protocol="tcp", src="10.9.0.2")["direction"] == "out"


def test_offset_and_bins(tmp_path):
    path = pcap(tmp_path / "x.pcap", [frame(bytes(10), seq=10 * k) for k in range(100)])
    plain, moved = look([path], bin_ns=10_000)[1], look([path], bin_ns=10_000, offset_ns=-5_000)[1]
    assert plain["packets"].tolist() == [10] * 10
    assert moved["packets"].tolist() == [5] + [10] * 9 + [5]
    assert np.all(np.diff(moved["bin_ns"]) == 10_000)


def test_it_can_run_in_a_worker_process():
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        flows, _, problems = pool.submit(reduce, [DATA / "nano_tcp.pcap"], port="eth0", flows=[CROSS]).result(
            timeout=60
        )
    assert problems == []
    assert pickle.loads(pickle.dumps(flows))["packets"].sum() > 100  # noqa: S301
