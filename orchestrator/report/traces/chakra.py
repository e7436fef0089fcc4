"""Write ranks' activities as Chakra execution traces: MLCommons' schema `et_def.proto`, a file a rank.

https://github.com/mlcommons/chakra. A file is GlobalMetadata and then nodes, each message behind its length.
Dependencies are those that the measured times show:

- A computation depends on the one before it, and on the communications that ended between both: it waited for them.
- A communication depends on the computation that ended last before it began, and on the last one of its kind that had
  ended. Computations are cut where a communication begins, so that a replay begins it as late.

Process groups stand in a node as PyTorch's traces have it, which ASTRA-sim and the workload `chakra` read.
"""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from orchestrator.core.errors import StoreError
from orchestrator.core.paths import safepath
from orchestrator.report.runs import Run
from orchestrator.report.traces.activity import COMPUTE, Activity, RankActivities, of_run
from workloads.readers.chakra_traces import COLLECTIVE, COLLECTIVES, COMPUTATION, GROUPS, METADATA, RECEIVE, SEND

_VERSION = "0.0.4"

_VARINT, _LENGTH = 0, 2


@dataclass(frozen=True, slots=True)
class Node:
    """An activity with the numbers of those that it depends on; its own number is its place."""

    activity: Activity
    after: tuple[int, ...]


def write(run: Run, folder: Path) -> list[Path]:
    """Write `JOB/trace.RANK.et` for each rank of the run; StoreError where nothing can be written."""
    written = []
    ranks = list(of_run(run))
    groups = {job: _groups(rank for rank in ranks if rank.job == job) for job in {rank.job for rank in ranks}}
    for rank in ranks:
        path = folder / safepath.segment(rank.job) / f"trace.{rank.rank}.et"
        notes: dict[str, str | int] = {
            "run": run.id,
            "experiment": run.manifest.experiment,
            "rank": rank.rank,
            "ranks": rank.ranks,
            "scale": run.scale,
        }
        content = encoded(rank, notes, groups[rank.job])
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        except OSError as error:
            raise StoreError(f"cannot write the trace {path}: {error.strerror}") from error
        written.append(path)
    return written


def _groups(ranks: Iterable[RankActivities]) -> dict[str, str]:
    """Return the names of the process groups of a job's ranks: numbers from 1, as ASTRA-sim wants them."""
    found = {one.group for rank in ranks for one in rank.activities if one.group}
    return {group: str(number) for number, group in enumerate(sorted(found), start=1)}


def encoded(rank: RankActivities, notes: Mapping[str, str | int], groups: Mapping[str, str]) -> bytes:
    """Return the trace of a rank; times count from its first activity, in microseconds.

    `groups`: the names of process groups by their ranks.
    """
    found = nodes(rank.activities)
    origin_ns = found[0].activity.start_ns if found else 0
    metadata = text(1, _VERSION) + b"".join(_attribute(name, value) for name, value in notes.items())
    messages = [metadata, *(_node(number, node, rank, groups, origin_ns) for number, node in enumerate(found))]
    if groups:
        messages.insert(1, _named(len(found), groups))
    return b"".join(varint(len(message)) + message for message in messages)


def _named(number: int, groups: Mapping[str, str]) -> bytes:
    """Return the node that says which ranks the process groups have."""
    told = [
        {"pg_name": name, "pg_desc": "", "backend_config": "", "ranks": ranks, "group_size": len(ranks)}
        for group, name in groups.items()
        for ranks in ([int(rank) for rank in group.split()],)
    ]
    inputs = text(1, f"['{json.dumps(told)}']")
    return (
        integer(1, number)
        + text(2, GROUPS)
        + integer(3, METADATA)
        + data(8, inputs)
        + _attribute("is_cpu_op", value=False, field=10)
    )


def nodes(activities: Iterable[Activity]) -> list[Node]:
    """Return activities as nodes in order of their beginning, cut where a communication begins, with dependencies."""
    given = sorted(activities, key=lambda one: (one.start_ns, one.end_ns))
    communications = [one for one in given if one.lane != COMPUTE]
    starts = [one.start_ns for one in communications]
    pieces = [piece for one in given if one.lane == COMPUTE for piece in _cut(one, starts)]
    everything = sorted([*communications, *pieces], key=lambda one: (one.start_ns, one.end_ns))
    before = _Before()
    return [Node(one, before.awaited(number, one)) for number, one in enumerate(everything)]


def _cut(one: Activity, starts: list[int]) -> list[Activity]:
    low, high = bisect_right(starts, one.start_ns), bisect_left(starts, one.end_ns)
    edges = [one.start_ns, *sorted(set(starts[low:high])), one.end_ns]
    return [replace(one, start_ns=begin, end_ns=end) for begin, end in pairwise(edges)]


