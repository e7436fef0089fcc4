"""Compute the time of communication on a testbed from measured costs, each with its interval and source."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Literal

from orchestrator.parts.shared import token_bucket
from orchestrator.parts.theory import Spread
from orchestrator.parts.topology import ETHERNET_BYTES, Job, Topology
from workloads.common import rank_traffic
from workloads.common.collective_tasks import AT_ONCE
from workloads.common.rank_traffic import Pairs

Side = Literal["low", "value", "high"]

TIMER_S = 75e-6  # between two timers of a busy bucket: frames of 48 us left it 1.6 at a time
BEHIND_S = 5e-3  # by which processors fall behind what is sent, at most: then they take many frames at a time


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """An input of the model: its value, and the ends of the interval in which it is believed to lie."""

    value: float
    low: float
    high: float
    source: str

    def at(self, side: Side) -> float:
        return {"low": self.low, "value": self.value, "high": self.high}[side]


_ASSUMED = "assumed: "


def assumed(value: float, *, low: float, high: float, source: str) -> Quantity:
    """Return a quantity that was not measured on this testbed."""
    return Quantity(value=value, low=low, high=high, source=f"{_ASSUMED}{source}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """The inputs beside compute times, all of them costs: more is slower.

    Messages take `round_s` for each round that waits for the one before, or their bytes over the rate of the busiest
    link, times `link_factor` (headers, acknowledgements and whatever else keeps it from carrying payload alone),
    whichever is longer: while ranks wake up, links carry what lies in their queues. Where all hosts are on one machine
    its processors need `message_s` for each message or new flow, one after the other, `byte_s` for each byte from host
    to host, and `wake_s` for each time that a token bucket's timer wakes them up; what bytes and timers take longer
    than the links holds up each round, by BEHIND_S at most. On top come `inside_byte_s` for each byte between two ranks
    of the busiest host, or of any host where all are on one machine. A round within hosts takes `inside_round_s`.
    `piece_s` is what a piece of emulated compute takes longer than it should, `step_s` what an iteration takes beside
    computing and communicating.

    Costs that were fitted together are drawn together, as one of `fits`; `scatter` is the standard deviation of the
    logarithm by which single messages are off the fit, except for their links.
    """

    round_s: Quantity
    link_factor: Quantity
    inside_round_s: Quantity
    inside_byte_s: Quantity
    message_s: Quantity
    byte_s: Quantity
    wake_s: Quantity
    piece_s: Quantity
    step_s: Quantity
    fits: tuple[Mapping[str, float], ...] = ()
    scatter: float = 0.0

    @property
    def are_assumed(self) -> bool:
        """Whether no message was timed on such a testbed."""
        return self.round_s.source.startswith(_ASSUMED)

    def at(self, side: Side) -> Rates:
        """Return all inputs at the same end of their intervals."""
        return Rates(
            round_s=self.round_s.at(side),
            link_factor=self.link_factor.at(side),
            inside_round_s=self.inside_round_s.at(side),
            inside_byte_s=self.inside_byte_s.at(side),
            message_s=self.message_s.at(side),
            byte_s=self.byte_s.at(side),
            wake_s=self.wake_s.at(side),
            piece_s=self.piece_s.at(side),
            step_s=self.step_s.at(side),
        )

    def of_larger_bytes(self, by: int) -> Costs:
        """Return the same costs of messages whose bytes are so many times as many: each byte costs less."""

        def less(one: Quantity) -> Quantity:
            return replace(one, value=one.value / by, low=one.low / by, high=one.high / by)

        each = {"inside_byte_s", "byte_s"}
        fits = tuple({name: value / by if name in each else value for name, value in fit.items()} for fit in self.fits)
        return replace(self, inside_byte_s=less(self.inside_byte_s), byte_s=less(self.byte_s), fits=fits)

    def quantities(self) -> dict[str, Quantity]:
        """Return each input by its name, with its unit."""
        return {
            "round of a collective (s)": self.round_s,
            "link time a byte over that at the link's rate": self.link_factor,
            "round of a collective within hosts (s)": self.inside_round_s,
            "a byte between two ranks of a host (s)": self.inside_byte_s,
            "processors of the machine: a message (s)": self.message_s,
            "processors of the machine: a byte from host to host (s)": self.byte_s,
            "processors of the machine: a timer of a token bucket (s)": self.wake_s,
            "lateness of a piece of emulated compute (s)": self.piece_s,
            "an iteration beside both (s)": self.step_s,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """`Costs` at one end of their intervals."""

    round_s: float
    link_factor: float
    inside_round_s: float
    inside_byte_s: float
    message_s: float
    byte_s: float
    wake_s: float
    piece_s: float
    step_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """Placement of ranks on nodes, and each node's link rates in bytes a second, scaled, out and in.

    Of several `rails`, which are alike, a message takes one, and the next message the next one.
    """

    node_of: tuple[str, ...]
    out_bps: dict[str, float]
    in_bps: dict[str, float]
    one_machine: bool  # whether the processors of one machine carry all traffic
    burst: float = 0.0  # bytes that a link lets pass at once, each time that it was idle
    wakes: float = 0.0  # of the processors, by a timer for each further byte
    behind_s: float = 0.0  # by which they fall behind, at most
    rails: int = 1

    def crosses(self, pairs: Pairs) -> bool:
        """Return whether any of these messages goes from host to host."""
        return any(self.node_of[src] != self.node_of[dst] for src, dst in pairs)

    def inside(self, pairs: Pairs) -> float:
        """Return the bytes between ranks of the busiest host; of all hosts where these are on one machine."""
        found: defaultdict[str, float] = defaultdict(float)
        for (src, dst), size in pairs.items():
            if self.node_of[src] == self.node_of[dst]:
                found[self.node_of[src]] += size
        return sum(found.values()) if self.one_machine else max(found.values(), default=0.0)

    def shared(self, pairs: Pairs) -> float:
        """Return the bytes from host to host that one machine's processors carry; 0 where hosts have their own."""
        if not self.one_machine:
            return 0.0
        return sum(size for (src, dst), size in pairs.items() if self.node_of[src] != self.node_of[dst])

    def messages(self, pairs: Pairs, rounds: int) -> float:
        """Return how many messages one machine's processors deal with: of several rounds, segments of gloo's ring."""
        return len(pairs) * rounds * (AT_ONCE if rounds > 1 else 1) if self.one_machine else 0.0

    def woken(self, pairs: Pairs, rounds: int) -> float:
        """Return how often timers of links wake up one machine's processors while it carries all these bytes."""
        if not self.wakes:
            return 0.0
        between = (size for (src, dst), size in pairs.items() if self.node_of[src] != self.node_of[dst])
        return self.wakes * sum(max(0.0, size - rounds * self.burst) for size in between)

    def link_s(self, pairs: Pairs) -> float:
        """Return the time of the busiest direction of a link at its full rate, were all these bytes sent at once."""
        out: defaultdict[str, float] = defaultdict(float)
        into: defaultdict[str, float] = defaultdict(float)
        for (src, dst), size in pairs.items():
            if self.node_of[src] != self.node_of[dst]:
                out[self.node_of[src]] += size
                into[self.node_of[dst]] += size
        busiest = [size / self.out_bps[node] for node, size in out.items()]
        busiest += [size / self.in_bps[node] for node, size in into.items()]
        return max(busiest, default=0.0)


