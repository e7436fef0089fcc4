"""Constant cross traffic from one host to another: TCP streams of iperf3, each paced to its share of the load."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pydantic import Field

from cross_traffic import iperf_programs
from orchestrator.core.fields import Load, Model, Size
from orchestrator.core.machines import packages
from orchestrator.core.units import rate_text
from orchestrator.parts.launch import Launch, Requirement
from orchestrator.parts.protocols import Demand, Escalation, Problem, Sent, Source
from orchestrator.parts.rows import Columns, LaunchOutput
from orchestrator.parts.shared import named_hosts, rails
from orchestrator.parts.topology import Topology

NAME = "iperf"

SMALL_BLOCK, LARGE_BLOCK = 8192, 131_072


class Config(Model):
    """Constant TCP load from one host to another."""

    src: str = Field(alias="from")
    """Host that sends."""
    to: str
    """Host that receives."""
    load: Load
    """What it puts on the wire, headers included (layer 2, without preamble and FCS), all streams together; or a share
    of what its narrowest link carries, such as "50%"."""
    rail: int = Field(default=0, ge=0)
    """Number of the rail that it crosses, from 0."""
    streams: int = 4
    """TCP connections that share the load equally."""
    most_streams: int = 16
    """While the load is not reached alone on the link the streams are doubled, up to so many at most."""
    block: Size | None = None
    """Bytes that iperf3 hands to TCP at once; when left out, whole segments of what a stream sends in a millisecond."""
    congestion: str | None = None
    """TCP congestion control of the sender, such as "cubic"; the host's own when left out."""


def problems(config: Config, topology: Topology) -> list[Problem]:
    found = named_hosts.problems([(("from",), config.src), (("to",), config.to)], topology)
    if not found and config.src == config.to:
        found.append(Problem(at=("to",), message=f"sends from {config.src!r} to itself", accepted="another host"))
    found += rails.problems(config.rail, topology)
    if not found:
        narrow = min((config.src, config.to), key=lambda host: topology.carries_bps(host, config.rail))
        if not 0 < config.load <= topology.carries_bps(narrow, config.rail):
            message = f"{rate_text(config.load)} does not fit the link of {narrow}" if config.load else "is no traffic"
            most = f"more than 0, at most {topology.carries_text([narrow], config.rail)}"
            found.append(Problem(at=("load",), message=message, accepted=most))
    if not 1 <= config.streams <= iperf_programs.MOST_STREAMS:
        message = f"iperf3 cannot send {config.streams} streams"
        found.append(Problem(at=("streams",), message=message, accepted=f"1 to {iperf_programs.MOST_STREAMS}"))
    if not 1 <= config.most_streams <= iperf_programs.MOST_STREAMS:
        message = f"iperf3 cannot send {config.most_streams} streams"
        found.append(Problem(at=("most_streams",), message=message, accepted=f"1 to {iperf_programs.MOST_STREAMS}"))
    if config.block is not None and not 1 <= config.block <= 1 << 20:
        found.append(Problem(at=("block",), message="iperf3 cannot write that at once", accepted="1b to 1mib"))
    return found


def requirements(config: Config, topology: Topology) -> list[Requirement]:  # noqa: ARG001 - the same on every testbed
    remedy = packages.remedy("iperf3")
    return [
        Requirement(node=node, kind="program", what="iperf3", remedy=remedy, needed_by=NAME)
        for node in (config.src, config.to)
    ]


def demands(config: Config) -> list[Demand]:
    return [Demand(src=config.src, dst=config.to, rate=config.load, rail=config.rail)]


def remarks(config: Config, topology: Topology) -> list[str]:  # noqa: ARG001 - it does what its configuration says
    return []


def escalate(config: Config) -> Escalation | None:
    streams = min(2 * config.streams, config.most_streams)
    if streams <= config.streams:
        return None
    return Escalation(config=config.model_copy(update={"streams": streams}), text=f"{streams} streams")


def launches(config: Config, source: Source, topology: Topology) -> list[Launch]:
    """Return a server's launch, then a client's that is ready when it has reported its first half second of traffic."""
    rate, block = stream_rate(config, topology), block_bytes(config, topology)
    control = ("-C", config.congestion) if config.congestion else ()
    return iperf_programs.server_and_client(
        source,
        topology,
        ends=(config.src, config.to),
        rail=config.rail,
        # The receiver's view is kept as JSON. The client's is not: iperf3 prints that at the end alone, and the
        # client's reports are what tells that data flows.
        receiving=("-J", "-i", str(iperf_programs.REPORT_S)),
        sending=("-b", str(round(rate)), "-P", str(config.streams), "-l", str(block), *control),
    )


def stream_rate(config: Config, topology: Topology) -> float:
    """Return the payload of one stream in bit/s, scaled: iperf3 counts payload, the load counts what is on the wire."""
    return config.load / topology.wire_scale / topology.wire_per_payload / config.streams


def block_bytes(config: Config, topology: Topology) -> int:
    """Return the bytes of one write: whole segments, since short ones would add headers beyond the rate."""
    if config.block is not None:
        return int(config.block)
    segment = topology.mtu - topology.tcp_header_bytes
    wanted = min(max(SMALL_BLOCK, stream_rate(config, topology) / 8 * iperf_programs.TICK_S), LARGE_BLOCK)
    return max(1, round(wanted / segment)) * segment


def sent(config: Config, source: Source, topology: Topology) -> Iterator[Sent]:
    """Yield the blocks that iperf3 writes, stream after stream: the next one once its average is below its rate."""
    block = block_bytes(config, topology)
    period_s = block * 8 / stream_rate(config, topology)
    wire = block * topology.wire_per_payload
    for number in range(int(source.duration_s / period_s)):
        for stream in range(config.streams):
            yield Sent(number * period_s, config.src, config.to, config.rail, block, wire, stream)


def read(output: LaunchOutput) -> Mapping[str, Columns]:
    """Read rows of `flows`, one a stream, from the client's reports; nothing from the server, or when none was made."""
    return iperf_programs.client_flows(output)
