"""Delay: packets on their way to a host are held on it for a fixed time, like a longer path.

netfilter queues them for a process of ours that lets them go again, at any queueing discipline of the device and on
kernels without netem, which would take the place of the queue that shapes the link and hold what a host sends alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import Field, model_validator

from orchestrator.core.fields import Duration, Model
from orchestrator.core.machines import packages
from orchestrator.core.machines.remedies import ROOT
from orchestrator.core.paths import safepath
from orchestrator.parts.launch import Change, Launch, Line, PresenceCheck, Requirement
from orchestrator.parts.protocols import Problem
from orchestrator.parts.rows import TABLES, Columns, LaunchOutput
from orchestrator.parts.samplers import AGENTS
from orchestrator.parts.shared import fabric_links, named_hosts
from orchestrator.parts.topology import Node, Topology

NAME = "delay"

TABLE = "delays"
FILE = "delay.json"
QUEUE = 20718  # of netfilter, in the host's network namespace; on a switch the next ones, one a port
LONGEST_S = 10.0
ABSENT = "absent"

_PROGRAM = AGENTS / "delay.py"
_COMMANDS = {4: "iptables", 6: "ip6tables"}


class Config(Model):
    """Packets of the testbed's other hosts wait on their way to a host, after its device and captures saw them.

    A round trip to the host takes that much longer. Held is what the kernel hands to IP: TCP, UDP and ICMP, segments
    that a device merged as one; not RDMA.
    """

    host: str | None = None
    """The host that packets are on their way to."""
    link: str | None = None
    """A link of a fabric by its name, such as leaf1-spine2, instead of a host: packets wait either way."""
    time: Duration = Field(gt=0, le=LONGEST_S)
    """How long each packet is held, such as 5ms; no scale divides it."""

    @model_validator(mode="after")
    def _somewhere(self) -> Config:
        fabric_links.one_of(self.host, self.link)
        return self


def problems(config: Config, topology: Topology) -> list[Problem]:
    if config.link is not None:
        return fabric_links.problems(config.link, topology)
    return named_hosts.problems([(("host",), config.host or "")], topology)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where packets are held as they come in: devices of a node, the netfilter queue, and which packets.

    `matches` are pairs of a device and the words of iptables that choose packets there.
    """

    node: Node
    command: str
    queue: int
    matches: tuple[tuple[str, tuple[str, ...]], ...]

    @property
    def devices(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(device for device, _ in self.matches))


def _places(config: Config, topology: Topology) -> list[_Place]:
    command = _COMMANDS[topology.ip]
    if config.link is None:
        node = topology.node(config.host or "")
        others = [host for host in topology.hosts if host.name != node.name]
        pairs = [(own, other) for host in others for own, other in zip(node.rails, host.rails, strict=True)]
        matches = tuple((own.device, ("-s", other.address, "-d", own.address)) for own, other in pairs)
        return [_Place(node, command, QUEUE, matches)]
    found = []
    for name, device in fabric_links.links(topology)[config.link].ends:
        ports = [port for switch, port, _ in topology.switch_ports if switch == name]
        queue = QUEUE + 1 + ports.index(device) if device in ports else QUEUE
        found.append(_Place(topology.node(name), command, queue, ((device, ()),)))
    return found


def requirements(config: Config, topology: Topology) -> list[Requirement]:
    by = f"condition {NAME}"
    found = []
    for place in _places(config, topology):
        node, program = place.node.name, packages.remedy(place.command)
        found += [
            Requirement(node=node, kind="program", what=place.command, remedy=program, needed_by=by),
            Requirement(node=node, kind="privilege", what="root", remedy=ROOT, needed_by=by),
            Requirement(node=node, kind="privilege", what="CAP_NET_ADMIN", remedy=ROOT, needed_by=by),
            *(
                Requirement(node=node, kind="device", what=device, remedy="name a device that exists", needed_by=by)
                for device in place.devices
            ),
        ]
    return found


def changes(config: Config, topology: Topology) -> list[Change]:
    """Return a rule for each of the other hosts and rails, or for each end of a link.

    While no process of ours has the queue, packets pass it by.
    """
    return [_change(config, place) for place in _places(config, topology)]


def _change(config: Config, place: _Place) -> Change:
    table = (place.command, "-w", "-t", "mangle")
    queue, node = str(place.queue), place.node.name

    def rules(action: str) -> list[tuple[str, ...]]:
        return [
            (
                *(*table, action, "PREROUTING", "-i", device, *words),
                *("-j", "NFQUEUE", "--queue-num", queue, "--queue-bypass"),
            )
            for device, words in place.matches
        ]

    def apply(old: str) -> list[tuple[str, ...]]:
        if old != ABSENT:
            raise ValueError(f"netfilter queue {queue} is in use already ({old})")
        return rules("-A")

    return Change(
        node=node,
        name=f"delay at {node}:{','.join(place.devices)}",
        kind=NAME,
        read=(*table, "-S", "PREROUTING"),
        parse=lambda output: parse(output, place.queue),
        apply=apply,
        undo=lambda _: rules("-D"),
        expect=lambda _: _held([words[1] if words else device for device, words in place.matches]),
        presence=lambda _: PresenceCheck(read=(*table, "-S", "PREROUTING"), pattern=rf"--queue-num {queue}\b"),
        process=Launch(
            name=NAME if config.link is None else f"{NAME}.{place.devices[0]}",
            node=node,
            role="condition",
            argv=(place.node.python, "-I", "-u", _PROGRAM.name, f"{config.time:.9g}", queue),
            files={_PROGRAM.name: _PROGRAM},
            ready=Line("^ready$"),
            privileged=True,
        ),
    )


def _held(sources: list[str]) -> str:
    return "held from " + " ".join(sorted(sources))


def parse(output: str, queue: int = QUEUE) -> str:
    """Whose packets go through the queue, from `iptables -S PREROUTING`: addresses, or devices where all of them do."""
    if not output.startswith("-P PREROUTING "):
        raise ValueError(f"unexpected output of iptables: {output.strip()[:80]}")
    mine = [line for line in output.splitlines() if f"--queue-num {queue} " in f"{line} "]
    sources = [match[1] for line in mine if (match := re.search(r"-s (\S+)/(?:32|128) ", line))]
    sources += [match[1] for line in mine if (match := re.match(r"-A PREROUTING -i (\S+) -j ", line))]
    if len(sources) != len(mine):
        raise ValueError(f"there is a rule with netfilter queue {queue} that is not ours: remove it first")
    return _held(sources) if mine else ABSENT


def read(output: LaunchOutput) -> Mapping[str, Columns]:
    """Rows of `delays`: one, or none where the process did not come to its end."""
    try:
        measured = json.loads(safepath.content(output.folder / FILE) or b"")
        row = {name: {"int64": int, "float64": float}[kind](measured[name]) for name, kind in TABLES[TABLE].items()}
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return {TABLE: {name: [] for name in TABLES[TABLE]}}
    return {TABLE: {name: [value] for name, value in row.items()}}
