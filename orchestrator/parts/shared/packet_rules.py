"""Something done to a random share of the data plane's packets at one device: a table of nftables that counts them.

Why not netem: many kernels lack it, it takes the place of the queue that shapes the link, and it does not say how many
packets it hit. Why not where a host sends: its TCP would be told of the drop at once, and send again without a loss.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from orchestrator.core.machines import packages
from orchestrator.core.machines.remedies import RIGHTS
from orchestrator.parts.launch import Change, HitCounter, PresenceCheck, Requirement
from orchestrator.parts.protocols import Problem
from orchestrator.parts.shared import fabric_links, named_hosts, offload_change, rails
from orchestrator.parts.topology import Topology

OF = 1_000_000  # a share is so many in a million
ABSENT = "absent"

_RULE = re.compile(r"numgen random mod (\d+) < (\d+) counter name \"?hit\"? (.+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class PacketRule:
    """`verdict` for a share of the packets that match, between hosts of the testbed.

    They are on their way to one `host`, or cross one `link` of a fabric, in either direction.
    """

    kind: str
    host: str = ""
    link: str = ""
    where: rails.Where | None
    share: float
    match: str  # of nftables, before the share is taken; every packet when empty
    verdict: str  # of nftables

    @property
    def in_a_million(self) -> int:
        return round(self.share * OF)


def problems(rule: PacketRule, topology: Topology) -> list[Problem]:
    """Return what does not fit the testbed."""
    if rule.link:
        found = fabric_links.problems(rule.link, topology)
    else:
        found = named_hosts.problems([(("host",), rule.host)], topology)
    if found:
        return found
    if not (rule.share == 0 or 1 <= rule.in_a_million < OF):
        accepted = "0%, or 0.0001% to 99.9999%"
        found.append(Problem(at=("share",), message=f"{rule.share:g} is no share to take", accepted=accepted))
    if not rule.link and rule.where == "switch-port" and not topology.link(rule.host).switch_port:
        message = f"no agent runs on the switch of {rule.host}, so nothing can be set there"
        found.append(Problem(at=("where",), message=message, accepted="nic, or a local testbed"))
    return found


def _places(rule: PacketRule, topology: Topology) -> list[tuple[str, str, Literal["ingress", "egress"]]]:
    """Return node, device and hook of `netdev` of each place where packets are hit."""
    if rule.link:
        return fabric_links.links(topology)[rule.link].hooks(topology)
    hook: Literal["ingress", "egress"] = "egress" if rule.where == "switch-port" else "ingress"
    return [(node, device, hook) for node, device in rails.ends(rule.host, rule.where, topology)]


def requirements(rule: PacketRule, topology: Topology) -> list[Requirement]:
    """Nft at the place, ethtool and the right to change devices on every host."""
    places = _places(rule, topology)
    nodes = dict.fromkeys(node for node, _, _ in places)
    by = f"condition {rule.kind}"
    needed = [need for host in topology.hosts for need in offload_change.requirements(host.name, by)]
    if rule.share == 0:
        return needed
    program, remedy = packages.remedy("nft"), "name a device that exists"
    found = [Requirement(node=node, kind="program", what="nft", remedy=program, needed_by=by) for node in nodes]
    found += [
        Requirement(node=node, kind="device", what=device, remedy=remedy, needed_by=by)
        for node, device in dict.fromkeys((node, device) for node, device, _ in places)
    ]
    found += [
        Requirement(node=node, kind="privilege", what="CAP_NET_ADMIN", remedy=RIGHTS, needed_by=by)
        for node in nodes
        if topology.node(node).kind == "switch"
    ]
    return [*found, *needed]


def changes(rule: PacketRule, topology: Topology) -> list[Change]:
    """Offloads that make one packet of many off on every host, then the rule at each rail; a share of 0 is none."""
    switched = [offload_change.off(rule.kind, host.name, device) for host in topology.hosts for device in host.devices]
    if rule.share == 0:
        return switched
    addresses = [address for host in topology.hosts for address in host.addresses]
    return [*switched, *(_rule(rule, place, addresses) for place in _places(rule, topology))]


def _rule(rule: PacketRule, place: tuple[str, str, Literal["ingress", "egress"]], addresses: Sequence[str]) -> Change:
    node, device, hook = place
    from_host = " from its host" if rule.link and hook == "ingress" else ""
    table = "orch_" + re.sub(r"\W", "_", f"{rule.kind}_{device}{from_host and '_in'}")
    state = f"{rule.verdict} {rule.in_a_million} of {OF}"

    def parse(output: str) -> str:
        return parse_rules(output, table=table)

    def apply(old: str) -> list[tuple[str, ...]]:
        if old != ABSENT:
            raise ValueError(f"there is a table {table} already: remove it first (nft delete table netdev {table})")
        return [("nft", _table(rule, table, f'{hook} device "{device}"', addresses))]

    return Change(
        node=node,
        name=f"{rule.kind} at {node}:{device}{from_host}",
        kind=rule.kind,
        read=("nft", "-s", "list", "ruleset", "netdev"),
        parse=parse,
        apply=apply,
        undo=lambda _: [("nft", "delete", "table", "netdev", table)],
        expect=lambda _: state,
        presence=lambda _: PresenceCheck(read=("nft", "list", "tables", "netdev"), pattern=f"^table netdev {table}$"),
        hits=HitCounter(
            read=("nft", "-j", "list", "counters", "table", "netdev", table), parse=parse_counters, share=rule.share
        ),
    )


def _table(rule: PacketRule, table: str, hook: str, addresses: Sequence[str]) -> str:
    """Return a whole table as one transaction; packets of one family after the other, since a rule holds one."""
    families = {"ip": 4, "ip6": 6}
    lines = []
    for family, version in families.items():
        these = ", ".join(address for address in addresses if ipaddress.ip_address(address).version == version)
        if these:
            match = rule.match.replace("ip ", f"{family} ") if rule.match else ""
            verdict = rule.verdict.replace("ip ", f"{family} ")
            lines.append(
                f"{family} saddr {{ {these} }} {family} daddr {{ {these} }} {match} counter name seen "
                f"numgen random mod {OF} < {rule.in_a_million} counter name hit {verdict}"
            )
    rules = "\n".join(lines)
    return (
        f"table netdev {table} {{\ncounter seen {{\n}}\ncounter hit {{\n}}\n"
        f"chain out {{\ntype filter hook {hook} priority 0\n{rules}\n}}\n}}\n"
    )


def parse_rules(output: str, *, table: str) -> str:
    """Return what our table does, from `nft -s list ruleset netdev`: "absent", or verdict and share.

    ValueError for a table of that name whose rules are not ours.
    """
    if output.strip() and not output.lstrip().startswith("table "):
        raise ValueError(f"unexpected output of nft: {output.strip()[:80]}")
    blocks = re.split(r"^(?=table )", output, flags=re.MULTILINE)
    mine = [block for block in blocks if block.startswith(f"table netdev {table} ")]
    if not mine:
        return ABSENT
    found = {(int(hit), int(of), verdict.strip()) for of, hit, verdict in _RULE.findall(mine[0])}
    if len(found) != 1:
        raise ValueError(f"the table {table} has rules that are not ours: remove it first")
    ((hit, of, verdict),) = found
    return f"{verdict.replace('ip6 ', 'ip ')} {hit} of {of}"


def parse_counters(output: str) -> tuple[int, int]:
    """Packets that matched and packets that were hit, from `nft -j list counters`."""
    try:
        found = {
            entry["counter"]["name"]: int(entry["counter"]["packets"])
            for entry in json.loads(output)["nftables"]
            if "counter" in entry
        }
        return found["seen"], found["hit"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"the counters cannot be read: {error!r}") from None
