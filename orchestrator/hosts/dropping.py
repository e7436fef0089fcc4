"""Removes captures of sealed runs that stay on their hosts, and reports those that it could not remove."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import groupby

from orchestrator.agents.agent.files import RunFile
from orchestrator.core import fanout
from orchestrator.core.deadline import Deadline
from orchestrator.core.errors import OrchError, StoreError, TestbedError
from orchestrator.execution.session import holder
from orchestrator.experiment import testbeds
from orchestrator.experiment.testbeds import Named
from orchestrator.remote.agent_client import AgentClient
from orchestrator.store import retention, rundir
from orchestrator.store.manifests.records import Stayed
from orchestrator.store.rundir import Entry

REACH_S = 60.0


def drop(entry: Entry, why: str, named: Sequence[Named]) -> tuple[list[Stayed], list[str]]:
    """Remove the captures of a run from the hosts that keep them; return which were removed, and what could not be.

    Hosts are reached by the testbeds that are `named`, and by nothing that stands in the run's folder. They are asked
    first and the manifest is written after: whoever is interrupted in between asks again.
    """
    kept = [one for one in entry.manifest.stayed if one.node not in entry.manifest.given_up]
    by_node = {node: tuple(some) for node, some in groupby(sorted(kept, key=_node), key=_node)}
    try:
        rundir.refuse_anothers(entry)
    except StoreError as error:
        return [], [f"{node}: {_sizes(some)} stay: {error.message}" for node, some in by_node.items()]

    def remove(node: str) -> OrchError | None:
        try:
            _remove(entry, node, by_node[node], named)
        except OrchError as error:
            return error  # told beside what became of the others
        return None

    errors = fanout.each(list(by_node), remove, deadline=Deadline.after(2 * REACH_S), what="dropping captures")
    removed = [one for one in kept if errors[one.node] is None]
    retention.record_dropped(entry.path, removed, why)
    failed = [
        f"{node}: {_sizes(by_node[node])} could not be removed: {error.message}"
        + (f"; {error.hint}" if isinstance(error, TestbedError) and error.hint else "")
        for node, error in errors.items()
        if error is not None
    ]
    return removed, failed


def _node(one: Stayed) -> str:
    return one.node


def _sizes(some: Collection[Stayed]) -> str:
    return f"{len(some)} captures" if len(some) != 1 else "1 capture"


def _remove(entry: Entry, node: str, some: Sequence[Stayed], named: Sequence[Named]) -> None:
    """Remove a run's folder from a host; StoreError where it holds anything but what the manifest says stays there."""
    deadline = Deadline.after(REACH_S)
    testbed = testbeds.reached(entry.manifest.topology, [node], named)[node]
    try:
        channel = testbed.connect(node, deadline)
        client = AgentClient(
            testbed.topology.node(node), channel, run=entry.run, holder=holder(entry.run), on_event=lambda _: None
        )
        try:
            client.hello(deadline)
            there = client.files(deadline)
            wrong = _unlike(client.folder, there, some)
            client.remove(deadline, keep=[file.path for file in there] if wrong else ())
        finally:
            client.close(deadline)
    finally:
        testbed.close()
    if wrong:
        raise StoreError(f"{wrong}; they are left alone")


def _unlike(folder: str, there: Sequence[RunFile], some: Sequence[Stayed]) -> str:
    """Return how a folder on a host differs from the manifest; empty where it does not, or is not there.

    A run's folder that is somebody else's may bear the id of a run of one's own.
    """
    if elsewhere := [one.folder for one in some if one.folder != folder]:
        return f"they lie in {elsewhere[0]}, and it keeps this run in {folder}"
    sizes = {one.path.removeprefix(f"hosts/{one.node}/"): one.bytes for one in some}
    others = [file.path for file in there if sizes.get(file.path) != file.bytes]
    return f"its manifest does not record {others[0]} in {folder} as it is" if others else ""
