"""How fast a local testbed comes up and goes, with 4, 16 and 64 hosts, and a fabric of 16 hosts."""

from __future__ import annotations

import time
from collections.abc import Iterator

from orchestrator.core import fanout
from orchestrator.core.deadline import Deadline
from orchestrator.testbed.local.local_spec import FabricSpec
from orchestrator.testbed.local.netns import NetnsTestbed
from tests.bench import local
from tests.bench.figure import Figure, Settings

HOSTS = (4, 16, 64)
FABRIC = FabricSpec(leaves=4, spines=4, hosts=4, oversubscription=2)


def measure(settings: Settings) -> Iterator[Figure]:
    """Up: every sshd listens and every rate is set; agents: one answers on each node; down: all is gone."""
    kinds = [(f"{hosts} hosts", hosts, None) for hosts in HOSTS]
    kinds.append(("16 hosts on 4 leaves and 4 spines", FABRIC.leaves * FABRIC.hosts, FABRIC))
    for name, hosts, fabric in kinds:
        up, agents, down = [], [], []
        for number in range(settings.times(5, 2)):
            with local.machine_to_ourselves():
                testbed = local.made(hosts, fabric=fabric)
                began = time.perf_counter()
                with local.up(testbed, settings.scratch / f"testbed{hosts}-{fabric is not None}-{number}"):
                    opened = time.perf_counter()
                    answered = _agents(testbed)
                    closing = time.perf_counter()
                ended = time.perf_counter()
            up.append(opened - began)
            agents.append(answered)
            down.append((ended - closing) * 1e3)
        yield Figure(what=f"{name}: up", unit="s", values=tuple(up))
        yield Figure(what=f"{name}: agents on all of them, by SSH", unit="s", values=tuple(agents))
        yield Figure(what=f"{name}: down", unit="ms", values=tuple(down))


def _agents(testbed: NetnsTestbed) -> float:
    """Seconds until an agent on every node has answered."""
    deadline = Deadline.after(local.CALL_S)
    names = [node.name for node in testbed.topology.nodes]
    began = time.perf_counter()
    clients = fanout.each(names, lambda name: local.attached(testbed, name), deadline=deadline, what="connecting")
    seconds = time.perf_counter() - began
    fanout.each(clients.values(), lambda one: one.close(deadline), deadline=deadline, what="closing")
    return seconds
