"""Compute the time of communication on a testbed from four measured costs, each with its interval and source."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from orchestrator.parts.theory import Spread
from orchestrator.parts.topology import Job, Topology
from workloads.common import rank_traffic
from workloads.common.rank_traffic import Pairs

Side = Literal["low", "value", "high"]


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
    whichever is longer: while ranks wake up, links carry what lies in their queues. On top come `inside_byte_s` for
    each byte between two ranks of the busiest host, or `byte_s` for each byte that any rank sends where all hosts are
    on one machine and share its processors. `piece_s` is what a piece of emulated compute takes longer than it should,
    `step_s` what an iteration takes beside computing and communicating.
    """

    round_s: Quantity
    link_factor: Quantity
    inside_byte_s: Quantity
    byte_s: Quantity
    piece_s: Quantity
    step_s: Quantity

    @property
    def are_assumed(self) -> bool:
        """Whether no message was timed on such a testbed."""
        return self.round_s.source.startswith(_ASSUMED)

    def at(self, side: Side) -> Rates:
        """Return all inputs at the same end of their intervals."""
        return Rates(
            round_s=self.round_s.at(side),
            link_factor=self.link_factor.at(side),
            inside_byte_s=self.inside_byte_s.at(side),
            byte_s=self.byte_s.at(side),
            piece_s=self.piece_s.at(side),
            step_s=self.step_s.at(side),
        )

    def of_larger_bytes(self, by: int) -> Costs:
        """Return the same costs of messages whose bytes are so many times as many: each byte costs less."""

        def less(one: Quantity) -> Quantity:
            return replace(one, value=one.value / by, low=one.low / by, high=one.high / by)

        return replace(self, inside_byte_s=less(self.inside_byte_s), byte_s=less(self.byte_s))

    def quantities(self) -> dict[str, Quantity]:
        """Return each input by its name, with its unit."""
        return {
            "round of a collective (s)": self.round_s,
            "link time a byte over that at the link's rate": self.link_factor,
            "a byte between two ranks of a host (s)": self.inside_byte_s,
            "processors, time a byte sent (s)": self.byte_s,
            "lateness of a piece of emulated compute (s)": self.piece_s,
            "an iteration beside both (s)": self.step_s,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """`Costs` at one end of their intervals."""

    round_s: float
    link_factor: float
    inside_byte_s: float
    byte_s: float
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
    rails: int = 1

    def inside(self, pairs: Pairs) -> float:
        """Return the bytes between ranks of the busiest host; on one machine they are among those that it shares."""
        if self.one_machine:
            return 0.0
        found: defaultdict[str, float] = defaultdict(float)
        for (src, dst), size in pairs.items():
            if self.node_of[src] == self.node_of[dst]:
                found[self.node_of[src]] += size
        return max(found.values(), default=0.0)

    def shared(self, pairs: Pairs) -> float:
        """Return the bytes that the processors of one machine carry; 0 where hosts are machines of their own."""
        return sum(pairs.values()) if self.one_machine else 0.0

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
    return Network(
        node_of=tuple(rank.node for rank in job.ranks),
        out_bps={host: rate * together for host, rate in out.items()},
        in_bps={host: rate * together for host, rate in into.items()},
        one_machine=topology.kind == "local",
        rails=topology.rails if spread == "turns" else 1,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Moving:
    """The bounds on messages that are sent at once, in seconds: rounds, the busiest link, and copying of bytes."""

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
    return Moving(
        rounds_s=rounds * rates.round_s,
        link_s=net.link_s(pairs) * rates.link_factor,
        copies_s=net.inside(pairs) * rates.inside_byte_s + net.shared(pairs) * rates.byte_s,
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
