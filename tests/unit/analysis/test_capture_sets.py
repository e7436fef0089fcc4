from __future__ import annotations

import gzip
import shutil
import struct
import subprocess
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from orchestrator.analysis.capture import capture_sets, trace, trace_tables
from orchestrator.core.errors import CaptureError, ConfigError
from tests.helpers import wireshark
from tests.helpers.made_packets import (
    RST,
    UDP,
    block,
    bth,
    enhanced,
    ethernet,
    interface,
    ip4,
    ip6,
    pcap,
    reth,
    section,
    simple,
    tcp,
    udp,
)
from tests.helpers.odd_packets import NASTY, connection
from tests.helpers.processes import ended

DATA = Path(__file__).parents[2] / "data" / "pcap"
BACK = {"src": "10.9.0.2", "dst": "10.9.0.1"}
needs_tshark = pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")


def read(*files, **options):
    return capture_sets.read(capture_sets.grouped(files), **options)


def read_bytes(folder, data, name="x.pcap", **options):
    (folder / name).write_bytes(data)
    return read(folder / name, **options)


def flow(found, **match):
    (row,) = [
        row
        for row in trace_tables.rows(trace_tables.flows(found))
        if all(row[name] == value for name, value in match.items())
    ]
    return row


@needs_tshark
@pytest.mark.parametrize(
    "name",
    [
        *(name for name in NASTY if not name.startswith("tunnel-")),  # tshark counts what carries tunnels as well
        *(path.name for path in sorted(DATA.glob("*.pcap")) if path.name not in NASTY),
    ],
)
def test_conversations_are_those_of_tshark(tmp_path, name):
    path = DATA / name
    if name in NASTY:
        path = tmp_path / name
        path.write_bytes(NASTY[name])
    found = read(path)
    assert all("have no timestamp" in problem for problem in found.points[0].damage)
    for kind, said in wireshark.conversations(path).items():
        assert wireshark.rounded(wireshark.ours(found, kind)) == said


def test_what_is_cut_within_tcp_options_still_counts(tmp_path):
    """Unlike tshark, which leaves such a segment out of its conversations."""
    segment = tcp(b"x" * 90, seq=7, options=bytes([1] * 12))
    found = read_bytes(tmp_path, pcap([ethernet(ip4(segment))], snap=54))
    assert flow(found)["payload_bytes"] == 90
    assert found.points[0].undecoded == 0
    assert read_bytes(tmp_path, pcap([ethernet(ip4(segment))], snap=53)).points[0].undecoded == 1


def test_every_section_and_interface_has_its_own_clock_and_link_type(tmp_path):
    found = read_bytes(tmp_path, NASTY["sections.pcapng"], "x.pcapng")
    assert found.points[0].link_types == ("Ethernet", "Linux cooked v1", "raw IP")
    # 2 s - 5 s by the first interface, 3 s by the second, 4 s - 5 s by the old block, as long again for the one without
    # a stamp, 5 s in binary fractions, 6 s in another section.
    sent = [row for row in trace_tables.rows(trace_tables.flows(found)) if row["protocol"] == "tcp"]
    assert [(row["interface"], row["first_ns"], row["last_ns"], row["packets"]) for row in sent] == [
        ("interface 1", -3 * 10**9, 6 * 10**9, 4),
        ("interface 3", 5 * 10**9, 5 * 10**9, 1),
    ]
    assert flow(found, protocol="udp")["first_ns"] == 3 * 10**9


@pytest.mark.parametrize(
    ("resolution", "stamp"), [(0, 3), (3, 3000), (9, 3 * 10**9), (12, 3 * 10**12), (0x8A, 3 << 10), (0xA8, 3 << 40)]
)
def test_resolutions_of_stamps(tmp_path, resolution, stamp):
    data = section() + interface(resolution=resolution) + enhanced(stamp, ethernet(ip4(tcp())))
    assert read_bytes(tmp_path, data).first_ns == 3 * 10**9


def test_stamps_beyond_all_time_are_cut_and_break_nothing(tmp_path):
    data = section() + interface() + enhanced((1 << 64) - 1, ethernet(ip4(tcp()))) + enhanced(0, ethernet(ip4(tcp())))
    found = read_bytes(tmp_path, data)
    assert flow(found)["packets"] == 2
    with pytest.raises(CaptureError, match="too many"):
        trace.series(found)


