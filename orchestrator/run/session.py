"""The nodes of a run while it goes on: their agents, facts, clocks, changes and processes."""

from __future__ import annotations

import getpass
import os
import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from secrets import token_hex
from types import MappingProxyType
from typing import Any, TypeVar

from orchestrator.core import fanout, machine
from orchestrator.core.deadline import Deadline
from orchestrator.core.errors import (
    Interrupted,
    MissingRequirement,
    NeverStartedError,
    OrchError,
    TestbedError,
    TransportError,
)
from orchestrator.core.interrupts import Interrupts
from orchestrator.core.machine import Machine
from orchestrator.core.unwind import Unwind, add_note, combined
from orchestrator.parts.launch import Change, Count, Launch, Requirement
from orchestrator.parts.protocols import Testbed
from orchestrator.remote import clocks
from orchestrator.remote.agent_client import AgentClient, come_back
from orchestrator.remote.answers import ClockSample
from orchestrator.run import facts, fetching, routes
from orchestrator.run.observers.events import EventLog
from orchestrator.run.watch import Watch
from orchestrator.store.host_records import Hits

T = TypeVar("T")

CONNECT_S = 30.0
CALL_S = 20.0
FETCH_S = 24 * 3600.0  # of a whole run; no file may stand still for long
MOST_PINGS = 64  # of each kernel's clock
PINGING_S = 3.0  # after which each has been pinged at least once, and none is again
RESIDUE_S = 2.0
RESIDUE_EVERY_S = 0.1
TAIL_BYTES = 4000
FULL_BYTES = 1 << 16  # so little room is none
MEASURING = "testbed"  # the lock of a node that a run measures on
AGENT_MARKER = ".orch-run.json"  # how an agent says that a folder is a run's; nothing of the results


def opening_s(nodes: int) -> float:
    """How long it may take until so many nodes are reached: a jump host lets in few at a time."""
    return CONNECT_S + 0.5 * nodes


def holder(run: str) -> dict[str, Any]:
    """Who holds the testbed, as the next one that asks for it will read it."""
    return {
        "user": getpass.getuser(),
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "run": run,
        "since": time.strftime("%Y-%m-%d %H:%M:%S"),
    }


