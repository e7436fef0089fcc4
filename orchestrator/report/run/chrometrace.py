"""Writes slices and counters as a Chrome trace (Trace Event Format, JSON object form), which Perfetto opens.

The format: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU. Slices of one thread may
follow one another or lie in one another, but not overlap in part; so overlapping ones get threads of their own.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypedDict

from orchestrator.core.errors import StoreError


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """Something that went on from `start_ns` to `end_ns` (since the epoch), on a track of a process.

    `inside`: it is a part of the slice of its track that it lies in; else it gets a lane where nothing else goes on.
    """

    process: str
    track: str
    name: str
    start_ns: int
    end_ns: int
    inside: bool = False
    args: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The value of a counter from an instant on."""

    process: str
    counter: str
    time_ns: int
    value: float


Entry = Slice | Sample


class _TraceEvent(TypedDict):
    name: str
    ph: Literal["X", "C", "M"]
    pid: int
    args: Mapping[str, object]


class TraceEvent(_TraceEvent, total=False):
    """An event of the format: a slice (X), a counter (C) or a name (M); times in microseconds."""

    cat: str
    ts: float
    dur: float
    tid: int


def events(entries: Iterable[Entry], *, origin_ns: int) -> list[TraceEvent]:
    """Events of the format: names of processes and threads first, then all by time; `ts` in us since `origin_ns`.

    Processes are listed in the order in which entries first name them, tracks likewise within their process.
    """
    everything = list(entries)
    pids: dict[str, int] = {}
    lanes: dict[tuple[str, str], list[list[int]]] = {}
    for entry in everything:
        pids.setdefault(entry.process, len(pids) + 1)
        if isinstance(entry, Slice):
            lanes.setdefault((entry.process, entry.track), [])
    timed: list[tuple[int, int, TraceEvent]] = []
    slices = [entry for entry in everything if isinstance(entry, Slice)]
    placed = [(entry, _lane(entry, lanes)) for entry in sorted(slices, key=lambda one: (one.start_ns, -one.end_ns))]
    tids = _threads(lanes)
    for entry, lane in placed:
        timed.append(
            (
                entry.start_ns,
                -entry.end_ns,
                {
                    "name": entry.name,
                    "cat": "run",
                    "ph": "X",
                    "ts": _us(entry.start_ns - origin_ns),
                    "dur": _us(max(0, entry.end_ns - entry.start_ns)),
                    "pid": pids[entry.process],
                    "tid": tids[entry.process, entry.track, lane],
                    "args": dict(entry.args),
                },
            )
        )
    timed += [
        (
            sample.time_ns,
            0,
            {
                "name": sample.counter,
                "cat": "run",
                "ph": "C",
                "ts": _us(sample.time_ns - origin_ns),
                "pid": pids[sample.process],
                "args": {"value": sample.value},
            },
        )
        for sample in everything
        if isinstance(sample, Sample)
    ]
    timed.sort(key=lambda one: one[:2])
    return [*_names(pids, tids), *(event for *_, event in timed)]


def write(path: Path, entries: Iterable[Entry], *, origin_ns: int, notes: Mapping[str, object]) -> Path:
    """Write the trace as gzipped JSON, an event a line; Perfetto reads it as it is. StoreError when it cannot."""
    found = events(entries, origin_ns=origin_ns)
    try:
        with gzip.GzipFile(path, "wb", compresslevel=6, mtime=0) as file:
            file.write(b'{"displayTimeUnit": "ms",\n"otherData": ' + json.dumps(dict(notes)).encode())
            file.write(b',\n"traceEvents": [')
            for number, event in enumerate(found):
                file.write((b",\n" if number else b"\n") + json.dumps(event, allow_nan=False).encode())
            file.write(b"\n]}\n")
    except OSError as error:
        raise StoreError(f"cannot write the timeline {path}: {error.strerror}") from error
    return path


def _lane(entry: Slice, lanes: dict[tuple[str, str], list[list[int]]]) -> int:
    """The first lane of the track in which nothing goes on, or only what the slice is inside of.

    A lane is the stack of the ends of what goes on in it.
    """
    mine = lanes[entry.process, entry.track]
    for number, going_on in enumerate(mine):
        while going_on and going_on[-1] <= entry.start_ns:
            going_on.pop()
        if not going_on or (entry.inside and entry.end_ns <= going_on[-1]):
            going_on.append(entry.end_ns)
            return number
    mine.append([entry.end_ns])
    return len(mine) - 1


def _threads(lanes: Mapping[tuple[str, str], list[list[int]]]) -> dict[tuple[str, str, int], int]:
    keys = [(process, track, lane) for (process, track), mine in lanes.items() for lane in range(len(mine))]
    return {key: number for number, key in enumerate(keys, start=1)}


def _names(pids: Mapping[str, int], tids: Mapping[tuple[str, str, int], int]) -> Iterable[TraceEvent]:
    for process, pid in pids.items():
        yield {"name": "process_name", "ph": "M", "pid": pid, "tid": 0, "args": {"name": process}}
        yield {"name": "process_sort_index", "ph": "M", "pid": pid, "tid": 0, "args": {"sort_index": pid}}
    for (process, track, lane), tid in tids.items():
        name = track if lane == 0 else f"{track} ({lane + 1})"
        yield {"name": "thread_name", "ph": "M", "pid": pids[process], "tid": tid, "args": {"name": name}}
        yield {"name": "thread_sort_index", "ph": "M", "pid": pids[process], "tid": tid, "args": {"sort_index": tid}}


def _us(ns: int) -> float:
    return round(ns / 1000, 3)
