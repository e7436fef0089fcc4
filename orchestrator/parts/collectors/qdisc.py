"""Backlog, drops and totals of the kernel's queues at network devices over time.

Counters are "qdisc.KIND.NAME" for the root queueing discipline ("qdisc.tbf.backlog_bytes") and "qdisc.KIND@PARENT.NAME"
for those below it. Backlogs are what was queued at that instant, "backlog_s" as time on the link at the rate that the
testbed's file gives it; the rest is cumulative, and drops, requeues and overlimits wrap at 32 bits.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from orchestrator.core.fields import Duration, Model
from orchestrator.parts import samplers
from orchestrator.parts.launch import Launch, Requirement
from orchestrator.parts.protocols import Problem
from orchestrator.parts.rows import Columns, LaunchOutput
from orchestrator.parts.topology import Topology

NAME = "qdisc"


class Config(Model):
    """Queue counters."""

    hosts: tuple[str, ...] | None = None
    """Hosts and switches to watch; all hosts, and switches where an agent runs, when left out."""
    required: bool = False
    """Whether the run fails when this collector does."""
    every: Duration = 0.01
    """Time between samples."""
    children: bool = False
    """Whether to keep the queueing disciplines below the root too; a root such as tbf, htb or mq counts for all."""


def problems(config: Config, topology: Topology) -> list[Problem]:
    return [
        *samplers.hosts_problems(config.hosts, list(samplers.ports(topology, None))),
        *samplers.interval_problems("every", config.every),
    ]


def requirements(config: Config, topology: Topology) -> list[Requirement]:
    return samplers.device_requirements(samplers.ports(topology, config.hosts), NAME)


def launches(config: Config, topology: Topology) -> list[Launch]:
    options = (f"{config.every:.9g}", "1" if config.children else "0")
    return [
        samplers.sampler_launch(
            NAME,
            topology.node(node),
            (*options, *(f"{device}/{_carried_bps(topology, node, device):.9g}" for device in devices)),
            required=config.required,
        )
        for node, devices in samplers.ports(topology, config.hosts).items()
    ]


def read(output: LaunchOutput) -> Mapping[str, Columns]:
    """Rows of `counters`."""
    return samplers.counter_rows(samplers.counters(output))


def _carried_bps(topology: Topology, node: str, device: str) -> float:
    """Return the layer-2 bit/s that the link of a device carries on the wire; 0 where none is known."""
    link = topology.link_at(node, device)
    if link is None or not math.isfinite(link.rate):
        return 0.0
    return topology.carries_bps(link.host, topology.rail_of(node, device)) / topology.wire_scale