class Session:
    """One client a node; what is asked of many nodes is asked at once."""

    def __init__(
        self, testbed: Testbed, *, run: str, events: EventLog, watch: Watch, interrupts: Interrupts,
        secrets: Mapping[str, str] = MappingProxyType({}),
    ) -> None:  # fmt: skip
        self.testbed = testbed
        self.run = run
        self.clients: dict[str, AgentClient] = {}
        self.kernels: dict[str, str] = {}  # which kernel each node runs on: its boot's own name
        self._folders: dict[str, str] = {}  # where the run's files lie on each node
        self.watch = watch
        self._applied: dict[str, list[tuple[Change, str]]] = {}
        self.away: set[str] = set()  # nodes whose files have to be fetched, and are not home yet
        self.hits: list[Hits] = []  # of changes that hit single packets: how many they saw, and hit
        self._events = events
        self._interrupts = interrupts
        self._run_key = token_hex(16)
        self._proof = token_hex(16)
        self._secrets = secrets

    def each(
        self, nodes: Iterable[str], action: Callable[[AgentClient], T], *, what: str, seconds: float
    ) -> dict[str, T]:
        """Ask something of nodes at once, of those that still answer; what each said."""
        self._note_losses()
        present = [node for node in nodes if node in self.clients and node not in self.watch.lost]
        return fanout.each(
            present, lambda node: action(self.clients[node]), deadline=Deadline.after(seconds), what=what
        )

    def _note_losses(self) -> None:
        """While things are put back nobody else looks who is lost, and nobody is to wait for them."""
        if self._interrupts.is_unwinding:
            self.watch.settle()

    def open(self, nodes: Sequence[str]) -> None:
        """Start an agent on every node and lock it for this run."""
        deadline = Deadline.after(opening_s(len(nodes)))

        def connect(name: str) -> AgentClient:
            client = self._client(name, deadline)
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

    def _client(self, name: str, deadline: Deadline) -> AgentClient:
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
        """Raise MissingRequirement that tells everything that is missing, where, and the remedy."""
        found = self.each(
            dict.fromkeys(requirement.node for requirement in requirements),
            lambda client: client.check(
                [requirement for requirement in requirements if requirement.node == client.node.name],
                Deadline.after(CALL_S),
            ),
            what="checking requirements",
            seconds=CALL_S,
        )
        errors = [
            MissingRequirement(
                f"{finding.requirement.needed_by} needs {finding.requirement.kind} {finding.requirement.what}"
                + (f": {finding.detail}" if finding.detail else ""),
                node=node,
                hint=finding.requirement.remedy,
            )
            for node, findings in found.items()
            for finding in findings
            if not finding.found
        ]
        if errors:
            for other in errors[1:]:
                add_note(errors[0], f"{other.node}: {other.message}; remedy: {other.hint}")
            raise errors[0]

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

    def facts(self) -> dict[str, dict[str, Any]]:
        """The facts of every node that still answers."""
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
        self._note_losses()
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

    # Changes

    def apply(self, changes: Sequence[Change]) -> None:
        """Apply and verify changes, those of one node in their order; `undo_changes` takes back what was applied."""

        def apply_all(client: AgentClient) -> None:
            for change in changes:
                if change.node == client.node.name:
                    self._apply(client, change)

        nodes = dict.fromkeys(change.node for change in changes)
        self.each(nodes, apply_all, what="changing conditions", seconds=CALL_S * (1 + len(changes)))

    def _apply(self, client: AgentClient, change: Change) -> None:
        old = self._state(client, change)
        try:
            undo, apply, wanted, sign = change.undo(old), change.apply(old), change.expect(old), change.sign(old)
        except ValueError as error:
            raise TestbedError(f"{change.name} cannot be changed: {error}", node=change.node) from None
        self._applied.setdefault(change.node, []).append((change, old))
        client.change(change.name, Deadline.after(CALL_S), undo=undo, apply=apply, sign=sign)
        now = self._state(client, change)
        if now != wanted:
            raise TestbedError(f"{change.name} is {now} after the change, not {wanted}", node=change.node)
        self._events.write("changed", node=change.node, name=change.name, old=old, new=now)

    def undo_changes(self) -> None:
        """Take back every change, the last of each node first, and verify; of a lost node its agent has done it."""

        def undo_all(client: AgentClient) -> None:
            problems = Unwind()
            for change, old in self._applied[client.node.name]:
                problems.push(change.name, partial(self._taken_back, client, change, old))
            error = combined(problems.run())
            if error is not None:
                raise error

        total = sum(len(applied) for applied in self._applied.values())
        self.each(self._applied, undo_all, what="restoring conditions", seconds=CALL_S * (1 + total))

    def _taken_back(self, client: AgentClient, change: Change, old: str) -> None:
        try:
            self._undo(client, change, old)
        except OrchError as error:
            lost = isinstance(error, TransportError)  # which is told as it is of everything on that host
            if not lost and change.name not in error.message:
                error.message = f"{change.name} could not be taken back: {error.message}"
            raise

    def _undo(self, client: AgentClient, change: Change, old: str) -> None:
        changed = self._state(client, change) != old
        if changed and change.count is not None:
            self._count(client, change, change.count)
        client.undo(change.name, Deadline.after(CALL_S))  # one that changed nothing is in the agent's journal, too
        now = self._state(client, change)
        if now != old:
            raise TestbedError(f"{change.name} is {now} after it was undone, not {old} as before", node=change.node)
        if changed:
            self._events.write("restored", node=change.node, name=change.name, value=now)

    def _count(self, client: AgentClient, change: Change, count: Count) -> None:
        """Keep how often a change did what it does; one that cannot be counted is undone all the same."""
        done = client.run(count.read, Deadline.after(CALL_S))
        try:
            seen, hit = count.parse(done.stdout)
        except ValueError as error:
            self.watch.notes.append(f"{change.node}: {change.name}: {error}")
            return
        if count.share is not None:
            self.hits.append(Hits(node=change.node, name=change.name, share=count.share, seen=seen, hit=hit))
        elif hit:
            self.watch.notes.append(f"{change.node}: {change.name}: {hit} of {seen} packets were refused")

    @staticmethod
    def _state(client: AgentClient, change: Change) -> str:
        done = client.run(change.read, Deadline.after(CALL_S))
        if done.status != 0:
            raise TestbedError(
                f"{change.name} cannot be read", node=change.node, argv=change.read, tail=done.stderr or done.stdout
            )
        try:
            return change.parse(done.stdout)
        except ValueError as error:
            raise TestbedError(f"{change.name}: {error}", node=change.node, argv=change.read) from None

    # Processes

    def start(self, launches: Sequence[Launch], *, what: str) -> None:
        """Start processes and wait until each is ready; lower orders first, the same order at once."""
        for order in sorted({launch.order for launch in launches}):
            batch = [launch for launch in launches if launch.order == order]
            for launch in batch:
                self.watch.add(launch)
            within = Deadline.after(max(launch.ready_within_s for launch in batch) + CALL_S)
            # Ranks are ready when all have met, so the last one must not wait for the others to be ready.
            fanout.each(
                batch_keys(batch), self._start_one(batch), deadline=within, what=what, together=True, apart=False
            )

    def _start_one(self, batch: Sequence[Launch]) -> Callable[[tuple[str, str]], None]:
        by_key = {(launch.node, launch.name): launch for launch in batch}

        def start(key: tuple[str, str]) -> None:
            launch = by_key[key]
            self.watch.processes[key].asked = True
            self._events.write("start", node=launch.node, name=launch.name, argv=list(launch.argv))
            try:
                self.clients[launch.node].start(launch, Deadline.after(launch.ready_within_s + CALL_S))
            except OrchError as error:
                process = self.watch.processes[key]
                process.failed = error.message
                if launch.required:
                    raise
                process.stopping = True
                self.watch.notes.append(f"{launch.node}: {launch.name} did not start: {error.message}")
                return
            self._events.write("ready", node=launch.node, name=launch.name)

        return start

    def go(self, launches: Sequence[Launch]) -> None:
        """Open the gate of every process that waits at one."""
        gated = {(launch.node, launch.name) for launch in launches if launch.gate}
        fanout.each(
            sorted(gated),
            lambda key: self.clients[key[0]].go(key[1], Deadline.after(CALL_S)),
            deadline=Deadline.after(CALL_S),
            what="opening the gate",
        )

    def stop(self, launches: Sequence[Launch], *, measured_until: float) -> None:
        """Ask processes to end, later orders first; those that drain wait until their time after `measured_until`.

        What fails with those of one order keeps nobody from those of the next.
        """
        wrong: list[tuple[str, Exception]] = []
        for order in sorted({launch.order for launch in launches}, reverse=True):
            self._note_losses()
            batch = [launch for launch in self.up(launches) if launch.order == order]
            for launch in batch:
                self.watch.processes[launch.node, launch.name].stopping = True
            drain = max((launch.stop.drain_s for launch in batch), default=0.0)
            self._interrupts.rest(measured_until + drain)
            patience = max((sum(grace for _, grace in launch.stop.signals) for launch in batch), default=0.0)
            by_key = {(launch.node, launch.name): launch for launch in batch}
            try:
                fanout.each(
                    batch_keys(batch),
                    lambda key, by_key=by_key: self._stop_one(by_key[key]),  # type: ignore[misc]
                    deadline=Deadline.after(patience + CALL_S),
                    what="stopping",
                    together=True,  # ranks of some frameworks end by themselves when all have been asked to
                )
            except Interrupted:
                raise
            except OrchError as error:
                wrong.append((f"order {order}", error))
        if (first := combined(wrong)) is not None:
            raise first

    def up(self, launches: Sequence[Launch]) -> list[Launch]:
        """Those that were started and have not ended, as far as is known."""
        return [launch for launch in launches if self._to_stop(launch)]

    def _to_stop(self, launch: Launch) -> bool:
        process = self.watch.processes.get((launch.node, launch.name))
        return process is not None and process.asked and process.status is None and launch.node not in self.watch.lost

    def _stop_one(self, launch: Launch) -> None:
        process = self.watch.processes[launch.node, launch.name]
        patience = sum(grace for _, grace in launch.stop.signals)
        try:
            stopped = self.clients[launch.node].stop(
                launch, Deadline.after(patience + CALL_S), grace=self._interrupts.grace
            )
        except NeverStartedError:  # a signal came in between
            process.asked = False
            return
        process.status = stopped.status
        self._events.write(
            "stopped",
            node=launch.node,
            name=launch.name,
            status=stopped.status,
            killed=stopped.killed,
            user_s=stopped.user_s,
            system_s=stopped.system_s,
            max_rss_bytes=stopped.max_rss_bytes,
        )
        if stopped.complaint and process.failed is None:
            process.failed = stopped.complaint
            self.watch.notes.append(f"{launch.node}: {stopped.complaint}")

    def tail(self, launch: Launch) -> str:
        """The last that a process printed, from its node; empty when that cannot be had."""
        client = self.clients.get(launch.node)
        if client is None or launch.node in self.watch.lost:
            return ""
        texts = client.read(
            [f"{launch.name}/{name}" for name in ("stdout", "stderr")],
            Deadline.after(CALL_S),
        ).texts
        return "\n".join(text[-TAIL_BYTES:].strip() for text in texts.values() if text)

    # The end

    def residue(self) -> list[str]:
        """What still runs of this run, everywhere; sweeps nodes whose agent is gone."""
        self.watch.settle()
        settled = Deadline.after(RESIDUE_S)
        while (strays := self._strays()) and not settled.expired:  # a command that was asked for may be about to end
            self._interrupts.rest(time.monotonic() + RESIDUE_EVERY_S)
        return strays + self._sweep_lost()

    def _strays(self) -> list[str]:
        left = self.each(
            self.clients, lambda client: client.processes(Deadline.after(CALL_S)), what="residue", seconds=CALL_S
        )
        return [f"{node}: {' '.join(process.argv)}" for node, processes in left.items() for process in processes]

    def _sweep_lost(self) -> list[str]:
        """Put down what runs on nodes whose agents are gone, on all at once; what could not be put down.

        One that cannot be reached keeps nobody from the others; it stays lost.
        """
        lost = list(self.watch.lost)
        left = fanout.each(lost, self._sweep_one, deadline=Deadline.after(3 * CALL_S), what="sweeping")
        for name, error in left.items():
            if isinstance(error, OrchError):
                whose = f"{error.node}: " if error.node not in (name, None) else ""  # a jump host's, perhaps
                self.watch.notes.append(f"{name}: what runs there could not be put down: {whose}{error.message}")
        return [line for lines in left.values() if not isinstance(lines, OrchError) for line in lines]

    def _sweep_one(self, name: str) -> list[str] | OrchError:
        reached, deadline = Deadline.after(CALL_S), Deadline.after(2 * CALL_S)
        try:
            client = come_back(partial(self._client, name, reached), deadline)
        except OrchError as error:
            return error
        try:
            swept = client.sweep(deadline, keep_data=True)
        except OrchError as error:
            client.close(deadline)
            return error
        self.clients[name] = client
        del self.watch.lost[name]
        self._events.write("swept", node=name, killed=len(swept.killed), undone=list(swept.undone))
        return [f"{name}: process {pid}" for pid in swept.left] + [f"{name}: {what}" for what in swept.failed]

    def fetch(self, run_folder: Path) -> None:
        """Bring every file of the run home, and remove the run's folders from the nodes; an error names who is lost.

        A node that does not say what it has keeps nobody from bringing home what the others have.
        """
        deadline = Deadline.after(FETCH_S)
        listed = self.each(sorted(self.away), fetching.listed, what="listing files", seconds=2 * fetching.LIST_S)
        fetching.refuse_without_room(
            run_folder, {name: files for name, files in listed.items() if not isinstance(files, OrchError)}
        )

        def fetch(client: AgentClient) -> None:
            name = client.node.name
            seen, home = self.testbed.local_folder(name), run_folder / "hosts" / name
            if seen is not None:
                bring_up(seen / Path(client.node.folder(self.run)).name, home)
            elif isinstance(files := listed[name], OrchError):
                raise files
            else:
                fetching.bring_home(client, files, home, deadline)
            self.away.discard(name)

        there = [name for name in self.clients if name in listed or self.testbed.local_folder(name) is not None]
        self.each(there, fetch, what="fetching", seconds=FETCH_S)
        # An agent that was lost before its greeting has made no folder.
        lost = [name for name in self.watch.lost if name in self.clients and self.testbed.local_folder(name) is None]
        if lost:
            raise TransportError(f"what {', '.join(lost)} had of the run is not home: {self.watch.lost[lost[0]]}")

    def close(self) -> None:
        """Let every agent go."""
        self.each(self.clients, lambda client: client.close(Deadline.after(CALL_S)), what="closing", seconds=CALL_S)
        self.clients.clear()


def _ping(client: AgentClient) -> ClockSample:
    return client.clock(1, Deadline.after(CALL_S))


def machine_of(client: AgentClient) -> Machine:
    """A node's processors and free memory, as its agent may use them."""
    return machine.look(lambda paths: client.read(paths, Deadline.after(CALL_S)).texts)


def batch_keys(batch: Sequence[Launch]) -> list[tuple[str, str]]:
    """Node and name of each launch."""
    return [(launch.node, launch.name) for launch in batch]


def bring_up(run_folder: Path, home: Path) -> None:
    """Move what a node left in its run's folder, visible here, to where results keep it."""
    if run_folder.is_dir():
        home.mkdir(parents=True, exist_ok=True)
        for entry in run_folder.iterdir():
            if entry.name == AGENT_MARKER:
                entry.unlink()
            else:
                entry.rename(home / entry.name)
        run_folder.rmdir()
