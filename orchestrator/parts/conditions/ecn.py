"""Congestion marks (RFC 3168): while more than a threshold waits at a port, or on packets chosen at random.

The threshold is DCTCP's K (Alizadeh et al., "Data Center TCP (DCTCP)", SIGCOMM 2010), or that of a virtual queue at a
share of the link's rate. Not RED of the kernel: many lack it, and it would stand in the place of the queue that shapes
the link. A program at the port (eBPF) reads that queue instead; it goes with its process, and changes nothing else.
"""

from __future__ import annotations

import json
import math
import signal
from collections.abc import Mapping

from pydantic import Field, model_validator

from orchestrator.core.fields import Duration, Model, Share, Size
from orchestrator.core.machines import packages
from orchestrator.core.machines.remedies import ROOT
from orchestrator.core.paths import safepath
from orchestrator.core.units import Mistake, bytes_text, size_text
from orchestrator.parts.launch import Change, Launch, Line, PresenceCheck, Requirement, Stop
from orchestrator.parts.protocols import Problem
from orchestrator.parts.rows import TABLES, Columns, LaunchOutput
from orchestrator.parts.samplers import AGENTS
from orchestrator.parts.shared import fabric_links, named_hosts, offload_change, packet_rules, rails, token_bucket
from orchestrator.parts.shared.packet_rules import PacketRule
from orchestrator.parts.topology import WIRE_HEADER_BYTES, Topology

NAME = "ecn"

TABLE = "marks"
FILE = "ecn.json"
FILES = tuple(AGENTS / name for name in ("ecn.py", "ecn.bpf.json", "kernel_types.py", "agent/bpf.py"))
TCP_ECN = "net.ipv4.tcp_ecn"
ASKS_FOR_IT = "1"  # connections ask for ECN and accept it
READY_S = 60.0  # its Python reads the types of the whole kernel


class Config(Model):
    """Marks "congestion experienced" on ECN-capable packets, until the run ends; none is dropped.

    Every host's TCP asks for ECN meanwhile, over IPv4 and IPv6, and segmentation and receive offloads are off.
    """

    where: rails.Where | None = None
    """At the switch port towards the host, unless it is on the host's own device: for a threshold the queue of what it
    sends, for a share what comes in."""
    host: str | None = None
    """The host whose link it is."""
    link: str | None = None
    """A link of a fabric by its name, such as leaf1-spine2, instead of a host's: each direction."""
    threshold: Size | None = Field(default=None, gt=0)
    """Marks each packet that finds more than this in the queue: DCTCP's K. Unscaled, as sizes are."""
    sojourn: Duration | None = Field(default=None, gt=0)
    """Instead of a threshold: the time that what waits takes at the rate of the queue."""
    virtual: Share | None = Field(default=None, gt=0, le=1)
    """A virtual queue in place of the port's own: each packet enters it, and it drains at this share of the rate, so
    that packets are marked before any waits. Such as 95%."""
    share: Share | None = None
    """Instead of a threshold: the probability that a packet is marked, such as 1%, whatever waits."""

    @model_validator(mode="after")
    def _one_of_each(self) -> Config:
        fabric_links.one_of(self.host, self.link, where=self.where)
        given = [name for name in ("threshold", "sojourn", "share") if getattr(self, name) is not None]
        if len(given) != 1:
            message = f"names {' and '.join(given)}" if given else "does not say when to mark"
            raise Mistake(message, accepted="threshold, sojourn or share")
        if self.virtual is not None and self.share is not None:
            raise Mistake("stands beside share", accepted="with threshold or sojourn", at=("virtual",))
        return self


def _rule(config: Config, share: float) -> PacketRule:
    return PacketRule(
        kind=NAME,
        host=config.host or "",
        link=config.link or "",
        where=config.where,
        share=share,
        match="ip ecn != not-ect",
        verdict="ip ecn set ce",
    )


def problems(config: Config, topology: Topology) -> list[Problem]:
    if config.share is not None:
        return packet_rules.problems(_rule(config, config.share), topology)
    if config.link is not None:
        found = fabric_links.problems(config.link, topology)
        return found or _too_short(config, fabric_links.links(topology)[config.link].rate, topology)
    host = config.host or ""
    if found := named_hosts.problems([(("host",), host)], topology):
        return found
    if config.where == "switch-port" and not topology.link(host).switch_port:
        message = f"no agent runs on the switch of {host}, so nothing can be set there"
        return [Problem(at=("where",), message=message, accepted="nic, or a local testbed")]
    return _too_short(config, topology.link(host).rate, topology)


def _too_short(config: Config, rate: float, topology: Topology) -> list[Problem]:
    """Return a problem where the threshold is less than a packet, which no scale makes shorter."""
    packet, key = topology.mtu + WIRE_HEADER_BYTES, "threshold" if config.threshold is not None else "sojourn"
    least = size_text(packet * topology.scale)
    if config.threshold is not None:
        wire_bytes = config.threshold / topology.scale
    else:
        wire_bytes = (config.sojourn or 0.0) * rate * (config.virtual or 1.0) / topology.scale / 8
    if wire_bytes >= packet or math.isinf(rate):
        return []
    message = f"is {bytes_text(wire_bytes)} on the wire at scale {topology.scale}, less than a packet"
    return [Problem(at=(key,), message=message, accepted=f"{least} or more in the queue, or a smaller scale")]


