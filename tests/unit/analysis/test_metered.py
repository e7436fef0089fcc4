"""What a meter counted becomes the tables of captures; files of no meter are refused, or read as far as they go."""

from __future__ import annotations

import socket
from dataclasses import replace

import numpy as np
import pytest

from orchestrator.agents import meter
from orchestrator.agents.agent import bpf
from orchestrator.analysis.capture import captures, metered
from orchestrator.core.errors import CaptureError
from orchestrator.parts.collectors import meter as collector
from orchestrator.parts.launch import Flow
from orchestrator.parts.rows import LaunchOutput
from orchestrator.parts.shared import meter_files
from orchestrator.validity.gates import meter as gate
from orchestrator.validity.window import MeteredBytes
from tests.helpers.gate_windows import judged

MS = 10**6
BEGIN = 1_795_000_000_000  # milliseconds
TCP, UDP = 6, 17


def entry(src, dst, *, ports=(1000, 2000), out=True, at=0, protocol=TCP, packets=1, size=1514, frames=None, first=10):
    """A key and its value: so many packets of a flow in a bin, `at` milliseconds after the beginning."""
    key, value = np.zeros((), meter_files.KEY), np.zeros((), meter_files.VALUE)
    key["version"] = 0 if not src else 6 if ":" in src else 4
    for name, address in (("src", src), ("dst", dst)):
        if address:
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            packed = socket.inet_pton(family, address)
            key[name][: len(packed)] = np.frombuffer(packed, np.uint8)
    key["src_port"], key["dst_port"] = ports
    key["protocol"], key["direction"], key["bin"] = protocol, out, BEGIN + at
    value["packets"], value["frames"] = packets, packets if frames is None else frames
    value["bytes"] = value["wire_bytes"] = packets * size
    value["payload_bytes"] = packets * (size - 66)
    value["first"], value["last"] = first, first + 5
    return key, value


def block(*entries, lost=(0, 0), kind=meter.COUNTED):
    records = [bytes(bpf.RECORD_HEAD) + key.tobytes() + value.tobytes() for key, value in entries]
    return meter.BLOCK.pack(kind, len(entries), 0, *lost) + b"".join(records)


def write(folder, *blocks, head=None):
    head = head or meter.HEAD.pack(meter.MAGIC, meter_files.RECORD.itemsize, MS)
    (folder / "meter.bin").write_bytes(head + b"".join(blocks))
    (folder / "stderr").write_text("listening on eth0\n")
    return folder


def job(folder, **more):
    return captures.Job(
        files=(folder / "meter.bin",),
        port="eth0",
        addresses=("10.0.0.1",),
        flows=(
            Flow(kind="cross", name="web", port=2000),
            Flow(kind="training", name="job", src="10.0.0.1", dst="10.0.0.2"),
        ),
        generated=(Flow(kind="cross", name="web", port=2000),),
        **more,
    )


def output(folder):
    return LaunchOutput(
        folder=folder, node="h1", launch="meter.h1", job=None, rank=None, window=None, source=None, offset_ns=0
    )


END = block(kind=meter.ENDED)


