"""The `orch capture` command: reads and summarizes packet captures from anywhere."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.cli.commands import Group
from orchestrator.core.errors import ConfigError
from orchestrator.core.exitcodes import Exit
from orchestrator.core.screen import terminal

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from orchestrator.analysis.capture.capture_sets import ReadOptions
    from orchestrator.analysis.capture.trace import Part, Trace, TracePoint
    from orchestrator.parts.rows import Row

_MORE = """\
FILE is a pcap or pcapng file, as it is or compressed with gzip, zstd, lz4 or
bzip2; a folder stands for the files in it. A file that cannot be read is told,
and the others are read; the exit code is 1 then. Files that tcpdump or dumpcap rotated (x.pcap,
x.pcap1, ...) are one capture; every other file is a capture of its own, made at
another point of the network. NAME=FILE names a capture, and files of the same
NAME are one capture."""


_MOST_NS = 1 << 61  # of an option's time: a stamp holds its sum with one


def register(group: Group) -> None:
    """Add `orch capture`."""
    capture = group.add(
        "capture",
        "analyse packet captures from anywhere: flows, host pairs, throughput",
        action=_capture,
        example="orch capture h1=a.pcap h2=b.pcap.zst --offset h2=-1.5ms --parquet tables",
        more=_MORE,
    )
    _add_options(capture)


def _add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `orch capture`."""
    parser.add_argument("files", nargs="+", metavar="FILE", help="captures, see above")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    parser.add_argument(
        "--parquet", type=Path, metavar="DIR", help="write flows, bins, pairs and queue pairs as tables"
    )
    parser.add_argument("--report", type=Path, metavar="FILE", help="write a page with tables and figures")
    parser.add_argument("--bin", metavar="TIME", help="width of the bins of time, at least 1us (1ms)")
    parser.add_argument(
        "--offset",
        action="append",
        default=[],
        metavar="NAME=TIME",
        help="add this to the timestamps of the capture NAME; may be negative, may be repeated",
    )
    parser.add_argument("--top", type=int, default=10, metavar="N", help="how many flows and pairs to print (10)")
    parser.add_argument(
        "--engine",
        metavar="ADDRESS",
        help="read with this Dask scheduler's workers, such as tcp://head:8786, or with `slurm`, in an "
        "allocation: workers on its nodes for as long as it takes; they see the same files (this machine)",
    )
    parser.add_argument(
        "--bins",
        type=int,
        metavar="N",
        help="most rows of time bins; beyond that, those of the smaller flows are summed (2,097,152)",
    )
    parser.add_argument(
        "--memory",
        metavar="SIZE",
        help="memory for bins while files are read; rows beyond an eighth of it wait in TMPDIR (256 MiB)",
    )


def _capture(arguments: argparse.Namespace) -> int:
    """Read the captures, write the tables and the page that the options name, and print a summary."""
    # NumPy's BLAS has a thread for each processor otherwise, which wait awake, and nothing here multiplies matrices.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from orchestrator.analysis.capture import capture_sets

    settings = _settings(arguments)
    sets = capture_sets.grouped(arguments.files, offsets_ns=_offsets(arguments.offset))
    with _engine(arguments.engine) as engine:
        trace = capture_sets.read(sets, engine=engine, **settings)
    written = []
    if arguments.parquet:
        from orchestrator.analysis.capture import trace_tables
        from orchestrator.core import memory

        memory.without_pandas()
        written += [str(path) for path in trace_tables.write_parquet(trace, arguments.parquet)]
    if arguments.report:
        from orchestrator.report import capture_page

        written.append(str(capture_page.render(trace, arguments.report, top=arguments.top)))
    if arguments.json:
        sys.stdout.writelines(as_json(trace))
    else:
        print(as_text(trace, top=arguments.top))
    for line in (*(problem for point in trace.points for problem in (*point.unread, *point.damage)), *trace.notes):
        print(f"orch: {terminal.line(line)}", file=sys.stderr)
    for path in written:
        print(f"wrote {terminal.line(path)}", file=sys.stderr)
    return Exit.FAILED if any(point.unread for point in trace.points) else Exit.OK


def _engine(address: str | None) -> AbstractContextManager[Executor | None]:
    if address is None:
        return nullcontext()
    from orchestrator.analysis import capture_engine

    return capture_engine.engine(address)


