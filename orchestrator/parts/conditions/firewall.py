"""Firewall: ports of the run are open to the testbed's own hosts alone. A table of nftables of its own, which counts.

Some frameworks listen on every address of a host, without asking who calls: docs/security.md, "What listens, and for
whom".
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Annotated

from pydantic import Field

from orchestrator.core.fields import Model
from orchestrator.core.machines import packages
from orchestrator.core.machines.remedies import RIGHTS
from orchestrator.parts.launch import Change, HitCounter, PresenceCheck, Requirement
from orchestrator.parts.protocols import Problem
from orchestrator.parts.shared import named_hosts, packet_rules
from orchestrator.parts.shared.packet_rules import ABSENT
from orchestrator.parts.topology import KNOWN_PORTS, Node, Topology

NAME = "firewall"

TABLE = "orch_firewall"
LOWEST, HIGHEST = 1024, 65535

_SET = re.compile(r"set (\w+) \{.*?elements = \{(.*?)\}", re.DOTALL)
_RULES = re.compile(
    r'chain guard \{ counter name "?seen"? ((?:iifname "\S+" ip6? saddr @ipv[46] accept )+)counter name "?hit"? drop '
    r"\} chain in \{ type filter hook input priority (?:filter|0); policy accept; "
    r'iifname != "lo" tcp dport @ports tcp flags (?:& \(syn \| ack\) == syn|syn / syn,ack) goto guard \} \}$'
)


class Config(Model):
    """New TCP connections to ports of the run are let in from the testbed's data-plane addresses by its devices alone.

    Others find them silent, on every device of the host. Loopback, what is connected already, other ports, UDP and
    ICMP are left alone, so a control connection is, unless sshd listens at one of these ports.
    """

    hosts: tuple[str, ...] = ()
    """Only on these hosts; default: all."""
    ports: tuple[Annotated[int, Field(ge=0)] | Annotated[str, Field(pattern=r"^\d{1,5}-\d{1,5}$")], ...] = ()
    """More ports, or ranges such as `32768-60999`, beside those that are known of ten jobs and 64 sources of traffic:
    10000-11000 and 38080 (KungFu), 15201-16224 (traffic), 20000-20999 (Open MPI), 29500-30599 (the others)."""


def problems(config: Config, topology: Topology) -> list[Problem]:
    found = named_hosts.problems(named_hosts.listed("hosts", config.hosts), topology)
    for i, ports in enumerate(config.ports):
        first, last = _range(ports)
        if not LOWEST <= first <= last <= HIGHEST:
            message = f"{ports} are no ports of a run"
            accepted = f"ports from {LOWEST} to {HIGHEST}, without that of sshd: below are the host's own"
            found.append(Problem(at=("ports", i), message=message, accepted=accepted))
    return found


def _range(ports: int | str) -> tuple[int, int]:
    first, _, last = str(ports).partition("-")
    return int(first), int(last or first)


def requirements(config: Config, topology: Topology) -> list[Requirement]:
    by = f"condition {NAME}"
    needed = []
    for node in named_hosts.chosen(config.hosts, topology):
        device = "name a device that exists"
        needed += [
            Requirement(node=node.name, kind="program", what="nft", remedy=packages.remedy("nft"), needed_by=by),
            Requirement(node=node.name, kind="privilege", what="CAP_NET_ADMIN", remedy=RIGHTS, needed_by=by),
        ]
        needed += [
            Requirement(node=node.name, kind="device", what=what, remedy=device, needed_by=by) for what in node.devices
        ]
    return needed


def changes(config: Config, topology: Topology) -> list[Change]:
    """Return a table on each host."""
    ports = _merged([*KNOWN_PORTS, *map(_range, config.ports)])
    addresses = [address for host in topology.hosts for address in host.addresses]
    return [_change(node, addresses, ports) for node in named_hosts.chosen(config.hosts, topology)]


def _merged(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """In order, none of them next to another: nftables takes no ranges that overlap."""
    merged: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return merged


def _change(node: Node, addresses: list[str], ports: list[tuple[int, int]]) -> Change:
    texts = [str(first) if first == last else f"{first}-{last}" for first, last in ports]
    state = _state(node.devices, addresses, texts)
    return Change(
        node=node.name,
        name=f"firewall of {node.name}",
        kind=NAME,
        read=("nft", "-s", "list", "ruleset", "inet"),
        parse=parse,
        apply=partial(_apply, table=_table(node.devices, addresses, texts)),
        undo=lambda _: [("nft", "delete", "table", "inet", TABLE)],
        expect=lambda _: state,
        presence=lambda _: PresenceCheck(read=("nft", "list", "tables", "inet"), pattern=f"^table inet {TABLE}$"),
        hits=HitCounter(
            read=("nft", "-j", "list", "counters", "table", "inet", TABLE),
            parse=packet_rules.parse_counters,
            share=None,
        ),
    )


def _apply(old: str, *, table: str) -> list[tuple[str, ...]]:
    if old != ABSENT:
        raise ValueError(f"there is a table {TABLE} already: remove it first (nft delete table inet {TABLE})")
    return [("nft", table)]


def _table(devices: Sequence[str], addresses: list[str], ports: list[str]) -> str:
    """Return the whole table as one transaction.

    Of packets that open no connection it compares port and flags alone.
    """
    sets, rules = [], []
    for version, family in ((4, "ip"), (6, "ip6")):
        these = [address for address in addresses if ipaddress.ip_address(address).version == version]
        if these:
            sets.append(f"set ipv{version} {{\ntype ipv{version}_addr\nelements = {{ {', '.join(these)} }}\n}}")
            rules += [f'iifname "{device}" {family} saddr @ipv{version} accept' for device in devices]
    return "\n".join(
        (
            f"table inet {TABLE} {{",
            *("counter seen {", "}", "counter hit {", "}"),
            *sets,
            f"set ports {{\ntype inet_service\nflags interval\nelements = {{ {', '.join(ports)} }}\n}}",
            *("chain guard {", "counter name seen", *rules, "counter name hit drop", "}"),
            *("chain in {", "type filter hook input priority filter; policy accept;"),
            'iifname != "lo" tcp dport @ports tcp flags & (syn | ack) == syn goto guard',
            *("}", "}", ""),
        )
    )


def _state(devices: Iterable[str], addresses: Iterable[str], ports: Iterable[str]) -> str:
    hosts = sorted(str(ipaddress.ip_address(address)) for address in addresses)
    return f"lets {', '.join(hosts)} in by {', '.join(sorted(devices))} to {', '.join(sorted(ports))}"


def parse(output: str) -> str:
    """Return what our table does, from `nft -s list ruleset inet`: "absent", or who is let in where.

    ValueError for a table of that name whose rules are not ours.
    """
    if output.strip() and not output.lstrip().startswith("table "):
        raise ValueError(f"unexpected output of nft: {output.strip()[:80]}")
    blocks = re.split(r"^(?=table )", output, flags=re.MULTILINE)
    mine = [block for block in blocks if block.startswith(f"table inet {TABLE} ")]
    if not mine:
        return ABSENT
    sets = {name: re.split(r"[,\s]+", elements.strip()) for name, elements in _SET.findall(mine[0])}
    ours = _RULES.search(" ".join(mine[0].split()))
    rules = re.findall(r'iifname "(\S+)" \w+ saddr @(\w+)', ours[1]) if ours else []
    devices = {device for device, _ in rules}
    families = {name for _, name in rules}
    if not rules or len(rules) != len(devices) * len(families) or sets.keys() != families | {"ports"}:
        raise ValueError(f"the table {TABLE} has rules that are not ours: remove it first")
    hosts = [address for name, elements in sets.items() if name != "ports" for address in elements]
    return _state(devices, hosts, sets["ports"])
