"""Flows that are the same in every period: what sources of this kind share, but for the flows of one period.

Such a source is a module with a NAME and a Config that derives from `PeriodicConfig`, and that imports the functions of
this module. It is an open loop: flows begin when they are due, whether or not those before them have ended.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated

from pydantic import Field, model_validator

from cross_traffic import flow_launches, flow_records
from cross_traffic.agents import flow_drawing
from cross_traffic.schedule_files import LARGEST_FLOW, FlowLine
from orchestrator.core.fields import Duration, Size
from orchestrator.core.units import Mistake, duration_text, rate_text, size_text, span_text
from orchestrator.parts.launch import Launch, Requirement
from orchestrator.parts.protocols import Demand, Escalation, Problem, Sent, Source, end_name
from orchestrator.parts.rows import Columns, LaunchOutput
from orchestrator.parts.shared import rails
from orchestrator.parts.topology import Topology

MTU = 1500  # for demands, which know no network: a larger one makes up to 4 % less of them, IPv6 1 % more
MOST_HEADERS = 0.02  # by which headers of small flows may raise a load of a scaled testbed
LEAST_SEEN_S = 3.0  # over which a mean is looked at before ranks begin: a burst more or less weighs little

Hosts = Annotated[str | tuple[str, ...], Field(min_length=1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """A flow of each period: seconds after the period begins, and bytes, unscaled."""

    src: str
    dst: str
    size: int
    after_s: float = 0.0


class PeriodicConfig(flow_launches.SendingConfig):
    """Options of a source whose flows are the same in every period."""

    period: Annotated[Duration, Field(gt=0)]
    """From the beginning of one round of flows to the beginning of the next."""

    @property
    @abstractmethod
    def transfers(self) -> Sequence[Transfer]:
        """The flows of one period."""

    @property
    @abstractmethod
    def places(self) -> Mapping[str, Sequence[str]]:
        """The hosts by the option that names them."""


class StateConfig(PeriodicConfig):
    """Options of a source that sends the state of a model, by its size or by its parameters."""

    size: Annotated[Size, Field(gt=0, le=LARGEST_FLOW)] | None = None
    """Bytes of the state; or `parameters`."""
    parameters: float | None = Field(default=None, gt=0, le=1e14)
    """Parameters of the model, such as 70e9, instead of `size`."""
    bytes_per_parameter: float = Field(default=2.0, gt=0, le=64)
    """Bytes of each parameter."""

    @model_validator(mode="after")
    def _one_size(self) -> StateConfig:
        if (self.size is None) == (self.parameters is None):
            raise Mistake("says how large it is not once", accepted="size or parameters")
        return self

    @property
    def state_bytes(self) -> float:
        """Bytes of the whole state."""
        return self.size if self.size is not None else (self.parameters or 0) * self.bytes_per_parameter


def listed(hosts: str | tuple[str, ...]) -> tuple[str, ...]:
    """Return hosts as a list, where a single one may stand for it."""
    return (hosts,) if isinstance(hosts, str) else hosts


def problems(config: PeriodicConfig, topology: Topology) -> list[Problem]:
    found = [one for name, hosts in config.places.items() for one in flow_launches.host_problems(name, hosts, topology)]
    found += rails.problems(config.rail, topology)
    if found:
        return found
    option = list(config.places)[-1]
    found += [
        Problem(at=(option,), message=f"sends from {one.src!r} to itself", accepted="another host")
        for one in config.transfers
        if one.src == one.dst
    ]
    latest = max(one.after_s for one in config.transfers)
    if latest >= config.period:
        message = f"its last flow begins {duration_text(latest)} after its first"
        found.append(Problem(at=("period",), message=message, accepted=f"more than {duration_text(latest)}"))

    def least(share: float) -> str:
        return f"at least {duration_text(float(f'{config.period / share * 1.005:.3g}'))}, or less to send"

    return found or overloads(demands(config), topology, at="period", accepted=least) or _headers(config, topology)


def overloads(
    asked: Sequence[Demand], topology: Topology, *, at: str, accepted: Callable[[float], str]
) -> list[Problem]:
    """Find the first link that some demands exceed; `accepted` says what would do, from what the link carries of them.

    Every source must be told at planning that what it asks for cannot be had, since a queue would grow without end.
    """
    for way in ("src", "dst"):
        for host in dict.fromkeys(getattr(one, way) for one in asked):
            mine = [one for one in asked if getattr(one, way) == host]
            rate, rail = math.fsum(one.rate for one in mine), mine[0].rail
            share = topology.carries_bps(host, rail) / rate
            if share < 1:
                message = f"{rate_text(float(f'{rate:.4g}'))} on average do not fit the link of {end_name(host, rail)}"
                return [Problem(at=(at,), message=message, accepted=accepted(share))]
    return []


def requirements(config: PeriodicConfig, topology: Topology) -> list[Requirement]:  # noqa: ARG001
    senders = tuple(dict.fromkeys(one.src for one in config.transfers))
    return flow_launches.requirements(config, senders, needed_by="cross traffic")


def demands(config: PeriodicConfig) -> list[Demand]:
    over_s = config.period * math.ceil(LEAST_SEEN_S / config.period)
    return [
        Demand(
            src=src,
            dst=dst,
            rate=wire * 8 / config.period,
            over_s=over_s,
            period_s=config.period,
            pause_s=config.period,
            rail=config.rail,
        )
        for src, of_sender in _wire(config).items()
        for dst, wire in of_sender.items()
    ]


def _wire(config: PeriodicConfig, scale: int = 1) -> dict[str, dict[str, int]]:
    """Return the layer-2 bytes of a period from each host to each other one, its sizes divided by a scale."""
    overhead = flow_drawing.SEGMENT_HEADER_BYTES[4] if config.connections == "pool" else None
    framing = flow_drawing.Framing(MTU, 4, overhead)
    found: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for one in config.transfers:
        found[one.src][one.dst] += framing.wire_bytes(round(one.size / scale))
    return found


def _headers(config: PeriodicConfig, topology: Topology) -> list[Problem]:
    """Find flows that a scale makes so small that their headers, which no scale divides, are more than is asked."""
    whole, scaled = (
        sum(wire for of_sender in _wire(config, scale).values() for wire in of_sender.values())
        for scale in (1, topology.scale)
    )
    more = scaled * topology.scale / whole - 1
    if more <= MOST_HEADERS:
        return []
    pooled = ", or `connections: pool`" if config.connections == "new" else ""
    message = f"at scale {topology.scale} its flows are so small that their headers add {more:.0%} to its load"
    return [Problem(at=(), message=message, accepted=f"larger flows, a smaller scale{pooled}")]


def remarks(config: PeriodicConfig, topology: Topology) -> list[str]:
    """Tell what a period sends, and how long that takes at least."""
    total = math.fsum(one.size for one in config.transfers)
    links: dict[tuple[str, str], float] = defaultdict(float)
    for src, of_sender in _wire(config).items():
        for dst, wire in of_sender.items():
            links["from", src] += wire * 8 / topology.carries_bps(src, config.rail)
            links["to", dst] += wire * 8 / topology.carries_bps(dst, config.rail)
    period, least = duration_text(config.period / topology.dilation), span_text(max(links.values()))
    return [
        f"every {period}: {len(config.transfers)} flows of {size_text(float(f'{total:.4g}'))} together, for which the "
        f"busiest link takes {least} at least"
    ]


def escalate(config: PeriodicConfig) -> Escalation | None:  # noqa: ARG001 - its flows are what they are
    return None


def launches(config: PeriodicConfig, source: Source, topology: Topology) -> list[Launch]:
    """Return launches of sinks, then of the senders with the flows of one period, which come again for ever."""
    schedules = {}
    for src, wire in _wire(config).items():
        mine = sorted((one for one in config.transfers if one.src == src), key=lambda one: one.after_s)
        flows = [FlowLine(start_s=one.after_s, size=one.size, to=one.dst) for one in mine]
        schedules[src] = flow_launches.Recorded(flows=flows, wire=wire, length_s=config.period)
    return flow_launches.recorded_launches(config, source, topology, schedules=schedules)


def sent(config: PeriodicConfig, source: Source, topology: Topology) -> Iterator[Sent]:
    """Yield the flows that the launches will send."""
    return flow_launches.sent(launches(config, source, topology), source, topology, rail=config.rail)


def read(output: LaunchOutput) -> Mapping[str, Columns]:
    """Read rows of `flows`, one a flow; from the sinks rows of `counters`."""
    return flow_records.read(output)


def parts_of(total: float, count: int) -> list[int]:
    """Return `count` whole numbers that add up to `total` and differ by 1 at most, each at least 1."""
    edges = [round(total * place / count) for place in range(count + 1)]
    return [max(1, end - begin) for begin, end in pairwise(edges)]
