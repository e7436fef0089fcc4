"""Read when a rank computed and communicated, as `rank/logs.py` recorded it, and how much of both overlapped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from orchestrator.core.intervals import Interval, overlap_s
from orchestrator.core.opendata import JsonObject
from orchestrator.parts.rows import Columns, Gathering, LaunchOutput
from workloads.readers import lines

TRACE = "trace.jsonl"

_TOLD = [str, str, str, int, int]  # lane, span, what, peer, bytes
_CLOCK = [int, int]  # begin and end by the monotonic clock; before them a text, the ranks of a group, may stand


def read_spans(output: LaunchOutput) -> Mapping[str, Columns]:
    """Read the tables `spans` and `overlaps` of a rank, in the controller's time base; damaged lines are left out."""
    found = {table: Gathering(table) for table in ("spans", "overlaps")}
    who = {"job": output.job or "", "rank": output.rank if output.rank is not None else -1, "window_name": ""}
    for record in lines.records(output.folder / TRACE, output.unread, _whole):
        shift = record["start_ns"] - record["mono_start_ns"] + output.offset_ns
        where = {**who, "iteration": record["iteration"]}
        found["spans"].add(
            {
                **where,
                "lane": lane,
                "span": span,
                "what": what,
                "peer": peer,
                "bytes": size,
                "process_group": group[0] if group else "",
                "sequence": sequence,
                "start_ns": begin + shift,
                "end_ns": end + shift,
            }
            for sequence, (lane, span, what, peer, size, *group, begin, end) in enumerate(record["spans"])
        )
        found["overlaps"].add([{**where, **overlap(record["spans"])}])
    return {table: rows.columns for table, rows in found.items()}


def overlap(spans: Iterable[Any]) -> dict[str, float]:
    """Add up the seconds of computing, of communicating, and of both at once, in the spans of an iteration."""
    lanes: dict[str, list[Interval]] = {"compute": [], "communication": []}
    for lane, *_, begin, end in spans:
        lanes.setdefault(lane, []).append((begin, end))
    return overlap_s(lanes["compute"], lanes["communication"])


def _whole(record: JsonObject) -> JsonObject | None:
    """Return the record, or None where it is not a complete one."""
    spans = record.get("spans")
    if not all(lines.is_whole(record.get(name)) for name in ("iteration", "start_ns", "mono_start_ns")):
        return None
    return record if isinstance(spans, list) and all(map(_is_span, spans)) else None


def _is_span(span: object) -> bool:
    if not isinstance(span, list) or [type(value) for value in span] not in (_TOLD + _CLOCK, [*_TOLD, str, *_CLOCK]):
        return False
    *texts, peer, size = span[: len(_TOLD)]
    texts += span[len(_TOLD) : -len(_CLOCK)]
    begin, end = span[-len(_CLOCK) :]
    if not all(map(lines.is_text, texts)) or not lines.is_whole(size) or not (peer == -1 or lines.is_whole(peer)):
        return False
    return lines.is_whole(begin) and lines.is_whole(end) and begin <= end
