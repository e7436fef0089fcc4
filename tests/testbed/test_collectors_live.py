"""Collectors and iperf as their launches start them, between two namespaces joined by a veth pair."""

from __future__ import annotations

import json
import mmap
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cross_traffic import iperf
from orchestrator.agents.agent import bpf
from orchestrator.analysis.capture import captures, metered
from orchestrator.core.deadline import Deadline
from orchestrator.parts.collectors import meter, nic, qdisc, tcp, tcpdump
from orchestrator.parts.protocols import Source
from orchestrator.parts.rows import LaunchOutput
from orchestrator.parts.shared import capture_files
from orchestrator.parts.topology import Link, Node, Rail, Topology
from tests.helpers.cable import Pair, attached

pytestmark = [
    pytest.mark.testbed,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root to make network namespaces"),
]

TOPOLOGY = Topology(
    kind="local",
    nodes=(
        Node(name="h1", rails=(Rail(address="10.77.0.1", device="ea"),)),
        Node(name="h2", rails=(Rail(address="10.77.0.2", device="eb"),)),
    ),
    links=(Link(host="h1", device="ea", rate=25e9), Link(host="h2", device="eb", rate=25e9)),
    scale=100,
)
SEND_UDP = """
import socket, sys, time
count, rate = int(sys.argv[1]), float(sys.argv[2])
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
start = time.monotonic()
for i in range(count):
    while time.monotonic() < start + i / rate:
        pass
    s.sendto(bytes(1000), ("10.77.0.2", 9))
"""


EXCHANGE = """
import socket, sys
if sys.argv[1] == "serve":
    s = socket.create_server(("10.77.0.2", 5001)); print("up", flush=True); c = s.accept()[0]
    while c.recv(65536): pass
else:
    s = socket.create_connection(("10.77.0.2", 5001)); s.sendall(bytes(int(sys.argv[2]))); s.shutdown(1); s.recv(1)
"""


def exchange(pair: Pair, size: int) -> None:
    """Send so many bytes over TCP from h1 to h2, to the end of the connection."""
    script = [sys.executable, "-I", "-S", "-c", EXCHANGE]
    server = pair.popen("h2", *script, "serve", stdout=subprocess.PIPE)
    assert server.stdout.readline() == "up\n"
    pair.do("h1", *script, "send", str(size))
    assert server.wait(60) == 0


def port_of(output: LaunchOutput, name: str, address: str) -> captures.Job:
    return captures.Job(files=(output.folder / name,), port="ea", addresses=(address,), segment=1500)


def counted(pair: Pair) -> dict[str, tuple[int, int]]:
    """Bytes and packets by the device's own counters, of each direction."""
    said = json.loads(pair.do("h1", "ip", "-s", "-j", "link", "show", "ea"))[0]["stats64"]
    return {way: (said[key]["bytes"], said[key]["packets"]) for way, key in (("out", "tx"), ("in", "rx"))}


@pytest.mark.parametrize("offloads", ["off", "on"])
def test_a_meter_counts_what_the_device_and_a_capture_count(pair, offloads):
    for node, device in (("h1", "ea"), ("h2", "eb")):
        pair.do(node, "ethtool", "-K", device, "tso", offloads, "gso", offloads, "gro", offloads)
    started = []
    for module, one in ((meter, meter.Config(hosts=("h1",))), (tcpdump, tcpdump.Config(hosts=("h1",)))):
        launch = module.launches(one, TOPOLOGY)[0]
        started.append((launch, *pair.launch(launch)))

    before = counted(pair)
    pair.do("h1", sys.executable, "-I", "-S", "-c", SEND_UDP, "2000", "20000")
    exchange(pair, 4_000_000)
    after = counted(pair)
    time.sleep(started[1][0].stop.drain_s)  # the drain itself, as the runner gives it
    for launch, process, _ in started:
        pair.stop(process, launch)
    ours = metered.reduce(port_of(started[0][2], "meter.bin", "10.77.0.1"))
    theirs = captures.reduce(port_of(started[1][2], "capture.pcap", "10.77.0.1"))
    # A device without offloads counts the frames that the kernel cuts a packet into after the meter has seen it.
    names = ("captured_bytes", "packets") if offloads == "on" else ("wire_bytes", "frames")
    for way in ("out", "in"):
        mine = np.array(ours.packets["direction"]) == way
        sums = [ours.packets[name][mine].sum() for name in names]
        due = [late - soon for late, soon in zip(after[way], before[way], strict=True)]
        assert sums == pytest.approx(due, rel=0.001), way
    assert flows(ours) == flows(theirs)
    for ends, bins in fine(ours).items():
        other = fine(theirs)[ends]
        ahead = np.cumsum([bins.get(at, 0) - other.get(at, 0) for at in sorted({*bins, *other})])
        # A packet is stamped twice, microseconds apart, so that one or two may fall on either side of a bin's end.
        assert np.abs(ahead).max() <= 2 * 65_536 * 1.1, ends


