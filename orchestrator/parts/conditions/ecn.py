"""Congestion marks: a random share of the ECN-capable packets on their way to a host is marked (RFC 3168)."""

from __future__ import annotations

from typing import Literal

from orchestrator.core.fields import Model, Share
from orchestrator.core.machines import packages
from orchestrator.parts.launch import Change, PresenceCheck, Requirement
from orchestrator.parts.protocols import Problem
from orchestrator.parts.shared import packet_rules
from orchestrator.parts.shared.packet_rules import PacketRule
from orchestrator.parts.topology import Topology

NAME = "ecn"

TCP_ECN = "net.ipv4.tcp_ecn"
ASKS_FOR_IT = "1"  # connections ask for ECN and accept it


class Config(Model):
    """Marks "congestion experienced" on single packets, until the run ends.

    Every host's TCP asks for ECN meanwhile, and segmentation and receive offloads are off.
    """

    where: Literal["nic", "switch-port"] = "nic"
    """On the host's own device as packets come in, or at the switch port towards it."""
    host: str
    """The host that packets are on their way to."""
    share: Share
    """Probability that an ECN-capable packet is marked, such as 1%."""


def _rule(config: Config) -> PacketRule:
    return PacketRule(
        kind=NAME,
        host=config.host,
        where=config.where,
        share=config.share,
        match="ip ecn != not-ect",
        verdict="ip ecn set ce",
    )


def problems(config: Config, topology: Topology) -> list[Problem]:
    return packet_rules.problems(_rule(config), topology)


def requirements(config: Config, topology: Topology) -> list[Requirement]:
    remedy = packages.remedy("sysctl")
    return [
        *packet_rules.requirements(_rule(config), topology),
        *(
            Requirement(node=host.name, kind="program", what="sysctl", remedy=remedy, needed_by=f"condition {NAME}")
            for host in topology.hosts
        ),
    ]


def changes(config: Config, topology: Topology) -> list[Change]:
    asking = [_asking(host.name) for host in topology.hosts]
    return [*asking, *packet_rules.changes(_rule(config), topology)]


def _asking(node: str) -> Change:
    def parse(output: str) -> str:
        if not output.strip().isdigit():
            raise ValueError(f"{TCP_ECN} is {output.strip()[:40]!r}, which is no number")
        return output.strip()

    def put(value: str) -> list[tuple[str, ...]]:
        return [("sysctl", "-q", "-w", f"{TCP_ECN}={value}")]

    read = ("sysctl", "-n", TCP_ECN)
    return Change(
        node=node,
        name=f"{TCP_ECN} of {node}",
        kind=NAME,
        read=read,
        parse=parse,
        apply=lambda _: put(ASKS_FOR_IT),
        undo=put,
        expect=lambda _: ASKS_FOR_IT,
        presence=lambda _: PresenceCheck(read=read, pattern=f"^{ASKS_FOR_IT}$"),
        shared=True,
    )
