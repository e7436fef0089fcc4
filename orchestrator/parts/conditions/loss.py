"""Packet loss: a random share of what is on its way to a host, or of what crosses a link of a fabric, is dropped."""

from __future__ import annotations

from pydantic import model_validator

from orchestrator.core.fields import Model, Share
from orchestrator.parts.launch import Change, Requirement
from orchestrator.parts.protocols import Problem
from orchestrator.parts.shared import fabric_links, packet_rules, rails
from orchestrator.parts.shared.packet_rules import PacketRule
from orchestrator.parts.topology import Topology

NAME = "loss"


class Config(Model):
    """Independent losses of single packets between hosts of the testbed, acknowledgements too, until the run ends.

    At the switch port a lost packet is captured where it was sent alone; on the host's device it is captured there too,
    and then dropped. Segmentation and receive offloads of all hosts are off meanwhile, so that packets are single ones.
    """

    where: rails.Where | None = None
    """On the host's own device as packets come in, unless it is at the switch port towards it."""
    host: str | None = None
    """The host that packets are on their way to."""
    link: str | None = None
    """A link of a fabric by its name, such as leaf1-spine2, instead of a host: each direction loses so many."""
    share: Share
    """Probability that a packet is lost, such as 0.1%. With 0% no packet is, and offloads are off all the same: the
    point that others are compared with."""

    @model_validator(mode="after")
    def _somewhere(self) -> Config:
        fabric_links.one_of(self.host, self.link, where=self.where)
        return self


def _rule(config: Config) -> PacketRule:
    return PacketRule(
        kind=NAME,
        host=config.host or "",
        link=config.link or "",
        where=config.where,
        share=config.share,
        match="",
        verdict="drop",
    )


def problems(config: Config, topology: Topology) -> list[Problem]:
    return packet_rules.problems(_rule(config), topology)


def requirements(config: Config, topology: Topology) -> list[Requirement]:
    return packet_rules.requirements(_rule(config), topology)


def changes(config: Config, topology: Topology) -> list[Change]:
    return packet_rules.changes(_rule(config), topology)