class _Before:
    """The activities that began so far, by when they ended."""

    def __init__(self) -> None:
        self._computed: list[tuple[int, int]] = []  # end and number, in order
        self._communicated: list[tuple[int, int]] = []
        self._of_kind: dict[tuple[str, int], list[tuple[int, int]]] = {}
        self._last_computation: tuple[int, int] | None = None

    def awaited(self, number: int, one: Activity) -> tuple[int, ...]:
        """Return the numbers of what an activity depends on; activities come in order of their beginning."""
        if one.lane == COMPUTE:
            found = self._of_computation(one)
            self._last_computation = (one.end_ns, number)
            _insert(self._computed, (one.end_ns, number))
        else:
            alike = self._of_kind.setdefault((one.name, one.peer), [])
            found = [*_last_ended(self._computed, one.start_ns), *_last_ended(alike, one.start_ns)]
            _insert(alike, (one.end_ns, number))
            _insert(self._communicated, (one.end_ns, number))
        return tuple(sorted(set(found)))

    def _of_computation(self, one: Activity) -> list[int]:
        if self._last_computation is None:
            return []
        ended_ns, before = self._last_computation
        low = bisect_right(self._communicated, ended_ns, key=lambda end: end[0])
        high = bisect_right(self._communicated, one.start_ns, key=lambda end: end[0])
        return [before, *(number for _, number in self._communicated[low:high])]


def _insert(ends: list[tuple[int, int]], one: tuple[int, int]) -> None:
    ends.insert(bisect_right(ends, one), one)


def _last_ended(ends: list[tuple[int, int]], at_ns: int) -> list[int]:
    place = bisect_right(ends, at_ns, key=lambda end: end[0])
    return [ends[place - 1][1]] if place else []


def _node(number: int, node: Node, rank: RankActivities, groups: Mapping[str, str], origin_ns: int) -> bytes:
    one = node.activity
    begin_us, end_us = (round((at - origin_ns) / 1000) for at in (one.start_ns, one.end_ns))
    kind, more = _kind(one, rank)
    if one.group:
        more["pg_name"] = groups[one.group]
    attributes: dict[str, str | int | bool] = {"is_cpu_op": False, "iteration": one.iteration, **more}
    if one.what:
        attributes["what"] = one.what
    return b"".join(
        (
            integer(1, number),
            text(2, one.name),
            integer(3, kind),
            integers(5, node.after),
            integer(6, begin_us),
            integer(7, end_us - begin_us),
            *(_attribute(name, value, field=10) for name, value in attributes.items()),
        )
    )


def _kind(one: Activity, rank: RankActivities) -> tuple[int, dict[str, str | int]]:
    """Return the type of a node, and the attributes that the schema's readers look for in a node of this type.

    They take the size of an all-gather as what the rank contributes to it.
    """
    if one.lane == COMPUTE:
        return COMPUTATION, {}
    size: dict[str, str | int] = {} if one.size is None else {"comm_size": one.size}
    if one.name in ("send", "receive") and one.peer >= 0:
        src, dst = (rank.rank, one.peer) if one.name == "send" else (one.peer, rank.rank)
        return SEND if one.name == "send" else RECEIVE, {**size, "comm_src": src, "comm_dst": dst, "comm_tag": 0}
    if one.name == "all-gather" and one.size is not None:
        size = {"comm_size": one.size // (len(one.group.split()) or rank.ranks)}
    if one.name in COLLECTIVES:
        return COLLECTIVE, {**size, "comm_type": COLLECTIVES[one.name]}
    return METADATA, size


_INT32 = {"comm_src", "comm_dst", "comm_tag"}  # which readers take as int32, all others as int64


def _attribute(name: str, value: str | int | bool, *, field: int = 2) -> bytes:
    if isinstance(value, bool):
        content = integer(27, value)
    elif isinstance(value, int):
        content = integer(7 if name in _INT32 else 9, value)
    else:
        content = text(29, value)
    return data(field, text(1, name) + content)


def varint(number: int) -> bytes:
    """Return a number from -2^63 up to 2^64 - 1 in base 128, least digits first; negative ones as two's complement."""
    left = number & 0xFFFF_FFFF_FFFF_FFFF
    found = bytearray()
    while left > 0x7F:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    found.append(left)
    return bytes(found)


def integer(field: int, number: int) -> bytes:
    """Return a field of type (u)int32, (u)int64, bool or of an enumeration."""
    return varint(field << 3 | _VARINT) + varint(number)


def data(field: int, content: bytes) -> bytes:
    """Return a field that is bytes, or a message."""
    return varint(field << 3 | _LENGTH) + varint(len(content)) + content


def text(field: int, content: str) -> bytes:
    """Return a field of type string."""
    return data(field, content.encode())


def integers(field: int, numbers: Iterable[int]) -> bytes:
    """Return a repeated field of numbers, packed; nothing where there are none."""
    packed = b"".join(map(varint, numbers))
    return data(field, packed) if packed else b""
