"""Flows in bins of a millisecond, counted in the kernel: the tables that captures give, without copying a packet.

A program (eBPF) at both directions of each device counts packets, bytes and frames of every 5-tuple. It sees packets
joined, and those that leave before they wait in the device's queue, where a capture sees them afterwards. It follows no
sequence numbers: what is sent again counts anew. What had no place in a full ring is counted as dropped. Where
`tcpdump` captures the same device, its rows are those of the tables, and the meter's are held against them.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping

from orchestrator.core.fields import Duration, Model
from orchestrator.core.machines.remedies import ROOT
from orchestrator.parts import samplers
from orchestrator.parts.launch import Footprint, Launch, Line, Requirement, Stop
from orchestrator.parts.protocols import Problem
from orchestrator.parts.rows import Columns, LaunchOutput
from orchestrator.parts.shared import capture_files, meter_files
from orchestrator.parts.topology import Node, Topology

NAME = "meter"

WIDTH_NS = 1_000_000  # of a bin
RIGHT = "programs in the kernel"
REMEDY = f"Linux 6.6 or later and root: {ROOT}; or measure with `tcpdump`"
FILES = tuple(samplers.AGENTS / name for name in ("meter.py", "meter.bpf.json", "agent/bpf.py"))
RING_BYTES = 1 << 23  # of the kernel


class Config(Model):
    """Flows counted in the kernel."""

    hosts: tuple[str, ...] | None = None
    """Hosts and switches where to count; all hosts when left out."""
    required: bool = False
    """Whether the run fails when this collector does."""
    every: Duration = 0.25
    """How often the kernel's ring is emptied: it has room for 74,898 bins of flows."""


def problems(config: Config, topology: Topology) -> list[Problem]:
    return [
        *samplers.hosts_problems(config.hosts, list(samplers.ports(topology, None))),
        *samplers.interval_problems("every", config.every),
    ]


def requirements(config: Config, topology: Topology) -> list[Requirement]:
    chosen = _chosen(config, topology)
    rights = [Requirement(node=node, kind="privilege", what=RIGHT, remedy=REMEDY, needed_by=NAME) for node in chosen]
    return [*samplers.device_requirements(chosen, NAME), *rights]


def launches(config: Config, topology: Topology) -> list[Launch]:
    return [
        _launch(config, topology.node(node), device, one=len(devices) == 1, dilation=topology.dilation)
        for node, devices in _chosen(config, topology).items()
        for device in devices
    ]


def read(output: LaunchOutput) -> Mapping[str, Columns]:
    """One row of `captures`; none when it was killed before it could say its counts."""
    port = capture_files.listening(output.folder)
    if port is None:
        return {}
    found = meter_files.read(output.folder)
    if found.odd:
        output.unread.add("meter.bin", "entries", count=found.odd)
    if not found.ended:
        return {}
    packets = int(found.values["packets"].sum())
    return {
        "captures": {
            "port": [port],
            "captured": [packets],
            "received": [packets + found.lost_packets],
            "dropped": [found.lost_packets],
            "files": [1],
            "bytes": [len(found.keys) * meter_files.RECORD.itemsize],
            "ended_ns": [None],
        }
    }


def _chosen(config: Config, topology: Topology) -> Mapping[str, tuple[str, ...]]:
    hosts = tuple(host.name for host in topology.hosts) if config.hosts is None else config.hosts
    return samplers.ports(topology, hosts)


def _launch(config: Config, node: Node, device: str, *, one: bool, dilation: int) -> Launch:
    options = ("-i", device, "-w", str(WIDTH_NS * dilation), "-e", f"{config.every:.9g}")
    return Launch(
        name=f"{NAME}.{node.name}" if one else f"{NAME}.{node.name}.{device}",
        node=node.name,
        role="collector",
        argv=(node.python, "-I", "-S", "-B", "meter.py", *options),
        files={path.name: path for path in FILES},
        ready=Line(pattern="listening on", file="stderr"),
        stop=Stop(signals=((signal.SIGTERM, 5.0),), ok=(0,)),
        required=config.required,
        privileged=True,
        footprint=Footprint(memory=10e6 + RING_BYTES),
    )
