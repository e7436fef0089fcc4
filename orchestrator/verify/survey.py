"""Ask the hosts of a testbed before anything runs: whether they are reached, their clocks, what they lack."""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.core import fanout
from orchestrator.core.deadline import Deadline
from orchestrator.core.errors import OrchError
from orchestrator.core.machines import machine
from orchestrator.core.opendata import JsonObject
from orchestrator.execution.nodes import facts, images
from orchestrator.execution.session import opening_s
from orchestrator.hosts import device_counting
from orchestrator.hosts.greeting import greeted
from orchestrator.parts.launch import Requirement
from orchestrator.parts.protocols import Testbed
from orchestrator.parts.topology import Topology
from orchestrator.remote.agent_client import AgentClient, Finding
from orchestrator.remote.clocks import ClockSample
from orchestrator.verify.claims import HostSeen

CALL_S = 60.0
PINGS = 32
BOOT = "/proc/sys/kernel/random/boot_id"
KERNEL = re.compile(r"Linux version (\d{1,3}\.\d{1,3})")
PYTHON = re.compile(r"\d{1,3}\.\d{1,3}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What the hosts said: each as it was seen, its facts, and the requirements that are not met."""

    hosts: tuple[HostSeen, ...]
    facts: Mapping[str, JsonObject]
    lacking: Mapping[Requirement, Finding]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    seen: HostSeen
    facts: JsonObject
    findings: tuple[Finding, ...] = ()


def ask(
    testbed: Testbed, topology: Topology, requirements: Sequence[Requirement], say: Callable[[str], None]
) -> Survey:
    """Reach every host, and ask it for its clock, its facts and these requirements.

    What counters of real devices count is measured, as `orch doctor` measures it, and kept for the runs that follow.
    """
    with tempfile.TemporaryDirectory(prefix="orch-verify-") as folder:
        testbed.open(Path(folder), Deadline.after(CALL_S))
        try:
            answers = fanout.each(
                [host.name for host in topology.hosts],
                lambda host: _answer(testbed, topology, host, requirements),
                deadline=Deadline.after(2 * (opening_s(len(topology.hosts)) + CALL_S)),
                what="asking",
            )
            told = {host: answer.facts for host, answer in answers.items() if answer.facts}
            if topology.kind != "local":
                for line in device_counting.lines(testbed, topology, told):
                    say(f"  {line}")
        finally:
            testbed.close()
    return Survey(
        hosts=tuple(answer.seen for answer in answers.values()),
        facts=told,
        lacking={one.requirement: one for answer in answers.values() for one in answer.findings if not one.found},
    )


def _answer(testbed: Testbed, topology: Topology, host: str, requirements: Sequence[Requirement]) -> _Answer:
    deadline, began = Deadline.after(opening_s(len(topology.hosts)) + CALL_S), time.monotonic()
    try:
        with greeted(testbed, topology, host, run=f"verify-{time.time_ns()}", deadline=deadline) as client:
            reached_s = time.monotonic() - began
            own = [requirement for requirement in requirements if requirement.node == host]
            findings = client.check(own, deadline, storage=images.storage(topology, own))
            told = facts.gather(client, client.node, deadline)
            seen = _seen(client, told, reached_s, deadline)
            return _Answer(seen=seen, facts=told, findings=tuple(findings))
    except OrchError as error:
        return _Answer(seen=HostSeen(host=host, trouble=error.message), facts={})


def _seen(client: AgentClient, told: JsonObject, reached_s: float, deadline: Deadline) -> HostSeen:
    """Return a host as it was seen; a clock of the controller's own kernel is its own."""
    same = told.get(BOOT) == machine.own_kernel()
    clock = ClockSample(0, 0) if same else client.clock(PINGS, deadline)
    kernel = KERNEL.match(str(told.get("/proc/version")))
    python = PYTHON.search(client.run((client.node.python, "--version"), deadline, privileged=False).stdout)
    return HostSeen(
        host=client.node.name,
        reached_s=reached_s,
        offset_s=clock.offset_ns / 1e9,
        uncertainty_s=clock.uncertainty_ns / 1e9,
        kernel=kernel[1] if kernel else "",
        python=python[0] if python else "",
    )


def driver(told: JsonObject, device: str, first: str) -> str:
    """Return the driver of a host's device by the host's facts; empty where it is not told. `first` is of rail 0."""
    said = str(told.get("driver" if device == first else f"driver {device}") or "")
    words = re.search(r"^driver: ([A-Za-z0-9_-]{1,32})$", said, re.MULTILINE)
    return words[1] if words else ""