def test_handshake_windows_and_flags(tmp_path):
    frames = connection()
    frames += [
        ip4(tcp(sport=5201, dport=1000, seq=101, ack=111, window=0), **BACK),
        ip4(tcp(sport=5201, dport=1000, seq=101, ack=111, window=0), **BACK),
        ip4(tcp(sport=5201, dport=1000, seq=101, ack=111, window=900), **BACK),
        ip4(tcp(sport=5201, dport=1000, seq=101, ack=111, window=0), **BACK),
        ip4(tcp(sport=5201, dport=1000, seq=101, flags=RST, window=0), **BACK),
    ]
    found = read_bytes(tmp_path, pcap([ethernet(one) for one in frames], step_ns=1000))
    asked, answered = flow(found, opens=True), flow(found, opens=False)
    assert asked["handshake_s"] == answered["handshake_s"] == pytest.approx(2e-6)
    assert (asked["syns"], asked["fins"], answered["syns"], answered["resets"]) == (1, 1, 1, 1)
    assert (asked["zero_windows"], answered["zero_windows"]) == (0, 2)
    assert (asked["window_bytes"], answered["window_bytes"]) == (500 << 7, 900 << 7)


def test_a_syn_that_was_sent_twice_times_no_handshake(tmp_path):
    first, *others = connection()
    found = read_bytes(tmp_path, pcap([ethernet(one) for one in (first, first, *others)]))
    assert flow(found, opens=True)["handshake_s"] is None


def test_what_was_captured_before_is_told_from_what_comes_late(tmp_path):
    ms = 1_000_000
    parts = [(0, 0), (1, 200), (2, 100), (3, 400), (20, 300), (21, 300)]  # milliseconds, sequence number
    frames = [(at * ms, ethernet(ip4(tcp(bytes(100), seq=seq)))) for at, seq in parts]
    row = flow(read_bytes(tmp_path, pcap(frames)))
    # 100 comes a millisecond after 200 did and 300 comes 17 ms after 400: who is to say why. Then 300 once more.
    assert (row["late"], row["repeated"], row["repeated_bytes"]) == (2, 1, 100)


def test_roce_messages_have_the_size_that_their_header_gives_or_their_packets_add_up_to(tmp_path):
    found = read_bytes(tmp_path, NASTY["roce.pcap"])
    writes, answers = trace_tables.rows(trace_tables.queue_pairs(found))
    assert (writes["queue_pair"], writes["messages"], writes["message_bytes"]) == (0x11, 3, 2500 + 33 + 64)
    assert writes["sizes"] == [
        {"at_least_bytes": 32, "messages": 1},
        {"at_least_bytes": 64, "messages": 1},
        {"at_least_bytes": 2304, "messages": 1},
    ]
    assert writes["payload_bytes"] == 1024 + 1024 + 452 + 33 + 64
    assert writes["out_of_sequence"] == 1  # 14 is missing
    assert {row["opcode"]: row["packets"] for row in answers["opcodes"]} == {0x11: 2, 0x81: 1}
    assert (answers["acknowledged"], answers["negative"]) == (2, 1)


def test_a_read_answer_is_a_message_of_its_packets(tmp_path):
    port = {"sport": 9, "dport": 4791}
    packets = [bth(13, 5, 1, bytes(256), bytes(4)), bth(14, 5, 2, bytes(256)), bth(15, 5, 3, bytes(10), bytes(4))]
    asked = bth(12, 6, 1, b"", reth(522))
    frames = [ethernet(ip6(udp(one, **port), following=UDP), 0x86DD) for one in (asked, *packets)]
    pairs = trace_tables.rows(trace_tables.queue_pairs(read_bytes(tmp_path, pcap(frames))))
    assert [(row["messages"], row["message_bytes"]) for row in pairs] == [(0, 0), (1, 522)]


