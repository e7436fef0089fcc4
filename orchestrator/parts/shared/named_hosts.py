"""Hosts that a file or an option names: whether the testbed has them; one check, in one wording."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from orchestrator.parts.protocols import Problem
from orchestrator.parts.topology import Node, Topology

At = tuple[str | int, ...]


def chosen(hosts: Sequence[str], topology: Topology) -> list[Node]:
    """Return the hosts of these names, in the testbed's order; all of them where there is no name."""
    return [host for host in topology.hosts if not hosts or host.name in hosts]


def absent(name: str) -> str:
    """Return what is wrong with a name that no host has."""
    return f"the testbed has no host {name!r}"


def one_of(known: Iterable[str]) -> str:
    """Return what would be accepted instead."""
    return f"one of {', '.join(known)}"


def problems(named: Iterable[tuple[At, str]], topology: Topology) -> list[Problem]:
    """Return a problem for each place at which a host is named that the testbed does not have."""
    known = [host.name for host in topology.hosts]
    return [Problem(at=at, message=absent(name), accepted=one_of(known)) for at, name in named if name not in known]


def listed(option: str, names: Sequence[str]) -> list[tuple[At, str]]:
    """Each name of a list under an option, with its place."""
    return [((option, place), name) for place, name in enumerate(names)]
