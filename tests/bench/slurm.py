"""A cluster of Slurm on this machine: how soon nodes are idle and agents up, and what an agent's channel carries."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from orchestrator.core import fanout
from orchestrator.core.deadline import Deadline
from orchestrator.parts.topology import Node
from orchestrator.remote.agent_client import AgentClient
from orchestrator.testbed.slurm import job
from orchestrator.testbed.slurm.cluster import LocalCluster
from orchestrator.testbed.slurm.testbed import Step
from tests.bench import local
from tests.bench.commands import ROOT
from tests.bench.figure import Figure, Settings

UP_S = 240.0
IDLE_GOAL_S, AGENTS_GOAL_S, ROUND_TRIP_GOAL_MS, FETCH_GOAL_MBPS = 2.0, 5.0, 1.0, 150.0
MANY, FEW = 64, 4


def measure(settings: Settings) -> Iterator[Figure]:
    """Goals are for two cores; each is measured in an allocation of all nodes by a process on the host to log in to."""
    with local.machine_to_ourselves():
        with _up(settings.scratch / "few", FEW) as cluster:
            yield Figure(
                what=f"{FEW} nodes of Slurm idle",
                unit="s",
                values=(cluster.idle_s,),
                against="goal",
                reference=(IDLE_GOAL_S,),
            )
            found = _inside(cluster, settings, megabytes=settings.times(256, 64))
            yield Figure(
                what="round trip to an agent (ping)",
                unit="ms",
                values=tuple(found["pings_ms"]),
                against="goal",
                reference=(ROUND_TRIP_GOAL_MS,),
            )
            yield Figure(
                what="fetch by an agent, a file hashed and written",
                unit="MB/s",
                values=tuple(found["fetch_mbps"]),
                against="least",
                reference=(FETCH_GOAL_MBPS,),
            )
        with _up(settings.scratch / "many", settings.times(MANY, 16)) as cluster:
            found = _inside(cluster, settings, megabytes=0)
            yield Figure(
                what=f"{len(cluster.nodes)} agents over one srun",
                unit="s",
                values=tuple(found["agents_s"]),
                against="goal",
                reference=(AGENTS_GOAL_S,),
            )


@contextmanager
def _up(folder: Path, nodes: int) -> Iterator[LocalCluster]:
    cluster = LocalCluster(nodes, link_bps=float("inf"), run_id=f"bench-{os.getpid()}-{time.monotonic_ns()}")
    try:
        cluster.open(folder, Deadline.after(UP_S))
        yield cluster
    finally:
        cluster.close()


def _inside(cluster: LocalCluster, settings: Settings, *, megabytes: int) -> dict[str, list[float]]:
    """What this module's program measures in an allocation of all nodes."""
    count = str(len(cluster.nodes))
    words = [count, str(settings.times(5, 2)), str(settings.times(500, 100)), str(megabytes)]
    program = ["env", f"PYTHONPATH={ROOT}", sys.executable, "-m", "tests.bench.slurm", *words]
    argv = ["salloc", "--quiet", f"--nodes={count}", *program]
    done = cluster.login.run(argv, Deadline.after(UP_S))
    if done.status != 0:
        raise AssertionError(f"{' '.join(argv)}: {done.stderr or done.stdout}")
    found: dict[str, list[float]] = json.loads(done.stdout.splitlines()[-1])
    return found


def main(nodes: int, times: int, pings: int, megabytes: int) -> dict[str, list[float]]:
    """In an allocation: agents up on all nodes so many times, then pings of one, then files of so many MB from it."""
    here = job.current()
    found: dict[str, list[float]] = {"agents_s": [], "pings_ms": [], "fetch_mbps": []}
    for last in (*[False] * (times - 1), True):
        began = time.perf_counter()
        step = Step(here, here.nodes[:nodes], python=sys.executable)
        try:
            greeted = partial(_greeted, step)
            up = fanout.each(here.nodes[:nodes], greeted, deadline=Deadline.after(UP_S), what="greeting")
            found["agents_s"].append(time.perf_counter() - began)
            if last:
                first = up[here.nodes[0]]
                found["pings_ms"] = [_ping_ms(first) for _ in range(pings)]
                found["fetch_mbps"] = [_fetch_mbps(first, megabytes) for _ in range(times if megabytes else 0)]
            for client in up.values():
                client.remove(Deadline.after(UP_S))
                client.close(Deadline.after(UP_S))
        finally:
            step.close()
    return found


def _greeted(step: Step, node: str) -> AgentClient:
    channel = step.channel(node, Deadline.after(UP_S))
    client = AgentClient(Node(name=node), channel, run=f"bench-{os.getpid()}", holder={}, on_event=lambda _: None)
    client.hello(Deadline.after(UP_S))
    return client


def _ping_ms(client: AgentClient) -> float:
    began = time.perf_counter()
    client.clock(1, Deadline.after(UP_S))
    return (time.perf_counter() - began) * 1e3


def _fetch_mbps(client: AgentClient, megabytes: int) -> float:
    """Megabytes a second of a file that does not compress; the nodes see this host's files."""
    folder = Path(client.node.folder(f"bench-{os.getpid()}").format(uid=os.getuid()))
    with (folder / "big").open("wb") as file:
        for _ in range(megabytes):
            file.write(os.urandom(1 << 20))
    deadline = Deadline.after(UP_S)
    (big,) = (file for file in client.files(deadline) if file.path == "big")
    with tempfile.TemporaryDirectory() as home:
        began = time.perf_counter()
        client.fetch(big, Path(home), deadline)
        return (megabytes << 20) / (time.perf_counter() - began) / 1e6


if __name__ == "__main__":
    print(json.dumps(main(*map(int, sys.argv[1:]))))