def _settings(arguments: argparse.Namespace) -> ReadOptions:
    """Return the settings for reading captures that options give; ConfigError for invalid ones."""
    if arguments.top < 0:
        raise ConfigError("--top must not be negative")
    if arguments.bins is not None and arguments.bins < 1:
        raise ConfigError("--bins must be at least 1")
    given: ReadOptions = {}
    if arguments.bin is not None:
        given["bin_ns"] = _nanoseconds(arguments.bin, "--bin")
        if given["bin_ns"] < 1000:
            raise ConfigError(f"--bin: {arguments.bin} is too short", hint="at least 1us")
    if arguments.bins is not None:
        given["bin_budget"] = arguments.bins
    if arguments.memory is not None:
        given["memory"] = _bytes(arguments.memory, "--memory")
    return given


def _nanoseconds(text: str, option: str) -> int:
    from pydantic import TypeAdapter, ValidationError

    from orchestrator.core.fields import Duration

    sign, plain = (-1, text[1:]) if text.startswith("-") else (1, text.removeprefix("+"))
    try:
        found = round(TypeAdapter(Duration).validate_python(plain) * 1e9)
    except ValidationError as error:
        raise ConfigError(f"{option}: {text!r} is {error.errors()[0]['ctx']['error']}") from None
    if found > _MOST_NS:
        raise ConfigError(f"{option}: {text} is too long", hint=f"at most {_MOST_NS // 3_600_000_000_000}h")
    return sign * found


def _bytes(text: str, option: str) -> int:
    from pydantic import TypeAdapter, ValidationError

    from orchestrator.core.fields import Size

    try:
        return round(TypeAdapter(Size).validate_python(text))
    except ValidationError as error:
        raise ConfigError(f"{option}: {text!r} is {error.errors()[0]['ctx']['error']}") from None


def _offsets(given: list[str]) -> dict[str, int]:
    found = {}
    for one in given:
        name, equals, value = one.rpartition("=")
        if not equals:
            raise ConfigError(f"--offset: {one!r} is not NAME=TIME, such as h2=-1.5ms")
        found[name] = _nanoseconds(value, "--offset")
    return found


def as_json(trace: Trace) -> Iterator[str]:
    """Yield the trace as one JSON object, in parts."""
    from orchestrator.analysis.capture import trace_tables

    yield f'{{"points":{json.dumps([dataclasses.asdict(point) for point in trace.points])}'
    yield f',"bin_width_ns":{trace.bins.width_ns}'
    for name in ("flows", "pairs", "queue_pairs"):
        yield f',"{name}":'
        yield from trace_tables.json_parts(trace, getattr(trace_tables, name))
    yield f',"notes":{json.dumps(trace.notes)}}}\n'


def as_text(trace: Trace, *, top: int) -> str:
    """Summarize a trace for people: its points, then the largest `top` flows, pairs and queue pairs."""
    from orchestrator.analysis.capture import trace_tables

    parts = ["\n".join(line for point in trace.points for line in _point_lines(point))]
    flows, pairs, queue_pairs = (
        trace_tables.largest_flows(trace, top),
        *(trace_tables.largest(table(trace), top) for table in (trace_tables.pairs, trace_tables.queue_pairs)),
    )
    for what, head, line, (rows, count) in (
        ("flow", _FLOW_HEAD, _flow_line, flows),
        ("pair", _PAIR_HEAD, _pair_line, pairs),
        ("queue pair", _QUEUE_PAIR_HEAD, _queue_pair_line, queue_pairs),
    ):
        parts.append(_table(what, [line(row) for row in rows], head, count))
    return "\n\n".join(part for part in parts if part)


_FLOW_HEAD = (
    "from",
    "to",
    "protocol",
    "packets",
    "bytes",
    "payload",
    "Mbit/s",
    "again",
    "late",
    "resets",
    "handshake",
    "via",
)
_MOST_PARTS = 8  # interfaces, or kinds of tunnels, that are printed
_PAIR_HEAD = ("from", "to", "flows", "packets", "bytes", "payload", "again", "late")
_QUEUE_PAIR_HEAD = ("from", "to", "queue pair", "packets", "bytes", "payload", "messages", "mean size", "out of seq.")


