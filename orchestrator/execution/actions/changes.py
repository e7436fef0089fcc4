"""Apply changes to the nodes of a run and verify each; in the end take them back, and verify that too."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from orchestrator.core.deadline import Deadline
from orchestrator.core.errors import OrchError, TestbedError, TransportError
from orchestrator.core.unwind import Unwind, combined
from orchestrator.execution.session import CALL_S, Session
from orchestrator.parts.launch import Change, HitCounter
from orchestrator.remote.agent_client import AgentClient
from orchestrator.store.manifests.records import Hits


class Changes:
    """What was changed on the nodes of a session, in order; `hits` counts what changes did to single packets."""

    def __init__(self, session: Session) -> None:
        self.hits: list[Hits] = []
        self._session = session
        self._applied: dict[str, list[tuple[Change, str]]] = {}  # node -> changes with the state before each

    def apply(self, changes: Sequence[Change]) -> None:
        """Apply and verify changes, those of one node in their order; `undo` takes back what was applied."""

        def apply_all(client: AgentClient) -> None:
            for change in changes:
                if change.node == client.node.name:
                    self._apply(client, change)

        nodes = dict.fromkeys(change.node for change in changes)
        self._session.each(nodes, apply_all, what="changing conditions", seconds=CALL_S * (1 + len(changes)))

    def _apply(self, client: AgentClient, change: Change) -> None:
        old = state(client, change)
        try:
            undo, apply, wanted, presence = (
                change.undo(old),
                change.apply(old),
                change.expect(old),
                change.presence(old),
            )
        except ValueError as error:
            raise TestbedError(f"{change.name} cannot be changed: {error}", node=change.node) from None
        self._applied.setdefault(change.node, []).append((change, old))
        client.change(change.name, Deadline.after(CALL_S), undo=undo, apply=apply, presence=presence)
        now = state(client, change)
        if now != wanted:
            raise TestbedError(
                f"{change.name} was set to {wanted}, and reads {now}",
                node=change.node,
                hint="see whether another program on this host sets it, too",
            )
        self._session.events.write("changed", node=change.node, name=change.name, old=old, new=now)

    def undo(self, changes: Sequence[Change] | None = None) -> None:
        """Take back these changes, or all, the last of each node first, and verify; a lost node's agent has done it."""
        chosen = {
            node: [one for one in applied if changes is None or one[0] in changes]
            for node, applied in self._applied.items()
        }

        def undo_all(client: AgentClient) -> None:
            problems = Unwind()
            for change, old in chosen[client.node.name]:
                problems.push(change.name, partial(self._taken_back, client, change, old))
            error = combined(problems.run())
            if error is not None:
                raise error

        nodes = [node for node, applied in chosen.items() if applied]
        total = sum(len(applied) for applied in chosen.values())
        self._session.each(nodes, undo_all, what="restoring conditions", seconds=CALL_S * (1 + total))
        for node in nodes:
            self._applied[node] = [one for one in self._applied[node] if one not in chosen[node]]

    def _taken_back(self, client: AgentClient, change: Change, old: str) -> None:
        try:
            self._undo_one(client, change, old)
        except OrchError as error:
            lost = isinstance(error, TransportError)  # which is told as it is of everything on that host
            if not lost and change.name not in error.message:
                error.message = f"{change.name} could not be taken back: {error.message}"
            raise

    def _undo_one(self, client: AgentClient, change: Change, old: str) -> None:
        changed = state(client, change) != old
        if changed and change.hits is not None:
            self._count(client, change, change.hits)
        client.undo(change.name, Deadline.after(CALL_S))  # one that changed nothing is in the agent's journal, too
        now = state(client, change)
        if now != old:
            raise TestbedError(
                f"{change.name} was put back to {old}, and reads {now}",
                node=change.node,
                hint="see whether another program on this host sets it, too",
            )
        if changed:
            self._session.events.write("restored", node=change.node, name=change.name, value=now)

    def _count(self, client: AgentClient, change: Change, count: HitCounter) -> None:
        """Keep how often a change did what it does; one that cannot be counted is undone all the same."""
        done = client.run(count.read, Deadline.after(CALL_S))
        try:
            seen, hit = count.parse(done.stdout)
        except ValueError as error:
            self._session.watch.notes.append(f"{change.node}: {change.name}: {error}")
            return
        if count.share is not None:
            self.hits.append(Hits(node=change.node, name=change.name, share=count.share, seen=seen, hit=hit))
        elif hit:
            self._session.watch.notes.append(f"{change.node}: {change.name}: {hit} of {seen} packets were refused")


def state(client: AgentClient, change: Change) -> str:
    """Return what a change would change, as it is on its node now; TestbedError where it cannot be read."""
    done = client.run(change.read, Deadline.after(CALL_S))
    if done.status != 0:
        raise TestbedError(
            f"{change.name} cannot be read", node=change.node, argv=change.read, tail=done.stderr or done.stdout
        )
    try:
        return change.parse(done.stdout)
    except ValueError as error:
        raise TestbedError(f"{change.name}: {error}", node=change.node, argv=change.read) from None
