"""Read Horovod's Timeline of rank 0 into spans: negotiation, copies to and from the fusion buffer, communication."""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from orchestrator.core.opendata import JsonObject
from orchestrator.core.paths import safepath
from orchestrator.parts.rows import Columns, LaunchOutput, Row, gathered
from workloads.readers import lines
from workloads.readers.spans import overlap

_BACKENDS = ("GLOO_", "MPI_", "NCCL_")
_NAMES = {
    "ALLREDUCE": "all-reduce", "BROADCAST": "broadcast", "BCAST": "broadcast", "ALLGATHER": "all-gather",
    "ALLTOALL": "all-to-all", "REDUCESCATTER": "reduce-scatter", "MEMCPY_IN_FUSION_BUFFER": "copy in",
    "MEMCPY_OUT_FUSION_BUFFER": "copy out",
}  # fmt: skip
_WIDTHS = {
    "float64": 8, "int64": 8, "float32": 4, "int32": 4, "float16": 2, "bfloat16": 2, "int16": 2, "uint16": 2,
    "int8": 1, "uint8": 1, "bool": 1,
}  # fmt: skip


@dataclass(slots=True)
class _Span:
    """What one tensor, or all tensors of one fusion, did; microseconds since the Timeline's own beginning."""

    lane: str
    span: str
    begin: int
    end: int
    size: int | None = 0
    tensors: int = 1


def read_timeline(output: LaunchOutput, name: str, iterations: Columns) -> Mapping[str, Columns]:
    """Read the tables `spans` and `overlaps` of the iterations that the file tells of; fused tensors are one span.

    The overlap is that of communication with the passes of the iteration log. A file counts as far as it goes, since
    its writer is ended by a signal; damaged events are passed over. Without a file there are no rows.
    """
    path = output.folder / name
    text = safepath.text(path)
    told = partial(output.unread.add, name)
    events = list(lines.objects(text, told, endless=True))
    origin_us = next((began for event in events if (began := _origin(event)) is not None), None)
    if not events and text.strip():
        told("files without events", text=text)
    elif events and origin_us is None:
        told("events without an instant to count from (start_time_since_epoch_in_micros)", count=len(events))
    tables: dict[str, list[Row]] = {"spans": [], "overlaps": []}
    starts, ends = iterations["start_ns"], iterations["end_ns"]
    if origin_us is not None and len(starts):
        inside: dict[int, list[tuple[_Span, int, int]]] = {}
        for span in _fused(_spans(events, told)):
            begin, end = ((origin_us + at) * 1000 + output.offset_ns for at in (span.begin, span.end))
            place = bisect_right(starts, begin) - 1
            if place >= 0 and begin < ends[place]:
                inside.setdefault(place, []).append((span, begin, end))
        for place, found in sorted(inside.items()):
            where = {key: iterations[key][place] for key in ("job", "rank", "window_name", "iteration")}
            tables["spans"] += [
                {
                    **where,
                    "lane": span.lane,
                    "span": span.span,
                    "what": _counted(span.tensors),
                    "peer": -1,
                    "bytes": span.size,
                    "sequence": sequence,
                    "start_ns": begin,
                    "end_ns": end,
                }
                for sequence, (span, begin, end) in enumerate(found)
            ]
            passes = int((iterations["forward_s"][place] + iterations["backward_s"][place]) * 1e9)
            lanes = [(span.lane, begin, end) for span, begin, end in found]
            computed = ("compute", starts[place], starts[place] + passes)
            tables["overlaps"].append({**where, **overlap([computed, *lanes])})
    return {table: gathered(table, rows) for table, rows in tables.items()}


def _counted(tensors: int) -> str:
    return f"{tensors} tensors" if tensors > 1 else "a tensor"


def _origin(event: JsonObject) -> int | None:
    args = event.get("args")
    value = args.get("start_time_since_epoch_in_micros") if isinstance(args, dict) else None
    return value if type(value) is int and 0 <= value < 2**53 else None


def _spans(events: list[JsonObject], told: Callable[..., None] = lines.nobody) -> Iterator[_Span]:
    """Of every tensor (a process of the trace), what begins and ends within one another.

    A negotiation is the first that happens to a tensor: what is open when it begins never ended.
    """
    open_of: dict[Any, list[tuple[str, int]]] = {}
    sent: dict[Any, _Span] = {}
    for event in events:
        phase, at, tensor = event.get("ph"), event.get("ts"), event.get("pid")
        if phase not in ("B", "E"):
            continue
        if type(at) is not int or not 0 <= at < 2**53 or type(tensor) is not int:
            told("events without time or tensor", text=str(event))
            continue
        opened = open_of.setdefault(tensor, [])
        if phase == "B":
            name = str(event.get("name", ""))
            if opened and _lane(name) == "negotiation":
                told("activities without an end", text=opened[0][0], count=len(opened))
                opened.clear()
            opened.append((name, at))
        elif phase == "E" and opened:
            name, begin = opened.pop()
            lane = _lane(name)
            if lane:
                span = _Span(lane=lane, span=_called(name), begin=begin, end=max(begin, at))
                yield span
                if lane == "communication":
                    span.size = None
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


def _size(args: Any) -> int | None:
    """Bytes of a tensor as the end of its operation tells its type and shape; None where it does not."""
    shape = args.get("shape") if isinstance(args, dict) else None
    width = _WIDTHS.get(str(args.get("dtype"))) if isinstance(args, dict) else None
    if not isinstance(shape, str) or width is None:
        return None
    size = math.prod(map(int, re.findall(r"\d{1,15}", shape))) * width
    return size if lines.is_whole(size) else None


def _fused(spans: Iterator[_Span]) -> list[_Span]:
    """Spans of one kind that overlap are those of tensors that go together, as one span; in order of begin."""
    found: list[_Span] = []
    last: dict[tuple[str, str], _Span] = {}
    for span in sorted(spans, key=lambda one: (one.begin, one.end)):
        kind = span.lane, span.span
        before = last.get(kind)
        if before is not None and span.begin < before.end:
            before.end = max(before.end, span.end)
            before.size = None if before.size is None or span.size is None else before.size + span.size
            before.tensors += 1
        else:
            last[kind] = span
            found.append(span)
    return found
