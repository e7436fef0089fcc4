"""Convert a trace to tables with names in place of numbers, and write them as Parquet, JSON or rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from orchestrator.analysis.capture.trace import Trace, protocol_name, tunnel_name
from orchestrator.core.errors import ConfigError
from orchestrator.parts.rows import Row

Columns = Mapping[str, Any]  # of a table, by name: arrays of numpy, or lists
Table = Callable[[Trace], Columns]  # one of the functions below

_ALL = slice(None)
_JSON_ROWS = 1 << 13
_PARQUET_ROWS = 1 << 17  # more than there are queue pairs, whose lists have their types from all rows

_FLOW_FIGURES = (
    "packets", "wire_bytes", "payload_bytes", "first_ns", "last_ns", "opens", "repeated", "repeated_bytes",
    "late", "syns", "fins", "resets", "zero_windows", "window_bytes", "counted",
)  # fmt: skip
_PAIR_FIGURES = (
    "packets", "wire_bytes", "payload_bytes", "repeated", "repeated_bytes", "late", "resets",
    "zero_windows",
)  # fmt: skip


def flows(trace: Trace, picked: Any = _ALL) -> Columns:
    """Return one row a direction of a conversation and capture point, see trace.Flows; `handshake_s` may be NaN.

    `picked`: which of these rows.
    """
    table = trace.flows
    names = np.array(trace.hosts, dtype=object)
    points = np.array([point.name for point in trace.points], dtype=object)
    protocols, place = np.unique(table.protocol[picked], return_inverse=True)
    handshake_ns = table.handshake_ns[picked]
    return {
        "flow": np.arange(len(table))[picked],
        "point": points[table.point[picked]],
        "conversation": table.conversation[picked],
        "protocol": np.array([protocol_name(int(one)) for one in protocols], dtype=object)[place.ravel()],
        "src": names[table.src[picked]],
        "src_port": table.src_port[picked],
        "dst": names[table.dst[picked]],
        "dst_port": table.dst_port[picked],
        "interface": np.array(trace.interfaces, dtype=object)[table.interface[picked]],
        "tunnel": _tunnels(table.tunnel[picked]),
        "outer_src": _outer(names, table.outer_src[picked]),
        "outer_dst": _outer(names, table.outer_dst[picked]),
        **{name: getattr(table, name)[picked] for name in _FLOW_FIGURES},
        "handshake_s": np.where(handshake_ns < 0, np.nan, handshake_ns / 1e9),
    }


def _tunnels(column: Any) -> Any:
    found, place = np.unique(column, return_inverse=True)
    return np.array([tunnel_name(int(one)) for one in found], dtype=object)[place.ravel()]


def _outer(names: Any, column: Any) -> Any:
    """Return addresses of outer headers, empty where there is no tunnel."""
    return np.append(names, "")[column]


def pairs(trace: Trace) -> Columns:
    """Return one row a pair of hosts (sender, receiver): sums of its flows, counted once, the most bytes first."""
    table = trace.flows
    counted = np.flatnonzero(table.counted)
    code = table.src[counted] * len(trace.hosts) + table.dst[counted]
    order = np.argsort(code, kind="stable")
    heads = np.flatnonzero(np.diff(code[order], prepend=-1))
    rows = counted[order]
    sums = {name: np.add.reduceat(getattr(table, name)[rows], heads) for name in _PAIR_FIGURES} if len(rows) else {}
    most = np.argsort(-sums["wire_bytes"], kind="stable") if sums else heads
    names = np.array(trace.hosts, dtype=object)
    return {
        "src": names[table.src[rows[heads]][most]],
        "dst": names[table.dst[rows[heads]][most]],
        "flows": np.diff(heads, append=len(rows))[most],
        **{name: sums[name][most] if sums else np.zeros(0, np.int64) for name in _PAIR_FIGURES},
    }


def queue_pairs(trace: Trace) -> Columns:
    """Return one row a RoCEv2 queue pair that packets were sent to; opcodes and sizes of messages as lists."""
    table = trace.queue_pairs
    names = np.array(trace.hosts, dtype=object)
    points = np.array([point.name for point in trace.points], dtype=object)
    figures = (
        "queue_pair",
        "packets",
        "wire_bytes",
        "payload_bytes",
        "first_ns",
        "last_ns",
        "messages",
        "message_bytes",
        "out_of_sequence",
        "acknowledged",
        "negative",
    )
    return {
        "point": points[table.point],
        "src": names[table.src],
        "dst": names[table.dst],
        "interface": np.array(trace.interfaces, dtype=object)[table.interface],
        "tunnel": _tunnels(table.tunnel),
        **{name: getattr(table, name) for name in figures},
        "opcodes": [
            [{"opcode": int(code), "packets": int(row[code])} for code in np.flatnonzero(row)] for row in table.opcodes
        ],
        "sizes": [
            [{"at_least_bytes": int(table.size_edges[one]), "messages": int(row[one])} for one in np.flatnonzero(row)]
            for row in table.sizes
        ],
    }


def bins(trace: Trace) -> Columns:
    """Return one row a flow and bin in which it carried something; `flow` is the row of flows()."""
    table = trace.bins
    return {
        "flow": table.flow,
        "start_ns": table.start_ns,
        "packets": table.packets,
        "wire_bytes": table.wire_bytes,
        "payload_bytes": table.payload_bytes,
        "repeated_bytes": table.repeated_bytes,
    }


def rows(columns: Columns, picked: Any = None) -> list[Row]:
    """Return a table, or the rows of it that are picked, as a list of plain objects, NaN as None."""
    some = columns if picked is None else {name: _picked(values, picked) for name, values in columns.items()}
    plain = {name: values.tolist() if isinstance(values, np.ndarray) else values for name, values in some.items()}
    found = [dict(zip(plain, row, strict=True)) for row in zip(*plain.values(), strict=True)]
    return [{name: None if value != value else value for name, value in row.items()} for row in found]  # noqa: PLR0124


def _picked(values: Any, picked: Any) -> Any:
    return values[picked] if isinstance(values, np.ndarray) else [values[place] for place in picked]


def largest(columns: Columns, count: int) -> tuple[list[Row], int]:
    """Return the rows with the most bytes on the wire, and how many there are in all."""
    order = np.argsort(-columns["wire_bytes"], kind="stable")
    return rows(columns, order[:count]), len(order)


def largest_flows(trace: Trace, count: int) -> tuple[list[Row], int]:
    """Return the counted flows (see trace.Flows) with the most bytes on the wire, and how many there are in all."""
    counted = np.flatnonzero(trace.flows.counted)
    order = counted[np.argsort(-trace.flows.wire_bytes[counted], kind="stable")]
    return rows(flows(trace, order[:count])), len(order)


def parts(trace: Trace, table: Table, size: int) -> Iterator[Columns]:
    """Yield a table in parts of so many rows, one at least; the names of flows are never in memory as a whole."""
    whole = {} if table is flows else table(trace)
    count = len(trace.flows) if table is flows else len(next(iter(whole.values())))
    for begin in range(0, max(1, count), size):
        picked = slice(begin, begin + size)
        yield flows(trace, picked) if table is flows else {name: values[picked] for name, values in whole.items()}


def json_parts(trace: Trace, table: Table) -> Iterator[str]:
    """Yield a table as a JSON list of objects, in parts, so that it is never in memory as a whole."""
    import msgspec

    yield "["
    between = ""
    for part in parts(trace, table, _JSON_ROWS):
        text = msgspec.json.encode(rows(part)).decode()[1:-1]
        yield between + text
        between = ","
    yield "]"


def write_parquet(trace: Trace, folder: Path) -> list[Path]:
    """Write flows, bins, pairs and queue pairs into a folder, each as NAME.parquet; ConfigError when it cannot be."""
    import pyarrow as pa
    from pyarrow import parquet

    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for table in (flows, bins, pairs, queue_pairs):
            metadata = {"bin_width_ns": str(trace.bins.width_ns)} if table is bins else {}
            writer = None
            path = folder / f"{table.__name__}.parquet"
            for columns in parts(trace, table, _PARQUET_ROWS):
                part = pa.table({key: pa.array(values) for key, values in columns.items()})
                part = part.replace_schema_metadata(metadata)
                # A dictionary of numbers that hardly recur costs 60 MB a table, and twice the file.
                texts = [field.name for field in part.schema if pa.types.is_string(field.type)]
                writer = writer or parquet.ParquetWriter(path, part.schema, compression="zstd", use_dictionary=texts)
                writer.write_table(part)
            if writer is not None:
                writer.close()
            written.append(path)
    except OSError as error:
        raise ConfigError(f"cannot write to {folder}: {error.strerror or error}") from error
    return written
