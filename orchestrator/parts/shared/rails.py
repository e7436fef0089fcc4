"""Rails that a file names: whether the testbed has them, and the ends of a host's links there."""

from __future__ import annotations

from typing import Literal

from orchestrator.parts.protocols import Problem
from orchestrator.parts.topology import Topology

Where = Literal["nic", "switch-port"]


def problems(rail: int | None, topology: Topology) -> list[Problem]:
    """Return a problem for a rail that the hosts do not have; None stands for all of them."""
    if rail is None or 0 <= rail < topology.rails:
        return []
    count = topology.rails
    accepted = f"0 to {count - 1}" if count > 1 else "0, or leave it out"
    message = f"hosts have {count} rail{'s' if count > 1 else ''}, numbered from 0"
    return [Problem(at=("rail",), message=message, accepted=accepted)]


def ends(host: str, where: Where | None, topology: Topology, *, rail: int | None = None) -> list[tuple[str, str]]:
    """Node and device of an end of a host's links, its own where none is named: of one rail, or of each."""
    links = topology.links_of(host) if rail is None else (topology.link(host, rail),)
    return [(link.switch, link.switch_port) if where == "switch-port" else (link.host, link.device) for link in links]
