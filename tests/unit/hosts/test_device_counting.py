"""What devices count: measured once for each state of a device, kept, and used by runs."""

from __future__ import annotations

import json
import re
from contextlib import contextmanager
from dataclasses import replace

import pytest

from orchestrator.agents import device_exchange
from orchestrator.agents.agent.commands import Completed
from orchestrator.core.errors import LockedError
from orchestrator.execution.nodes import device_readings
from orchestrator.hosts import device_counting
from orchestrator.parts.topology import Link, Node, Rail, Topology

SEGMENTS, WHOLE, FRAME = 44, 66 + 44 * 1448, 1514
HANDED, FRAMES = "packets as they are handed over", "frames"


def topology(hosts=2, rails=1):
    nodes = tuple(
        Node(
            name=f"h{i}",
            rails=tuple(Rail(address=f"10.{rail}.0.{i}", device=f"eth{rail}") for rail in range(rails)),
            work="/w",
            python="python3",
        )
        for i in range(1, hosts + 1)
    )
    links = tuple(Link(host=node.name, device=rail.device, rate=1e9) for node in nodes for rail in node.rails)
    return Topology(kind="inventory", nodes=nodes, links=links)


def facts(node, *, gro="on", mtu=1500, driver="ice", kernel="6.1"):
    """What `facts.gather` gives of a node."""
    found = {"/proc/version": f"Linux version {kernel}", "addresses": []}
    for place, device in enumerate(node.devices):
        of_rail = f" {device}" if place else ""
        found[f"driver{of_rail}"] = f"driver: {driver}\nfirmware-version: 1"
        found[f"offloads{of_rail}"] = f"Features for {device}:\ngeneric-receive-offload: {gro}"
        found["addresses"].append({"ifname": device, "address": f"02:{node.name}:{device}", "mtu": mtu})
    return found


def said(way_in, way_out, *, dropped=0):
    """What the program prints; a way is packets of 44 segments, those captured, and how the device counts."""

    def way(packets, seen, reading):
        counted = (packets * SEGMENTS, packets * SEGMENTS * FRAME) if reading == FRAMES else (packets, packets * WHOLE)
        return {
            "packets": seen,
            "bytes": seen * WHOLE,
            "frames": seen * SEGMENTS,
            "wire": seen * SEGMENTS * FRAME,
            "counted_packets": counted[0],
            "counted_bytes": counted[1],
            "edge_packets": 0,
            "edge_bytes": 0,
        }

    return json.dumps({"dropped": dropped, "ways": {"in": way(*way_in), "out": way(*way_out)}})


WELL = said((500, 500, HANDED), (400, 400, FRAMES))


@pytest.fixture
def doctor(tmp_path, monkeypatch):
    """The doctor's lines of hosts whose programs say something; `asked` has who exchanged data with whom."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    class Client:
        def __init__(self, host, answers):
            self.host, self.answers = host, answers

        def lock(self, name, deadline):
            if isinstance(self.answers, Exception):
                raise self.answers

        def run(self, argv, deadline, *, stdin):
            assert stdin.startswith(b'"""Exchange data')
            role, device, _, there, port = argv[-5:]
            assert port == "15201"
            doctor.asked.append((self.host, role, device, there))
            answer = self.answers
            return answer if isinstance(answer, Completed) else Completed(status=0, stdout=answer, stderr="")

    def doctor(place, found, answers=WELL):
        @contextmanager
        def greeted(_, __, host, *, run, deadline):
            yield Client(host, answers)

        monkeypatch.setattr(device_counting, "greeted", greeted)
        doctor.asked = []
        return list(device_counting.lines(None, place, found))

    return doctor


def all_facts(place, **changed):
    return {node.name: facts(node, **changed) for node in place.nodes}


def test_a_device_is_measured_once_and_kept_for_runs(doctor):
    place = topology()
    known = all_facts(place)
    told = f"eth0: its counters count in: {HANDED}; out: {FRAMES} (measured "
    assert doctor(place, known) == [f"{host}: {told}now)" for host in ("h1", "h2")]
    assert sorted(doctor.asked) == [("h1", "listen", "eth0", "10.0.0.2"), ("h2", "connect", "eth0", "10.0.0.1")]
    again = doctor(place, known)
    assert [f"{told}2" in line for line in again] == [True, True]
    assert doctor.asked == []
    readings = device_readings.of_nodes({"h2": known["h2"]}, place.nodes)
    assert [(one.node, one.port, one.direction, one.counts) for one in readings] == [
        ("h2", "eth0", "in", (HANDED,)),
        ("h2", "eth0", "out", (FRAMES,)),
    ]


