"""Web-search cross traffic: flows of a known size distribution at random instants, consistent or in bursts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator, Field

from cross_traffic import distributions, drawn_schedules, flow_launches, flow_records
from cross_traffic.agents import flow_drawing
from cross_traffic.agents.flow_drawing import Arrivals
from cross_traffic.distributions import Distribution
from cross_traffic.schedule_files import BurstShape
from orchestrator.core.errors import ConfigError
from orchestrator.core.fields import Duration, Load, Model
from orchestrator.core.units import duration_text, size_text
from orchestrator.parts.launch import Launch, Requirement
from orchestrator.parts.protocols import Demand, Escalation, Problem, Sent, Source
from orchestrator.parts.rows import Columns, LaunchOutput
from orchestrator.parts.topology import Topology

NAME = "websearch"


class Burst(Model):
    """Periodic bursts (Salamy, algorithm 2): two flows that carry height x width / period of all bytes."""

    width: Duration = 0.001
    """How long a burst lasts."""
    period: Duration = 0.01
    """From one burst to the next."""
    height: float = Field(default=3.0, ge=1)
    """How many times the mean load a burst is."""


class Config(flow_launches.SendingConfig):
    """Flows of a size distribution from some hosts to others."""

    src: str | tuple[str, ...] = Field(alias="from")
    """Host that sends, or a list of them."""
    to: str | tuple[str, ...]
    """Host that receives, or a list of them."""
    load: Load
    """What all of it puts on the wire together on average (layer 2, headers included, without preamble and FCS); or
    a share, such as "50%": the load at which the first of its links carries this share of what it can."""
    distribution: Annotated[str, AfterValidator(drawn_schedules.named_distribution)] = "websearch"
    """Flow sizes: "websearch", "datamining", "facebook", or the path of a file of lines bytes,cdf, looked up beside the
    file that names it, then from the current folder."""
    arrivals: Arrivals = "poisson"
    """Exponential gaps between flows, sizes drawn until two seconds carry the load; "compound-poisson" takes every size
    as drawn, so that the load varies from second to second as a neighbour's does; "poisson-gaps" draws the gaps from a
    Poisson distribution: nearly regular."""
    burst: Burst | None = None
    """Bursts instead of a consistent level."""
    fan_in: int = Field(default=1, ge=1)
    """Senders that start at the same instant, each with an equal share of the size (incast)."""

    @property
    def senders(self) -> tuple[str, ...]:
        return (self.src,) if isinstance(self.src, str) else self.src

    @property
    def receivers(self) -> tuple[str, ...]:
        return (self.to,) if isinstance(self.to, str) else self.to


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """A schedule: `senders` start each of its flows together, towards `to`; `rate` is that of all of them."""

    senders: tuple[str, ...]
    to: str
    rate: float  # layer-2 bit/s, unscaled


def streams(config: Config) -> list[Stream]:
    """Return streams that give every receiver the same load, from groups of `fan_in` neighbouring senders."""
    found = []
    for to in config.receivers:
        senders = [host for host in config.senders if host != to]
        size = config.fan_in
        count = 1 if size == len(senders) else len(senders)
        for place in range(count):
            group = tuple(senders[(place + i) % len(senders)] for i in range(size))
            found.append(Stream(senders=group, to=to, rate=config.load / len(config.receivers) / count))
    return found


def problems(config: Config, topology: Topology) -> list[Problem]:
    found = flow_launches.host_problems("from", config.senders, topology)
    found += flow_launches.host_problems("to", config.receivers, topology)
    if found:
        return found
    for to in config.receivers:
        others = [host for host in config.senders if host != to]
        if not others:
            return [Problem(at=("to",), message=f"sends from {to!r} to itself", accepted="another host")]
        if config.fan_in > len(others):
            message = f"{config.fan_in} senders at once, and {to} has only {len(others)}"
            return [Problem(at=("fan_in",), message=message, accepted=f"1 to {len(others)}")]
    found = flow_launches.load_problem(config.load, config.receivers, topology, rail=config.rail)
    try:
        if not found:
            _senders(config, topology, seed=0)
    except ConfigError as error:
        found.append(
            Problem(at=(), message=error.message, accepted=error.hint or "another load, burst or distribution")
        )
    return found


def requirements(config: Config, topology: Topology) -> list[Requirement]:  # noqa: ARG001 - the same on every testbed
    return flow_launches.requirements(config, config.senders, needed_by=NAME)


def demands(config: Config) -> list[Demand]:
    total: dict[tuple[str, str], float] = defaultdict(float)
    for stream in streams(config):
        for sender in stream.senders:
            total[sender, stream.to] += stream.rate / len(stream.senders)
    over_s = flow_drawing.BLOCK_S * (drawn_schedules.COMPOUND_BLOCKS if config.arrivals == "compound-poisson" else 1)
    return [Demand(src=src, dst=dst, rate=rate, over_s=over_s, rail=config.rail) for (src, dst), rate in total.items()]


def remarks(config: Config, topology: Topology) -> list[str]:
    """Describe how arrivals are drawn, and by how much bursts shrink flows to fit a period's bytes."""
    if config.burst is None:
        return [f"arrivals: {drawn_schedules.ARRIVALS[config.arrivals]}"]
    specs = [spec for sender in _senders(config, topology, seed=0) for spec in sender.streams]
    period_s = config.burst.period / topology.dilation
    largest = max(flow_drawing.largest_bytes(spec) for spec in specs) * topology.scale
    published = max(spec["points"][-1][0] * spec["factor"] for spec in specs) * topology.scale
    held, asked = (size_text(float(f"{value:.3g}")) for value in (largest, published))
    period = duration_text(period_s)
    return [
        f"bursts: a period of {period} holds flows of at most {held}, where the distribution has {asked}:"
        " not the flows of a consistent load"
    ]


