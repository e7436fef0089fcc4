"""Every output of `orch capture` over every sample: those of tests/data/pcap, those of tests/nasty, those made here.

A sample is a file dropped into tests/data/pcap. What is expected of it may lie beside it as NAME.json: any of
`packets`, `flows` (each [tunnel, interface, protocol, source, destination, packets]), `told` (words of what is said on
standard error) and `exit`.
"""

from __future__ import annotations

import bz2
import gzip
import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from orchestrator.analysis.capture import capture_sets, captures
from orchestrator.cli.main import main
from tests.helpers import wireshark
from tests.helpers.made_packets import UDP, datagram, ethernet, ip4, pcap, tcp, udp, vxlan
from tests.helpers.odd_packets import NASTY, ODD, TUNNELED, connection

DATA = Path(__file__).parents[2] / "data" / "pcap"
SAMPLES = {path.name: path for path in sorted(DATA.iterdir()) if path.suffix not in {".md", ".sh", ".json"}}
HERE, THERE = "10.9.0.1:1000", "10.9.0.2:5201"
needs_tshark = pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")


def tcp_flows(tunnel="", interface="", forth=4, back=2):
    """The connection that most samples hold."""
    ways = [(HERE, THERE, forth), (THERE, HERE, back)]
    return [[tunnel, interface, "tcp", src, dst, packets] for src, dst, packets in ways if packets]


# Name -> packets, flows and words that are told.
EXPECTED = {
    "any.pcap": (12, [*tcp_flows("", "index 3"), *tcp_flows("", "index 9")], ["6 packets are of flows of"]),
    "two.pcapng": (12, [*tcp_flows("", "eth0"), *tcp_flows("", "eth1")], ["another interface"]),
    "overlay.pcapng": (12, [*tcp_flows("", "eth0"), *tcp_flows("vxlan 42", "eth1")], ["another interface"]),
    "longer.pcap": (6, tcp_flows(), ["6 packets were kept longer than they are said to be on the wire"]),
    "nanos-in-micros.pcap": (6, tcp_flows(), ["1 packets have a fraction of a second"]),
    "zeros.pcap": (6, tcp_flows(), ["5 records are nothing but zeros"]),
    "zeros.pcapng": (1, tcp_flows("", "eth0", 1, 0), ["has zeros from byte 192 on", "the 80 bytes from there on"]),
    "patched.pcap": (6, tcp_flows("", "index 3"), []),
    "patched-big.pcap": (6, tcp_flows("", "index 3"), []),
    "old.pcap": (6, tcp_flows(), []),
    "cut.pcap": (5, tcp_flows("", "", 3, 2), ["ends inside a record"]),
    "one.pcap": (1, tcp_flows("", "", 1, 0), []),
    "one-instant.pcap": (6, tcp_flows(), []),
    "none.pcap": (0, [], []),
    "section.pcapng": (0, [], []),
    "sections-empty.pcapng": (0, [], []),
    "simple.pcapng": (2, tcp_flows("", "", 2, 0), ["2 packets have no timestamp"]),
    "backwards.pcap": (6, tcp_flows(), []),
    "epoch.pcap": (6, tcp_flows(), []),
    "before-1970.pcapng": (2, tcp_flows("", "", 2, 0), []),
    "beyond-2116.pcapng": (
        3, [*tcp_flows("", "interface 1", 1, 0), *tcp_flows("", "interface 2", 2, 0)],
        ["2 packets have a timestamp more than 146 years from 1970"],
    ),
    "year-1-and-2106.pcap": (2, tcp_flows("", "", 2, 0), []),
    "undeclared.pcapng": (1, tcp_flows("", "", 1, 0), ["1 packet blocks name an interface that is not described"]),
    "resolutions.pcapng": (8, [row for n in range(1, 9) for row in tcp_flows("", f"interface {n}", 1, 0)], ["another"]),
    "bad-options.pcapng": (2, tcp_flows("", "", 2, 0), []),
    "unknown-blocks.pcapng": (1, tcp_flows("", "", 1, 0), ["1 blocks are of kinds that are not known"]),
    "snapped-tunnel.pcap": (
        6, [["", "", "udp", "192.0.2.1:51000", "192.0.2.2:4789", 6]], ["6 packets in tunnels count by"],
    ),
    "nested.pcap": (6, [["ipip/ipip/ipip", "", "ip-4", "192.0.2.1", "192.0.2.2", 6]], ["6 packets in tunnels"]),
}  # fmt: skip
KINDS = {
    "vxlan": "vxlan 42", "vxlan-8472": "vxlan 42", "vxlan-gpe": "vxlan-gpe 42", "vxlan-gpe6": "vxlan-gpe 42",
    "vxlan-tagged": "vxlan 42", "geneve": "geneve 42", "geneve-ip": "geneve 42", "gre": "gre", "gre-flags": "gre 9",
    "gre6": "gre 9", "gre-frames": "gre", "nvgre": "nvgre 16962", "gre-mpls": "gre/mpls", "erspan2": "erspan 5",
    "erspan3": "erspan 5", "4in4": "ipip", "6in4": "ipip", "4in6": "ipip", "6in6": "ipip", "etherip": "etherip",
    "mpls": "mpls", "mpls6": "mpls", "mpls-word": "mpls", "pppoe": "pppoe 7", "pppoe6": "pppoe 7", "gtp": "gtp",
    "gtp-extended": "gtp", "pbb": "pbb 77", "stacked": "mpls/ipip/gre", "tpids": "",
}  # fmt: skip


