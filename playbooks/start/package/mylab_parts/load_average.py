"""The collector `load-average`: how many tasks ran or waited on each host over the last minute, as counters.

Rows of `counters`, of the host as a whole: "load.1min" (tasks, averaged by the kernel over a minute) and "load.running"
(tasks that were running or could run at that instant).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from orchestrator.core.fields import Duration, Model
from orchestrator.parts import samplers
from orchestrator.parts.launch import Launch, Requirement
from orchestrator.parts.protocols import Problem
from orchestrator.parts.rows import Columns, LaunchOutput
from orchestrator.parts.topology import Topology

NAME = "load-average"

_SOURCE = Path(__file__).with_name("load_average_source.py")  # runs on hosts: Python 3.8, nothing but its own library


class Config(Model):
    """Load averages."""

    hosts: tuple[str, ...] | None = None
    """Hosts to watch; all of them when left out."""
    required: bool = False
    """Whether the run fails when this collector does."""
    every: Duration = 1.0
    """Time between samples."""


def problems(config: Config, topology: Topology) -> list[Problem]:
    """What is wrong with it on this testbed."""
    known = [host.name for host in topology.hosts]
    return [*samplers.hosts_problems(config.hosts, known), *samplers.interval_problems("every", config.every)]


def requirements(config: Config, topology: Topology) -> list[Requirement]:
    """Nothing that a host lacks: every Linux has /proc/loadavg."""
    return []


def launches(config: Config, topology: Topology) -> list[Launch]:
    """orch's sampler on each host, with a source of our own."""
    return [
        samplers.sampler_launch(NAME, host, (f"{config.every:.9g}",), required=config.required, source=_SOURCE)
        for host in samplers.chosen_hosts(topology, config.hosts)
    ]


def read(output: LaunchOutput) -> Mapping[str, Columns]:
    """Rows of `counters`."""
    return samplers.counter_rows(samplers.counters(output))