def test_flows_and_bins_are_those_of_a_capture(tmp_path):
    a, b = "10.0.0.1", "10.0.0.2"
    write(
        tmp_path,
        block(entry(a, b, ports=(1, 2), at=3), entry(b, a, ports=(2, 1), out=False, at=1, packets=4, size=66)),
        block(entry(a, b, ports=(1, 2), at=3, packets=2), entry(a, "10.0.0.9", at=12, frames=3)),
        END,
    )
    found = metered.reduce(job(tmp_path))
    flows = found.capture_flows
    assert list(flows["direction"]) == ["in", "out", "out"]  # by their first packets
    assert list(zip(flows["src"], flows["src_port"], flows["dst"], flows["dst_port"], strict=True)) == [
        (b, 2, a, 1),
        (a, 1, b, 2),
        (a, 1000, "10.0.0.9", 2000),
    ]
    assert list(flows["name"]) == ["job", "job", "web"]
    assert list(flows["packets"]) == [4, 3, 1]
    assert list(flows["wire_bytes"]) == [264, 3 * 1514, 1514]
    assert [int(one) - BEGIN * MS for one in flows["first_ns"]] == [MS + 10, 3 * MS + 10, 12 * MS + 10]
    fine = found.flow_packets
    rows = zip(fine["flow"], fine["bin_ns"], fine["packets"], strict=True)
    assert [(int(flow), (int(at) - BEGIN * MS) // MS, int(count)) for flow, at, count in rows] == [
        (0, 1, 4),
        (1, 3, 3),
        (2, 12, 1),
    ]
    packets = found.packets
    assert set(zip(packets["name"], packets["direction"], packets["packets"], packets["frames"], strict=True)) == {
        ("job", "in", 4, 4),
        ("job", "out", 3, 3),
        ("web", "out", 1, 3),
    }
    assert list(found.cross_packets["bin_ns"] - BEGIN * MS) == [12 * MS]
    assert found.problems == ()


def test_a_quiet_port_has_no_rows(tmp_path):
    found = metered.reduce(job(write(tmp_path, END)))
    tables = found.capture_flows, found.flow_packets, found.packets, found.cross_packets
    assert [len(table["port"]) for table in tables] == [0] * 4
    assert found.problems == ()


def test_addresses_of_ipv6_and_frames_without_any(tmp_path):
    write(tmp_path, block(entry("fd00::1", "fd00::2", protocol=UDP), entry("", "", protocol=0x0806, at=1)), END)
    flows = metered.reduce(job(tmp_path)).capture_flows
    assert list(flows["protocol"]) == ["udp", "arp"]
    assert list(flows["src"]) == ["fd00::1", ""]


@pytest.mark.parametrize(("offset_ns", "moved"), [(0, 0), (400_000, 0), (600_000, 1), (-2_400_000, -2)])
def test_bins_of_another_clock_are_moved_by_whole_bins(tmp_path, offset_ns, moved):
    write(tmp_path, block(entry("10.0.0.1", "10.0.0.2", at=5)), END)
    found = metered.reduce(replace(job(tmp_path), offset_ns=offset_ns))
    assert list(found.flow_packets["bin_ns"]) == [(BEGIN + 5 + moved) * MS]
    assert list(found.capture_flows["first_ns"]) == [(BEGIN + 5) * MS + 10 + offset_ns]


def test_of_too_many_bins_those_of_small_flows_are_summed(tmp_path):
    large = [entry("10.0.0.1", "10.0.0.2", ports=(1, 2), at=at, packets=9) for at in range(4)]
    small = [entry("10.0.0.1", "10.0.0.3", ports=(port, 2), at=at) for port in (3, 4) for at in range(2)]
    write(tmp_path, block(*large, *small), END)
    found = metered.reduce(job(tmp_path, most_fine=5))
    assert list(found.capture_flows["protocol"]) == ["tcp", "tcp", "tcp", "others"]
    rows = sorted(zip(found.flow_packets["flow"], found.flow_packets["packets"], strict=True))
    assert rows == [(0, 9)] * 4 + [(3, 2)] * 2
    assert sum(found.capture_flows["packets"]) == 4 * 9 + 4


def test_what_had_no_place_in_a_full_ring_counts_as_dropped(tmp_path):
    write(
        tmp_path,
        block(entry("10.0.0.1", "10.0.0.2", packets=7), lost=(2, 3000)),
        block(kind=meter.ENDED, lost=(3, 4000)),
    )
    row = collector.read(output(tmp_path))["captures"]
    assert (row["port"], row["captured"], row["received"], row["dropped"]) == (["eth0"], [7], [10], [3])


def test_a_meter_that_was_killed_says_no_counts_and_its_blocks_are_read(tmp_path):
    whole = block(entry("10.0.0.1", "10.0.0.2"))
    write(tmp_path, whole, whole[:-1])
    assert collector.read(output(tmp_path)) == {}
    found = metered.reduce(job(tmp_path))
    assert list(found.capture_flows["packets"]) == [1]
    assert "did not end by itself" in found.problems[0]


@pytest.mark.parametrize(
    ("head", "blocks"),
    [
        (b"", []),
        (b"\0" * 32, []),
        (meter.HEAD.pack(meter.MAGIC, 113, MS), []),
        (meter.HEAD.pack(meter.MAGIC, 112, 0), []),
        (meter.HEAD.pack(meter.MAGIC, 112, 1 << 60), []),
        (None, [b"x" * 40]),
    ],
)
def test_a_file_that_is_no_meters_is_refused(tmp_path, head, blocks):
    write(tmp_path, *blocks, head=head or None)
    if head == b"":
        (tmp_path / "meter.bin").write_bytes(b"")
    with pytest.raises(CaptureError, match=r"meter\.bin"):
        meter_files.read(tmp_path)


def test_a_block_that_claims_more_than_there_is_ends_the_reading(tmp_path):
    write(tmp_path, meter.BLOCK.pack(meter.COUNTED, (1 << 32) - 1, 0, 0, 0))
    assert len(meter_files.read(tmp_path).keys) == 0


def test_entries_that_cannot_be_are_left_out_and_told(tmp_path):
    good, bad = entry("10.0.0.1", "10.0.0.2"), []
    for field, value in (("direction", 2), ("version", 5), ("bin", (1 << 64) - 1)):
        key, counts = entry("10.0.0.1", "10.0.0.2")
        key[field] = value
        bad.append((key, counts))
    for field, value in (("packets", 0), ("wire_bytes", (1 << 64) - 1), ("first", MS)):
        key, counts = entry("10.0.0.1", "10.0.0.2")
        counts[field] = value
        bad.append((key, counts))
    write(tmp_path, block(good, *bad), END)
    out = output(tmp_path)
    assert collector.read(out)["captures"]["captured"] == [1]
    assert out.unread.sentences() == ["meter.bin: 6 entries passed over"]
    assert list(metered.reduce(job(tmp_path)).capture_flows["packets"]) == [1]


@pytest.mark.parametrize(("counted", "passed"), [(1.0005e9, True), (1.02e9, False)])
def test_a_meter_is_held_against_the_capture_beside_it(counted, passed):
    port = MeteredBytes(node="h1", port="eth0", direction="in", metered=counted, captured=1e9, edges=1000.0)
    (told,) = judged(gate, metered=(port,))
    assert (told.passed, told.required) == (passed, False)
