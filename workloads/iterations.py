"""Reads the iteration logs that the rank programs in `training/` write."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from orchestrator.rows import TABLES, Columns, Home
from workloads.spans import read_spans

LOG = "iterations.jsonl"

_WHOLE = ("iteration", "start_ns", "end_ns", "mono_start_ns", "mono_end_ns", "samples")
_REAL = ("forward_s", "backward_s", "wait_s", "loss")


def read_iterations(home: Home, *, unknown: frozenset[str] = frozenset()) -> Mapping[str, Columns]:
    """The table `iterations` of one rank; instants are moved to the controller's time base.

    `unknown` are the fields that a program need not tell; they are missing in the table then.

    A line that is not a whole record is left out: the last one may be cut where the rank was killed. A gap in the
    column `iteration` tells of one in the middle. Without a log there are no rows. `window` is for the caller to fill.
    """
    path = home.folder / LOG
    text = path.read_bytes().decode("utf-8", "replace") if path.exists() else ""
    records = [record for line in text.splitlines() if (record := _record(line, unknown)) is not None]
    columns: dict[str, list[Any]] = {
        "job": [home.job or ""] * len(records),
        "rank": [home.rank if home.rank is not None else -1] * len(records),
        "window": [""] * len(records),
        "start_ns": [record["start_ns"] + home.offset_ns for record in records],
        "end_ns": [record["end_ns"] + home.offset_ns for record in records],
        "seconds": [(record["mono_end_ns"] - record["mono_start_ns"]) * 1e-9 for record in records],
    }
    for name in ("iteration", "samples", *_REAL, "accuracy"):
        columns[name] = [record[name] for record in records]
    return {"iterations": {name: columns[name] for name in TABLES["iterations"]}}


def read_training(home: Home) -> Mapping[str, Columns]:
    """The tables of a rank that also traces: `iterations`, `spans`, `overlaps`."""
    return {**read_iterations(home), **read_spans(home)}


def _record(line: str, unknown: frozenset[str]) -> dict[str, Any] | None:
    """The line's record, or None where it is not a complete one."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict):
        return None
    left_out = unknown - record.keys()
    # The largest is an instant in nanoseconds; a column holds 64 bits, of which one is left for sums.
    if any(
        type(value := record.get(name)) is not int or not 0 <= value < 2**62 for name in _WHOLE if name not in left_out
    ):
        return None
    for name in [name for name in _REAL if name not in left_out]:
        value = record.get(name)
        if not isinstance(value, int | float) or isinstance(value, bool):
            return None
        # A loss that overflowed is data; a time that is not finite is damage.
        if name != "loss" and not math.isfinite(value):
            return None
        record[name] = float(value)
    accuracy = record.get("accuracy")
    record["accuracy"] = float(accuracy) if isinstance(accuracy, int | float) else None
    return record | dict.fromkeys(left_out)
