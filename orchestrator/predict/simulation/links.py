"""Turn a testbed into links with rates and queues, and give the path of a message from host to host."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from orchestrator.experiment.experiment import Choice, Experiment
from orchestrator.parts.shared.token_bucket import bucket
from orchestrator.parts.topology import ETHERNET_BYTES, Topology
from orchestrator.predict import network_costs

NIC, SWITCH_PORT = "nic", "switch-port"
CHANGED = frozenset({"rate", "loss", "delay"})  # conditions of links
LATE_S = 20e-6  # of a bucket's timer; without it, packets of two equal links would fall into step at a full queue
GAP_S = 3e-6
HARDWARE_QUEUE_S = 0.005  # of a switch's port on a cluster, of which the file says nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedLink:
    """One direction of a link: bytes a second, the bytes that its queue holds, and the depth of its token bucket."""

    name: str
    rate: float
    queue: int
    depth: int
    loss: float = 0.0
    delay_s: float = 0.0  # of what crosses it, beside its queue
    late_s: float = 0.0  # of its bucket's timer, in the mean
    gap_s: float = 0.0  # between two packets that its bucket lets through at once, and for a packet to pass a host
    wakes: float = 0.0  # of the processors that all hosts share, for each byte that waits for the bucket's timer


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """An uplink of a leaf, by its spine's number, that carries nothing for a part of a window, in seconds of it."""

    leaf: str
    lane: int
    down_s: float
    up_s: float
    window: str  # each one where it is empty


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedNetwork:
    """All links, and by which of them a host's messages go.

    `number` has the links by their node and end: a host's device or the switch's port towards it, and the rail; or leaf
    and spine, whichever sends first. Between hosts of two leaves there are `lanes`, one over each spine.
    """

    links: tuple[SimulatedLink, ...]
    number: dict[tuple[str, str, int], int]
    delays_s: dict[str, float]  # on the way to a host
    mss: int  # payload of a full segment
    leaf_of: dict[str, str] = field(default_factory=dict)
    spines: tuple[str, ...] = ()
    outages: tuple[Outage, ...] = ()
    behind_s: float = 0.0  # by which the processors that all hosts share fall behind what is sent, at most
    emulated: bool = True  # by this machine's kernel, which a packet wakes at each link

    def lanes(self, src: str, dst: str) -> int:
        """Return by how many paths a message can go from host to host."""
        return len(self.spines) if self._crosses(src, dst) else 1

    def path(self, src: str, dst: str, rail: int = 0, lane: int = 0) -> tuple[int, ...]:
        """Return the numbers of the links from host to host, in their order; none within a host."""
        if src == dst:
            return ()
        ends = self.number[src, NIC, rail], self.number[dst, SWITCH_PORT, rail]
        if not self._crosses(src, dst):
            return ends
        spine = self.spines[lane]
        up, down = self.number[self.leaf_of[src], spine, 0], self.number[spine, self.leaf_of[dst], 0]
        return ends[0], up, down, ends[1]

    def delay_s(self, src: str, dst: str, rail: int = 0, lane: int = 0) -> float:
        """Return how long a packet takes from host to host beside its queues."""
        if src == dst:
            return 0.0
        return self.delays_s.get(dst, 0.0) + sum(self.links[link].delay_s for link in self.path(src, dst, rail, lane))

    def reroutes(self, src: str, dst: str, lane: int) -> Iterator[tuple[float, int]]:
        """Yield when a lane's messages go over which one instead, in seconds of the window; to itself once it is up."""
        for one in self.outages:
            if self._crosses(src, dst) and one.lane == lane and one.leaf in (self.leaf_of[src], self.leaf_of[dst]):
                yield one.down_s, (lane + 1) % len(self.spines)
                yield one.up_s, lane

    def _crosses(self, src: str, dst: str) -> bool:
        return bool(self.spines) and self.leaf_of[src] != self.leaf_of[dst]


