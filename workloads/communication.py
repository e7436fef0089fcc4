"""Reads the communication log that a framework keeps of its own operations, as its rank program wrote it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from orchestrator.rows import TABLES, Columns, Home

LOG = "communication.jsonl"

_TYPES = (str, int, int, float, float, float)  # operation, bytes, count, seconds, algorithm and bus in bit/s


def read_communication(home: Home) -> Mapping[str, Columns]:
    """The table `communication` of one rank; damaged lines are left out."""
    path = home.folder / LOG
    text = path.read_bytes().decode("utf-8", "replace") if path.exists() else ""
    who = {"job": home.job or "", "rank": home.rank if home.rank is not None else -1, "window": ""}
    names = ("operation", "bytes", "count", "seconds", "algorithm_bps", "bus_bps")
    rows = [
        {**who, "iteration": record["iteration"], **dict(zip(names, operation, strict=True))}
        for record in filter(None, map(_record, text.splitlines()))
        for operation in record["operations"]
    ]
    return {"communication": {column: [row[column] for row in rows] for column in TABLES["communication"]}}


def _record(line: str) -> dict[str, Any] | None:
    """The line's record, or None where it is not a complete one."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict) or not isinstance(record.get("operations"), list):
        return None
    iteration = record.get("iteration")
    if type(iteration) is not int or not 0 <= iteration < 2**62:
        return None
    for operation in record["operations"]:
        if not isinstance(operation, list) or [type(value) for value in operation] != list(_TYPES):
            return None
        if any(not 0 <= value < 2**62 for value in operation[1:3]) or not all(map(math.isfinite, operation[3:])):
            return None
    return record