def escalate(config: Config) -> Escalation | None:  # noqa: ARG001 - it opens a connection a flow from the first
    return None


def launches(config: Config, source: Source, topology: Topology) -> list[Launch]:
    """Return launches of sinks, then of senders; senders draw endless schedules by themselves."""
    receiving = {to: config.load / len(config.receivers) / topology.wire_scale for to in config.receivers}
    return flow_launches.launches(
        config, source, topology, senders=_senders(config, topology, seed=source.seed), receiving=receiving
    )


def _senders(config: Config, topology: Topology, *, seed: int) -> list[flow_launches.Sender]:
    distribution = distributions.find(config.distribution)
    burst = None
    if config.burst is not None:
        burst = BurstShape(width_s=config.burst.width, period_s=config.burst.period, height=config.burst.height)
    mine: dict[str, list[tuple[int, Stream]]] = defaultdict(list)
    for number, stream in enumerate(streams(config)):
        for sender in stream.senders:
            mine[sender].append((number, stream))
    return [
        _sender(config, topology, host, parts, distribution=distribution, burst=burst, seed=seed)
        for host, parts in mine.items()
    ]


def _sender(
    config: Config,
    topology: Topology,
    host: str,
    parts: Sequence[tuple[int, Stream]],
    *,
    distribution: Distribution,
    burst: BurstShape | None,
    seed: int,
) -> flow_launches.Sender:
    sinks = tuple(dict.fromkeys(stream.to for _, stream in parts))
    specs = tuple(
        drawn_schedules.stream_spec(
            distribution,
            load_bps=stream.rate / len(stream.senders) / topology.wire_scale,
            mtu=topology.mtu,
            ip=topology.ip,
            seed=f"{seed}/{number}",  # the same at all senders of a stream: they start its flows together
            factor=1 / (topology.scale * len(stream.senders)),
            arrivals=config.arrivals,
            burst=burst,
            pool=config.connections == "pool",
            sink=sinks.index(stream.to),
            dilation=topology.dilation,
        )
        for number, stream in parts
    )
    rate = sum(made["load_bps"] for made in specs)
    return flow_launches.Sender(host=host, sinks=sinks, rate=rate, streams=specs)


def sent(config: Config, source: Source, topology: Topology) -> Iterator[Sent]:
    """Yield the flows that the launches will send; a pool's connections are as good as new ones to each flow."""
    return flow_launches.sent(launches(config, source, topology), source, topology, rail=config.rail)


def read(output: LaunchOutput) -> Mapping[str, Columns]:
    """Read rows of `flows`, one a flow, and of the schedule; from the sinks rows of `counters`."""
    return flow_records.read(output)