def _beside(name):
    path = DATA / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else {}


def _end(address, port):
    return f"{address}:{port}" if port else address


def _tables(folder):
    return {path.stem: pq.read_table(path).to_pylist() for path in sorted(folder.glob("*.parquet"))}


def outputs(path, folder, capsys, *, page=True):
    """Exit code, the JSON object, and what is told, once the text, the tables and the page agree with it."""
    more = ["--report", str(folder / "page.html")] if page else []
    status = main(["capture", str(path), "--parquet", str(folder / "tables"), *more])
    text = capsys.readouterr()
    assert main(["capture", str(path), "--json"]) == status
    said = capsys.readouterr()
    data = json.loads(said.out)
    tables = _tables(folder / "tables")
    assert "Traceback" not in text.err + said.err
    told = [line for line in text.err.splitlines() if not line.startswith("wrote ")]
    assert told == said.err.splitlines()
    assert text.out.count(" bytes on the wire, ") == len(data["points"])
    for name in ("flows", "pairs", "queue_pairs"):
        assert [row["packets"] for row in tables[name]] == [row["packets"] for row in data[name]]
    for point in data["points"]:
        flows = [row for row in data["flows"] if row["point"] == point["name"]]
        assert sum(row["packets"] for row in flows) == point["packets"]
        assert sum(row["wire_bytes"] for row in flows) == point["wire_bytes"]
    assert sum(row["packets"] for row in tables["bins"]) == sum(row["packets"] for row in data["flows"])
    if page:
        html = (folder / "page.html").read_text()
        assert all(point["name"] in html for point in data["points"])
        assert html.count("<li>") >= len(told)
    return status, data, told


def flow_rows(data):
    """Rows as the expected ones are."""
    return sorted(
        [
            row["tunnel"],
            row["interface"],
            row["protocol"],
            _end(row["src"], row["src_port"]),
            _end(row["dst"], row["dst_port"]),
            row["packets"],
        ]
        for row in data["flows"]
    )


