"""TCP's congestion control on the data plane: an attribute of two routes a rail, so nothing else changes.

One is the connected route of a rail, by which it reaches other hosts, the other one that to its own address there, in
the table `local`: ranks of one host meet by it. In IPv6 the latter has a metric of 0, which only the kernel can give,
and stays as it is. What is for one job is no attribute of a route: its ranks set their own sockets.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from typing import ClassVar

from pydantic import Field

from orchestrator.core.fields import OrWord
from orchestrator.core.machines import packages
from orchestrator.core.machines.remedies import RIGHTS
from orchestrator.parts.launch import Change, PresenceCheck, Requirement
from orchestrator.parts.protocols import Problem
from orchestrator.parts.shared import named_hosts
from orchestrator.parts.topology import Node, Rail, Topology

NAME = "congestion-control"
FROM_HANDSHAKE = ("dctcp",)  # algorithms that a connection must ask for as it is opened (TCP_CONG_NEEDS_ECN)

# What `ip route show` prints before a value and `ip route replace` reads back unchanged.
_PAIRS = frozenset(
    {
        *("proto", "scope", "src", "metric", "mtu", "advmss", "window", "rtt", "rttvar", "rto_min", "cwnd", "initcwnd"),
        *("initrwnd", "ssthresh", "reordering", "hoplimit", "quickack", "features", "fastopen_no_cookie", "congctl"),
        "pref",
    }
)
_STATUS = frozenset({"linkdown", "dead", "offload", "rt_offload", "trap", "rt_trap", "offload_failed"})


class Config(OrWord):
    """Connections that are opened from now on use this algorithm, between hosts and of a host to its own address."""

    WORD: ClassVar[str] = "algorithm"

    algorithm: str = Field(pattern=r"^[a-z0-9_-]{1,15}$")
    """Its name in the kernel: cubic, bbr, reno, dctcp..."""
    hosts: tuple[str, ...] = ()
    """Only connections that end on these hosts; default: all."""
    job: str | None = None
    """Only the connections between ranks of this job, set by their sockets as the ranks have met, so that jobs on one
    host can differ. It wins over what `hosts` have."""


def problems(config: Config, topology: Topology) -> list[Problem]:
    if config.job is not None and config.hosts:
        message = "stand beside job"
        return [Problem(at=("hosts",), message=message, accepted="one of both: a job is set wherever it runs")]
    if config.job is not None and config.algorithm in FROM_HANDSHAKE:
        message = f"{config.algorithm} needs ECN from the handshake on, before a socket can be set"
        return [Problem(at=("algorithm",), message=message, accepted="hosts that the job has for itself, not job")]
    return named_hosts.problems(named_hosts.listed("hosts", config.hosts), topology)


def requirements(config: Config, topology: Topology) -> list[Requirement]:
    by = f"condition {NAME}"
    if config.job is not None:
        return []
    return [
        requirement
        for node in named_hosts.chosen(config.hosts, topology)
        for requirement in (
            Requirement(node=node.name, kind="program", what="ip", remedy=packages.remedy("ip"), needed_by=by),
            Requirement(node=node.name, kind="privilege", what="CAP_NET_ADMIN", remedy=RIGHTS, needed_by=by),
        )
    ]


def parse(output: str, *, rail: Rail) -> str:
    """Return the connected route of a rail from `ip route show dev X`, word for word but for what is passing status.

    One of IPv4 is known by its source address, one of IPv6, which has none, by its network. ValueError where there is
    none, or one that `ip route replace` could not put back.
    """
    routes = [line.split() for line in output.splitlines()]
    connected = [route for route in routes if "via" not in route and _connects(route, rail)]
    return _state(connected, f"connected routes have the source address {rail.address}")


def parse_own(output: str, *, rail: Rail) -> str:
    """Return the same of the route to its address (IPv4) itself, from `ip route show table local dev X`.

    Without its type.
    """
    routes = [line.split() for line in output.splitlines()]
    own = [route[1:] for route in routes if route[:2] == ["local", rail.address]]
    return _state(own, f"routes of the table local lead to {rail.address}")


def _connects(route: list[str], rail: Rail) -> bool:
    return route[:1] == [str(rail.network)] if _is_ipv6(rail) else _after(route, "src") == rail.address


def _is_ipv6(rail: Rail) -> bool:
    return ":" in rail.address


def _state(routes: list[list[str]], what: str) -> str:
    if len(routes) != 1:
        raise ValueError(f"{len(routes)} {what}; one is needed")
    words = [word for word in routes[0] if word not in _STATUS]
    _attributes(words)
    return " ".join(words)


def _after(words: list[str], key: str) -> str | None:
    return words[words.index(key) + 1] if key in words[:-1] else None


def _attributes(words: list[str]) -> dict[str, str]:
    """Return the route's attributes after its destination, each with its value ("lock" stands before a value)."""
    found: dict[str, str] = {}
    rest = iter(words[1:])
    for key in rest:
        if key not in _PAIRS:
            raise ValueError(f"the route '{' '.join(words)}' has '{key}', which could not be put back")
        value = next(rest, "")
        found[key] = f"lock {next(rest, '')}" if value == "lock" else value
    return found