def flows(tables: captures.Tables) -> dict[tuple[object, ...], tuple[int, ...]]:
    """Bytes on the wire and payload of each flow of IP."""
    keys = ("direction", "protocol", "src", "src_port", "dst", "dst_port")
    sums = ("wire_bytes", "payload_bytes")
    rows = zip(*(tables.capture_flows[name] for name in (*keys, *sums)), strict=True)
    return {row[:6]: tuple(map(int, row[6:])) for row in rows if row[1] in ("tcp", "udp")}


def fine(tables: captures.Tables) -> dict[tuple[object, ...], dict[int, int]]:
    """Bytes on the wire of each flow of IP in its bins."""
    keys = ("direction", "protocol", "src", "src_port", "dst", "dst_port")
    ends = list(zip(*(tables.capture_flows[name] for name in keys), strict=True))
    found: dict[tuple[object, ...], dict[int, int]] = {}
    names = ("flow", "bin_ns", "wire_bytes")
    for flow, at, size in zip(*(tables.flow_packets[name] for name in names), strict=True):
        if ends[flow][1] in ("tcp", "udp"):
            found.setdefault(ends[flow], {})[int(at)] = int(size)
    return found


def test_a_full_ring_of_a_meter_is_counted_and_nothing_else_is_lost(pair):
    launch = meter.launches(meter.Config.model_validate({"hosts": ["h1"], "every": "10s"}), TOPOLOGY)[0]
    code = json.loads(launch.files["meter.bpf.json"].read_text())
    code["maps"]["counted"][3] = mmap.PAGESIZE  # of 36 records where pages are of 4 KiB; 200 bins come
    small = pair.folder / "small.json"
    small.write_text(json.dumps(code))
    process, output = pair.launch(replace(launch, files={**launch.files, "meter.bpf.json": small}))
    before = counted(pair)
    pair.do("h1", sys.executable, "-I", "-S", "-c", SEND_UDP, "2000", "10000")
    passed = sum(counted(pair)[way][1] - before[way][1] for way in before)
    pair.stop(process, launch)
    captured = meter.read(output)["captures"]
    assert captured["dropped"][0] > 0
    assert captured["captured"][0] + captured["dropped"][0] == captured["received"][0] == passed


@pytest.mark.parametrize(("rights", "enough"), [("+net_admin,+bpf", True), ("+net_admin", False), ("+bpf", False)])
def test_a_user_with_two_capabilities_may_use_a_meter(rights, enough):
    look = Path(bpf.__file__).read_text() + "\nprint(*usable())"  # the user may not see where it lies
    words = [
        option for name in ("bounding-set", "inh-caps", "ambient-caps") for option in (f"--{name}", f"-all,{rights}")
    ]
    user = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", *words]
    said = subprocess.run([*user, "/usr/bin/python3", "-c", look], check=True, capture_output=True, text=True).stdout
    assert said.split()[0] == str(enough), said
    assert ("CAP_BPF and CAP_NET_ADMIN" in said) is not enough


def test_nothing_of_a_meter_outlives_it(pair):
    launch = meter.launches(meter.Config(hosts=("h1",)), TOPOLOGY)[0]
    process, output = pair.launch(launch)
    places = (bpf.TCX_INGRESS, bpf.TCX_EGRESS)
    assert [attached(pair, "h1", "ea", where) for where in places] == [1, 1]
    process.kill()
    process.wait(60)
    gone = lambda: [attached(pair, "h1", "ea", where) for where in places] == [0, 0]  # noqa: E731
    Deadline.after(60).poll(gone, every_s=0.05, waiting_for="the kernel to let go of the programs")
    assert meter.read(output) == {}


