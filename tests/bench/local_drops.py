"""How often a message waits since the sender's own queue takes nothing of it: the kernel beside our packets.

A sender writes a message to each of its peers at once, fifty times, through the token bucket of a local testbed. Where
the bucket has no room for what TCP hands over first, TCP is told, nothing is under way, and its timer for zero windows
(`tcp_check_probe_timer`) sends 200 ms later. No counter of losses, time-outs or retransmissions knows of it. A notice
before the message, as gloo sends one, is under way then, and its acknowledgement has TCP try again.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import yaml

from orchestrator.experiment import fitting, loading
from orchestrator.parts.shared.token_bucket import bucket
from orchestrator.parts.taskgraph import TaskGraph
from orchestrator.parts.topology import Job
from orchestrator.predict.simulation import links, simulating
from orchestrator.predict.simulation.simulating import SimulatedJob
from tests.bench import flow_generator
from tests.bench.commands import call
from tests.bench.figure import Figure, Settings, Table
from tests.helpers.free_rates import FREE
from workloads.common import placement

SCALE, LINK_BPS, QUEUE_S, MTU = 400, 25e9, 1e-3, 1500
PEERS, SIZES, NOTICES = (1, 2, 3, 6), (8_000, 16_000, 64_000), (0, 48)
ROUNDS, PAUSE_S, WAITED_S = 50, 0.02, 0.15
PROGRAM = """
import socket, sys, threading, time
side, address, peers, size, notice, rounds, pause_s, waited_s = sys.argv[1:3] + [float(word) for word in sys.argv[3:]]
def served(one):
    while True:
        left = int(notice + size)
        while left:
            got = len(one.recv(min(left, 65536)))
            if not got:
                return
            left -= got
        one.sendall(b"x")
if side == "sink":
    listening = socket.create_server((address, 7000))
    print("ready", flush=True)
    for _ in range(int(peers)):
        threading.Thread(target=served, args=(listening.accept()[0],)).start()
else:
    ends = [socket.create_connection((address, 7000)) for _ in range(int(peers))]
    for end in ends:
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    waits = 0
    for _ in range(int(rounds)):
        began = time.monotonic()
        for end in ends:
            if notice:
                end.sendall(bytes(int(notice)))
            end.sendall(bytes(int(size)))
        for end in ends:
            end.recv(1)
        waits += time.monotonic() - began > waited_s
        time.sleep(pause_s)
    print(waits)
"""


def measure(settings: Settings) -> Iterator[Figure | Table]:
    """Return how many of fifty rounds wait, measured and simulated; `--quick` tries up to three peers."""
    rows = tuple(
        (
            peers,
            size // 1000,
            notice,
            _measured(settings.scratch, peers, size, notice),
            _simulated(settings.scratch, peers, size, notice),
        )
        for notice in NOTICES
        for peers in PEERS[: settings.times(len(PEERS), 3)]
        for size in SIZES
    )
    off = tuple(float(abs(simulated - measured)) for *_, measured, simulated in rows)
    yield Figure(what="rounds that wait, simulated off measured", unit=f"of {ROUNDS}", values=off)
    columns = ("peers", "message (kB)", "notice (bytes)", "measured rounds that wait", "simulated")
    yield Table(title=f"Rounds of {ROUNDS} that wait for a timer", columns=columns, rows=rows)


def _measured(scratch: Path, peers: int, size: int, notice: int) -> int:
    shape = bucket(LINK_BPS / SCALE, queue_s=QUEUE_S, mtu=MTU).arguments
    words = [flow_generator.DST, *map(str, (peers, size, notice, ROUNDS, PAUSE_S, WAITED_S))]
    with flow_generator.pair(scratch, shape=shape) as between:
        within = ["ip", "netns", "exec", between.sink, sys.executable, "-c", PROGRAM, "sink", *words]
        with subprocess.Popen(within, stdout=subprocess.PIPE, text=True) as sink:
            try:
                assert sink.stdout is not None, "it was asked for"
                sink.stdout.readline()
                program = ["ip", "netns", "exec", between.sender, sys.executable, "-c", PROGRAM, "sender", *words]
                return int(call(program).stdout)
            finally:
                sink.kill()


def _simulated(scratch: Path, peers: int, size: int, notice: int) -> int:
    graph = TaskGraph(ranks=peers + 1)
    ready = [graph.compute(rank, PAUSE_S, (graph.begins[rank],)) for rank in range(peers + 1)]
    sent = [graph.send(0, peer, float(size), (ready[0], ready[peer])) for peer in range(1, peers + 1)]
    graph.end([sent] * (peers + 1))
    hosts = [f"h{1 + rank}" for rank in range(peers + 1)]
    file = scratch / "drops.yaml"
    file.write_text(
        yaml.safe_dump(
            {
                "name": "drops",
                "testbed": {
                    "local": {
                        "hosts": len(hosts),
                        "link": f"{LINK_BPS:g}bit",
                        "scale": SCALE,
                        "queue": f"{QUEUE_S * 1e3:g}ms",
                    }
                },
                "workload": {"ddp": {"model": "resnet50", "hosts": hosts}},
                "measure": {"iterations": ROUNDS},
            }
        )
    )
    experiment = loading.checked(file, [], local=False).experiment
    topology = fitting.topology_of(experiment)
    job = Job(name="training", index=0, ranks=placement.ranks(hosts, topology))
    found = simulating.simulate(
        [SimulatedJob(job=job, graph=graph)],
        links.network(experiment, topology),
        [],
        FREE,
        warmup=0,
        iterations=ROUNDS,
        seed=1,
        grain="packets",
        notice=float(notice),
    )
    return int(np.count_nonzero(found.seconds["training"] - PAUSE_S > WAITED_S))
