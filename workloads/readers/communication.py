"""Read the communication log that a framework keeps of its own operations, as its rank program wrote it."""

from __future__ import annotations

from collections.abc import Mapping

from orchestrator.core.opendata import JsonObject
from orchestrator.parts.rows import Columns, LaunchOutput, gathered
from workloads.readers import lines

LOG = "communication.jsonl"

_TYPES = (str, int, int, float, float, float)  # operation, bytes, count, seconds, algorithm and bus in bit/s


def read_communication(output: LaunchOutput) -> Mapping[str, Columns]:
    """Read the table `communication` of one rank; damaged lines are passed over."""
    who = {"job": output.job or "", "rank": output.rank if output.rank is not None else -1, "window_name": ""}
    names = ("operation", "bytes", "count", "seconds", "algorithm_bps", "bus_bps")
    rows = (
        {**who, "iteration": record["iteration"], **dict(zip(names, operation, strict=True))}
        for record in lines.records(output.folder / LOG, output.unread, _whole)
        for operation in record["operations"]
    )
    return {"communication": gathered("communication", rows)}


def _whole(record: JsonObject) -> JsonObject | None:
    """Return the record, or None where it is not a complete one."""
    operations = record.get("operations")
    if not lines.is_whole(record.get("iteration")) or not isinstance(operations, list):
        return None
    return record if all(map(_is_operation, operations)) else None


def _is_operation(operation: object) -> bool:
    if not isinstance(operation, list) or [type(value) for value in operation] != list(_TYPES):
        return False
    name, size, count, seconds, *rates = operation
    if not lines.is_time(seconds) or not all(map(lines.is_real, rates)):
        return False
    return lines.is_text(name) and lines.is_whole(size) and lines.is_whole(count)