@pytest.mark.parametrize("name", SAMPLES)
def test_samples_of_the_folder(tmp_path, capsys, name):
    status, data, told = outputs(SAMPLES[name], tmp_path, capsys)
    expected = _beside(name)
    assert status == expected.get("exit", 0)
    if "packets" in expected:
        assert sum(point["packets"] for point in data["points"]) == expected["packets"]
    if "flows" in expected:
        assert flow_rows(data) == sorted(expected["flows"])
    for words in expected.get("told", []):
        assert any(words in line for line in told), told


@pytest.mark.parametrize("name", ODD)
def test_what_is_odd_is_read_on_over_and_told(tmp_path, capsys, name):
    """Their page is that of all of them, below."""
    (tmp_path / name).write_bytes(ODD[name])
    status, data, told = outputs(tmp_path / name, tmp_path, capsys, page=False)
    packets, flows, words = EXPECTED[name]
    assert status == 0
    assert sum(point["packets"] for point in data["points"]) == packets
    assert flow_rows(data) == sorted(flows)
    assert bool(told) == bool(words)
    for one in words:
        assert any(one in line for line in told), told


@pytest.mark.parametrize("name", TUNNELED)
def test_flows_are_those_inside_of_tunnels(tmp_path, capsys, name):
    path = tmp_path / "x.pcap"
    path.write_bytes(NASTY[f"tunnel-{name}.pcap"])
    _, data, told = outputs(path, tmp_path, capsys, page=False)
    assert told == []
    assert {row["tunnel"] for row in data["flows"]} == {KINDS[name]}
    forth, back = sorted(data["flows"], key=lambda row: row["dst_port"], reverse=True)
    assert (forth["protocol"], forth["packets"], back["packets"]) == ("tcp", 4, 2)
    assert (forth["payload_bytes"], forth["repeated_bytes"], forth["handshake_s"]) == (10, 0, pytest.approx(2e-6))
    assert forth["wire_bytes"] + back["wire_bytes"] == sum(len(frame) for frame in TUNNELED[name])
    outer = {"192.0.2.1", "2001:db8::1", "02:00:00:00:00:01"} if KINDS[name] else {""}
    assert forth["outer_src"] in outer
    assert forth["outer_src"] == back["outer_dst"]
    (point,) = data["points"]
    assert [part["packets"] for part in point["tunnels"]] == ([6] if KINDS[name] else [])


# tshark stops where a block names no interface, or goes further into what is cut.
READ_OTHERWISE = {"mpls-word", "undeclared.pcapng", "bad-options.pcapng", "nested.pcap", "snapped-tunnel.pcap"}


@needs_tshark
@pytest.mark.parametrize("name", [name for name in (*TUNNELED, *ODD) if name not in READ_OTHERWISE])
def test_innermost_flows_are_those_of_tshark(tmp_path, name):
    path = tmp_path / "x"
    path.write_bytes(ODD.get(name) or NASTY[f"tunnel-{name}.pcap"])
    said = wireshark.innermost(path, "-d", "udp.port==8472,vxlan")
    ours = wireshark.ours_innermost(capture_sets.read(capture_sets.grouped([path])))
    assert ours[0] == said[0]
    assert name == "longer.pcap" or ours[1] == said[1]


def test_all_samples_are_read_as_one_folder_however_odd_some_are(tmp_path, capsys):
    folder = tmp_path / "all"
    folder.mkdir()
    for name, data in {**NASTY, **ODD}.items():
        (folder / name).write_bytes(data)
    (folder / "text").write_text("no capture")
    (folder / "empty.pcap").touch()
    status, data, told = outputs(folder, tmp_path, capsys)
    assert status == 1
    assert any("text is no capture" in line for line in told)
    assert any("empty.pcap is empty" in line for line in told)
    assert len(data["points"]) == len(NASTY) + len(ODD) + 2
    assert [len(point["unread"]) for point in data["points"]].count(1) == 2