def network(
    job: Job, topology: Topology, *, limits: Iterable[tuple[str, str, float]] = (), spread: Spread = ""
) -> Network:
    """Return the network under a job.

    `limits` are (host, nic or switch-port, bit/s unscaled) of conditions, a rail each.

    Where messages are `spread` "even" over rails, these are one link with the rates of all.
    """
    rates = {name: topology.link(name).rate / 8 / topology.scale for name in job.nodes}
    out, into = dict(rates), dict(rates)
    for host, where, rate in limits:
        side = out if where == "nic" else into
        if host in side:
            side[host] = min(side[host], rate / 8 / topology.scale)
    together = topology.rails if spread == "even" else 1
    usual = fmean(rates.values())
    return Network(
        node_of=tuple(rank.node for rank in job.ranks),
        out_bps={host: rate * together for host, rate in out.items()},
        in_bps={host: rate * together for host, rate in into.items()},
        one_machine=topology.kind == "local",
        rails=topology.rails if spread == "turns" else 1,
        burst=token_bucket.usual_depth(int(usual / topology.dilation)),
        wakes=wakes(usual, topology),
        behind_s=BEHIND_S / topology.dilation,
    )


def wakes(rate: float, topology: Topology) -> float:
    """Return how often a byte has the token bucket of a link wake up the processors of the one machine of all hosts.

    `rate` is the link's, scaled, in bytes a second. A frame wakes them once; faster ones leave together.
    """
    if topology.kind != "local":
        return 0.0
    frame = topology.mtu + ETHERNET_BYTES
    return min(1.0, frame / rate * topology.dilation / TIMER_S) / frame


@dataclass(frozen=True, slots=True, kw_only=True)
class Moving:
    """What messages sent at once take, in seconds: rounds, links with processors, and copying of bytes within hosts."""

    rounds_s: float = 0.0
    link_s: float = 0.0
    copies_s: float = 0.0

    @property
    def alone_s(self) -> float:
        """The time until all have arrived, where nothing else is sent."""
        return max(self.rounds_s, self.link_s) + self.copies_s


def moving(pairs: Pairs, *, rounds: int, net: Network, rates: Rates) -> Moving:
    """Return the time bounds of all these bytes sent at once, in so many rounds one after the other."""
    if not pairs:
        return Moving()
    link_s = net.link_s(pairs) * rates.link_factor
    work_s = net.shared(pairs) * rates.byte_s + net.woken(pairs, rounds) * rates.wake_s
    return Moving(
        rounds_s=rounds * (rates.round_s if net.crosses(pairs) else rates.inside_round_s)
        + net.messages(pairs, rounds) * rates.message_s,
        link_s=max(link_s, min(work_s, link_s + rounds * net.behind_s)),
        copies_s=net.inside(pairs) * rates.inside_byte_s,
    )


def all_reduced(groups: Sequence[Sequence[int]], size: float, *, net: Network, rates: Rates) -> Moving:
    """Return the time bounds of ring all-reduces of `size` bytes in all these groups at once (Li, eqs. 2 and 4)."""
    longest = max((len(members) for members in groups), default=1)
    if longest < 2:
        return Moving()
    pairs = rank_traffic.summed(
        rank_traffic.ring_of(members, 2 * (len(members) - 1) / len(members) * size) for members in groups
    )
    return moving(pairs, rounds=2 * (longest - 1), net=net, rates=rates)


def all_reduce_s(groups: Sequence[Sequence[int]], size: float, *, net: Network, rates: Rates) -> float:
    """Return the seconds of such all-reduces alone."""
    return all_reduced(groups, size, net=net, rates=rates).alone_s


def sends_s(ways: Iterable[tuple[int, int]], size: float, *, net: Network, rates: Rates) -> float:
    """Return the seconds of one send of `size` bytes on each way (sender, receiver) at once (Li, eq. 3)."""
    return moving(dict.fromkeys(ways, size), rounds=1, net=net, rates=rates).alone_s
