"""The kernel's view of every TCP connection of the data plane over time: round trips, windows, retransmissions.

Of each it tells how long it was busy sending, and for how much of that it waited for the receiver's window or for the
sender's buffer, as far as the kernel's tcp_info goes; what arrived and was not read yet; and the process of the run
that has it. The counter "tcp.timeouts" has the retransmission time-outs of all of a node's connections.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from orchestrator.core.fields import Duration, Model
from orchestrator.parts import samplers
from orchestrator.parts.launch import Launch, Requirement
from orchestrator.parts.protocols import Problem
from orchestrator.parts.rows import Columns, LaunchOutput
from orchestrator.parts.topology import Topology

NAME = "tcp"

TEXTS = ("src", "dst", "congestion", "process")
WHOLE = (
    "src_port", "dst_port", "cwnd_segments", "retransmits", "bytes_acked", "unacked_segments", "timeouts", "backoff",
    "app_limited", "mss_bytes", "bytes_received", "notsent_bytes", "delivered", "delivered_ce", "bytes_sent",
    "bytes_retrans", "dsack_dups", "reord_seen", "snd_wnd_bytes", "rcv_wnd_bytes", "total_rto_recoveries",
    "unread_bytes",
)  # fmt: skip
# Column of the table, that of the file, and by what it is multiplied.
SCALED = (
    ("rtt_s", "rtt_us", 1e-6),
    ("rto_s", "rto_us", 1e-6),
    ("rttvar_s", "rttvar_us", 1e-6),
    ("min_rtt_s", "min_rtt_us", 1e-6),
    ("busy_s", "busy_us", 1e-6),
    ("rwnd_limited_s", "rwnd_limited_us", 1e-6),
    ("sndbuf_limited_s", "sndbuf_limited_us", 1e-6),
    ("total_rto_time_s", "total_rto_time_ms", 1e-3),
    ("delivery_rate_bps", "delivery_rate", 8.0),
)


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
        samplers.sampler_launch(
            NAME,
            host,
            (f"{config.every:.9g}", *samplers.PROCESSES, *host.addresses),
            required=config.required,
            beside=(samplers.RUN_PROCESSES,),
        )
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
    known = ~np.isnan(samplers.numbers(table, "rtt_us"))  # a kernel before 2.6 tells too little
    texts = {name: samplers.texts(table, name)[known] for name in TEXTS}
    whole = {name: samplers.wholes(samplers.numbers(table, name)[known]) for name in WHOLE}
    scaled = {name: samplers.numbers(table, raw)[known] * factor for name, raw, factor in SCALED}
    instants = (table.column("time_ns").to_numpy() + output.offset_ns)[known]
    texts["process"] = _owned(texts, whole, instants)
    return {"sockets": {"time_ns": instants, **texts, **whole, **scaled}, **counted}


def _owned(texts: Mapping[str, Any], whole: Mapping[str, Any], instants: Any) -> Any:
    """Return the process of each sample; one of a connection whose owner was looked up later has that one, too."""
    owners = texts["process"].copy()
    last: dict[tuple[object, ...], str] = {}
    for place in np.argsort(instants, kind="stable")[::-1].tolist():
        ends = texts["src"][place], whole["src_port"][place], texts["dst"][place], whole["dst_port"][place]
        owners[place] = last[ends] = owners[place] or last.get(ends, "")
    return owners
