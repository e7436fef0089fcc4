"""Programs of iperf3 at both ends of cross traffic, and what their reports say."""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping, Sequence
from email.utils import parsedate_to_datetime
from functools import partial

from orchestrator.core.paths import safepath
from orchestrator.parts.launch import Flow, Launch, Line, Listening, Stop
from orchestrator.parts.protocols import Source
from orchestrator.parts.rows import Columns, LaunchOutput
from orchestrator.parts.topology import Topology

TICK_S = 0.001  # iperf3 looks at its pacing once a millisecond
MOST_STREAMS = 128  # iperf3's own limit
LONGEST_S = 86_400  # likewise
REPORT_S = 0.5
REPORT = ("-f", "k", "-i", str(REPORT_S), "-V", "--forceflush")

_TIME = re.compile(r"^Time: (.+)$", re.MULTILINE)
_STREAM = re.compile(r"^\[ *(\d+)\] local (\S+) port (\d+) connected to (\S+) port (\d+)", re.MULTILINE)
# A report of one stream, and what it tells: a killed client's last line may be cut anywhere.
_REPORT = re.compile(r"\[ *(\d{1,9})\] +(\d{1,9}\.\d+)-(\d{1,9}\.\d+) +sec\b(.*)")
_SENT = re.compile(r" +\S+ [KMGT]?Bytes +(\d{1,15}(?:\.\d+)?) ([KMGT]?)bits/sec(?: +(-?\d{1,20})\b)?.*")
_UNITS = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_SUMMARY = re.compile(r"(?:sender|receiver|\(omitted\)) *$")
# A count below zero, which the kernel's counters give at times, is one of 32 bits in older versions.
_MOST_AGAIN = 1 << 31


def server_and_client(
    source: Source,
    topology: Topology,
    *,
    ends: tuple[str, str],
    rail: int,
    receiving: Sequence[str],
    sending: Sequence[str],
) -> list[Launch]:
    """Return the launches of iperf3 at a receiving and at a sending host (`ends`: sender first), with more options."""
    src, dst = (topology.node(host).addresses[rail] for host in ends)
    name = f"{source.window}.{source.name}" if source.window else source.name
    # iperf3 answers a signal with its results and, depending on its version, with status 1.
    stop = Stop(signals=((signal.SIGINT, 3.0), (signal.SIGTERM, 2.0)), ok=(0, 1))
    return [
        Launch(
            name=f"{name}.server",
            node=ends[1],
            role="traffic",
            argv=("iperf3", "-s", "-B", dst, "-p", str(source.port), *receiving),
            ready=Listening(port=source.port),
            stop=stop,
        ),
        Launch(
            name=f"{name}.client",
            node=ends[0],
            role="traffic",
            argv=(
                *("iperf3", "-c", dst, "-B", src, "-p", str(source.port), "--connect-timeout", "5000"),
                *REPORT,
                *sending,
                *("-t", str(LONGEST_S)),
            ),
            order=1,
            ready=Line(pattern=r"^\[ *(SUM|\d+)\] +0\.00-.*bits/sec"),
            stop=stop,
            flows=(Flow(kind="cross", name=source.name, src=src, dst=dst, port=source.port),),
        ),
    ]


def began(text: str) -> int | None:
    """Return when a test began by an iperf3's output, in ns since the epoch and true to the second; None if untold."""
    try:
        told = _TIME.search(text)
        return int(parsedate_to_datetime(told[1] if told else "").timestamp()) * 1_000_000_000
    except ValueError:
        return None


def client_flows(output: LaunchOutput) -> Mapping[str, Columns]:
    """Read rows of `flows`, one a stream, from a client's reports; nothing from a server, or when none was made.

    The sum of the reports stands even if the client was killed. `bytes` is what was handed to TCP, to the precision of
    the reports (1 kbit/s, and 10 ms of the whole); `start_ns` is true to the second, `end_ns` as many seconds later as
    iperf3 sent. Retransmissions are missing where a report does not tell them, or tells a number below zero.
    """
    path = output.folder / "stdout"
    text = safepath.text(path)
    if "Connecting to host" not in text:
        return {}
    told = partial(output.unread.add, path.name)
    began_ns = began(text)
    if began_ns is None:
        told("reports of a client that does not tell when it began", text=text)
        return {}
    start_ns = began_ns + output.offset_ns
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
