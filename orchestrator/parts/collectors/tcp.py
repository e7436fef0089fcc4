"""The kernel's view of every TCP connection of the data plane over time: round trips, windows, retransmissions."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from orchestrator.core.units import Duration, Model
from orchestrator.parts import samplers
from orchestrator.parts.launch import Launch, Requirement
from orchestrator.parts.protocols import Problem
from orchestrator.parts.rows import Columns, LaunchOutput
from orchestrator.parts.topology import Topology

NAME = "tcp"

TEXTS = ("src", "dst", "congestion")
WHOLE = ("src_port", "dst_port", "cwnd_segments", "retransmits", "bytes_acked", "unacked_segments")


class Config(Model):
    """TCP connections."""

    hosts: tuple[str, ...] | None = None
    """Hosts to watch; all when left out."""
    required: bool = False
    """Whether the run fails when this collector does."""
    every: Duration = 0.1
    """Time between samples."""


def problems(config: Config, topology: Topology) -> list[Problem]:
    known = [host.name for host in topology.hosts]
    return [*samplers.hosts_problems(config.hosts, known), *samplers.interval_problems("every", config.every)]


def requirements(config: Config, topology: Topology) -> list[Requirement]:  # noqa: ARG001 - the kernel has them all
    return []


def launches(config: Config, topology: Topology) -> list[Launch]:
    return [
        samplers.sampler_launch(NAME, host, (f"{config.every:.9g}", *host.addresses), required=config.required)
        for host in samplers.chosen_hosts(topology, config.hosts)
    ]


def read(output: LaunchOutput) -> Mapping[str, Columns]:
    """Rows of `sockets`: one a connection and sample, `src` being the node's end."""
    for _, table in samplers.csv_tables(output):
        known = ~np.isnan(samplers.floats(table.column("rtt_us")))  # a kernel before 4.1 tells too little
        texts = {name: table.column(name).to_numpy(zero_copy_only=False)[known] for name in TEXTS}
        whole = {name: samplers.floats(table.column(name))[known].astype(np.int64) for name in WHOLE}
        instants = (table.column("time_ns").to_numpy() + output.offset_ns)[known]
        rtt_s = samplers.floats(table.column("rtt_us"))[known] / 1e6
        return {"sockets": {"time_ns": instants, **texts, "rtt_s": rtt_s, **whole}}
    return {}
