"""Drops captures of sealed runs that stay on their hosts, and says of which ones it could not."""

from __future__ import annotations

from collections.abc import Collection
from itertools import groupby

from orchestrator.core import fanout
from orchestrator.core.deadline import Deadline
from orchestrator.core.errors import OrchError, StoreError
from orchestrator.execution.session import holder
from orchestrator.experiment import loading, testbeds
from orchestrator.parts.protocols import Testbed
from orchestrator.remote.agent_client import AgentClient
from orchestrator.store import retention
from orchestrator.store.manifests.records import Stayed
from orchestrator.store.rundir import Entry

REACH_S = 60.0


def drop(entry: Entry, why: str) -> tuple[list[Stayed], list[str]]:
    """Remove the captures of a run from the hosts that keep them; which ones went, and what could not be removed.

    Hosts are asked first and the manifest is written after: whoever is interrupted in between asks again.
    """
    kept = [one for one in entry.manifest.stayed if one.node not in entry.manifest.given_up]
    by_node = {node: tuple(some) for node, some in groupby(sorted(kept, key=_node), key=_node)}
    try:
        experiment = loading.sealed(entry.path / "experiment.yaml")
        testbed = testbeds.place(experiment.testbed).made(entry.run)
    except OrchError as error:
        return [], [f"{node}: {_sizes(some)}: {error.message}" for node, some in by_node.items()]

    def remove(node: str) -> OrchError | None:
        try:
            _remove(testbed, entry.run, node)
        except OrchError as error:
            return error  # told beside what became of the others
        return None

    try:
        errors = fanout.each(list(by_node), remove, deadline=Deadline.after(2 * REACH_S), what="dropping captures")
    finally:
        testbed.close()
    removed = [one for one in kept if errors[one.node] is None]
    retention.record_dropped(entry.path, removed, why)
    failed = [
        f"{node}: {_sizes(by_node[node])} could not be removed: {error.message}"
        for node, error in errors.items()
        if error is not None
    ]
    return removed, failed


def _node(one: Stayed) -> str:
    return one.node


def _sizes(some: Collection[Stayed]) -> str:
    return f"{len(some)} captures" if len(some) != 1 else "1 capture"


def _remove(testbed: Testbed, run: str, node: str) -> None:
    deadline = Deadline.after(REACH_S)
    place = next((one for one in testbed.topology.nodes if one.name == node), None)
    if place is None:  # the folder may be somebody else's, or damaged
        raise StoreError("its manifest names this host, its experiment.yaml does not")
    client = AgentClient(place, testbed.connect(node, deadline), run=run, holder=holder(run), on_event=lambda _: None)
    try:
        client.hello(deadline)
        client.remove(deadline)
    finally:
        client.close(deadline)
