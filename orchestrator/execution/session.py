"""The nodes of a run while it goes on: their agents, and what these say of programs, routes, clocks and disks."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from secrets import token_hex
from types import MappingProxyType
from typing import TypeVar

from orchestrator.agents.agent.files import SkippedFile
from orchestrator.core import fanout
from orchestrator.core.deadline import Deadline
from orchestrator.core.errors import MissingRequirement, OrchError
from orchestrator.core.interrupts import Interrupts
from orchestrator.core.lock import Holder
from orchestrator.core.machines import machine, users
from orchestrator.core.machines.machine import Machine
from orchestrator.core.opendata import JsonObject
from orchestrator.core.unwind import add_note
from orchestrator.execution.nodes import facts, images, routes
from orchestrator.execution.observers.events import EventLog
from orchestrator.execution.watch import Watch
from orchestrator.parts.launch import Requirement
from orchestrator.parts.protocols import Testbed
from orchestrator.remote import clocks
from orchestrator.remote.agent_client import AgentClient
from orchestrator.remote.clocks import ClockSample
from orchestrator.store.manifests import records

T = TypeVar("T")

CONNECT_S = 30.0
CALL_S = 20.0
MOST_PINGS = 64  # of each kernel's clock
PINGING_S = 3.0  # after which each has been pinged at least once, and none is again
FULL_BYTES = 1 << 16  # so little room is none
MEASURING = "testbed"  # the lock of a node that a run measures on


def opening_s(nodes: int) -> float:
    """How long it may take until so many nodes are reached: a jump host lets in few at a time."""
    return CONNECT_S + 0.5 * nodes


def holder(run: str) -> Holder:
    """Who holds the testbed, as the next one that asks for it will read it."""
    return {
        "user": users.name(),
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "run": run,
        "since": time.strftime("%Y-%m-%d %H:%M:%S"),
    }


class Session:
    """One client a node; what is asked of many nodes is asked at once."""

    def __init__(
        self,
        testbed: Testbed,
        *,
        run: str,
        events: EventLog,
        watch: Watch,
        interrupts: Interrupts,
        secrets: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.testbed = testbed
        self.run = run
        self.clients: dict[str, AgentClient] = {}
        self.kernels: dict[str, str] = {}  # which kernel each node runs on: its boot's own name
        self._folders: dict[str, str] = {}  # where the run's files lie on each node
        self.watch = watch
        self.images: dict[str, records.Image] = {}  # that containers of launches are of, by their names
        self.away: set[str] = set()  # nodes whose files have to be fetched, and are not home yet
        self.left: dict[str, Sequence[SkippedFile]] = {}  # what nodes had that did not come home
        self.events = events
        self.interrupts = interrupts
        self._run_key = token_hex(16)
        self._proof = token_hex(16)
        self._secrets = secrets

    def each(
        self, nodes: Iterable[str], action: Callable[[AgentClient], T], *, what: str, seconds: float
    ) -> dict[str, T]:
        """Ask something of nodes at once, of those that still answer; what each said."""
        self.note_losses()
        present = [node for node in nodes if node in self.clients and node not in self.watch.lost]
        return fanout.each(
            present, lambda node: action(self.clients[node]), deadline=Deadline.after(seconds), what=what
        )

    def note_losses(self) -> None:
        """While things are put back nobody else looks who is lost, and nobody is to wait for them."""
        if self.interrupts.is_unwinding:
            self.watch.settle()

    def open(self, nodes: Sequence[str]) -> None:
        """Start an agent on every node and lock it for this run."""
        deadline = Deadline.after(opening_s(len(nodes)))

        def connect(name: str) -> AgentClient:
            client = self.client(name, deadline)
            try:
                greeting = client.hello(deadline)
            except OrchError:
                client.close(deadline)
                raise
            self.clients[name] = client  # from here on it has a folder to remove
            self.kernels[name], self._folders[name] = greeting.boot, greeting.folder
            if self.testbed.local_folder(name) is None:
                self.away.add(name)
            return client

        fanout.each(nodes, connect, deadline=deadline, what="connecting")
        self._lock(nodes, deadline)

    def _lock(self, nodes: Sequence[str], deadline: Deadline) -> None:
        """Hold every node; of controllers that ask in the same instant for the same nodes one gets them all.

        All of them ask for one node first, the same whatever their files call it: the others hold none when they are
        refused.
        """
        order = sorted(nodes, key=lambda name: (self.kernels[name], name))
        for some in (order[:1], order[1:]):
            fanout.each(
                some, lambda name: self.clients[name].lock(MEASURING, deadline), deadline=deadline, what="locking"
            )

    def client(self, name: str, deadline: Deadline) -> AgentClient:
        """Return a client on a node, whose agent has to be greeted yet."""
        node = self.testbed.topology.node(name)
        channel = self.testbed.connect(name, deadline)
        return AgentClient(
            node,
            channel,
            run=self.run,
            holder=holder(self.run),
            on_event=self.watch.inbox.put,
            run_key=self._run_key,
            proof=self._proof,
            secrets=self._secrets,
        )

    def check(self, requirements: Sequence[Requirement]) -> None:
        """Raise MissingRequirement that tells everything that is missing, where, and the remedy.

        TestbedError where an image is not the same on all nodes; afterwards `images` says which they are.
        """
        storage = images.storage(self.testbed.topology, requirements)
        seconds = images.LOOK_S if any(need.container for need in requirements) else CALL_S
        found = self.each(
            dict.fromkeys(requirement.node for requirement in requirements),
            lambda client: client.check(
                [requirement for requirement in requirements if requirement.node == client.node.name],
                Deadline.after(seconds),
                storage=storage,
            ),
            what="checking requirements",
            seconds=seconds,
        )
        errors = [
            MissingRequirement(
                f"{finding.requirement.needed_by} needs {finding.requirement.kind} {finding.requirement.what}"
                + (f": {finding.detail}" if finding.detail else ""),
                node=node,
                hint=images.remedy(finding),
            )
            for node, findings in found.items()
            for finding in findings
            if not finding.found
        ]
        if errors:
            for other in errors[1:]:
                add_note(errors[0], f"{other.node}: {other.message}; remedy: {other.hint}")
            raise errors[0]
        self.images = images.agreed(found)

    def check_routes(self, talks: Mapping[str, Sequence[str]]) -> None:
        """Raise TestbedError that tells every pair of nodes whose traffic would not take the data plane."""
        topology = self.testbed.topology
        found = self.each(
            talks,
            lambda client: routes.wrong(client, topology, talks, Deadline.after(CALL_S)),
            what="checking routes",
            seconds=CALL_S,
        )
        errors = [error for of_node in found.values() for error in of_node]
        if errors:
            for other in errors[1:]:
                add_note(errors[0], f"{other.node}: {other.message}")
            raise errors[0]

    def facts(self) -> dict[str, JsonObject]:
        """Return the facts of every node that still answers."""
        topology = self.testbed.topology
        return self.each(
            self.clients,
            lambda client: facts.gather(client, topology.node(client.node.name), Deadline.after(CALL_S)),
            what="gathering facts",
            seconds=2 * CALL_S,
        )

    def clocks(self) -> dict[str, ClockSample]:
        """Offset (controller minus node) and its uncertainty of every node, in nanoseconds; 0 on our own kernel.

        One node of each other kernel is pinged, one at a time and in turns: pings of several wait for each other here,
        in one direction, which looks like an offset.
        """
        self.note_losses()
        present = {node: self.kernels[node] for node in self.clients if node not in self.watch.lost}
        asked = clocks.asked(present, machine.own_kernel())
        best: dict[str, ClockSample] = {}
        until = Deadline.after(PINGING_S)
        for turn in range(MOST_PINGS):
            for kernel, node in asked.items():
                if turn and until.expired:
                    break
                for sample in self.each([node], _ping, what="clocks", seconds=CALL_S).values():
                    best[kernel] = clocks.better(best.get(kernel), sample)
        return clocks.agreed(best, present, machine.own_kernel())

    def disks(self) -> dict[str, int]:
        """Free bytes where each node's run folder lies."""
        found = self.each(
            self.clients, lambda client: client.disk(Deadline.after(CALL_S)), what="disks", seconds=CALL_S
        )
        return {node: disk.free_bytes for node, disk in found.items()}

    def full(self) -> list[str]:
        """Sentences on the nodes that still answer and have next to no room where the run writes."""
        return [
            f"no space on {node}: {self._folders[node]} has {free} bytes free"
            for node, free in self.disks().items()
            if free < FULL_BYTES
        ]

    def machines(self) -> dict[str, Machine]:
        """Processors and free memory of every node."""
        return self.each(self.clients, machine_of, what="processors and memory", seconds=CALL_S)

    def close(self) -> None:
        """Let every agent go."""
        self.each(self.clients, lambda client: client.close(Deadline.after(CALL_S)), what="closing", seconds=CALL_S)
        self.clients.clear()


def _ping(client: AgentClient) -> ClockSample:
    return client.clock(1, Deadline.after(CALL_S))


def machine_of(client: AgentClient) -> Machine:
    """Return a node's processors and free memory, as its agent may use them."""
    return machine.look(lambda paths: client.read(paths, Deadline.after(CALL_S)).texts)
