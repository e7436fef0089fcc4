"""Read iteration logs, the files `iterations.jsonl` that the rank programs in `rank/` write: the table `iterations`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from orchestrator.core.opendata import JsonObject
from orchestrator.parts.rows import DESCRIBED, TABLES, Columns, LaunchOutput, Row, gathered
from workloads.readers import lines
from workloads.readers.nccl import read_nccl
from workloads.readers.spans import read_spans

LOG = "iterations.jsonl"

# What no line has: the first three are of the launch and its windows, the time is worked out from two clock readings.
_NOT_LOGGED = frozenset({"job", "rank", "window_name", "seconds"})
_CLOCK = ("mono_start_ns", "mono_end_ns")  # of a line and no column: readings of the rank's monotonic clock
_FIELDS: Mapping[str, str] = {
    **{name: kind for name, kind in TABLES["iterations"].items() if name not in _NOT_LOGGED},
    **dict.fromkeys(_CLOCK, "int64"),
}
# What each line has: that which the table cannot do without, and what every program of ours tells (another one names
# those that it does not tell: `unknown`). Any other column may be missing in a line.
_REQUIRED = frozenset({*DESCRIBED["iterations"].required, *_CLOCK}) - _NOT_LOGGED
_TOLD = frozenset({"forward_s", "backward_s", "wait_s", "loss", "samples"})

_HOLDS: Mapping[str, Callable[[Any], bool]] = {
    "int64": lines.is_whole,
    "float64": lines.is_real,
    "string": lines.is_text,
    "bool": lambda value: isinstance(value, bool),
}


def read_iterations(output: LaunchOutput, *, unknown: frozenset[str] = frozenset()) -> Mapping[str, Columns]:
    """Read the table `iterations` of one rank; instants are moved to the controller's time base.

    A field of a line is the column of its name; `unknown` are fields that the program need not tell. A column that a
    line lacks is missing in its row, as is one beyond the necessary whose value is none of its type.

    A line that is not a whole record is passed over: the last one may be cut where the rank was killed. A gap in the
    column `iteration` tells of one in the middle. Without a log there are no rows. `window_name` is for the caller to
    fill.
    """
    who = {"job": output.job or "", "rank": output.rank if output.rank is not None else -1, "window_name": ""}
    required = _REQUIRED | (_TOLD - unknown)
    rows = (
        {
            **whole,
            **who,
            "start_ns": whole["start_ns"] + output.offset_ns,
            "end_ns": whole["end_ns"] + output.offset_ns,
            "seconds": (whole["mono_end_ns"] - whole["mono_start_ns"]) * 1e-9,
        }
        for whole in lines.records(output.folder / LOG, output.unread, lambda record: _whole(record, required))
    )
    return {"iterations": gathered("iterations", rows)}


def read_training(output: LaunchOutput, *, unknown: frozenset[str] = frozenset()) -> Mapping[str, Columns]:
    """Read the tables of a rank that also traces: `iterations`, `spans`, `overlaps`, and those of NCCL."""
    return {**read_iterations(output, unknown=unknown), **read_spans(output), **read_nccl(output)}


def _whole(record: JsonObject, required: frozenset[str]) -> Row | None:
    """Return the columns that a line holds, numbers of a column of floats as such; None where it is not a whole one."""
    if not required <= record.keys():
        return None
    row: dict[str, Any] = {}
    for name, kind in _FIELDS.items():
        value: Any = record.get(name)
        if _holds(name, kind, value):
            row[name] = float(value) if kind == "float64" else value
        elif name in record and name in _REQUIRED | _TOLD:
            return None
    return row if row["mono_end_ns"] > row["mono_start_ns"] else None  # medians are compared by their logarithms


def _holds(name: str, kind: str, value: Any) -> bool:
    if name == "loss" and type(value) is float:  # one that overflowed is data
        return True
    return lines.is_time(value) if name.endswith("_s") else _HOLDS[kind](value)
