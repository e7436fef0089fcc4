"""Reads Horovod's Timeline of rank 0 into spans: negotiation, copies to and from the fusion buffer, communication."""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from orchestrator.core.opendata import JsonObject
from orchestrator.core.paths import safepath
from orchestrator.parts.rows import TABLES, Columns, LaunchOutput, Row
from workloads.readers import lines
from workloads.readers.spans import overlap

_BACKENDS = ("GLOO_", "MPI_", "NCCL_")
_NAMES = {
    "ALLREDUCE": "all-reduce", "BROADCAST": "broadcast", "BCAST": "broadcast", "ALLGATHER": "all-gather",
    "ALLTOALL": "all-to-all", "REDUCESCATTER": "reduce-scatter", "MEMCPY_IN_FUSION_BUFFER": "copy in",
    "MEMCPY_OUT_FUSION_BUFFER": "copy out",
}  # fmt: skip
_WIDTHS = {"float64": 8, "int64": 8, "float32": 4, "int32": 4, "float16": 2, "bfloat16": 2}


@dataclass(slots=True)
class _Span:
    """What one tensor, or all tensors of one fusion, did; microseconds since the Timeline's own beginning."""

    lane: str
    span: str
    begin: int
    end: int
    size: int = 0
    tensors: int = 1


def read_timeline(output: LaunchOutput, name: str, iterations: Columns) -> Mapping[str, Columns]:
    """The tables `spans` and `overlaps` of the iterations that the file tells of; tensors that were fused are one span.

    The overlap is that of communication with the passes of the iteration log. A file that was cut off, or is damaged,
    counts as far as it can be read; without one there are no rows.
    """
    path = output.folder / name
    text = safepath.text(path)
    events = list(lines.objects(text))
    origin_us = next((began for event in events if (began := _origin(event)) is not None), None)
    tables: dict[str, list[Row]] = {"spans": [], "overlaps": []}
    starts, ends = iterations["start_ns"], iterations["end_ns"]
    if origin_us is not None and len(starts):
        inside: dict[int, list[tuple[_Span, int, int]]] = {}
        for span in _fused(_spans(events)):
            begin, end = ((origin_us + at) * 1000 + output.offset_ns for at in (span.begin, span.end))
            place = bisect_right(starts, begin) - 1
            if place >= 0 and begin < ends[place]:
                inside.setdefault(place, []).append((span, begin, end))
        for place, found in sorted(inside.items()):
            where = {key: iterations[key][place] for key in ("job", "rank", "window_name", "iteration")}
            tables["spans"] += [
                {**where, "lane": span.lane, "span": span.span, "what": _counted(span.tensors), "peer": -1,
                 "bytes": span.size, "sequence": sequence, "start_ns": begin, "end_ns": end}
                for sequence, (span, begin, end) in enumerate(found)
            ]  # fmt: skip
            passes = int((iterations["forward_s"][place] + iterations["backward_s"][place]) * 1e9)
            lanes = [(span.lane, begin, end) for span, begin, end in found]
            computed = ("compute", starts[place], starts[place] + passes)
            tables["overlaps"].append({**where, **overlap([computed, *lanes])})
    return {table: {key: [row[key] for row in rows] for key in TABLES[table]} for table, rows in tables.items()}


def _counted(tensors: int) -> str:
    return f"{tensors} tensors" if tensors > 1 else "a tensor"


def _origin(event: JsonObject) -> int | None:
    args = event.get("args")
    value = args.get("start_time_since_epoch_in_micros") if isinstance(args, dict) else None
    return value if type(value) is int and 0 <= value < 2**53 else None


def _spans(events: list[JsonObject]) -> Iterator[_Span]:
    """Of every tensor (a process of the trace), what begins and ends within one another."""
    open_of: dict[Any, list[tuple[str, int]]] = {}
    sent: dict[Any, _Span] = {}
    for event in events:
        phase, at, tensor = event.get("ph"), event.get("ts"), event.get("pid")
        if type(at) is not int or not 0 <= at < 2**53 or type(tensor) is not int:
            continue
        opened = open_of.setdefault(tensor, [])
        if phase == "B":
            opened.append((str(event.get("name", "")), at))
        elif phase == "E" and opened:
            name, begin = opened.pop()
            lane = _lane(name)
            if lane:
                span = _Span(lane=lane, span=_called(name), begin=begin, end=max(begin, at))
                yield span
                if lane == "communication":
                    sent[tensor] = span
            elif tensor in sent:
                sent.pop(tensor).size = _size(event.get("args"))


def _lane(name: str) -> str:
    if name.startswith("NEGOTIATE_"):
        return "negotiation"
    if name.startswith("MEMCPY_"):
        return "copy"
    return "communication" if name.startswith(_BACKENDS) else ""


def _called(name: str) -> str:
    plain = re.sub(rf"^({'|'.join(_BACKENDS)}|NEGOTIATE_)", "", name)
    return _NAMES.get(plain, plain.lower().replace("_", "-"))


def _size(args: Any) -> int:
    """Bytes of a tensor as the end of its operation tells its type and shape; 0 where it does not."""
    shape = args.get("shape") if isinstance(args, dict) else None
    if not isinstance(shape, str):
        return 0
    return math.prod(map(int, re.findall(r"\d{1,15}", shape))) * _WIDTHS.get(str(args.get("dtype")), 0)


def _fused(spans: Iterator[_Span]) -> list[_Span]:
    """Spans of one kind that overlap are those of tensors that go together, as one span; in order of begin."""
    found: list[_Span] = []
    last: dict[tuple[str, str], _Span] = {}
    for span in sorted(spans, key=lambda one: (one.begin, one.end)):
        kind = span.lane, span.span
        before = last.get(kind)
        if before is not None and span.begin < before.end:
            before.end = max(before.end, span.end)
            before.size += span.size
            before.tensors += 1
        else:
            last[kind] = span
            found.append(span)
    return found