def shape(pair: Pair, *, rate: str, limit: str, how: str = "add") -> None:
    words = f"tc qdisc {how} dev ea root handle 1: tbf rate {rate} burst 32kb limit {limit}"
    pair.do("h1", *words.split())


def last(columns, port: str) -> dict[str, float]:
    """The last value of each counter of a port."""
    rows = zip(columns["port"], columns["counter"], columns["time_ns"], columns["value"], strict=True)
    return {name: value for where, name, _, value in sorted(rows, key=lambda row: row[2]) if where == port}


@pytest.mark.alone
@pytest.mark.parametrize(("options", "count", "files"), [({}, 40, 1), ({}, 5000, 1), ({"rotate": "1mb"}, 15_000, 2)])
def test_every_packet_is_in_the_capture_after_the_drain(pair, options, count, files):
    config = tcpdump.Config.model_validate({"hosts": ["h2"], "filter": "udp port 9", **options})
    launch = tcpdump.launches(config, TOPOLOGY)[0]
    process, output = pair.launch(launch)
    pair.do("h1", "python3", "-I", "-S", "-c", SEND_UDP, str(count), "50000")
    time.sleep(launch.stop.drain_s)  # the drain itself, as the runner gives it
    pair.stop(process, launch)
    captures = tcpdump.read(output)["captures"]
    assert captures["port"] == ["eb"]
    assert captures["captured"] == captures["received"] == [count]
    assert captures["dropped"] == [0]
    assert captures["files"] == [files]
    frames = sum(
        len(subprocess.run(["tcpdump", "-nr", path], capture_output=True, check=True, text=True).stdout.splitlines())
        for path in capture_files.in_order(output.folder)
    )
    assert frames == count


def test_the_whole_capture_agrees_with_the_devices_counters(pair):
    captures = tcpdump.launches(tcpdump.Config(), TOPOLOGY)[0]
    counters = nic.launches(nic.Config(hosts=("h1",)), TOPOLOGY)[0]
    dumping, dumped = pair.launch(captures)
    counting, counted = pair.launch(counters)
    pair.do("h1", "python3", "-I", "-S", "-c", SEND_UDP, "2000", "20000")
    pair.stop(counting, counters)
    time.sleep(captures.stop.drain_s)
    pair.stop(dumping, captures)
    columns = nic.read(counted)["counters"]
    values = columns["value"][(columns["port"] == "ea") & (columns["counter"] == "tx_bytes")]
    sent = values[-1] - values[0]
    assert 2000 * 1042 <= sent <= 2000 * 1042 + 2000
    assert abs(tcpdump.read(dumped)["captures"]["received"][0] - 2000) < 40
    real = json.loads(pair.do("h1", "ip", "-s", "-j", "link", "show", "ea"))[0]["stats64"]["tx"]
    assert abs(real["bytes"] - last(columns, "ea")["tx_bytes"]) < 500


def test_queue_counters_equal_those_of_tc(pair):
    shape(pair, rate="10kbit", limit="60kb")  # a queue for most of a minute, so that a late sample meets it too
    launch = qdisc.launches(qdisc.Config(hosts=("h1",)), TOPOLOGY)[0]
    process, output = pair.launch(launch)
    pair.do("h1", "python3", "-I", "-S", "-c", SEND_UDP, "1000", "20000")

    def longest() -> float:
        columns = qdisc.read(output)["counters"]
        return max(columns["value"][columns["counter"] == "qdisc.tbf.backlog_bytes"])

    Deadline.after(60).poll(lambda: longest() > 50_000, every_s=0.1, waiting_for="a sample of the queue")
    shape(pair, rate="20mbit", limit="60kb", how="change")
    drained = lambda: json.loads(pair.do("h1", "tc", "-s", "-j", "qdisc", "show", "dev", "ea"))[0]  # noqa: E731
    Deadline.after(60).poll(lambda: drained()["backlog"] == 0, every_s=0.01, waiting_for="an empty queue")
    pair.stop(process, launch)
    said = drained()
    columns = qdisc.read(output)["counters"]
    counted = last(columns, "ea")
    assert said["drops"] > 100
    for ours, theirs in (
        ("bytes", "bytes"),
        ("packets", "packets"),
        ("drops", "drops"),
        ("overlimits", "overlimits"),
        ("requeues", "requeues"),
        ("backlog_bytes", "backlog"),
        ("backlog_packets", "qlen"),
    ):
        assert counted[f"qdisc.tbf.{ours}"] == said[theirs], ours
    most = max(columns["value"][columns["counter"] == "qdisc.tbf.backlog_s"])
    assert most == pytest.approx(longest() * 8 / 250e6)  # of the link, whose rate is 25 Gbit/s over the scale


