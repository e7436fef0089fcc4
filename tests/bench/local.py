"""Local testbeds for benchmarks that need no run: up under the machine's lock, with agents on request, and down."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from orchestrator.core import lock
from orchestrator.core.deadline import Deadline
from orchestrator.core.errors import LockedError
from orchestrator.execution.session import holder
from orchestrator.parts.protocols import Channel
from orchestrator.remote.agent_client import AgentClient
from orchestrator.testbed.local.local_spec import FabricSpec
from orchestrator.testbed.local.netns import LocalSpec, NetnsTestbed

LOCK_WITHIN_S = 600.0
LOCK_RETRY_S = 0.2
UP_WITHIN_S = 60.0
CALL_S = 60.0


def made(
    hosts: int, *, rate_bps: float = 250e6, run: str = "", rails: int = 1, fabric: FabricSpec | None = None
) -> NetnsTestbed:
    """A testbed that is not up yet."""
    names = tuple(f"h{i}" for i in range(1, hosts + 1))
    uplink = fabric.uplink_rate(rate_bps) if fabric else 0.0
    spec = LocalSpec(hosts=names, rates=dict.fromkeys(names, rate_bps), rails=rails, fabric=fabric, uplink=uplink)
    return NetnsTestbed(spec, run or f"bench-{os.getpid()}-{time.monotonic_ns()}")


@contextmanager
def machine_to_ourselves() -> Iterator[None]:
    """Hold the lock of local testbeds, once whoever has it lets go."""
    deadline = Deadline.after(LOCK_WITHIN_S)
    with ExitStack() as held:
        while True:
            try:
                held.enter_context(lock.machine("local-testbed", holder("bench")))
                break
            except LockedError:
                if deadline.expired:
                    raise
            time.sleep(LOCK_RETRY_S)
        yield


@contextmanager
def up(testbed: NetnsTestbed, folder: Path) -> Iterator[NetnsTestbed]:
    """The testbed, until the end of the block."""
    try:
        testbed.open(folder, Deadline.after(UP_WITHIN_S))
        yield testbed
    finally:
        testbed.close()


def attached(testbed: NetnsTestbed, node: str, channel: Channel | None = None) -> AgentClient:
    """An agent on a node of a testbed that is up, which has answered."""
    made = AgentClient(
        testbed.topology.node(node),
        channel or testbed.connect(node, Deadline.after(CALL_S)),
        run=testbed.run_id,
        holder=holder(testbed.run_id),
        on_event=lambda _event: None,
    )
    try:
        made.hello(Deadline.after(CALL_S))
    except BaseException:
        made.close(Deadline.after(CALL_S))
        raise
    return made


@contextmanager
def client(testbed: NetnsTestbed, node: str, channel: Channel | None = None) -> Iterator[AgentClient]:
    """The same, until the end of the block."""
    made = attached(testbed, node, channel)
    try:
        yield made
    finally:
        made.close(Deadline.after(CALL_S))
