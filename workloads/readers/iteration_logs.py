"""Read the iteration logs that the rank programs in `rank/` write."""

from __future__ import annotations

from collections.abc import Mapping

from orchestrator.core.opendata import JsonObject
from orchestrator.parts.rows import Columns, LaunchOutput, Row, gathered
from workloads.readers import lines
from workloads.readers.nccl import read_nccl
from workloads.readers.spans import read_spans

LOG = "iterations.jsonl"

_WHOLE = ("iteration", "start_ns", "end_ns", "mono_start_ns", "mono_end_ns", "samples")
_TIMES = ("forward_s", "backward_s", "wait_s")


def read_iterations(output: LaunchOutput, *, unknown: frozenset[str] = frozenset()) -> Mapping[str, Columns]:
    """Read the table `iterations` of one rank; instants are moved to the controller's time base.

    `unknown` are the fields that a program need not tell; they are missing in the table then.

    A line that is not a whole record is passed over: the last one may be cut where the rank was killed. A gap in the
    column `iteration` tells of one in the middle. Without a log there are no rows. `window_name` is for the caller to
    fill.
    """
    who = {"job": output.job or "", "rank": output.rank if output.rank is not None else -1, "window_name": ""}
    rows = (
        {
            **whole,
            **who,
            "start_ns": whole["start_ns"] + output.offset_ns,
            "end_ns": whole["end_ns"] + output.offset_ns,
            "seconds": (whole["mono_end_ns"] - whole["mono_start_ns"]) * 1e-9,
        }
        for whole in lines.records(output.folder / LOG, output.unread, lambda record: _whole(record, unknown))
    )
    return {"iterations": gathered("iterations", rows)}


def read_training(output: LaunchOutput) -> Mapping[str, Columns]:
    """Read the tables of a rank that also traces: `iterations`, `spans`, `overlaps`, and those of NCCL."""
    return {**read_iterations(output), **read_spans(output), **read_nccl(output)}


def _whole(record: JsonObject, unknown: frozenset[str]) -> Row | None:
    """The record with its numbers as floats, or None where it is not a complete one."""
    left_out = unknown - record.keys()
    if not all(lines.is_whole(record.get(name)) for name in _WHOLE if name not in left_out):
        return None
    if not all(lines.is_time(record.get(name)) for name in _TIMES if name not in left_out):
        return None
    if record["mono_end_ns"] <= record["mono_start_ns"]:  # medians of times are compared by their logarithms
        return None
    loss, accuracy = record.get("loss"), record.get("accuracy")
    if "loss" not in left_out and not (lines.is_real(loss) or type(loss) is float):  # one that overflowed is data
        return None
    return {
        **record,
        **{name: float(record[name]) for name in (*_TIMES, "loss") if name not in left_out},
        "accuracy": float(accuracy) if isinstance(accuracy, int | float) and lines.is_real(accuracy) else None,
        **dict.fromkeys(left_out),
    }
