"""Marks at a threshold begin where they were asked to, by the queue that `tc` tells and the packets that arrive."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from orchestrator.agents.agent import bpf
from orchestrator.core.deadline import Deadline
from orchestrator.parts.conditions import ecn
from orchestrator.parts.topology import Link, Node, Rail, Topology
from tests.helpers.cable import attached

pytestmark = [
    pytest.mark.testbed,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root to load programs into the kernel"),
]

TOPOLOGY = Topology(
    kind="local",
    nodes=(
        Node(name="h1", rails=(Rail(address="10.77.0.1", device="ea"),), python=sys.executable),
        Node(name="h2", rails=(Rail(address="10.77.0.2", device="eb"),), python=sys.executable),
    ),
    links=(Link(host="h1", device="ea", rate=1e9), Link(host="h2", device="eb", rate=1e9)),
)
FRAME = 1442  # of 1400 bytes of UDP
PACKETS, K = 60, 50_000
INCAPABLE = 7  # each such packet is not ECN-capable
SLOW = "tc qdisc replace dev ea root tbf rate 1kbit burst 10000b limit 200000b"  # 11 s a packet, once the burst is over
FAST = "tc qdisc change dev ea root tbf rate 1gbit burst 100000b limit 200000b"
SEND = f"""
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for i in range({PACKETS}):
    s.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 0 if i % {INCAPABLE} == 0 else 2)
    s.sendto(i.to_bytes(2, "big") + bytes(1398), ("10.77.0.2", 5300))
"""
TAKE = f"""
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.IPPROTO_IP, socket.IP_RECVTOS, 1)
s.bind(("", 5300))
print("bound", flush=True)
for _ in range({PACKETS}):
    data, told, _, _ = s.recvmsg(2000, 64)
    print(int.from_bytes(data[:2], "big"), told[0][2][0] & 3, flush=True)
"""


def marking(config):
    return ecn.changes(config, TOPOLOGY)[-1].process


def queue(pair):
    (found,) = json.loads(pair.do("h1", "tc", "-j", "-s", "qdisc", "show", "dev", "ea"))
    return found


def sent(pair, launch):
    """Which packets arrived marked, what `tc` told of the queue as all had been sent, and the row of `marks`."""
    pair.do("h1", *SLOW.split())
    mac = json.loads(pair.do("h2", "ip", "-j", "link", "show", "eb"))[0]["address"]
    pair.do("h1", "ip", "neigh", "replace", "10.77.0.2", "lladdr", mac, "dev", "ea")  # or packets wait for ARP first
    taker = pair.popen("h2", sys.executable, "-I", "-S", "-c", TAKE, stdout=subprocess.PIPE)
    assert taker.stdout.readline() == "bound\n"
    process, output = pair.launch(launch)
    pair.do("h1", sys.executable, "-I", "-S", "-c", SEND)
    waiting = queue(pair)
    pair.do("h1", *FAST.split())
    arrived = dict(tuple(map(int, line.split())) for line in taker.stdout)
    assert sorted(arrived) == list(range(PACKETS))
    pair.stop(process, launch)
    row = {name: values[0] for name, values in ecn.read(output)["marks"].items()}
    return [number for number, mark in sorted(arrived.items()) if mark == 3], waiting, row


def capable(numbers):
    return [number for number in numbers if number % INCAPABLE]


def test_marks_begin_within_a_twentieth_of_the_threshold(pair):
    marked, waiting, row = sent(pair, marking(ecn.Config(host="h1", threshold=f"{K}b")))
    assert marked == capable(range(marked[0], PACKETS)), "from then on each capable packet, and no other"
    begun = waiting["backlog"] - (PACKETS - marked[0]) * FRAME  # what waited as the first of them came
    assert begun == pytest.approx(K, rel=0.05)
    assert row["least_marked_bytes"] == pytest.approx(K, rel=0.05)
    assert row["most_passed_bytes"] <= K < row["least_marked_bytes"]
    assert (row["marked"], row["marked"] + row["unmarkable"]) == (len(marked), PACKETS - marked[0])
    assert row["capable"] == len(capable(range(PACKETS)))


def test_a_virtual_queue_marks_before_the_ports_own_is_as_long(pair):
    """It has every packet, those too that a full bucket lets go at once."""
    marked, waiting, row = sent(pair, marking(ecn.Config(host="h1", threshold=f"{K}b", virtual="50%")))
    assert marked == capable(range(marked[0], PACKETS))
    assert marked[0] * FRAME == pytest.approx(K, rel=0.05)
    begun = waiting["backlog"] - (PACKETS - marked[0]) * FRAME
    assert begun < 0.9 * K
    assert row["least_marked_bytes"] == pytest.approx(K, rel=0.05)


def test_a_time_is_that_at_the_rate_of_the_queue(pair):
    pair.do("h1", *FAST.split()[:2], "replace", *FAST.split()[3:])
    launch = marking(ecn.Config(host="h1", sojourn="400us"))
    process, output = pair.launch(launch)
    pair.stop(process, launch)
    assert ecn.read(output)["marks"]["threshold_bytes"] == [50_000]


def test_nothing_marks_any_more_once_its_process_was_killed(pair):
    pair.do("h1", *SLOW.split())
    process, output = pair.launch(marking(ecn.Config(host="h1", threshold=f"{K}b")))
    assert attached(pair, "h1", "ea", bpf.TCX_EGRESS) == 1
    process.kill()
    process.wait(60)
    gone = lambda: attached(pair, "h1", "ea", bpf.TCX_EGRESS) == 0  # noqa: E731
    Deadline.after(60).poll(gone, every_s=0.05, waiting_for="the kernel to let go of the program")
    assert ecn.read(output)["marks"]["device"] == []