def test_more_queue_pairs_than_the_table_starts_with(tmp_path):
    port = {"sport": 9, "dport": 4791}
    frames = [ethernet(ip4(udp(bth(4, n % 500, n // 500, bytes(8)), **port), protocol=UDP)) for n in range(1000)]
    found = read_bytes(tmp_path, pcap(frames)).queue_pairs
    assert sorted(found.queue_pair) == list(range(500))
    assert set(found.packets) == {2}
    assert not found.out_of_sequence.any()


@pytest.mark.parametrize("kind", ["gzip", "zstd"])
def test_compressed_files_are_read_and_what_is_before_a_cut_counts(tmp_path, kind):
    frames = [ethernet(ip4(tcp(b"x" * (n % 40), seq=n * 100))) for n in range(2000)]
    packed = pa.Codec(kind).compress(pcap(frames), asbytes=True)
    assert flow(read_bytes(tmp_path, packed))["packets"] == 2000
    plain = read_bytes(tmp_path, packed + packed[: len(packed) // 2])  # a second member that breaks off
    assert any("cannot be unpacked" in problem or "damaged" in problem for problem in plain.points[0].damage)
    cut = read_bytes(tmp_path, packed[:-9])
    assert "cannot be unpacked to its end" in cut.points[0].damage[0]
    assert 0 <= cut.points[0].packets <= 2000
    long = pa.Codec(kind).compress(pcap(frames * 20), asbytes=True)
    assert 2000 < read_bytes(tmp_path, long[: len(long) * 3 // 4]).points[0].packets < 40_000


def test_a_pipe_can_be_read(tmp_path):
    path = tmp_path / "x.pcap"
    path.write_bytes(gzip.compress(pcap([ethernet(ip4(tcp()))] * 50)))
    with ended(["cat", str(path)], stdout=subprocess.PIPE) as cat:
        one = capture_sets.CaptureSet(name="pipe", files=(Path(f"/dev/fd/{cat.stdout.fileno()}"),))
        # To know the order of files their first packets are read, which a pipe gives once; a single one needs no order.
        assert capture_sets.read([one]).points[0].packets == 50


@pytest.mark.parametrize(
    ("tail", "packets", "told"),
    [
        (struct.pack("<II", 6, 0xFFFFFFFC), 1, "inside a record"),
        (struct.pack("<II", 6, 8) + bytes(4), 1, "damaged at byte"),
        (struct.pack("<II", 6, 33) + bytes(4), 1, "damaged at byte"),
        (struct.pack("<II", 77, 0x7FFFFFFC), 1, "inside a record"),
        (struct.pack("<II", 77, 0) + bytes(4), 1, "damaged at byte"),
        (b"\x0a\x0d\x0d\x0a" + bytes(24), 1, "damaged at byte"),
        (block(6, bytes(8)) + enhanced(5, ethernet(ip4(tcp()))), 2, "1 packet blocks contradict"),
        (enhanced(5, ethernet(ip4(tcp())), 9) + enhanced(5, ethernet(ip4(tcp()))), 2, "1 packet blocks name an"),
        (block(6, struct.pack("<IIIII", 0, 0, 0, 4000, 4000)) + simple(ethernet(ip4(tcp()))), 2, "contradict"),
        (block(0xBAD, bytes(400_000)) + enhanced(5, ethernet(ip4(tcp()))), 2, ""),
        (block(0x77, bytes(40)) + enhanced(5, ethernet(ip4(tcp()))), 2, "1 blocks are of kinds that are not known"),
        (bytes(64), 1, "has zeros from byte"),
        (block(6, struct.pack("<IIIII", 0, 0, 0, 400_000, 400_000) + bytes(400_000)), 1, "contradict"),
        (interface(127) + enhanced(5, bytes(50), 1), 2, "link type 127"),
    ],
)
def test_damage_in_pcapng_is_told_and_what_was_before_counts(tmp_path, tail, packets, told):
    data = section() + interface() + enhanced(1, ethernet(ip4(tcp()))) + tail
    found = read_bytes(tmp_path, data, "x.pcapng")
    assert found.points[0].packets == packets
    assert any(told in problem for problem in found.points[0].damage) if told else not found.points[0].damage


def test_records_without_bytes_count(tmp_path):
    found = read_bytes(tmp_path, pcap([b"", b"", ethernet(ip4(tcp()))]))
    assert (found.points[0].packets, found.points[0].undecoded) == (3, 2)
    assert flow(found, protocol="runt")["packets"] == 2


def test_a_record_of_a_huge_snap_length_is_read(tmp_path):
    body = ethernet(ip4(tcp(bytes(1_500_000)), total=0))
    assert flow(read_bytes(tmp_path, pcap([body, body], snap=2_000_000)))["packets"] == 2


def test_captures_of_several_points_count_a_conversation_once(tmp_path):
    frames = [ethernet(one) for one in connection()]
    (tmp_path / "a.pcap").write_bytes(pcap(frames))
    (tmp_path / "b.pcap").write_bytes(pcap([*frames[1:], ethernet(ip4(udp(), protocol=UDP, src="10.9.0.7"))]))
    sets = capture_sets.grouped([tmp_path / "a.pcap", f"late={tmp_path / 'b.pcap'}"], offsets_ns={"late": -500})
    found = capture_sets.read(sets)
    assert [point.name for point in found.points] == ["a", "late"]
    assert found.points[1].first_ns - found.points[0].first_ns == -500
    counted = [row for row in trace_tables.rows(trace_tables.flows(found)) if row["counted"]]
    assert Counter((row["point"], row["protocol"]) for row in counted) == {("a", "tcp"): 2, ("late", "udp"): 1}
    assert trace.series(found, column="packets")[1].sum() == len(frames) + 1
    assert trace.matrix(found, "packets").sum() == len(frames) + 1
    assert found.bins.packets.sum() == 2 * len(frames)


def test_files_of_a_rotation_are_one_capture(tmp_path):
    names = [
        "x.pcap",
        "x.pcap1",
        "x.pcap02.gz",
        "y_00001_20260131120000.pcapng",
        "y_00002_20260131120100.pcapng.zst",
        "z-2026-01-31_12:00:00.pcap",
        "z-2026-01-31_12:01:00.pcap",
        "h1.pcap",
        "h2.pcap",
    ]
    for name in names:
        (tmp_path / name).touch()
    sets = capture_sets.grouped([tmp_path])
    assert {one.name: len(one.files) for one in sets} == {"x": 3, "y": 2, "z": 2, "h1": 1, "h2": 1}
    (named,) = capture_sets.grouped([f"all={tmp_path / name}" for name in names])
    assert len(named.files) == len(names)
    with pytest.raises(ConfigError, match="no capture named h9") as caught:
        capture_sets.grouped([tmp_path], offsets_ns={"h9": 1})
    assert "h1" in caught.value.hint


def test_bins_of_small_flows_are_summed_where_there_are_too_many(tmp_path):
    sizes = {1: 5, 2: 500, 3: 50}
    frames = [(n * 1_000_000, ethernet(ip4(tcp(bytes(sizes[1 + n % 3]), seq=n, sport=1 + n % 3)))) for n in range(5000)]
    fine = read_bytes(tmp_path, pcap(frames))
    few = read_bytes(tmp_path, pcap(frames), bin_budget=2000)
    assert fine.bins.width_ns == few.bins.width_ns == 1_000_000
    assert len(fine.bins) == len(few.bins) == 5000
    assert "the bins of 2 small flows are summed" in few.notes[0]
    others, *flows = few.flows.packets.tolist()
    assert (others, flows) == (0, fine.flows.packets.tolist())
    assert few.flows.src_port[sorted(set(few.bins.flow.tolist()))].tolist() == [0, 2]
    for column in ("packets", "wire_bytes", "payload_bytes"):
        starts, sums = trace.series(fine, column=column)
        assert [starts.tolist(), sums.tolist()] == [part.tolist() for part in trace.series(few, column=column)]


def test_bins_of_stamps_that_go_back_come_once_each(tmp_path):
    order = np.random.default_rng(1).permutation(300)
    frames = [(int(n) * 100_000, ethernet(ip4(tcp(b"x", sport=1 + n % 2)))) for n in order]
    found = read_bytes(tmp_path, pcap(frames))
    assert found.points[0].backwards > 100
    keys = list(zip(found.bins.start_ns, found.bins.flow, strict=True))
    assert len(keys) == len(set(keys)) == 60
    assert keys == sorted(keys)


def test_conversations_beyond_the_most_count_together(tmp_path):
    frames = [ethernet(ip4(udp(b"x", sport=1 + n), protocol=UDP)) for n in range(3000)]
    (tmp_path / "x.pcap").write_bytes(pcap(frames))
    one = capture_sets.CaptureSet(name="x", files=(tmp_path / "x.pcap",))
    found = capture_sets.read_set(one, most=1024)
    assert flow(found, protocol="others")["packets"] == 3000 - 1023
    assert sorted(found.flows.src_port[1:].tolist()) == list(range(1, 1024))
    assert "beyond the first 1,024" in " ".join(found.notes)


def test_moving_average():
    assert trace.moving_average(np.array([4, 8, 0, 0]), 2).tolist() == [4, 6, 4, 0]


def test_nothing_that_can_be_read_is_an_error(tmp_path):
    (tmp_path / "x.pcap").write_bytes(b"nonsense")
    with pytest.raises(CaptureError, match="is no capture") as caught:
        read(tmp_path / "x.pcap", tmp_path / "none.pcap")
    assert "No such file" in caught.value.message