@pytest.mark.parametrize("changed", [{"gro": "off"}, {"mtu": 9000}, {"driver": "mlx5_core"}, {"kernel": "6.2"}])
def test_a_reading_holds_until_what_it_hangs_on_changes(doctor, changed):
    place = topology()
    doctor(place, all_facts(place))
    now = all_facts(place, **changed)
    assert device_readings.of_nodes(now, place.nodes) == ()
    doctor(place, now)
    assert len(doctor.asked) == 2
    assert len(device_readings.of_nodes(now, place.nodes)) == 4
    assert len(device_readings.of_nodes(all_facts(place), place.nodes)) == 4  # switched back


def test_another_card_is_another_device(doctor):
    place = topology()
    known = all_facts(place)
    doctor(place, known)
    known["h1"]["addresses"][0]["address"] = "02:other"
    assert {one.node for one in device_readings.of_nodes(known, place.nodes)} == {"h2"}


def test_every_rail_of_every_host_has_a_peer(doctor):
    place = topology(hosts=3, rails=2)
    assert len(doctor(place, all_facts(place))) == 6
    asked = {(host, device) for host, _, device, _ in doctor.asked}
    assert asked == {(host, device) for host in ("h1", "h2", "h3") for device in ("eth0", "eth1")}
    assert all(f"10.{device[-1]}.0." in there and there[-1] != host[-1] for host, _, device, there in doctor.asked)
    doctor(place, {**all_facts(place), "h2": facts(place.node("h2"), gro="off")})
    assert {host for host, *_ in doctor.asked} == {"h1", "h2"}  # the one that changed, and a peer


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (said((500, 450, HANDED), (400, 400, FRAMES)), "in: it counted 500 packets and .* no reading explains"),
        (said((500, 500, HANDED), (400, 400, FRAMES), dropped=3), "3 packets were too fast"),
        (Completed(status=1, stdout="", stderr="Address already in use\n"), "port 15201: Address already in use"),
        ("{}", "cannot be read"),
        ('{"dropped": 0, "ways": {}}', "cannot be read"),
        (LockedError("held by ann@here"), "held by ann@here"),
    ],
)
def test_what_cannot_be_measured_says_why_and_is_not_kept(doctor, answer, told):
    place = topology()
    found = doctor(place, all_facts(place), answer)
    assert len(found) == 2
    for line in found:
        assert re.search(f"what its counters count is not known: .*{told}", line), line
    assert device_readings.kept() == {}


def test_hosts_without_peers_or_facts_say_so(doctor):
    place = topology(hosts=1)
    assert doctor(place, all_facts(place)) == [
        "h1: eth0: what its counters count is not known: no other host can exchange data with it"
    ]
    bare = {"h1": {**facts(place.nodes[0]), "driver": None}}
    assert "not known: its facts are not whole" in doctor(place, bare)[0]
    assert device_readings.of_nodes(bare, place.nodes) == ()


def test_a_damaged_file_is_as_none(doctor, tmp_path):
    place = topology()
    doctor(place, all_facts(place))
    (path,) = tmp_path.rglob("device-readings.json")
    path.write_bytes(path.read_bytes().replace(b"frames", b"parcel"))
    assert device_readings.kept() == {}
    doctor(place, all_facts(place))
    assert len(device_readings.kept()) == 2
    one = next(iter(device_readings.kept().values()))
    device_readings.keep([replace(one, when_ns=1)])
    assert device_readings.kept()[one.state].when_ns == 1


def packet(*, payload, version=4):
    """The first bytes of a TCP packet, and its length."""
    ip = bytes([0x45, *bytes(8), 6, *bytes(10)]) if version == 4 else bytes([0x60, *bytes(5), 6, *bytes(33)])
    tcp = bytes([*bytes(12), 8 << 4, *bytes(19)])
    head = bytes(12) + (b"\x08\x00" if version == 4 else b"\x86\xdd") + ip + tcp
    return head + bytes(40), len(head) + payload


@pytest.mark.parametrize(("version", "room"), [(4, 1448), (6, 1428)])
def test_a_joined_packet_is_cut_as_a_device_does(version, room):
    headers = 1514 - room
    assert device_exchange.on_wire(*packet(payload=100, version=version), 1500) == (1, headers + 100)
    many = device_exchange.on_wire(*packet(payload=44 * room, version=version), 1500)
    assert many == (44, 44 * 1514)
    one_more = device_exchange.on_wire(*packet(payload=44 * room + 1, version=version), 1500)
    assert one_more == (45, 44 * 1514 + headers + 1)
