"""Topology of a testbed: nodes, their data-plane ports and links, as plain data known before any I/O."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from orchestrator.core.units import rate_text

WORK = "/var/tmp/orch-{uid}"

ETHERNET_BYTES = 14  # of a frame's header


@dataclass(frozen=True, slots=True, kw_only=True)
class Rail:
    """A host's end of one network of the data plane: a device, and its address (IPv4 or IPv6) with its prefix.

    Rails of the same number are in the same network on every host; different ones need not reach each other. `rdma` is
    the RDMA device behind the network device, with its port ("mlx5_0:1"), where the file says so.
    """

    device: str = ""
    address: str = ""
    prefix: int = 24
    rdma: str = ""

    @property
    def network(self) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
        return ipaddress.ip_interface(f"{self.address}/{self.prefix}").network


_NOWHERE = Rail()


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A host, or a switch that can run an agent.

    `rails` are its ends of the data plane; a switch has none (its ports are the links' switch ends).
    """

    name: str
    kind: Literal["host", "switch"] = "host"
    rails: tuple[Rail, ...] = ()
    python: str = "python3"
    gpus: int = 0
    slots: int = 1  # ranks of a workload that names no hosts
    work: str = WORK  # absolute folder on the node under which a run makes its own; {uid} is the user's there
    scheduled: str = ""  # what Slurm calls it where that is not its name; of a pod its name

    @property
    def of_slurm(self) -> str:
        """Its name in Slurm."""
        return self.scheduled or self.name

    @property
    def first(self) -> Rail:
        """Where a program takes one address alone, such as that of a rendezvous; an empty one of a switch."""
        return self.rails[0] if self.rails else _NOWHERE

    @property
    def address(self) -> str:
        """The address of the first rail; empty of a switch."""
        return self.first.address

    @property
    def addresses(self) -> tuple[str, ...]:
        return tuple(rail.address for rail in self.rails if rail.address)

    @property
    def devices(self) -> tuple[str, ...]:
        return tuple(rail.device for rail in self.rails if rail.device)

    @property
    def rdma(self) -> tuple[str, ...]:
        """The RDMA devices of its rails; none where one is not known."""
        known = tuple(rail.rdma for rail in self.rails)
        return known if all(known) else ()

    def folder(self, run: str) -> str:
        """Return a run's folder on this node, by a name that no other node's has where nodes share a file system."""
        return f"{self.work.rstrip('/')}/{run}.{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A full-duplex link from a host's device to a switch port; `rate` is unscaled, in bit/s, for both directions.

    `switch_port` is empty where no agent runs on the switch (a declared device of a real cluster).
    """

    host: str
    device: str
    switch: str = ""
    switch_port: str = ""
    rate: float

    @property
    def ends(self) -> tuple[tuple[str, str], ...]:
        """Node and device at either end."""
        return (self.host, self.device), (self.switch, self.switch_port)


@dataclass(frozen=True, slots=True, kw_only=True)
class Uplink:
    """A full-duplex link between a leaf and a spine; `rate` is unscaled, in bit/s, for both directions.

    Its ports are empty where no agent runs on the switches.
    """

    leaf: str
    leaf_port: str = ""
    spine: str
    spine_port: str = ""
    rate: float

    @property
    def name(self) -> str:
        return f"{self.leaf}-{self.spine}"

    @property
    def ends(self) -> tuple[tuple[str, str], tuple[str, str]]:
        """Switch and port of the leaf's end, then of the spine's."""
        return (self.leaf, self.leaf_port), (self.spine, self.spine_port)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fabric:
    """Leaves, to which hosts are linked (`Link.switch` of their links), and spines, to which leaves are.

    `multipath` says by what a leaf chooses among its uplinks ("per-5-tuple"), `seed` is that of the choice; empty and
    None where they are not known.
    """

    leaves: tuple[str, ...]
    spines: tuple[str, ...]
    uplinks: tuple[Uplink, ...]
    multipath: str = ""
    seed: int | None = None

    def uplinks_of(self, leaf: str) -> tuple[Uplink, ...]:
        """Return the uplinks of a leaf, in the order of its spines."""
        return tuple(uplink for uplink in self.uplinks if uplink.leaf == leaf)


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """The testbed as the plan sees it.

    `scale` divides every rate and size (never a duration): a `rate` of 25e9 at scale 100 is set up as 250e6.
    `dilation` multiplies every duration besides, so that a rate on the wire is divided by both (`wire_scale`): at scale
    10 and dilation 10 links are set up as at scale 100, sizes are those of scale 10, and everything takes ten times as
    long (Gupta et al., "To Infinity and Beyond: Time-Warped Network Emulation", NSDI 2006).
    Hosts of a local testbed may be containers: of `runtime`, and of an `image` that is not ours. `rights` are those of
    `parts.launch.PRIVILEGES` that every host grants; None where that is not known before the hosts are asked.
    Where the switches make a `fabric`, `links` are the hosts' own.
    """

    kind: Literal["local", "inventory", "slurm", "kubernetes"]
    nodes: tuple[Node, ...]
    links: tuple[Link, ...]
    scale: int = 1
    dilation: int = 1
    mtu: int = 1500
    runtime: str = ""
    image: str = ""
    rights: tuple[str, ...] | None = None
    fabric: Fabric | None = None  # where the hosts are behind more than one switch

    @property
    def shares_files(self) -> bool:
        """Whether programs and environments of this machine are there on every node, at the same paths."""
        return self.kind == "local" and not self.image

    @property
    def wire_scale(self) -> int:
        """What divides a rate on the wire, of a link or a load: sizes are divided by `scale` alone."""
        return self.scale * self.dilation

    @property
    def described(self) -> str:
        """What its hosts are, in a few words."""
        image = f" of {self.image}" if self.image else ""
        return f"{self.kind} ({self.runtime} containers{image})" if self.runtime else self.kind

    @property
    def hosts(self) -> tuple[Node, ...]:
        return tuple(node for node in self.nodes if node.kind == "host")

    @property
    def placed(self) -> list[str]:
        """The host of each rank of a workload that names none."""
        return [host.name for host in self.hosts for _ in range(host.slots)]

    def node(self, name: str) -> Node:
        for node in self.nodes:
            if node.name == name:
                return node
        raise KeyError(name)

    @property
    def rails(self) -> int:
        """How many rails every host has."""
        return max((len(host.rails) for host in self.hosts), default=0)

    @property
    def ip(self) -> Literal[4, 6]:
        """The version of IP of the data plane, the same on all of it."""
        return 6 if any(":" in host.address for host in self.hosts) else 4

    @property
    def tcp_header_bytes(self) -> int:
        """Of a full segment of TCP on the data plane, without that of Ethernet."""
        return TCP_HEADER_BYTES[self.ip]

    @property
    def wire_per_payload(self) -> float:
        """Layer-2 bytes on the wire for a byte of TCP payload in full segments (timestamps on, no FCS)."""
        return (self.mtu + WIRE_HEADER_BYTES) / (self.mtu - self.tcp_header_bytes)

    def on_wire(self, counted: float, packets: float) -> float:
        """Layer-2 bytes of the frames of TCP that a device counted: more than it says where it counts them joined."""
        payload = counted - packets * (WIRE_HEADER_BYTES + self.tcp_header_bytes)
        return max(counted, payload * self.wire_per_payload)

    def link(self, host: str, rail: int = 0) -> Link:
        """Return the link of a host's rail."""
        for link in (link for link in self.links if link.host == host):
            if rail == 0:
                return link
            rail -= 1
        raise KeyError(host)

    def links_of(self, host: str) -> tuple[Link, ...]:
        """Return the links of all of a host's rails, in their order."""
        return tuple(link for link in self.links if link.host == host)

    @property
    def switch_ports(self) -> tuple[tuple[str, str, float], ...]:
        """Switch, port and unscaled rate (bit/s) of every port of a switch that runs an agent."""
        of_hosts = [(link.switch, link.switch_port, link.rate) for link in self.links]
        uplinks = self.fabric.uplinks if self.fabric else ()
        between = [(switch, port, uplink.rate) for uplink in uplinks for switch, port in uplink.ends]
        return tuple(port for port in (*of_hosts, *between) if port[1])

    def link_at(self, node: str, device: str) -> Link | Uplink | None:
        """Return the link that a device of a host, or a port of a switch, is an end of; None if of none."""
        every: tuple[Link | Uplink, ...] = (*self.links, *(self.fabric.uplinks if self.fabric else ()))
        return next((link for link in every if (node, device) in link.ends), None)

    def rail_of(self, node: str, device: str) -> int:
        """Return the number of the rail that a device of a host, or a port of a switch, is an end of.

        KeyError if of none.
        """
        link = self.link_at(node, device)
        if not isinstance(link, Link):
            raise KeyError(f"{node}:{device}")
        return self.links_of(link.host).index(link)

    def carries_bps(self, host: str, rail: int = 0) -> float:
        """Return what the link of a host's rail carries as a load: layer-2 bit/s, unscaled, to a whole Mbit/s.

        The rate of a real link counts what stands between frames; the buckets of a local testbed count frames.
        """
        rate = self.link(host, rail).rate
        return rate if self.kind == "local" else carried_bps(rate, mtu=self.mtu) // 1e6 * 1e6

    def carries_text(self, hosts: Sequence[str], rail: int = 0) -> str:
        """Return the same of these hosts' links together as text, with its cause where it is less than their rates."""
        rate = sum(self.link(host, rail).rate for host in hosts)
        carried = sum(self.carries_bps(host, rail) for host in hosts)
        why = f" (layer 2, which is what {rate_text(rate)} carry at an MTU of {self.mtu})" if carried < rate else ""
        return rate_text(carried) + why


