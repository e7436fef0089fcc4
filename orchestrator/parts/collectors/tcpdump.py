"""Packet captures with tcpdump at hosts' devices and at switch ports."""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from orchestrator.core.fields import Duration, Model, Size
from orchestrator.core.machines import packages
from orchestrator.core.machines.remedies import RIGHTS
from orchestrator.core.paths import safepath
from orchestrator.core.units import duration_text, size_text
from orchestrator.parts import samplers
from orchestrator.parts.launch import Footprint, Launch, Line, Requirement, Stop
from orchestrator.parts.protocols import Problem
from orchestrator.parts.rows import Columns, LaunchOutput
from orchestrator.parts.shared import capture_files
from orchestrator.parts.topology import Node, Topology

NAME = "tcpdump"

# The kernel hands libpcap a partly filled block of its ring only after libpcap's timeout, which tcpdump sets to one
# second and offers no option for; what is still in the ring at the signal is lost. Immediate mode needs no such wait,
# and cost 18 times the processor time at 50,000 packets a second.
DRAIN_S = 1.2
BUDGET = samplers.AGENTS / "capture_budget.py"
HEADERS = MappingProxyType({4: 94, 6: 114})  # Ethernet, IP and TCP with all the options that TCP can carry
SPARE_BYTES = 2  # of the usual snaplen beyond them
ROTATE_UNIT = 1_000_000
RING_S = 2.0
SMALLEST_RING, LARGEST_RING = 1 << 22, 1 << 26
OWN_BYTES = 10e6  # of memory that tcpdump takes beside its ring
RING_HEADER = 96  # bytes that the kernel puts before each packet in its ring, rounded up
FULL_FRAME = 1538  # bytes on the wire of a frame of 1500, with preamble and gap
_ENDED = re.compile(r"^capture ended at (\d{1,19}): ", re.MULTILINE)
_COUNTS = (
    ("captured", re.compile(r"^(\d+) packets? captured", re.MULTILINE)),
    ("received", re.compile(r"^(\d+) packets? received by filter", re.MULTILINE)),
    ("dropped", re.compile(r"^(\d+) packets? dropped by kernel", re.MULTILINE)),
)


class Config(Model):
    """Packet captures."""

    hosts: tuple[str, ...] | None = None
    """Hosts and switches where to capture; all hosts when left out. At a switch every port is a capture of its own."""
    ports: tuple[str, ...] | None = None
    """Only these devices of the chosen hosts and switches; all of them when left out."""
    required: bool = False
    """Whether the run fails when this collector does."""
    snaplen: int | None = None
    """Bytes kept of each packet; 96 when left out, and 116 where the data plane is of IPv6."""
    buffer: Size | None = None
    """The kernel's ring of packets that tcpdump has not read yet; by default what a busy link brings in two seconds, at
    most 64 MiB."""
    rotate: Size | None = None
    """A new file is begun when one has grown to this, in whole MB; one file when left out. No file is overwritten."""
    rotate_every: Duration | None = None
    """A new file is begun when one is this old, in whole seconds, instead of by its size."""
    budget: Size | None = None
    """What captures of a host may fill of its disk: beyond it they end there, and the run goes on. Windows that end
    later have no captures of that host."""
    filter: str = ""
    """A pcap filter; empty captures every packet, so that its bytes can be held against the device's counters."""


def problems(config: Config, topology: Topology) -> list[Problem]:
    found = samplers.hosts_problems(config.hosts, list(samplers.ports(topology, None)))
    devices = [device for some in samplers.ports(topology, _hosts(config, topology)).values() for device in some]
    for place, port in enumerate(config.ports or ()):
        if port not in devices:
            message = f"no chosen host or switch has the device {port!r}"
            found.append(
                Problem(at=("ports", place), message=message, accepted="one of " + ", ".join(sorted(set(devices))))
            )
    kept, headers = _snaplen(config, topology), HEADERS[topology.ip]
    if not headers <= kept <= 262_144:
        message = f"{kept} bytes of a packet cannot hold its headers" if kept < headers else "is too much"
        found.append(Problem(at=("snaplen",), message=message, accepted=f"{headers} to 262144 bytes"))
    if config.buffer is not None and not 1 << 20 <= config.buffer <= 1 << 31:
        message = f"{size_text(config.buffer)} is no usable ring"
        found.append(Problem(at=("buffer",), message=message, accepted="1mib to 2gib"))
    if config.rotate is not None and (config.rotate < ROTATE_UNIT or config.rotate % ROTATE_UNIT):
        message = f"tcpdump counts whole MB, not {size_text(config.rotate)}"
        found.append(Problem(at=("rotate",), message=message, accepted="such as 500mb"))
    if config.rotate_every is not None and (config.rotate_every < 1 or config.rotate_every % 1):
        message = f"tcpdump counts whole seconds, not {duration_text(config.rotate_every)}"
        found.append(Problem(at=("rotate_every",), message=message, accepted="such as 10min"))
    elif config.rotate_every is not None and config.rotate is not None:
        found.append(Problem(at=("rotate_every",), message="stands beside rotate", accepted="one of them"))
    if config.budget is not None and config.budget < ROTATE_UNIT:
        message = f"{size_text(config.budget)} is next to nothing"
        found.append(Problem(at=("budget",), message=message, accepted="1mb or more, such as 100gb"))
    return found