def test_children_are_counted_when_asked(pair):
    shape(pair, rate="20mbit", limit="60kb")
    pair.do("h1", "tc", "qdisc", "add", "dev", "ea", "parent", "1:1", "pfifo", "limit", "40")
    for children, kinds in ((False, {"tbf"}), (True, {"tbf", "pfifo@1:1"})):
        launch = qdisc.launches(qdisc.Config(hosts=("h1",), children=children), TOPOLOGY)[0]
        process, output = pair.launch(launch)
        pair.stop(process, launch)
        names = {str(name) for name in last(qdisc.read(output)["counters"], "ea")}
        assert {name.removeprefix("qdisc.").rpartition(".")[0] for name in names} == kinds
        shutil.rmtree(output.folder)


def test_sockets_equal_those_of_ss(pair):
    server = pair.popen(
        "h2",
        "python3",
        "-c",
        "import socket; s=socket.create_server(('10.77.0.2',5000)); print('up',flush=True); c=s.accept()[0]\n"
        "while c.recv(65536): pass",
        stdout=subprocess.PIPE,
    )
    assert server.stdout.readline() == "up\n"
    client = pair.popen(
        "h1",
        "python3",
        "-c",
        "import socket,sys; s=socket.create_connection(('10.77.0.2',5000)); s.sendall(bytes(3_000_000))\n"
        "print('sent',flush=True); sys.stdin.read()",
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert client.stdout.readline() == "sent\n"
    said = lambda: pair.do("h1", "ss", "-Htin", "dst", "10.77.0.2")  # noqa: E731
    Deadline.after(60).poll(lambda: "bytes_acked:3000001" in said(), every_s=0.02, waiting_for="all acknowledged")
    launch = tcp.launches(tcp.Config(hosts=("h1",)), TOPOLOGY)[0]
    process, output = pair.launch(launch)
    pair.stop(process, launch)
    text = said()
    columns = tcp.read(output)["sockets"]
    assert len(set(columns["src_port"])) == 1
    assert f"10.77.0.1:{columns['src_port'][-1]}" in text
    assert (columns["dst"][-1], columns["dst_port"][-1]) == ("10.77.0.2", 5000)
    assert columns["congestion"][-1] == text.splitlines()[1].split()[0]
    assert columns["bytes_acked"][-1] == 3_000_001
    assert columns["unacked_segments"][-1] == 0
    assert columns["cwnd_segments"][-1] == int(re.search(r"cwnd:(\d+)", text)[1])
    assert columns["rtt_s"][-1] * 1000 == pytest.approx(float(re.search(r"rtt:([\d.]+)", text)[1]), abs=0.0011)
    retransmits = re.search(r"retrans:\d+/(\d+)", text)
    assert columns["retransmits"][-1] == (int(retransmits[1]) if retransmits else 0)


SLOW_READER = """
import socket, sys
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, int(sys.argv[1]))
s.bind(("10.77.0.2", 5000)); s.listen(); print("up", flush=True)
c = s.accept()[0]
print("got", flush=True)
while c.recv(65536): pass
"""
SEND_ALL = """
import socket, sys
s = socket.create_connection(("10.77.0.2", 5000))
print("open", flush=True)
s.sendall(bytes(int(sys.argv[1]))); print("sent", flush=True); sys.stdin.read()
"""


@pytest.mark.parametrize(("window", "limited"), [(4096, True), (4_000_000, False)])
def test_a_small_receive_window_is_told_from_a_slow_link(pair, window, limited):
    shape(pair, rate="20mbit", limit="60kb")
    script = [sys.executable, "-I", "-S", "-c"]
    server = pair.popen("h2", *script, SLOW_READER, str(window), stdout=subprocess.PIPE)
    assert server.stdout.readline() == "up\n"
    launch = tcp.launches(tcp.Config(hosts=("h1",)), TOPOLOGY)[0]
    process, output = pair.launch(launch)
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    client = pair.popen("h1", *script, SEND_ALL, "1500000", env={**os.environ, "ORCH_LAUNCH": "job.rank0"}, **pipes)
    assert [client.stdout.readline() for _ in range(2)] == ["open\n", "sent\n"]

    def seen() -> bool:
        found = tcp.read(output).get("sockets")
        if found is None or "job.rank0" not in found["process"]:
            return False
        return found["bytes_acked"][-1] == 1_500_001 and found["notsent_bytes"][-1] == 0

    Deadline.after(60).poll(seen, every_s=0.1, waiting_for="the connection's owner and its last byte")
    pair.stop(process, launch)
    columns = tcp.read(output)["sockets"]
    assert set(columns["process"]) == {"job.rank0"}
    last_one = {name: values[-1] for name, values in columns.items()}
    share = last_one["rwnd_limited_s"] / last_one["busy_s"]
    assert (share > 0.5) == limited, share
    assert last_one["delivery_rate_bps"] > 0
    assert 0 < last_one["min_rtt_s"] <= last_one["rtt_s"]
    assert (last_one["snd_wnd_bytes"] < 10_000) == limited
    # What has no place in the queue of 60 kB waits in the sender's buffer, unless the receiver's window is the limit.
    assert (max(columns["notsent_bytes"]) > 0) or limited


@pytest.mark.parametrize("reads", [True, False])
def test_payload_that_its_receiver_does_not_read_is_told(pair, reads):
    waits = SLOW_READER if reads else SLOW_READER.replace("while c", "sys.stdin.read()\nwhile c")
    script = [sys.executable, "-I", "-S", "-c"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    server = pair.popen("h2", *script, waits, "200000", **pipes)
    assert server.stdout.readline() == "up\n"
    client = pair.popen("h1", *script, SEND_ALL, "50000", **pipes)
    assert [client.stdout.readline() for _ in range(2)] == ["open\n", "sent\n"]
    queue = lambda: pair.do("h2", "ss", "-Htn", "src", "10.77.0.2").split()[1]  # noqa: E731
    due = "0" if reads else "50000"
    Deadline.after(60).poll(lambda: queue() == due, every_s=0.02, waiting_for="what arrives")
    launch = tcp.launches(tcp.Config(hosts=("h2",)), TOPOLOGY)[0]
    process, output = pair.launch(launch)
    pair.stop(process, launch)
    assert str(tcp.read(output)["sockets"]["unread_bytes"][-1]) == due


def test_only_the_data_planes_sockets_are_kept(pair):
    pair.do("h1", "ip", "address", "add", "10.78.0.1/24", "dev", "ea")
    launch = tcp.launches(tcp.Config(hosts=("h1",)), TOPOLOGY)[0]
    code = (
        "import socket,sys\n"
        "i,j=socket.AF_INET,socket.AF_INET6\n"
        "for a,f in (('10.77.0.1',i),('10.78.0.1',i),('::ffff:10.77.0.1',j)):\n"
        "  l,c=socket.socket(f),socket.socket(f); l.bind((a,0)); l.listen()\n"
        "  c.bind((a,0)); c.connect(l.getsockname())\n"
        "  globals()[a]=(l,c,l.accept())\n"
        "print('up',flush=True); sys.stdin.read()"
    )
    holder = pair.popen("h1", "python3", "-c", code, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdout.readline() == "up\n"
    process, output = pair.launch(launch)
    pair.stop(process, launch)
    columns = tcp.read(output)["sockets"]
    assert set(columns["src"]) == {"10.77.0.1"}
    first = columns["time_ns"] == columns["time_ns"][0]
    assert sum(first) == 4  # both ends of the IPv4 connection and of the one through a mapped address


def test_a_device_that_vanishes_is_said_and_the_rest_goes_on(pair):
    pair.do("h1", "ip", "link", "add", "ex", "type", "veth", "peer", "name", "ey")
    launch = nic.launches(nic.Config(hosts=("h1",)), TOPOLOGY)[0]
    launch = replace(launch, argv=(*launch.argv, "ex"))
    process, output = pair.launch(launch)
    said = (output.folder / "stderr").read_text
    pair.do("h1", "ip", "link", "del", "ex")
    Deadline.after(60).poll(lambda: "nic: ex: No such device" in said(), every_s=0.01, waiting_for="a complaint")
    assert process.poll() is None
    pair.do("h1", "ip", "link", "del", "ea")
    assert process.wait(60) == 1
    assert "Traceback" not in said()
    columns = nic.read(output)["counters"]
    latest = {port: columns["time_ns"][columns["port"] == port].max() for port in ("ea", "ex")}
    assert latest["ex"] < latest["ea"]


@pytest.mark.alone
def test_sampling_every_10_ms_costs_about_a_hundredth_of_a_core(pair):
    launch = nic.launches(nic.Config(hosts=("h1",)), TOPOLOGY)[0]
    process, _ = pair.launch(launch)
    ticks = lambda: float(Path(f"/proc/{process.pid}/schedstat").read_text().split()[0]) / 1e9  # noqa: E731
    before, began = ticks(), time.monotonic()
    time.sleep(2)  # the span that is measured
    share = (ticks() - before) / (time.monotonic() - began)
    pair.stop(process, launch)
    assert share < 0.04, f"{share:.2%} of a core"


def received_bps(pair: Pair) -> float:
    """Layer-2 bits a second that come in at h2 over two seconds."""

    def reading() -> tuple[float, int]:
        said = json.loads(pair.do("h2", "ip", "-s", "-j", "link", "show", "eb"))[0]["stats64"]["rx"]["bytes"]
        return time.monotonic(), said

    sooner = reading()
    time.sleep(2)  # the span that is measured
    later = reading()
    return (later[1] - sooner[1]) * 8 / (later[0] - sooner[0])


@pytest.mark.alone
@pytest.mark.parametrize("streams", [1, 4])
def test_iperf_puts_the_load_on_the_wire_and_leaves_its_rows_when_stopped(pair, streams):
    shape(pair, rate="250mbit", limit="300kb")
    config = iperf.Config.model_validate({"from": "h1", "to": "h2", "load": "8gbit", "streams": streams})
    source = Source(name="iperf0", window="w1", port=15201, duration_s=3000, seed=1)
    server, client = iperf.launches(config, source, TOPOLOGY)
    serving, server_home = pair.launch(server)
    sending, output = pair.launch(client)
    exact = lambda: received_bps(pair) == pytest.approx(80e6, rel=0.01)  # noqa: E731
    Deadline.after(60).poll(exact, every_s=0, waiting_for="two seconds at the rate asked for")
    pair.stop(sending, client)
    pair.stop(serving, server)
    flows = iperf.read(output)["flows"]
    assert len(flows["flow"]) == streams
    seconds = (flows["end_ns"][0] - flows["start_ns"][0]) / 1e9
    assert seconds > 2.4
    # payload, not wire: 4.6 % apart
    assert sum(flows["bytes"]) * 8 / seconds == pytest.approx(80e6 * 1448 / 1514, rel=0.03)
    assert abs(flows["start_ns"][0] / 1e9 + seconds - time.time()) < 5
    assert iperf.read(server_home) == {}


def test_an_iperf_client_that_was_killed_leaves_what_it_reported(pair):
    config = iperf.Config.model_validate({"from": "h1", "to": "h2", "load": "1gbit"})
    source = Source(name="iperf0", window="w1", port=15201, duration_s=3000, seed=1)
    server, client = iperf.launches(config, source, TOPOLOGY)
    pair.launch(server)
    sending, output = pair.launch(client)
    sending.send_signal(signal.SIGKILL)
    sending.wait(60)
    flows = iperf.read(output)["flows"]
    assert len(flows["flow"]) == 4
    assert sum(flows["bytes"]) * 8 / 0.5 == pytest.approx(10e6 * 1448 / 1514, rel=0.5)


def test_an_unreachable_server_ends_the_client_with_a_reason(pair):
    config = iperf.Config.model_validate({"from": "h1", "to": "h2", "load": "1gbit"})
    source = Source(name="iperf0", window="w1", port=15201, duration_s=3000, seed=1)
    client = iperf.launches(config, source, TOPOLOGY)[1]
    process = pair.popen("h1", *client.argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert process.wait(60) == 1
    assert "Connection refused" in process.stderr.read()