def carried_bps(rate: float, *, mtu: int) -> float:
    """Layer-2 bit/s, as loads are counted, that a line of this rate carries in full frames (IEEE 802.3).

    A line's rate counts preamble (8 bytes), FCS (4) and the gap between frames (12) too: 25 Gbit/s at an MTU of 1500
    carry 24.61.
    """
    return rate * (mtu + ETHERNET_BYTES) / (mtu + ETHERNET_BYTES + 24)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank:
    """One training process: several may share a node, and the order of nodes is free."""

    rank: int
    node: str
    local_rank: int
    device: str = "cpu"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One training: its name, and who plays which rank."""

    name: str
    index: int
    ranks: tuple[Rank, ...]

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes of the job, each once, in the order of their first rank."""
        return tuple(dict.fromkeys(rank.node for rank in self.ranks))


# Every TCP or UDP port that a run uses on the data plane follows from these, so that `orch plan` can print it.
RENDEZVOUS_PORT = 29500  # + job index
MPI_PORT = 20000  # + 100 x job index: on these ranks take tensors, and on the next ones mpirun and its daemons meet
TRAFFIC_PORT = 15201  # + 16 x the place of the traffic source in its run
TASK_PORT = 29600  # + 100 x job index + number of the task of TensorFlow on its host
KUNGFU_PORT = 38080  # of every kungfu-run
KUNGFU_WORKERS = (10000, 11000)  # KungFu's own choice

# All of these, first and last, for ten jobs and 64 sources.
KNOWN_PORTS = (
    KUNGFU_WORKERS,
    (TRAFFIC_PORT, TRAFFIC_PORT + 16 * 64 - 1),
    (MPI_PORT, MPI_PORT + 100 * 10 - 1),
    (RENDEZVOUS_PORT, TASK_PORT + 100 * 10 - 1),
    (KUNGFU_PORT, KUNGFU_PORT),
)

WIRE_HEADER_BYTES = 14  # Ethernet without FCS and preamble: what a capture, a qdisc and the kernel's counters see
TCP_HEADER_BYTES = MappingProxyType({4: 20 + 20 + 12, 6: 40 + 20 + 12})  # of IP, TCP and timestamps, by version of IP


def in_url(address: str) -> str:
    """Return an address as it stands before a port: one of IPv6 in brackets (RFC 3986, section 3.2.2)."""
    return f"[{address}]" if ":" in address else address
