"""Constant cross traffic from one host to another: TCP streams of iperf3, each paced to its share of the load."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator, Mapping
from email.utils import parsedate_to_datetime
from functools import partial

from pydantic import Field

from orchestrator.core.fields import Load, Model, Size
from orchestrator.core.machines import packages
from orchestrator.core.paths import safepath
from orchestrator.core.units import rate_text
from orchestrator.parts.launch import Flow, Launch, Line, Listening, Requirement, Stop
from orchestrator.parts.protocols import Demand, Escalation, Problem, Sent, Source
from orchestrator.parts.rows import Columns, LaunchOutput
from orchestrator.parts.shared import named_hosts, rails
from orchestrator.parts.topology import Topology

NAME = "iperf"

MOST_STREAMS = 128  # iperf3's own limit
LONGEST_S = 86_400  # likewise
TICK_S = 0.001  # iperf3 looks at its pacing once a millisecond
SMALL_BLOCK, LARGE_BLOCK = 8192, 131_072
REPORT_S = 0.5

_TIME = re.compile(r"^Time: (.+)$", re.MULTILINE)
_STREAM = re.compile(r"^\[ *(\d+)\] local (\S+) port (\d+) connected to (\S+) port (\d+)", re.MULTILINE)
# A report of one stream, and what it tells: a killed client's last line may be cut anywhere.
_REPORT = re.compile(r"\[ *(\d{1,9})\] +(\d{1,9}\.\d+)-(\d{1,9}\.\d+) +sec\b(.*)")
_SENT = re.compile(r" +\S+ [KMGT]?Bytes +(\d{1,15}(?:\.\d+)?) ([KMGT]?)bits/sec(?: +(-?\d{1,20})\b)?.*")
_UNITS = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_SUMMARY = re.compile(r"(?:sender|receiver|\(omitted\)) *$")
_MOST_AGAIN = (
    1 << 31
)  # a count below zero, which the kernel's counters give at times, is one of 32 bits in older versions


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
    if not 1 <= config.streams <= MOST_STREAMS:
        message = f"iperf3 cannot send {config.streams} streams"
        found.append(Problem(at=("streams",), message=message, accepted=f"1 to {MOST_STREAMS}"))
    if not 1 <= config.most_streams <= MOST_STREAMS:
        message = f"iperf3 cannot send {config.most_streams} streams"
        found.append(Problem(at=("most_streams",), message=message, accepted=f"1 to {MOST_STREAMS}"))
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
    src, dst = (topology.node(host).addresses[config.rail] for host in (config.src, config.to))
    rate = stream_rate(config, topology)
    name = f"{source.window}.{source.name}" if source.window else source.name
    # iperf3 answers a signal with its results and, depending on its version, with status 1.
    stop = Stop(signals=((signal.SIGINT, 3.0), (signal.SIGTERM, 2.0)), ok=(0, 1))
    report = ("-f", "k", "-i", str(REPORT_S), "-V", "--forceflush")
    block = block_bytes(config, topology)
    load = ("-b", str(round(rate)), "-P", str(config.streams), "-l", str(block), "-t", str(LONGEST_S))
    control = ("-C", config.congestion) if config.congestion else ()
    return [
        Launch(
            name=f"{name}.server",
            node=config.to,
            role="traffic",
            # The receiver's view is kept as JSON. The client's is not: iperf3 prints that at the end alone, and the
            # client's reports are what tells that data flows.
            argv=("iperf3", "-s", "-B", dst, "-p", str(source.port), "-J", "-i", str(REPORT_S)),
            ready=Listening(port=source.port),
            stop=stop,
        ),
        Launch(
            name=f"{name}.client",
            node=config.src,
            role="traffic",
            argv=(
                *("iperf3", "-c", dst, "-B", src, "-p", str(source.port), "--connect-timeout", "5000"),
                *report,
                *load,
                *control,
            ),
            order=1,
            ready=Line(pattern=r"^\[ *(SUM|\d+)\] +0\.00-.*bits/sec"),
            stop=stop,
            flows=(Flow(kind="cross", name=source.name, src=src, dst=dst, port=source.port),),
        ),
    ]


def stream_rate(config: Config, topology: Topology) -> float:
    """Return the payload of one stream in bit/s, scaled: iperf3 counts payload, the load counts what is on the wire."""
    return config.load / topology.wire_scale / topology.wire_per_payload / config.streams


def block_bytes(config: Config, topology: Topology) -> int:
    """Return the bytes of one write: whole segments, since short ones would add headers beyond the rate."""
    if config.block is not None:
        return int(config.block)
    segment = topology.mtu - topology.tcp_header_bytes
    wanted = min(max(SMALL_BLOCK, stream_rate(config, topology) / 8 * TICK_S), LARGE_BLOCK)
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
    """Read rows of `flows`, one a stream, from the client's reports; nothing from the server, or when none was made.

    The sum of the reports stands even if the client was killed. `bytes` is what was handed to TCP, to the precision of
    the reports (1 kbit/s, and 10 ms of the whole); `start_ns` is true to the second, `end_ns` as many seconds later as
    iperf3 sent. Retransmissions are missing where a report does not tell them, or tells a number below zero.
    """
    path = output.folder / "stdout"
    text = safepath.text(path)
    if "Connecting to host" not in text:
        return {}
    told = partial(output.unread.add, path.name)
    try:
        began = _TIME.search(text)
        start_ns = int(parsedate_to_datetime(began[1] if began else "").timestamp()) * 1_000_000_000 + output.offset_ns
    except ValueError:
        told("reports of a client that does not tell when it began", text=text)
        return {}
    ends = {int(match[1]): match.groups()[1:] for match in _STREAM.finditer(text)}
    sent = dict.fromkeys(ends, 0.0)
    seconds = dict.fromkeys(ends, 0.0)
    again: dict[int, int | None] = dict.fromkeys(ends, 0)
    for number, line in enumerate(text.split("\n"), start=1):
        report = _REPORT.match(line)
        if report is None or _SUMMARY.search(line):
            continue
        key = int(report[1])
        found = _SENT.fullmatch(report[4])
        if found is None or key not in ends:
            told("reports", line=number, text=line)
            continue
        sent[key] += float(found[1]) * _UNITS[found[2]] / 8 * (float(report[3]) - float(report[2]))
        seconds[key] = float(report[3])
        retransmits = int(found[3]) if found[3] else -1
        if not 0 <= retransmits < _MOST_AGAIN:
            told("reports without a number of retransmissions", line=number, text=line)
            again[key] = None
        elif (before := again[key]) is not None:
            again[key] = before + retransmits
    count = len(ends)
    return {
        "flows": {
            "source": [output.source or ""] * count,
            "window_name": [output.window or ""] * count,
            "flow": list(range(count)),
            "src": [end[0] for end in ends.values()],
            "dst": [end[2] for end in ends.values()],
            "src_port": [int(end[1]) for end in ends.values()],
            "dst_port": [int(end[3]) for end in ends.values()],
            "planned_start_ns": [start_ns] * count,
            "start_ns": [start_ns] * count,
            "connected_ns": [None] * count,
            "last_byte_ns": [None] * count,
            "end_ns": [start_ns + round(seconds[key] * 1e9) for key in ends],
            "planned_bytes": [None] * count,
            "bytes": [round(sent[key]) for key in ends],
            "retransmits": [again[key] for key in ends],
            "error": [""] * count,
        }
    }