def network(experiment: Experiment, topology: Topology, *, hardware: bool = False) -> SimulatedNetwork:
    """Return the links of an experiment's testbed as its conditions leave them.

    Sizes are scaled; time is as without dilation, which leaves the bytes of queues and divides what timers take. With
    `hardware` links are those of a cluster, whatever the testbed.
    """
    hardware = hardware or topology.kind != "local"
    local, fabric = experiment.testbed.local, topology.fabric
    queue_s = HARDWARE_QUEUE_S if local is None else local.queue
    found: list[SimulatedLink] = []
    number: dict[tuple[str, str, int], int] = {}
    for name, at, rate in _directions(topology):
        number[at] = len(found)
        found.append(
            _link(SimulatedLink(name=name, rate=0.0, queue=0, depth=0), rate, queue_s, topology, hardware=hardware)
        )
    delays_s: dict[str, float] = {}
    outages: list[Outage] = []
    for choice in experiment.conditions:
        config = choice.config
        if choice.name == "delay" and config.host is not None:
            delays_s[config.host] = delays_s.get(config.host, 0.0) + config.time
        elif choice.name == "link" and fabric is not None:
            uplink = next(uplink for uplink in fabric.uplinks if uplink.name == config.name)
            lane = fabric.spines.index(uplink.spine)
            outages.append(
                Outage(leaf=uplink.leaf, lane=lane, down_s=config.down, up_s=config.up, window=config.window)
            )
        elif choice.name in CHANGED:
            for place in _places(number, topology, choice):
                found[place] = _changed(found[place], choice, topology, hardware=hardware)
    return SimulatedNetwork(
        links=tuple(found),
        number=number,
        delays_s=delays_s,
        mss=topology.mtu - topology.tcp_header_bytes,
        leaf_of={link.host: link.switch for link in topology.links} if fabric else {},
        spines=fabric.spines if fabric else (),
        outages=tuple(outages),
        behind_s=network_costs.BEHIND_S / topology.dilation,
        emulated=not hardware,
    )


def _directions(topology: Topology) -> Iterator[tuple[str, tuple[str, str, int], float]]:
    """Yield each direction of each link: its name, its place, and its rate (bit/s, unscaled)."""
    for host in topology.hosts:
        for rail in range(len(topology.links_of(host.name))):
            for end in (NIC, SWITCH_PORT):
                yield f"{host.name} {end}", (host.name, end, rail), topology.carries_bps(host.name, rail)
    for uplink in topology.fabric.uplinks if topology.fabric else ():
        for one, other in ((uplink.leaf, uplink.spine), (uplink.spine, uplink.leaf)):
            yield f"{one} to {other}", (one, other, 0), uplink.rate


def _places(number: dict[tuple[str, str, int], int], topology: Topology, choice: Choice) -> list[int]:
    """Return the directions that a condition changes: of a host's link the end that it names, of a named link both."""
    config = choice.config
    if config.host is not None:
        end = SWITCH_PORT if choice.name == "loss" else config.where or NIC
        rail = getattr(config, "rail", None)
        wanted = [(config.host, end, other) for name, at, other in number if (name, at) == (config.host, end)]
        return [number[one] for one in wanted if rail in (None, one[2])]
    for uplink in topology.fabric.uplinks if topology.fabric else ():
        if uplink.name == config.link:
            return [number[uplink.leaf, uplink.spine, 0], number[uplink.spine, uplink.leaf, 0]]
    host = next(link.host for link in topology.links if f"{link.switch}-{link.host}" == config.link)
    return [number[host, NIC, 0], number[host, SWITCH_PORT, 0]]


def _changed(link: SimulatedLink, choice: Choice, topology: Topology, *, hardware: bool) -> SimulatedLink:
    config = choice.config
    if choice.name == "rate":
        rate = min(config.rate, link.rate * 8 * topology.scale)
        return _link(link, rate, config.queue, topology, hardware=hardware)
    if choice.name == "loss":
        return replace(link, loss=1 - (1 - link.loss) * (1 - float(config.share)))
    return replace(link, delay_s=link.delay_s + config.time)


def _link(link: SimulatedLink, rate: float, queue_s: float, topology: Topology, *, hardware: bool) -> SimulatedLink:
    """Return a link with another rate (bit/s, unscaled), and the bucket of that.

    The bucket of a local testbed waits for a timer, which dilated time makes earlier. On hardware a frame follows the
    one before it, as irregularly as keeps frames of two links from falling into step.
    """
    made = bucket(rate / topology.wire_scale, queue_s=queue_s * topology.dilation, mtu=topology.mtu)
    link = replace(link, rate=rate / 8 / topology.scale, queue=made.limit_bytes)
    if not hardware:
        by = topology.dilation
        wakes = network_costs.wakes(link.rate, topology)
        return replace(link, depth=made.depth_bytes, late_s=LATE_S / by, gap_s=GAP_S / by, wakes=wakes)
    frame = topology.mtu + ETHERNET_BYTES
    return replace(link, depth=2 * frame, late_s=frame / 2 / link.rate, gap_s=min(GAP_S, frame / 10 / link.rate))