def test_a_folder_without_files_is_told_and_the_others_are_read(tmp_path, capsys):
    (tmp_path / "empty" / "deeper").mkdir(parents=True)
    (tmp_path / "one.pcap").write_bytes(ODD["one.pcap"])
    assert main(["capture", str(tmp_path / "empty"), "--json"]) == 1
    assert "empty: it is a folder without files" in capsys.readouterr().err
    assert main(["capture", str(tmp_path / "empty"), str(tmp_path / "one.pcap")]) == 1
    said = capsys.readouterr()
    assert "one: 1 packets" in said.out
    assert "empty: it is a folder without files" in said.err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--offset", "one=-1e11s"], "--offset: -1e11s is too long"),
        (["--bin", "1e30s"], "--bin: 1e30s is too long"),
        (["x" * 5000], "File name too long"),
    ],
)
def test_words_that_no_table_can_hold_are_told(tmp_path, capsys, words, told):
    (tmp_path / "one.pcap").write_bytes(ODD["one.pcap"])
    assert main(["capture", str(tmp_path / "one.pcap"), *words]) in (1, 2)
    assert told in capsys.readouterr().err


def test_stamps_and_an_offset_beyond_what_is_told_apart_are_cut_and_told(tmp_path, capsys):
    (tmp_path / "x.pcap").write_bytes(pcap([ethernet(one) for one in connection()], start_s=2**32 - 10))
    assert main(["capture", str(tmp_path / "x.pcap"), "--offset", "x=600000h", "--json"]) == 0
    said = capsys.readouterr()
    assert "6 packets have a timestamp more than 146 years from 1970" in said.err
    assert json.loads(said.out)["points"][0]["last_ns"] == 2**62 - 1


def test_networks_of_tunnels_are_apart_and_an_interface_without_the_tunnel_is_the_same(tmp_path, capsys):
    """Two tenants with the same addresses both count."""
    frames = [datagram(vxlan(ethernet(one), network), 4789) for network in (1, 2) for one in connection()]
    (tmp_path / "x.pcap").write_bytes(pcap(frames))
    _, data, _ = outputs(tmp_path / "x.pcap", tmp_path, capsys, page=False)
    assert flow_rows(data) == sorted([*tcp_flows("vxlan 1"), *tcp_flows("vxlan 2")])
    assert [row["packets"] for row in data["pairs"]] == [8, 4]