def requirements(config: Config, topology: Topology) -> list[Requirement]:
    chosen = _chosen(config, topology)
    found = samplers.device_requirements(chosen, NAME)
    for node in chosen:
        program, right = packages.remedy("tcpdump"), "CAP_NET_RAW of tcpdump"
        found.append(Requirement(node=node, kind="program", what="tcpdump", remedy=program, needed_by=NAME))
        found.append(Requirement(node=node, kind="privilege", what=right, remedy=RIGHTS, needed_by=NAME))
    return found


def launches(config: Config, topology: Topology) -> list[Launch]:
    return [
        _launch(
            config,
            topology.node(node),
            device,
            name=f"{NAME}.{node}" if topology.node(node).devices == (device,) else f"{NAME}.{node}.{device}",
            snaplen=_snaplen(config, topology),
            ring=int(_ring(config, topology, node, device) if config.buffer is None else config.buffer),
        )
        for node, devices in _chosen(config, topology).items()
        for device in devices
    ]


def read(output: LaunchOutput) -> Mapping[str, Columns]:
    """One row of `captures`; none when tcpdump was killed before it could say its counts."""
    port = capture_files.listening(output.folder)
    said = safepath.text(output.folder / "stderr") if port else ""
    counts = {name: pattern.search(said) for name, pattern in _COUNTS}
    if port is None or not all(counts.values()):
        return {}
    kept = capture_files.kept(output.folder)
    sizes = (
        [capture_files.captured_bytes(path) for path in capture_files.in_order(output.folder)]
        if kept is None
        else [one.bytes for one in kept]
    )
    return {
        "captures": {
            "port": [port],
            **{name: [int(match[1])] for name, match in counts.items() if match},
            "files": [len(sizes)],
            "bytes": [sum(sizes)],
            "ended_ns": [_ended_ns(said, output.offset_ns)],
        }
    }


def _ended_ns(said: str, offset_ns: int) -> int | None:
    """Until when a capture is whole that its budget ended; None of any other. What was in the ring then is lost."""
    ended = _ENDED.search(said)
    return int(ended[1]) + offset_ns - round(DRAIN_S * 1e9) if ended else None


def _hosts(config: Config, topology: Topology) -> tuple[str, ...]:
    return tuple(host.name for host in topology.hosts) if config.hosts is None else config.hosts


def _chosen(config: Config, topology: Topology) -> dict[str, tuple[str, ...]]:
    """Node and the devices on which to capture there."""
    chosen = {}
    for node, devices in samplers.ports(topology, _hosts(config, topology)).items():
        kept = tuple(device for device in devices if config.ports is None or device in config.ports)
        if kept:
            chosen[node] = kept
    return chosen


def _ring(config: Config, topology: Topology, node: str, device: str) -> float:
    """Bytes of ring for a device whose link carries full frames both ways.

    The kernel fills a ring with zeros and never swaps it out: 64 containers with 64 MiB each would take 4 GiB.
    """
    link = topology.link_at(node, device)
    if link is None:
        return LARGEST_RING
    packets = 2 * link.rate / topology.wire_scale / 8 / FULL_FRAME
    return min(max(RING_S * packets * (_snaplen(config, topology) + RING_HEADER), SMALLEST_RING), LARGEST_RING)


def _snaplen(config: Config, topology: Topology) -> int:
    return HEADERS[topology.ip] + SPARE_BYTES if config.snaplen is None else config.snaplen


def _launch(config: Config, node: Node, device: str, *, name: str, snaplen: int, ring: int) -> Launch:
    # -Z root: without it tcpdump gives up root after opening its first file and cannot open the next one.
    # -p: what is not for this device is no part of it, and the device keeps its state.
    argv = ["tcpdump", "-Z", "root", "-i", device, "-p", "-n", "-s", str(snaplen), "-B", str(ring // 1024)]
    argv += ["--time-stamp-precision=nano", "-w"]
    if config.rotate_every is not None:
        argv += [
            capture_files.FILE + "%s",
            "-G",
            str(int(config.rotate_every)),
        ]  # each file with its instant in seconds
    else:
        argv += [capture_files.FILE]
    if config.rotate is not None:
        argv += ["-C", str(int(config.rotate) // ROTATE_UNIT)]
    if config.filter:
        argv += ["--", config.filter]
    files: dict[str, bytes | Path] = {}
    if config.budget is not None:
        argv = [node.python, "-I", "-S", "-B", BUDGET.name, str(int(config.budget)), *argv]
        files[BUDGET.name] = BUDGET
    return Launch(
        name=name,
        node=node.name,
        role="collector",
        argv=tuple(argv),
        files=files,
        ready=Line(pattern="listening on", file="stderr"),
        stop=Stop(signals=((signal.SIGINT, 10.0), (signal.SIGTERM, 3.0)), drain_s=DRAIN_S, ok=(0,)),
        required=config.required,
        privileged=True,
        footprint=Footprint(memory=OWN_BYTES + ring),
    )
