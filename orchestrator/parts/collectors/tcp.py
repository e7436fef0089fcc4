"""The kernel's view of every TCP connection of the data plane over time: round trips, windows, retransmissions.

The counter "tcp.timeouts" has the retransmission time-outs of all of a node's connections.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from orchestrator.core.fields import Duration, Model
from orchestrator.parts import samplers
from orchestrator.parts.launch import Launch, Requirement
from orchestrator.parts.protocols import Problem
from orchestrator.parts.rows import Columns, LaunchOutput
from orchestrator.parts.topology import Topology

NAME = "tcp"

TEXTS = ("src", "dst", "congestion")
WHOLE = ("src_port", "dst_port", "cwnd_segments", "retransmits", "bytes_acked", "unacked_segments")
COUNTED = ("timeouts", "backoff")  # which older files lack


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
    """Rows of `sockets`: one a connection and sample, `src` being the node's end; and of `counters`, of the node."""
    import pyarrow as pa

    files = list(samplers.csv_tables(output))
    counted = samplers.counter_rows(
        one for stem, table in files if stem == "netstat" for one in samplers.series(stem, table, output)
    )
    found = [table for stem, table in files if stem != "netstat"]
    if not found:
        return counted
    table = pa.concat_tables(found, promote_options="default")
    rtt_s = samplers.numbers(table, "rtt_us") / 1e6
    known = ~np.isnan(rtt_s)  # a kernel before 4.1 tells too little
    texts = {name: samplers.texts(table, name)[known] for name in TEXTS}
    whole = {name: samplers.wholes(samplers.numbers(table, name)[known]) for name in (*WHOLE, *COUNTED)}
    instants = (table.column("time_ns").to_numpy() + output.offset_ns)[known]
    rto_s = samplers.numbers(table, "rto_us")[known] / 1e6
    return {"sockets": {"time_ns": instants, **texts, "rtt_s": rtt_s[known], **whole, "rto_s": rto_s}, **counted}