def _ends(config: Config, topology: Topology) -> list[tuple[str, str]]:
    """Return node and device of each port that marks at a threshold."""
    if config.link is not None:
        return list(fabric_links.links(topology)[config.link].ends)
    return rails.ends(config.host or "", config.where, topology)


def requirements(config: Config, topology: Topology) -> list[Requirement]:
    by, remedy = f"condition {NAME}", packages.remedy("sysctl")
    asking = [
        Requirement(node=host.name, kind="program", what="sysctl", remedy=remedy, needed_by=by)
        for host in topology.hosts
    ]
    if config.share is not None:
        return [*packet_rules.requirements(_rule(config, config.share), topology), *asking]
    found = [need for host in topology.hosts for need in offload_change.requirements(host.name, by)] + asking
    right = f"Linux 6.6 or later and root: {ROOT}; or mark a random `share`"
    for node, device in _ends(config, topology):
        found += [
            Requirement(node=node, kind="program", what="tc", remedy=packages.remedy("tc"), needed_by=by),
            Requirement(node=node, kind="privilege", what="root", remedy=right, needed_by=by),
            Requirement(node=node, kind="privilege", what="programs in the kernel", remedy=right, needed_by=by),
            Requirement(node=node, kind="device", what=device, remedy="name a device that exists", needed_by=by),
        ]
    return found


def changes(config: Config, topology: Topology) -> list[Change]:
    """Return what has every host ask for ECN, then what marks at each port."""
    asking = [_asking(host.name) for host in topology.hosts]
    if config.share is not None:
        return [*asking, *packet_rules.changes(_rule(config, config.share), topology)]
    joined = [offload_change.off(NAME, host.name, device) for host in topology.hosts for device in host.devices]
    return [*asking, *joined, *(_marking(config, topology, *end) for end in _ends(config, topology))]


def _asking(node: str) -> Change:
    def parse(output: str) -> str:
        if not output.strip().isdigit():
            raise ValueError(f"{TCP_ECN} is {output.strip()[:40]!r}, which is no number")
        return output.strip()

    def put(value: str) -> list[tuple[str, ...]]:
        return [("sysctl", "-q", "-w", f"{TCP_ECN}={value}")]

    read = ("sysctl", "-n", TCP_ECN)
    return Change(
        node=node,
        name=f"{TCP_ECN} of {node}",
        kind=NAME,
        read=read,
        parse=parse,
        apply=lambda _: put(ASKS_FOR_IT),
        undo=put,
        expect=lambda _: ASKS_FOR_IT,
        presence=lambda _: PresenceCheck(read=read, pattern=f"^{ASKS_FOR_IT}$"),
        shared=True,
    )


def _marking(config: Config, topology: Topology, node: str, device: str) -> Change:
    """Return the process that marks at a port; the port itself stays as it is, and has to have a bucket."""
    if config.threshold is not None:
        options = ["-k", f"{config.threshold / topology.scale:.0f}"]
    else:
        options = ["-t", f"{config.sojourn:.9g}"]
    if config.virtual is not None:
        options += ["-v", f"{config.virtual:.9g}"]
    read = ("tc", "-j", "-r", "qdisc", "show", "dev", device)

    def apply(old: str) -> list[tuple[str, ...]]:
        if old == token_bucket.DEFAULT:
            raise ValueError("no packet waits there: give the link a rate (condition `rate`, before this one)")
        return []

    return Change(
        node=node,
        name=f"marks at {node}:{device}",
        kind=NAME,
        read=read,
        parse=token_bucket.parse,
        apply=apply,
        undo=lambda _: [],
        expect=lambda old: old,
        presence=lambda _: PresenceCheck(read=read, pattern='"kind": *"tbf"'),
        process=Launch(
            name=f"{NAME}.{device}",
            node=node,
            role="condition",
            argv=(topology.node(node).python, "-I", "-S", "-B", "ecn.py", "-i", device, *options),
            files={path.name: path for path in FILES},
            ready=Line("^marking at "),
            ready_within_s=READY_S,
            stop=Stop(signals=((signal.SIGTERM, 5.0),), ok=(0,)),
            privileged=True,
        ),
    )


def read(output: LaunchOutput) -> Mapping[str, Columns]:
    """Rows of `marks`: one, or none where the process did not come to its end."""
    kinds = {"int64": int, "float64": float, "string": str}
    try:
        told = json.loads(safepath.content(output.folder / FILE) or b"")
        row = {name: None if told[name] is None else kinds[kind](told[name]) for name, kind in TABLES[TABLE].items()}
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return {TABLE: {name: [] for name in TABLES[TABLE]}}
    return {TABLE: {name: [value] for name, value in row.items()}}
