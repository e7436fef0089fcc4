"""Check that traffic between data-plane addresses would leave by the data-plane device and no other."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from orchestrator.core.deadline import Deadline
from orchestrator.core.errors import TestbedError
from orchestrator.experiment.plan import RunPlan
from orchestrator.parts.topology import Node, Rail, Topology
from orchestrator.remote.agent_client import AgentClient

_FAILED = re.compile(r"^Command failed .*:(\d+)$", re.MULTILINE)
_DEVICE = re.compile(r"\bdev (\S+)")


def peers(plans: Iterable[RunPlan]) -> dict[str, list[str]]:
    """Which other nodes each node exchanges data-plane traffic with, in any of these runs."""
    talks: dict[str, dict[str, None]] = {}

    def add(one: str, other: str) -> None:
        if one != other:
            talks.setdefault(one, {})[other] = None
            talks.setdefault(other, {})[one] = None

    runs = list(plans)
    for job in (job for plan in runs for job in plan.jobs):
        nodes = dict.fromkeys(launch.node for launch in job.launches)
        for one in nodes:
            for other in nodes:
                add(one, other)
    for window in (window for plan in runs for window in plan.windows):
        for source in window.sources:
            for demand in source.demands:
                add(demand.src, demand.dst)
    return {node: list(others) for node, others in talks.items()}


def everybody(topology: Topology) -> dict[str, list[str]]:
    """Peers where each host exchanges traffic with all others."""
    names = [host.name for host in topology.hosts]
    return {name: [other for other in names if other != name] for name in names}


def wrong(
    client: AgentClient, topology: Topology, talks: Mapping[str, Sequence[str]], deadline: Deadline
) -> list[TestbedError]:
    """Of which of its peers a node's traffic would not take the data plane."""
    others = [topology.node(name) for name in talks.get(client.node.name, ())]
    if not others:
        return []
    argv, lines = question(client.node, others)
    done = client.run(argv, deadline, stdin=lines)
    return verdict(client.node, others, done.stdout, done.stderr)


def question(node: Node, others: Sequence[Node]) -> tuple[tuple[str, ...], bytes]:
    """Return a command, and its standard input, that asks the kernel of a node for its routes to others.

    They are those of packets with each rail's own address as their source, to the others' ends of the same rail.
    """
    lines = "".join(f"route get {there.address} from {here.address}\n" for here, _, there in _ways(node, others))
    return ("ip", "-oneline", "-force", "-batch", "-"), lines.encode()


def _ways(node: Node, others: Sequence[Node]) -> list[tuple[Rail, Node, Rail]]:
    """Return a node's end of each rail, and each other node with its end there."""
    return [(here, other, there) for other in others for here, there in zip(node.rails, other.rails, strict=True)]


def verdict(node: Node, others: Sequence[Node], stdout: str, stderr: str) -> list[TestbedError]:
    """Return what is wrong with the routes that the kernel answered with."""
    failed = {int(line) - 1 for line in _FAILED.findall(stderr)}
    answers = iter(stdout.splitlines())
    errors = []
    for place, (here, other, there) in enumerate(_ways(node, others)):
        if place in failed:
            errors.append(
                TestbedError(
                    f"no route from {here.address} to {there.address} ({other.name})",
                    node=node.name,
                    hint=f"bring up {here.device} with its address and a route to {there.address}",
                )
            )
            continue
        answer = next(answers, "")
        device = _DEVICE.search(answer)
        if device is None or device[1] != here.device:
            errors.append(
                TestbedError(
                    f"traffic to {there.address} ({other.name}) would not leave by {here.device}: {answer.strip()}",
                    node=node.name,
                    hint=f"correct data.device, or {_remedy(node, here, there)}",
                )
            )
    return errors


def _remedy(node: Node, here: Rail, there: Rail) -> str:
    """Return a route by destination.

    Where several rails may share a network, one by source (a table of the rail's own).
    """
    if len(node.rails) == 1:
        return f"add a route to {there.address} by {here.device}"
    table = 100 + node.rails.index(here)
    route = f"ip route add {here.network} dev {here.device} src {here.address} table {table}"
    return f"have packets from {here.address} leave by it: {route}; ip rule add from {here.address} table {table}"
