"""Segmentation and receive offloads of hosts: switched off, so that captures, queues and counters see frames."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from orchestrator.core.fields import OrWord
from orchestrator.parts.launch import Change, Requirement
from orchestrator.parts.protocols import Problem
from orchestrator.parts.shared import named_hosts, offload_change
from orchestrator.parts.topology import Topology

NAME = "offloads"


class Config(OrWord):
    """TSO, GSO, GRO, and LRO where a driver has it, of hosts' data-plane devices, until the run ends.

    Costs processor time for each frame; the wire carries the same frames with and without.
    """

    WORD: ClassVar[str] = "state"

    state: Literal["off"] = Field()
    """What they are to be."""
    hosts: tuple[str, ...] = ()
    """Only these hosts; default: all."""


def problems(config: Config, topology: Topology) -> list[Problem]:
    return named_hosts.problems(named_hosts.listed("hosts", config.hosts), topology)


def requirements(config: Config, topology: Topology) -> list[Requirement]:
    by = f"condition {NAME}"
    return [
        need
        for node in named_hosts.chosen(config.hosts, topology)
        for need in offload_change.requirements(node.name, by)
    ]


def changes(config: Config, topology: Topology) -> list[Change]:
    return [
        offload_change.off(NAME, node.name, device)
        for node in named_hosts.chosen(config.hosts, topology)
        for device in node.devices
    ]
