"""Hosts that an experiment names: which they are, and what is wrong with a name that the testbed does not have."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.parts.protocols import Problem
from orchestrator.parts.topology import Node, Topology


def chosen(hosts: Sequence[str], topology: Topology) -> list[Node]:
    """The hosts of these names, in the testbed's order; all of them where there is no name."""
    return [host for host in topology.hosts if not hosts or host.name in hosts]


def unknown(host: str, topology: Topology, *at: str | int) -> list[Problem]:
    """The problem of a name at this path of the part's configuration; nothing for a host of the testbed."""
    known = [node.name for node in topology.hosts]
    if host in known:
        return []
    return [Problem(at=at, message=f"the testbed has no host {host!r}", accepted=f"one of {', '.join(known)}")]


def unknown_among(hosts: Sequence[str], topology: Topology, *at: str | int) -> list[Problem]:
    """The problems of a list of names at this path."""
    return [problem for place, host in enumerate(hosts) for problem in unknown(host, topology, *at, place)]
