"""Build the page about packet captures (`capture_page.html`): points, flows, throughput over time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from orchestrator.analysis.capture import trace_tables
from orchestrator.analysis.capture.trace import Part, Trace, TracePoint, moving_average, series
from orchestrator.analysis.traffic import view
from orchestrator.analysis.traffic.view import View
from orchestrator.core.units import span_text
from orchestrator.report import page, traffic_section
from orchestrator.report.style import INK, SERIES, Picture, figure, legend, look, save
from orchestrator.report.tables import Number, Table, table

_STEPS = 600
_AVERAGED = 10
_DRAWN = len(SERIES) - 1
_RATES = ((1.0, "Gbit/s"), (1e3, "Mbit/s"), (1e6, "kbit/s"), (1e9, "bit/s"))


def render(trace: Trace, output: Path, *, top: int = 10) -> Path:
    """Write the page `output`, and its figures as SVG and PDF into `<output's stem>-figures` beside it.

    StoreError when it cannot be written.
    """
    seen = view.of_trace(trace) if len(trace.bins) and trace.last_ns > trace.first_ns else None
    return page.write(
        "capture_page.html",
        output,
        lambda folder: {
            "title": ", ".join(point.name for point in trace.points),
            "points": trace.points,
            "notes": [*(problem for point in trace.points for problem in (*point.unread, *point.damage)), *trace.notes],
            "tables": [_captures(trace), _pairs(trace, top), _flows(trace, top), _queue_pairs(trace, top)],
            "traffic": traffic_section.section([("", seen)]) if seen else "",
            "pictures": _pictures(trace, seen, folder),
        },
    )


def _captures(trace: Trace) -> Table:
    rows = [
        [
            point.name,
            str(len(point.files)),
            ", ".join(point.link_types),
            f"{point.packets:,}",
            f"{point.wire_bytes:,}",
            f"{(point.last_ns - point.first_ns) / 1e9:.6f}",
            f"{point.snapped:,}",
            f"{point.undecoded:,}",
            ", ".join(f"{part.name}: {part.packets:,}" for part in point.interfaces),
            ", ".join(_share(part, point) for part in point.tunnels),
            f"{point.undecoded_inner:,}" if point.undecoded_inner else "",
        ]
        for point in trace.points
    ]
    heads = [
        "capture",
        Number("files"),
        "link type",
        *map(Number, ("packets", "bytes", "seconds", "cut short", "not readable")),
        "interfaces",
        "in tunnels",
        Number("not readable inside"),
    ]
    return table("Captures", heads, rows)


def _share(tunnel: Part, point: TracePoint) -> str:
    share = f", {tunnel.wire_bytes / point.wire_bytes:.1%} of the bytes" if point.wire_bytes else ""
    return f"{tunnel.name}: {tunnel.packets:,} packets{share}"


def _pairs(trace: Trace, top: int) -> Table:
    pairs, count = trace_tables.largest(trace_tables.pairs(trace), top)
    keys = ("flows", "packets", "wire_bytes", "payload_bytes", "repeated", "late")
    heads = ["from", "to", *map(Number, ("flows", "packets", "bytes", "payload", "seen before", "late"))]
    rows = [[row["src"], row["dst"], *(f"{row[key]:,}" for key in keys)] for row in pairs]
    return table("Pairs of hosts", heads, rows, caption=f"{count:,} in all")


def _flows(trace: Trace, top: int) -> Table:
    flows, count = trace_tables.largest_flows(trace, top)
    keys = ("packets", "wire_bytes", "payload_bytes", "repeated", "late", "resets", "zero_windows")
    rows = [
        [
            row["point"],
            row["protocol"],
            f"{row['src']} {row['src_port']}",
            f"{row['dst']} {row['dst_port']}",
            *(f"{row[key]:,}" for key in keys),
            "" if row["handshake_s"] is None else f"{row['handshake_s'] * 1e3:.4g} ms",
            row["interface"],
            row["tunnel"],
            f"{row['outer_src']} {row['outer_dst']}".strip(),
        ]
        for row in flows
    ]
    names = ("packets", "bytes", "payload", "seen before", "late", "resets", "zero windows", "handshake")
    caption = (
        f"{count:,} in all, each direction of a connection by itself; segments whose payload was captured before, and "
        "late ones, which were reordered or sent again after a loss before this point"
    )
    heads = ["capture", "protocol", "from", "to", *map(Number, names), "interface", "tunnel", "outer addresses"]
    return table("Flows", heads, rows, caption=caption)


def _queue_pairs(trace: Trace, top: int) -> Table:
    keys = ("packets", "wire_bytes", "messages", "message_bytes", "out_of_sequence", "negative")
    rows = [
        [row["src"], row["dst"], f"0x{row['queue_pair']:06x}", *(f"{row[key]:,}" for key in keys)]
        for row in trace_tables.rows(trace_tables.queue_pairs(trace))[:top]
    ]
    names = ("packets", "bytes", "messages", "message bytes", "out of sequence", "refused")
    return table("RoCEv2 queue pairs", ["from", "to", "queue pair", *map(Number, names)], rows)


def _pictures(trace: Trace, seen: View | None, folder: Path) -> Sequence[Picture]:
    if seen is None:
        return []
    with look():
        drawn = [("throughput", "Throughput", *_throughput(trace)), *traffic_section.figures(seen)]
        return [
            Picture(name=name, title=title, caption=caption, saved=save(drawing, folder / name))
            for name, title, drawing, caption in drawn
        ]


def _throughput(trace: Trace) -> tuple[Any, str]:
    """Draw the throughput of all flows, and of the largest pairs of hosts, over time."""
    width = trace.bins.width_ns
    step = max(1, (trace.last_ns - trace.first_ns) // _STEPS // width) * width
    flows = trace.flows
    drawing, (panel,) = figure(height_in=2.6)
    starts, total = series(trace, width_ns=step)
    at = (starts - trace.first_ns) / 1e9
    rate = total * 8 / step
    times, unit = next(((times, unit) for times, unit in _RATES if np.max(rate) * times >= 1), _RATES[-1])
    rate *= times
    panel.plot(at, rate, color=INK, linewidth=0.5, alpha=0.5, label="all")
    panel.plot(at, moving_average(rate, _AVERAGED), color=INK, label=f"all, mean of {_AVERAGED} steps")
    pairs = trace_tables.pairs(trace)
    numbers = {name: number for number, name in enumerate(trace.hosts)}
    for color, src, dst in zip(SERIES, pairs["src"][:_DRAWN], pairs["dst"][:_DRAWN], strict=False):
        mine = flows.counted & (flows.src == numbers[src]) & (flows.dst == numbers[dst])
        _, sums = series(trace, flows=mine, width_ns=step)
        panel.plot(at, moving_average(sums * 8 * times / step, _AVERAGED), color=color, label=f"{src} to {dst}")
    panel.set(xlabel="time since the first packet (s)", ylabel=unit, xlim=(0, float(np.max(at)) or 1), ylim=(0, None))
    legend(panel)
    return drawing, f"Layer 2, in steps of {span_text(step / 1e9)}; pairs of hosts as the mean of {_AVERAGED} steps."
