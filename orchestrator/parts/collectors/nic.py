"""Counters of network devices over time: the kernel's, the driver's, and those of the RDMA device behind them.

Counters are named as in /sys/class/net/DEVICE/statistics ("rx_bytes"), as `ethtool -S` names them after "ethtool.", and
as in /sys/class/infiniband/*/ports/*/{counters,hw_counters} after "rdma." (port_xmit_data and port_rcv_data count words
of four bytes). RDMA traffic passes by the kernel: only the last two see it.
"""

from __future__ import annotations

from collections.abc import Mapping

from orchestrator.core.fields import Duration, Model
from orchestrator.parts import samplers
from orchestrator.parts.launch import Launch, Requirement
from orchestrator.parts.protocols import Problem
from orchestrator.parts.rows import Columns, LaunchOutput
from orchestrator.parts.topology import Topology

NAME = "nic"


class Config(Model):
    """Counters of network devices."""

    hosts: tuple[str, ...] | None = None
    """Hosts and switches to watch; all hosts, and switches where an agent runs, when left out."""
    required: bool = False
    """Whether the run fails when this collector does."""
    every: Duration = 0.01
    """Time between samples of the kernel's counters."""
    slow_every: Duration = 0.1
    """Time between samples of the driver's and the RDMA device's counters."""
    queues: bool = False
    """Whether to keep the driver's counters of single queues too, which can be thousands."""


def problems(config: Config, topology: Topology) -> list[Problem]:
    return [
        *samplers.hosts_problems(config.hosts, list(samplers.ports(topology, None))),
        *samplers.interval_problems("every", config.every),
        *samplers.interval_problems("slow_every", config.slow_every),
    ]


def requirements(config: Config, topology: Topology) -> list[Requirement]:
    return samplers.device_requirements(samplers.ports(topology, config.hosts), NAME)


def launches(config: Config, topology: Topology) -> list[Launch]:
    options = (f"{config.every:.9g}", f"{config.slow_every:.9g}", "1" if config.queues else "0", "/sys")
    return [
        samplers.sampler_launch(NAME, topology.node(node), (*options, *devices), required=config.required)
        for node, devices in samplers.ports(topology, config.hosts).items()
    ]


def read(output: LaunchOutput) -> Mapping[str, Columns]:
    """Rows of `counters`; values are the counters' own, cumulative."""
    return samplers.counter_rows(samplers.counters(output))
