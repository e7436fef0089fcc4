"""Delay: packets on their way to a host are held on it for a fixed time, like a longer path.

netfilter queues them for a process of ours that lets them go again, at any queueing discipline of the device and on
kernels without netem, which would take the place of the queue that shapes the link and hold what a host sends alone.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Mapping

from pydantic import Field

from orchestrator.core.fields import Duration, Model
from orchestrator.core.machines import packages
from orchestrator.core.machines.remedies import ROOT
from orchestrator.core.paths import safepath
from orchestrator.parts.launch import Change, Launch, Line, PresenceCheck, Requirement
from orchestrator.parts.protocols import Problem
from orchestrator.parts.rows import TABLES, Columns, LaunchOutput
from orchestrator.parts.samplers import AGENTS
from orchestrator.parts.shared import named_hosts
from orchestrator.parts.topology import Node, Topology

NAME = "delay"

TABLE = "delays"
FILE = "delay.json"
QUEUE = 20718  # of netfilter, in the host's network namespace
LONGEST_S = 10.0
ABSENT = "absent"

_PROGRAM = AGENTS / "delay.py"
_COMMANDS = {4: "iptables", 6: "ip6tables"}


class Config(Model):
    """Packets of the testbed's other hosts wait on their way to a host, after its device and captures saw them.

    A round trip to the host takes that much longer. Held is what the kernel hands to IP: TCP, UDP and ICMP, segments
    that a device merged as one; not RDMA.
    """

    host: str
    """The host that packets are on their way to."""
    time: Duration = Field(gt=0, le=LONGEST_S)
    """How long each packet is held, such as 5ms; no scale divides it."""


def problems(config: Config, topology: Topology) -> list[Problem]:
    return named_hosts.problems([(("host",), config.host)], topology)


def _command(node: Node) -> str:
    return _COMMANDS[ipaddress.ip_address(node.address).version]


def requirements(config: Config, topology: Topology) -> list[Requirement]:
    node = topology.node(config.host)
    by = f"condition {NAME}"
    return [
        Requirement(
            node=node.name, kind="program", what=_command(node), remedy=packages.remedy(_command(node)), needed_by=by
        ),
        Requirement(node=node.name, kind="privilege", what="root", remedy=ROOT, needed_by=by),
        *(
            Requirement(node=node.name, kind="device", what=device, remedy="name a device that exists", needed_by=by)
            for device in node.devices
        ),
    ]


def changes(config: Config, topology: Topology) -> list[Change]:
    """Return a rule for each of the other hosts and rails.

    While no process of ours has the queue, packets pass it by.
    """
    node = topology.node(config.host)
    others = [host for host in topology.hosts if host.name != config.host]
    pairs = [(own, other) for host in others for own, other in zip(node.rails, host.rails, strict=True)]
    table = (_command(node), "-w", "-t", "mangle")

    def rules(action: str) -> list[tuple[str, ...]]:
        return [
            (
                *(*table, action, "PREROUTING", "-i", own.device, "-s", other.address, "-d", own.address),
                *("-j", "NFQUEUE", "--queue-num", str(QUEUE), "--queue-bypass"),
            )
            for own, other in pairs
        ]

    return [
        Change(
            node=node.name,
            name=f"delay at {node.name}:{','.join(node.devices)}",
            kind=NAME,
            read=(*table, "-S", "PREROUTING"),
            parse=parse,
            apply=lambda old: rules("-A") if old == ABSENT else _refuse(old),
            undo=lambda _: rules("-D"),
            expect=lambda _: _held_from([other.address for _, other in pairs]),
            presence=lambda _: PresenceCheck(read=(*table, "-S", "PREROUTING"), pattern=rf"--queue-num {QUEUE}\b"),
            process=_holder(config, node),
        )
    ]


def _holder(config: Config, node: Node) -> Launch:
    return Launch(
        name=NAME,
        node=node.name,
        role="condition",
        argv=(node.python, "-I", "-u", _PROGRAM.name, f"{config.time:.9g}", str(QUEUE)),
        files={_PROGRAM.name: _PROGRAM},
        ready=Line("^ready$"),
        privileged=True,
    )


def _held_from(addresses: list[str]) -> str:
    return "held from " + " ".join(sorted(addresses))


def _refuse(state: str) -> list[tuple[str, ...]]:
    raise ValueError(f"netfilter queue {QUEUE} is in use already ({state})")


def parse(output: str) -> str:
    """Whose packets go through the queue, from `iptables -S PREROUTING`."""
    if not output.startswith("-P PREROUTING "):
        raise ValueError(f"unexpected output of iptables: {output.strip()[:80]}")
    mine = [line for line in output.splitlines() if f"--queue-num {QUEUE} " in f"{line} "]
    sources = [match[1] for line in mine if (match := re.search(r"-s (\S+)/(?:32|128) ", line))]
    if len(sources) != len(mine):
        raise ValueError(f"there is a rule with netfilter queue {QUEUE} that is not ours: remove it first")
    return _held_from(sources) if mine else ABSENT


def read(output: LaunchOutput) -> Mapping[str, Columns]:
    """Rows of `delays`: one, or none where the process did not come to its end."""
    try:
        measured = json.loads(safepath.content(output.folder / FILE) or b"")
        row = {name: {"int64": int, "float64": float}[kind](measured[name]) for name, kind in TABLES[TABLE].items()}
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return {TABLE: {name: [] for name in TABLES[TABLE]}}
    return {TABLE: {name: [value] for name, value in row.items()}}