def test_what_goes_on_at_another_interface_later_counts(tmp_path, capsys):
    from tests.helpers.made_packets import enhanced, interface, section

    frames = [ethernet(ip4(tcp(b"x", seq=n))) for n in range(20)]
    data = section() + interface(name="a") + interface(name="b")
    data += b"".join(enhanced(10**12 + 10**6 * n, frame, n // 10) for n, frame in enumerate(frames))
    (tmp_path / "x.pcapng").write_bytes(data)
    _, found, told = outputs(tmp_path / "x.pcapng", tmp_path, capsys, page=False)
    assert [row["packets"] for row in found["pairs"]] == [20]
    assert told == []


def test_single_packets_that_pass_two_interfaces_count_once(tmp_path, capsys):
    from tests.helpers.made_packets import enhanced, interface, section

    asked = [ethernet(ip4(udp(b"?", sport=40_000 + n), protocol=UDP)) for n in range(5)]
    data = section() + interface(name="a") + interface(name="b")
    for n, frame in enumerate(asked):
        data += enhanced(10**12 + 10**6 * n, frame) + enhanced(10**12 + 10**6 * n + 40, frame, 1)
    (tmp_path / "x.pcapng").write_bytes(data)
    _, found, told = outputs(tmp_path / "x.pcapng", tmp_path, capsys, page=False)
    assert [row["packets"] for row in found["pairs"]] == [5]
    assert "5 packets are of flows" in told[0]


def test_in_a_run_the_ranks_of_an_overlay_are_found_and_bytes_are_those_on_the_wire(tmp_path):
    from orchestrator.parts.launch import Flow

    frames = TUNNELED["vxlan"]
    (tmp_path / "x.pcap").write_bytes(pcap(frames))
    rules = (Flow(kind="training", name="ddp", src="10.9.0.1", dst="10.9.0.2"),)
    job = captures.Job(files=(tmp_path / "x.pcap",), port="eth0", addresses=("192.0.2.1",), flows=rules)
    found = captures.reduce(job)
    flows = found.capture_flows
    assert set(flows["kind"]) == {"training"}
    # The node has the outer address alone. Both directions were sent from it here, so the outer headers say.
    assert dict(zip(flows["src"], flows["direction"], strict=True)) == {"10.9.0.1": "out", "10.9.0.2": "in"}
    assert set(flows["tunnel"]) == {"vxlan 42"}
    assert found.packets["captured_bytes"].sum() == sum(len(frame) for frame in frames)


def test_a_tunnel_that_is_cut_into_frames_repeats_all_of_its_headers(tmp_path):
    (tmp_path / "x.pcap").write_bytes(pcap([datagram(vxlan(ethernet(ip4(tcp(bytes(14_000))))), 4789)]))
    found = captures.reduce(captures.Job(files=(tmp_path / "x.pcap",), port="eth0", segment=1500))
    headers, room = 14 + 20 + 8 + 8 + 14 + 40, 1500 - 20 - 8 - 8 - 14 - 40
    assert found.packets["frames"].tolist() == [-(-14_000 // room)]
    assert found.packets["wire_bytes"].tolist() == [14_000 + -(-14_000 // room) * headers]


@pytest.mark.parametrize(
    ("name", "pack"),
    [
        ("x.pcap.lz4", lambda data: pa.Codec("lz4").compress(data, asbytes=True)),
        ("x.pcap.bz2", bz2.compress),
        ("x.pcap.gz", lambda data: gzip.compress(data[:99]) + gzip.compress(data[99:]) + bytes(70_000)),
        ("x.pcap.zst", lambda data: b"\x50\x2a\x4d\x18\4\0\0\0abcd" + pa.Codec("zstd").compress(data, asbytes=True)),
    ],
)
def test_packed_files_and_their_members(tmp_path, capsys, name, pack):
    (tmp_path / name).write_bytes(pack(pcap([ethernet(one) for one in connection()])))
    status, data, told = outputs(tmp_path / name, tmp_path, capsys, page=False)
    assert (status, told, flow_rows(data)) == (0, [], sorted(tcp_flows()))


# Two records, and behind them, in the same slice, what cannot be unpacked.
DAMAGED = bytes.fromhex(
    "1f8b080076c0076b02fff3b5d9b490898185010158181881e40b6608cf0a8a99401c2630c1e0c44c81b22509412681305126"
    "4c13354108d59029182018c31423624ca9800390b2a10bf8897415b2ff40e6e5980c258830a5409c66a4cda4a4a724909ae8"
    "29a9c18ee438223d25a19a82ae82a624d9175dce"
)


@pytest.mark.parametrize("damage_at", [None, 0.3, 0.6, 0.9])
def test_a_damaged_gzip_gives_the_same_however_it_is_read(tmp_path, damage_at):
    """How much comes of it must not hang on how much is asked for at once."""
    packed = bytearray(gzip.compress(pcap([ethernet(one) for one in connection()] * 200), mtime=0))
    place = int(len(packed) * (damage_at or 0))
    packed[place : place + 4] = bytes(byte ^ 0xFF for byte in packed[place : place + 4])
    (tmp_path / "x").write_bytes(DAMAGED if damage_at is None else packed)
    one = capture_sets.CaptureSet(name="x", files=(tmp_path / "x",))
    (whole,), (pieces,) = (
        capture_sets.read_set(one, bin_ns=1000, **how).points for how in ({}, {"piece_bytes": 1 << 10})
    )
    assert whole.packets == pieces.packets
    assert whole.unread == pieces.unread
    assert whole.damage[-1:] == pieces.damage[-1:]  # one may have met the damage behind it, too
