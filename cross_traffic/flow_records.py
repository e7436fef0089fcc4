"""Read the logs of senders and sinks of single flows: every flow, the schedule, and received bytes."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cross_traffic.agents import flow_drawing, flow_sender
from cross_traffic.agents.flow_drawing import StreamSpec
from cross_traffic.agents.flow_sender import SenderSpec
from orchestrator.core.errors import StoreError
from orchestrator.core.paths import safepath
from orchestrator.parts.rows import Columns, LaunchOutput, Unread

RECORD = np.dtype(
    [(name, "<i8") for name in ("number", "planned", "start", "connected", "last", "acked", "size", "sent")]
    + [(name, "<u2") for name in ("sink", "sport", "dport", "error")]
    + [("retransmits", "<u4"), ("unused", "<u4")]
)
_ERRORS = {
    flow_sender.SHED: "shed: too many flows were open",
    flow_sender.STARVED: "shed: the sender had no processor time for it",
    flow_sender.UNFINISHED: "unfinished when the sender was stopped",
    flow_sender.CLOSED: "closed by the sink",
}


def read(output: LaunchOutput) -> Mapping[str, Columns]:
    """Read rows of `flows`, `schedules` and `sizes` from a sender, of `counters` from a sink.

    Return no tables when it never began.
    """
    found: dict[str, Columns] = {}
    logs = [log for log in sorted(output.folder.glob("flows.*.bin")) if log.stat().st_size >= flow_sender.HEAD.size]
    spec = _spec(output.folder / "spec.json")
    for log in logs:
        if (log.stat().st_size - flow_sender.HEAD.size) % RECORD.itemsize:
            output.unread.add(log.name, "records that the end cuts off")
    if logs and spec is not None:
        found.update(_sent(output, logs, spec))
    elif logs:
        output.unread.add("spec.json", "files without which no flow can be read")
    if any(output.folder.glob("received.*.csv")):
        found["counters"] = _received(output)
    return {name: columns for name, columns in found.items() if len(next(iter(columns.values())))}


def _spec(path: Path) -> SenderSpec | None:
    """Read the specification of an agent; None when it did not come home whole."""
    try:
        spec: SenderSpec = json.loads(safepath.content(path) or b"")
    except (OSError, ValueError, RecursionError):
        return None
    return spec


def records(log: Path) -> tuple[int, Any]:
    """Read a sender's log: its clock (nanoseconds since the epoch) at the schedule's zero, and an array of RECORD.

    StoreError when it is none; a record that was cut off by a crash is left out.
    """
    with safepath.opened(log) as file:
        head = file.read(flow_sender.HEAD.size)
        if len(head) < flow_sender.HEAD.size or not head.startswith(flow_sender.MAGIC):
            raise StoreError(f"{log} is no log of flows")
        zero_ns = int(flow_sender.HEAD.unpack(head)[1])
        data = file.read()
    return zero_ns, np.frombuffer(data, RECORD, count=len(data) // RECORD.itemsize)


def error_text(code: int) -> str:
    """Return the meaning of a record's error; empty for none."""
    return "" if code == 0 else _ERRORS.get(code) or os.strerror(code)


def _sent(output: LaunchOutput, logs: Sequence[Path], spec: SenderSpec) -> dict[str, Columns]:
    read = [records(log) for log in logs]
    zero_ns = read[0][0] + output.offset_ns
    rows = np.concatenate([part for _, part in read])
    rows = rows[np.argsort(rows["number"], kind="stable")]
    count = len(rows)
    sinks = [sink["address"] for sink in spec["sinks"]]
    words = {int(code): error_text(int(code)) for code in np.unique(rows["error"])}
    flows: Columns = {
        "source": [output.source or ""] * count,
        "window_name": [output.window or ""] * count,
        "flow": rows["number"],
        "src": [spec["source"]] * count,
        "dst": [sinks[sink] for sink in rows["sink"].tolist()],
        "src_port": rows["sport"].astype(np.int64),
        "dst_port": rows["dport"].astype(np.int64),
        "planned_start_ns": rows["planned"] + zero_ns,
        "start_ns": rows["start"] + zero_ns,
        "connected_ns": _instants(rows["connected"], zero_ns),
        "last_byte_ns": _instants(rows["last"], zero_ns),
        "end_ns": _instants(rows["acked"], zero_ns),
        "planned_bytes": rows["size"],
        "bytes": rows["sent"],
        "retransmits": rows["retransmits"].astype(np.int64),
        "error": [words[code] for code in rows["error"].tolist()],
    }
    return {"flows": flows, **_planned(output, spec, sinks, zero_ns)}


def _instants(values: Any, zero_ns: int) -> list[int | None]:
    return [value + zero_ns if value >= 0 else None for value in values.tolist()]


def _planned(output: LaunchOutput, spec: SenderSpec, sinks: Sequence[str], zero_ns: int) -> dict[str, Columns]:
    """Read the schedule as it was planned."""
    streams = spec["streams"]
    bursts = [stream["burst"] for stream in streams]
    count = len(streams)
    schedules: Columns = {
        "source": [output.source or ""] * count,
        "window_name": [output.window or ""] * count,
        "dst": [sinks[stream["sink"]] for stream in streams],
        "zero_ns": [zero_ns] * count,
        "load_bps": [float(stream["load_bps"]) for stream in streams],
        "flow_bytes": [stream["flow_bytes"] for stream in streams],
        "arrivals": [stream["arrivals"] for stream in streams],
        "largest_bytes": [flow_drawing.largest_bytes(stream) for stream in streams],
        "burst_width_s": [burst and burst["width_s"] for burst in bursts],
        "burst_period_s": [burst and burst["period_s"] for burst in bursts],
        "burst_height": [burst and burst["height"] for burst in bursts],
    }
    points = size_points(streams[0]) if streams and not bursts[0] else []
    sizes: Columns = {
        "source": [output.source or ""] * len(points),
        "window_name": [output.window or ""] * len(points),
        "bytes": [float(size) for size, _ in points],
        "cdf": [float(share) for _, share in points],
    }
    return {"schedules": schedules, "sizes": sizes}


def _received(output: LaunchOutput) -> Columns:
    names: list[str] = []
    times: list[int] = []
    values: list[float] = []
    for log in sorted(output.folder.glob("received.*.csv")):
        port = log.name.split(".")[1]
        for cells in _lines(log, output.unread):
            at, *counts = cells
            for what, value in zip(("bytes", "flows", "open", "refused"), counts, strict=True):
                names.append(f"{output.source}.{port}.received_{what}")
                times.append(at + output.offset_ns)
                values.append(float(value))
    return {"port": [""] * len(names), "time_ns": times, "counter": names, "value": values}


def _lines(log: Path, unread: Unread) -> Iterator[list[int]]:
    """Yield whole lines of numbers; the last one may have been cut off."""
    for number, line in enumerate(safepath.text(log).splitlines()[1:], start=2):
        cells = line.split(",")
        if len(cells) == 5 and all(cell.isascii() and cell.isdigit() and len(cell) < 20 for cell in cells):
            yield [int(cell) for cell in cells]
        else:
            unread.add(log.name, "lines", line=number, text=line)


def size_points(made: StreamSpec) -> list[tuple[float, float]]:
    """Return the distribution of sizes that a consistent spec draws from, in bytes as sent."""
    return [(size * made["factor"], share) for size, share in made["points"]]
