"""Unresponsive cross traffic: UDP of iperf3 at a rate, whatever becomes of it; what was lost is told."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import partial

from pydantic import Field

from cross_traffic import flow_launches, iperf_programs
from orchestrator.core.fields import Load, Model
from orchestrator.core.machines import packages
from orchestrator.core.paths import safepath
from orchestrator.parts.launch import Launch, Requirement
from orchestrator.parts.protocols import Demand, Escalation, Problem, Sent, Source
from orchestrator.parts.rows import Columns, LaunchOutput
from orchestrator.parts.shared import named_hosts, rails
from orchestrator.parts.topology import WIRE_HEADER_BYTES, Topology

NAME = "udp"
HEADER_BYTES = {4: 20 + 8, 6: 40 + 8}  # of IP and UDP, by version of IP
COUNTERS = ("datagrams.offered_bytes", "datagrams.lost_bytes", "datagrams.seconds")
LEAST_BYTES = 32  # of a datagram: iperf3's own header, and something

_BLOCK = re.compile(r"^Starting Test: protocol: UDP, .* (\d{1,6}) byte blocks", re.MULTILINE)
_ADDRESS = re.compile(r"^\[ *\d+\] local (\S+) port ", re.MULTILINE)
_REPORT = re.compile(r"\[ *(\d{1,9})\] +\d{1,9}\.\d+-(\d{1,9}\.\d+) +sec .* (-?\d{1,15})/(\d{1,15}) \(\S+%\) *$")


class Config(Model):
    """UDP from one host to another, which no loss slows down."""

    src: str = Field(alias="from")
    """Host that sends."""
    to: str
    """Host that receives."""
    load: Load
    """What it puts on the wire, headers included (layer 2, without preamble and FCS); or a share of what its narrowest
    link carries, such as "50%"."""
    rail: int = Field(default=0, ge=0)
    """Number of the rail that it crosses, from 0."""
    streams: int = Field(default=1, ge=1, le=iperf_programs.MOST_STREAMS)
    """Flows that share the load equally."""
    datagram: int | None = Field(default=None, ge=LEAST_BYTES, le=65_507)
    """Bytes of payload of a datagram; when left out, as many as a packet of the network holds."""


def problems(config: Config, topology: Topology) -> list[Problem]:
    found = named_hosts.problems([(("from",), config.src), (("to",), config.to)], topology)
    if not found and config.src == config.to:
        found.append(Problem(at=("to",), message=f"sends from {config.src!r} to itself", accepted="another host"))
    if found or (found := rails.problems(config.rail, topology)):
        return found
    most = topology.mtu - HEADER_BYTES[topology.ip]
    if payload_bytes(config, topology) > most:
        message = f"a datagram of {config.datagram} bytes would be cut into fragments"
        found.append(Problem(at=("datagram",), message=message, accepted=f"{LEAST_BYTES} to {most}"))
    narrow = min((config.src, config.to), key=lambda host: topology.carries_bps(host, config.rail))
    return found + flow_launches.load_problem(config.load, [narrow], topology, rail=config.rail)


def requirements(config: Config, topology: Topology) -> list[Requirement]:  # noqa: ARG001 - the same on every testbed
    remedy = packages.remedy("iperf3")
    return [
        Requirement(node=node, kind="program", what="iperf3", remedy=remedy, needed_by=NAME)
        for node in (config.src, config.to)
    ]


def demands(config: Config) -> list[Demand]:
    return [Demand(src=config.src, dst=config.to, rate=config.load, rail=config.rail)]


def remarks(config: Config, topology: Topology) -> list[str]:
    """Tell how many datagrams a second are sent."""
    wire = payload_bytes(config, topology) + HEADER_BYTES[topology.ip] + WIRE_HEADER_BYTES
    return [f"{config.load / topology.wire_scale / 8 / wire:.6g} datagrams of {wire} bytes a second on the wire"]


def escalate(config: Config) -> Escalation | None:  # noqa: ARG001 - it sends what it is told
    return None


def payload_bytes(config: Config, topology: Topology) -> int:
    """Return the payload of a datagram."""
    return config.datagram if config.datagram is not None else topology.mtu - HEADER_BYTES[topology.ip]


def launches(config: Config, source: Source, topology: Topology) -> list[Launch]:
    """Return a server's launch, then a client's that is ready when it has reported its first half second of traffic."""
    payload = payload_bytes(config, topology)
    rate = stream_rate(config, topology)
    return iperf_programs.server_and_client(
        source,
        topology,
        ends=(config.src, config.to),
        rail=config.rail,
        receiving=iperf_programs.REPORT,
        sending=("-u", "-b", str(round(rate)), "-P", str(config.streams), "-l", str(payload)),
    )


def stream_rate(config: Config, topology: Topology) -> float:
    """Return the payload of one stream in bit/s, scaled: iperf3 counts payload, the load counts what is on the wire."""
    payload = payload_bytes(config, topology)
    share = payload / (payload + HEADER_BYTES[topology.ip] + WIRE_HEADER_BYTES)
    return config.load / topology.wire_scale / config.streams * share


def sent(config: Config, source: Source, topology: Topology) -> Iterator[Sent]:
    """Yield the datagrams that iperf3 sends: each time it looks at its pace, as many as its average lacks."""
    payload = payload_bytes(config, topology)
    wire = float(payload + HEADER_BYTES[topology.ip] + WIRE_HEADER_BYTES)
    period_s = payload * 8 / stream_rate(config, topology)
    for number in range(int(source.duration_s / period_s)):
        at_s = math.ceil(number * period_s / iperf_programs.TICK_S) * iperf_programs.TICK_S
        for stream in range(config.streams):
            yield Sent(at_s, config.src, config.to, config.rail, payload, wire, stream, datagram=True)


def read(output: LaunchOutput) -> Mapping[str, Columns]:
    """Read rows of `flows`, one a stream, from the client's reports, and of `counters` from the server's.

    The counters (COUNTERS, the source as their port) are layer-2 bytes since the beginning: of all datagrams that were
    sent, by their numbers, and of those that did not come; and the seconds since, by the server's clock. The times of
    samples are true to half a second.
    """
    found = iperf_programs.client_flows(output)
    if "flows" in found:
        columns = found["flows"]
        return {"flows": {**columns, "retransmits": [None] * len(columns["flow"])}}
    return _received(output)


def _received(output: LaunchOutput) -> Mapping[str, Columns]:
    text = safepath.text(output.folder / "stdout")
    block, address, began_ns = _BLOCK.search(text), _ADDRESS.search(text), iperf_programs.began(text)
    if block is None or address is None:
        return {}
    told = partial(output.unread.add, "stdout")
    if began_ns is None:
        told("reports of a server that does not tell when its test began", text=text)
        return {}
    wire = int(block[1]) + HEADER_BYTES[6 if ":" in address[1] else 4] + WIRE_HEADER_BYTES
    reports: dict[tuple[float, str], tuple[int, int]] = {}  # the last one of a stream may be told twice
    for line in text.partition("Test Complete")[0].split("\n"):
        if (report := _REPORT.match(line)) is not None:
            # Below zero are lost where datagrams that were counted as lost came late.
            reports[float(report[2]), report[1]] = int(report[4]) * wire, int(report[3]) * wire
    counts: dict[float, list[int]] = defaultdict(lambda: [0, 0])
    for (at, _), of_stream in reports.items():
        counts[at] = [one + more for one, more in zip(counts[at], of_stream, strict=True)]
    times: list[int] = []
    values: list[float] = []
    sums = [0, 0]
    for seconds, more in [(0.0, [0, 0]), *sorted(counts.items())]:
        sums = [one + another for one, another in zip(sums, more, strict=True)]
        at_ns = began_ns + round((seconds + 0.5) * 1e9) + output.offset_ns  # it began within the second that is told
        times += [at_ns] * len(COUNTERS)
        values += (*map(float, sums), seconds)
    count = len(times) // len(COUNTERS)
    names, ports = list(COUNTERS) * count, [output.source or ""] * len(times)
    return {"counters": {"port": ports, "time_ns": times, "counter": names, "value": values}}
