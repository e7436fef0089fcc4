"""Read what ranks wrote after each epoch of how their model does on held-out images."""

from __future__ import annotations

from collections.abc import Mapping

from orchestrator.core.opendata import JsonObject
from orchestrator.parts.rows import Columns, LaunchOutput, gathered
from workloads.readers import lines

LOG = "accuracy.jsonl"

_WHOLE = ("epoch", "iteration", "end_ns", "samples", "correct")


def read_evaluations(output: LaunchOutput) -> Mapping[str, Columns]:
    """Read the table `accuracy` of one rank, where it evaluated anything; damaged lines are passed over.

    Instants are moved to the controller's time base; `window_name` is for the caller to fill.
    """
    who = {"job": output.job or "", "rank": output.rank if output.rank is not None else -1, "window_name": ""}
    found = gathered(
        "accuracy",
        (
            {**record, **who, "end_ns": record["end_ns"] + output.offset_ns}
            for record in lines.records(output.folder / LOG, output.unread, _whole)
        ),
    )
    return {"accuracy": found} if len(found["epoch"]) else {}


def _whole(record: JsonObject) -> JsonObject | None:
    """Return the record, or None where it is not a complete one; a loss that overflowed is data."""
    if not all(lines.is_whole(record.get(name)) for name in _WHOLE) or not lines.is_time(record.get("evaluation_s")):
        return None
    loss = record.get("loss")
    counts = record["correct"] <= record["samples"] and (lines.is_real(loss) or type(loss) is float)
    return record if counts else None
