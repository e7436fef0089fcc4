"""Packet loss: a random share of what is on its way to a host is dropped, at the switch port or on its device."""

from __future__ import annotations

from typing import Literal

from orchestrator.core.fields import Model, Share
from orchestrator.parts.launch import Change, Requirement
from orchestrator.parts.protocols import Problem
from orchestrator.parts.shared import packet_rules
from orchestrator.parts.shared.packet_rules import PacketRule
from orchestrator.parts.topology import Topology

NAME = "loss"


class Config(Model):
    """Independent losses of single packets between hosts of the testbed, acknowledgements too, until the run ends.

    At the switch port a lost packet is captured where it was sent alone; on the host's device it is captured there too,
    and then dropped. Segmentation and receive offloads of all hosts are off meanwhile, so that packets are single ones.
    """

    where: Literal["nic", "switch-port"] = "nic"
    """On the host's own device as packets come in, or at the switch port towards it."""
    host: str
    """The host that packets are on their way to."""
    share: Share
    """Probability that a packet is lost, such as 0.1%. With 0% no packet is, and offloads are off all the same: the
    point that others are compared with."""


def _rule(config: Config) -> PacketRule:
    return PacketRule(kind=NAME, host=config.host, where=config.where, share=config.share, match="", verdict="drop")


def problems(config: Config, topology: Topology) -> list[Problem]:
    return packet_rules.problems(_rule(config), topology)


def requirements(config: Config, topology: Topology) -> list[Requirement]:
    return packet_rules.requirements(_rule(config), topology)


def changes(config: Config, topology: Topology) -> list[Change]:
    return packet_rules.changes(_rule(config), topology)
