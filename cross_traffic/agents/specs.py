"""What senders and sinks of single flows read from their `spec.json`, for type checkers: no agent imports this."""

from __future__ import annotations

from typing import Literal, TypedDict

Arrivals = Literal["poisson", "poisson-gaps", "compound-poisson"]


class BurstSpec(TypedDict):
    """Every `period_s` the load is `height` times its mean for `width_s`."""

    width_s: float
    period_s: float
    height: float


class _StreamSpec(TypedDict):
    points: list[list[float]]
    factor: float
    load_bps: float
    mtu: int
    flow_bytes: int
    arrivals: Arrivals
    burst: BurstSpec | None
    seed: int | str
    duration_s: float | None
    sink: int


class StreamSpec(_StreamSpec, total=False):
    """What a schedule is drawn from: points (bytes, cumulative probability), layer-2 bit/s, and for which sink.

    Without `ip` it is of IPv4, as all were before there were others.
    """

    ip: Literal[4, 6]


class RecordedSpec(TypedDict):
    """A file of flows (nanoseconds, bytes, sink), its sizes times `factor`, again after `length_s`."""

    path: str
    factor: float
    length_s: float | None


class StartSpec(TypedDict):
    """The sink that has all senders start together."""

    address: str
    port: int


class TargetSpec(TypedDict):
    """A sink, as a sender sees it."""

    address: str
    ports: list[int]


class _SenderSpec(TypedDict):
    source: str
    start: StartSpec
    sinks: list[TargetSpec]
    streams: list[StreamSpec]
    recorded: RecordedSpec | None
    mtu: int
    workers: int
    most_open: int
    drain_s: float
    dscp: int
    congestion: str
    pool: bool
    realtime: bool


class SenderSpec(_SenderSpec, total=False):
    """What `flow_sender.py` sends, from where, to which sinks: drawn streams, or a recorded schedule."""

    ip: Literal[4, 6]


class SinkSpec(TypedDict):
    """Where `flow_sink.py` listens, who may send, and how many start together."""

    address: str
    ports: list[int]
    senders: list[str]
    starters: int
