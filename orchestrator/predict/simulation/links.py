"""Turn a testbed into links with rates and queues, and give the path of a message from host to host."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from orchestrator.experiment.experiment import Experiment
from orchestrator.parts.shared.token_bucket import bucket
from orchestrator.parts.topology import ETHERNET_BYTES, Topology

End = Literal["nic", "switch-port"]

HARDWARE_QUEUE_S = 0.005  # of a switch's port on a cluster, of which the file says nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedLink:
    """One direction of a link: bytes a second, the bytes that its queue holds, and the depth of its token bucket."""

    name: str
    rate: float
    queue: int
    depth: int
    loss: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedNetwork:
    """All links, and by which of them a host's messages go."""

    links: tuple[SimulatedLink, ...]
    number: dict[tuple[str, End, int], int]
    delays_s: dict[str, float]  # on the way to a host
    mss: int  # payload of a full segment

    def path(self, src: str, dst: str, rail: int = 0) -> tuple[int, ...]:
        """Return the numbers of the links from host to host, in their order; none within a host."""
        return () if src == dst else (self.number[src, "nic", rail], self.number[dst, "switch-port", rail])

    def delay_s(self, src: str, dst: str) -> float:
        return 0.0 if src == dst else self.delays_s.get(dst, 0.0)


def network(experiment: Experiment, topology: Topology) -> SimulatedNetwork:
    """Return the links of an experiment's testbed as its conditions leave them.

    Sizes are scaled; time is as without dilation, which leaves the bytes of queues and divides what timers take.
    """
    local = experiment.testbed.local
    queue_s = HARDWARE_QUEUE_S if local is None else local.queue
    found: list[SimulatedLink] = []
    number: dict[tuple[str, End, int], int] = {}
    for host in topology.hosts:
        for rail in range(len(topology.links_of(host.name))):
            rate = topology.carries_bps(host.name, rail)
            ends: tuple[End, End] = ("nic", "switch-port")
            for end in ends:
                number[host.name, end, rail] = len(found)
                found.append(_link(f"{host.name} {end}", rate, queue_s, topology))
    delays_s: dict[str, float] = {}
    for choice in experiment.conditions:
        if choice.name == "rate":
            for place in _ends(number, choice.config.host, choice.config.where, choice.config.rail):
                rate = min(choice.config.rate, found[place].rate * 8 * topology.scale)
                found[place] = _link(found[place].name, rate, choice.config.queue, topology, loss=found[place].loss)
        elif choice.name == "delay":
            delays_s[choice.config.host] = delays_s.get(choice.config.host, 0.0) + choice.config.time
        elif choice.name == "loss":
            for place in _ends(number, choice.config.host, "switch-port", None):
                found[place] = _lossy(found[place], float(choice.config.share))
    return SimulatedNetwork(
        links=tuple(found), number=number, delays_s=delays_s, mss=topology.mtu - topology.tcp_header_bytes
    )


def _ends(number: dict[tuple[str, End, int], int], host: str, where: str, rail: int | None) -> Iterable[int]:
    return [
        place for (name, end, other), place in number.items() if (name, end) == (host, where) and rail in (None, other)
    ]


def _link(name: str, rate: float, queue_s: float, topology: Topology, *, loss: float = 0.0) -> SimulatedLink:
    made = bucket(rate / topology.wire_scale, queue_s=queue_s * topology.dilation, mtu=topology.mtu)
    depth = made.depth_bytes if topology.kind == "local" else topology.mtu + ETHERNET_BYTES
    return SimulatedLink(name=name, rate=rate / 8 / topology.scale, queue=made.limit_bytes, depth=depth, loss=loss)


def _lossy(link: SimulatedLink, share: float) -> SimulatedLink:
    return SimulatedLink(
        name=link.name, rate=link.rate, queue=link.queue, depth=link.depth, loss=1 - (1 - link.loss) * (1 - share)
    )