def _point_lines(point: TracePoint) -> list[str]:
    lines = [
        f"{terminal.line(point.name)}: {point.packets:,} packets, {point.wire_bytes:,} bytes on the wire, "
        f"{point.captured_bytes:,} kept; {', '.join(point.link_types) or 'no link type'}"
    ]
    if point.packets:
        lines.append(f"  {_when(point)}")
    if point.interfaces:
        lines.append(f"  interfaces: {_parts(point.interfaces)}")
    if point.tunnels:
        share = sum(part.wire_bytes for part in point.tunnels) / max(1, point.wire_bytes)
        lines.append(f"  in tunnels: {share:.1%} of the bytes, as the flows inside; {_parts(point.tunnels)}")
    if point.undecoded_inner:
        lines.append(f"  {point.undecoded_inner:,} packets in tunnels whose inner headers cannot be read")
    if point.undecoded:
        lines.append(f"  {point.undecoded:,} packets whose headers cannot be read")
    if point.backwards:
        lines.append(
            f"  {point.backwards:,} packets ({point.backwards / point.packets:.2%}) are out of timestamp order"
        )
    return lines


def _when(point: TracePoint) -> str:
    """Write when a point captured, and the rate where its packets are of more than one instant."""
    from datetime import datetime, timedelta, timezone

    epoch = datetime(1970, 1, 1, tzinfo=timezone.utc)
    try:
        began = (epoch + timedelta(microseconds=point.first_ns // 1000)).isoformat(sep=" ", timespec="microseconds")
    except OverflowError:  # by an offset of thousands of years
        began = f"{point.first_ns / 1e9:.6f} s"
    seconds = (point.last_ns - point.first_ns) / 1e9
    if not seconds:
        return f"from {began}, all at one instant: no rate"
    rate = f"{point.packets / seconds:,.0f} packets/s, {point.wire_bytes * 8 / seconds / 1e6:,.4g} Mbit/s"
    return f"from {began} for {seconds:.6f} s, {rate}"


def _parts(parts: Sequence[Part]) -> str:
    said = [f"{terminal.line(part.name)} {part.packets:,} packets, {part.wire_bytes:,} bytes" for part in parts]
    more = len(said) - _MOST_PARTS
    return "; ".join(said[:_MOST_PARTS]) + (f"; and {more:,} more" if more > 0 else "")


def _flow_line(row: Row) -> tuple[str, ...]:
    from orchestrator.core.units import span_text

    seconds = (row["last_ns"] - row["first_ns"]) / 1e9
    return (
        _end(row["src"], row["src_port"]),
        _end(row["dst"], row["dst_port"]),
        row["protocol"],
        f"{row['packets']:,}",
        f"{row['wire_bytes']:,}",
        f"{row['payload_bytes']:,}",
        f"{row['wire_bytes'] * 8 / seconds / 1e6:,.4g}" if seconds else "-",
        f"{row['repeated']:,}",
        f"{row['late']:,}",
        f"{row['resets']:,}",
        "-" if row["handshake_s"] is None else span_text(row["handshake_s"]),
        ", ".join(filter(None, (row["interface"], row["tunnel"]))),
    )


def _pair_line(row: Row) -> tuple[str, ...]:
    figures = ("flows", "packets", "wire_bytes", "payload_bytes", "repeated", "late")
    return (row["src"], row["dst"], *(f"{row[name]:,}" for name in figures))


def _queue_pair_line(row: Row) -> tuple[str, ...]:
    mean = f"{row['message_bytes'] / row['messages']:,.0f}" if row["messages"] else "-"
    return (
        row["src"],
        row["dst"],
        f"0x{row['queue_pair']:06x}",
        f"{row['packets']:,}",
        f"{row['wire_bytes']:,}",
        f"{row['payload_bytes']:,}",
        f"{row['messages']:,}",
        mean,
        f"{row['out_of_sequence']:,}",
    )


def _end(address: str, port: int) -> str:
    return f"[{address}]:{port}" if port and ":" in address else f"{address}:{port}" if port else address


def _table(what: str, lines: list[tuple[str, ...]], head: tuple[str, ...], count: int) -> str:
    """Write aligned columns under a heading, without the last one where it is empty; numbers to the right."""
    if not lines:
        return ""
    if not any(row[-1] for row in lines):
        head, lines = head[:-1], [row[:-1] for row in lines]
    lines = [tuple(map(terminal.line, row)) for row in lines]
    widths = [max(len(row[place]) for row in (head, *lines)) for place in range(len(head))]
    numbers = [place >= 2 and head[place] not in ("protocol", "via") for place in range(len(head))]
    text = [
        f"{count:,} {what}{'' if count == 1 else 's'}" + (f", the largest {len(lines)}:" if count > len(lines) else ":")
    ]
    for row in (head, *lines):
        cells = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, numbers, strict=True)
        ]
        text.append("  " + "  ".join(cells).rstrip())
    return "\n".join(text)
