"""Reach one host for a moment: an agent of its own, whose folder goes when it does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from orchestrator.core.deadline import Deadline
from orchestrator.execution.session import holder, opening_s
from orchestrator.parts.protocols import Testbed
from orchestrator.parts.topology import Topology
from orchestrator.remote.agent_client import AgentClient


@contextmanager
def greeted(testbed: Testbed, topology: Topology, host: str, *, run: str, deadline: Deadline) -> Iterator[AgentClient]:
    """Give a client of an agent on a host of an open testbed, and remove all that it wrote there."""
    client = AgentClient(
        topology.node(host),
        testbed.connect(host, Deadline.after(opening_s(len(topology.hosts)))),
        run=run,
        holder=holder(run),
        on_event=lambda _: None,
    )
    try:
        client.hello(deadline)
        try:
            yield client
        finally:
            client.remove(deadline)
    finally:
        client.close(deadline)