def _with_algorithm(state: str, algorithm: str) -> str:
    words = state.split()
    kept = {key: value for key, value in _attributes(words).items() if key != "congctl"}
    return " ".join([words[0], *(f"{key} {value}" for key, value in kept.items()), "congctl", algorithm])


def _replace(state: str, *, kind: Sequence[str], device: str) -> list[tuple[str, ...]]:
    """Return what puts a route back; ip shows a least time-out as locked, and takes it only without that word."""
    destination, *attributes = state.replace("rto_min lock ", "rto_min ").split()
    return [("ip", "route", "replace", *kind, destination, "dev", device, *attributes)]


def changes(config: Config, topology: Topology) -> list[Change]:
    if config.job is not None:
        return []  # its ranks set their sockets, which end with them
    return [
        _change(node, rail, config.algorithm, own=own)
        for node in named_hosts.chosen(config.hosts, topology)
        for rail in node.rails
        for own in ((False,) if _is_ipv6(rail) else (False, True))
    ]


def _change(node: Node, rail: Rail, algorithm: str, *, own: bool) -> Change:
    parsed = parse_own if own else parse
    replaced = partial(_replace, kind=("table", "local", "local") if own else (), device=rail.device)

    def canonical(output: str) -> str:
        state = parsed(output, rail=rail)
        found = _attributes(state.split())
        # ip prints metrics in the kernel's order: only the algorithm is moved to the end, where `expect` puts it
        return _with_algorithm(state, found["congctl"]) if "congctl" in found else state

    family = ("-6",) if _is_ipv6(rail) else ()
    read = ("ip", *family, "route", "show", *(("table", "local") if own else ()), "dev", rail.device)
    return Change(
        node=node.name,
        name=f"congestion control of {node.name}:{rail.device}" + (" to itself" if own else ""),
        kind=NAME,
        read=read,
        parse=canonical,
        apply=lambda old: replaced(_with_algorithm(old, algorithm)),
        undo=replaced,
        expect=partial(_with_algorithm, algorithm=algorithm),
        presence=lambda _: PresenceCheck(read=read, pattern=_presence(rail, algorithm, own=own)),
    )


def _presence(rail: Rail, algorithm: str, *, own: bool) -> str:
    """Return a pattern that finds the changed route among those of the device."""
    if _is_ipv6(rail):
        return rf"^{re.escape(str(rail.network))} .*congctl {algorithm}\b"
    address = re.escape(rail.address)
    beginning = rf"^local {address} .*" if own else ""
    return rf"{beginning}\bsrc {address}\b.* congctl {algorithm}\b"
