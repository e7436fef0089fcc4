"""Whether the cross traffic of a window kept to its schedule's course, or reached its mean by being off both ways."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from orchestrator.analysis.traffic import throughput
from orchestrator.analysis.windows.judging.judgement import gate
from orchestrator.parts.protocols import end_name
from orchestrator.parts.topology import Topology
from orchestrator.store.manifests.window_records import Gate, Window

Floats = npt.NDArray[np.float64]

PIECE_S = 0.5  # the shortest piece: what is late by a round trip or two is nothing of it
PIECE_ITERATIONS = 4  # a training and its cross traffic share a queue: within an iteration the load comes and goes
PIECE_FLOWS = 4  # of the largest: a flow is planned at one instant, and arrives for as long as it takes


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """The load of a source at a receiver over the pieces of a window, each relative to its own mean over the window.

    `off` is the root mean square of what arrived less what the schedule has, `scheduled` and `arrived` are the standard
    deviations of the two; NaN where the window is too short for two pieces.
    """

    source: str
    dst: str
    piece_s: float
    pieces: int
    off: float
    scheduled: float
    arrived: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """When the flows of a source to a receiver were planned (ns), and their layer-2 bytes."""

    start_ns: npt.NDArray[np.int64]
    wire_bytes: Floats


def course(
    source: str,
    dst: str,
    arrived: throughput.Bins,
    span_ns: tuple[int, int],
    *,
    iteration_s: float,
    schedule: Schedule | None = None,
) -> Course:
    """Hold what arrived against the schedule, or against a constant load where there is none."""
    begin, end = span_ns
    length = (end - begin) / 1e9
    planned = _planned(schedule, begin, end)
    piece = max(PIECE_S, PIECE_ITERATIONS * iteration_s, PIECE_FLOWS * _longest_s(planned, length))
    count = int(length / piece) if piece > 0 else 0
    edges = np.linspace(begin, end, count + 1).astype(np.int64) if count else np.array([begin])
    came = np.array([arrived.within(int(low), int(high)) for low, high in pairwise(edges)])
    if count < 2 or came.sum() == 0:
        nothing = math.nan
        return Course(
            source=source, dst=dst, piece_s=piece, pieces=count, off=nothing, scheduled=nothing, arrived=nothing
        )
    due = np.ones(count) if planned is None else np.histogram(planned.start_ns, edges, weights=planned.wire_bytes)[0]
    one, other = came / came.mean(), due / due.mean()
    return Course(
        source=source,
        dst=dst,
        piece_s=length / count,
        pieces=count,
        off=float(np.sqrt(np.mean((one - other) ** 2))),
        scheduled=float(np.std(other)),
        arrived=float(np.std(one)),
    )


def _planned(schedule: Schedule | None, begin: int, end: int) -> Schedule | None:
    """The flows that were planned in a span; None where there are none."""
    if schedule is None:
        return None
    inside = (schedule.start_ns >= begin) & (schedule.start_ns < end)
    if not inside.any():
        return None
    return Schedule(start_ns=schedule.start_ns[inside], wire_bytes=schedule.wire_bytes[inside])


def _longest_s(planned: Schedule | None, length_s: float) -> float:
    """For how long the largest flow makes the whole load."""
    return 0.0 if planned is None else float(planned.wire_bytes.max() / planned.wire_bytes.sum()) * length_s


def courses(
    topology: Topology,
    window: Window,
    *,
    arrived: Callable[[str, str, int], throughput.Bins | None],
    schedules: Mapping[tuple[str, str], Schedule],
    iteration_s: float,
) -> tuple[Course, ...]:
    """The course of every source at every receiver of a window of which `arrived` says what came there over time.

    `schedules` are by source and receiver's address; `iteration_s` is the mean time of the slowest job.
    """
    found = []
    for source, dst, rail in dict.fromkeys((load.source, load.dst, load.rail) for load in window.loads):
        bins = arrived(source, dst, rail)
        if bins is None:
            continue  # the gate of its load says so
        schedule = schedules.get((source, topology.node(dst).addresses[rail]))
        name = end_name(dst, rail)
        found.append(course(source, name, bins, window.span_ns, iteration_s=iteration_s, schedule=schedule))
    return tuple(found)


def judge_courses(courses: Iterable[Course], limit: float | None) -> Iterator[Gate]:
    """A gate for each source at each receiver."""
    for one in courses:
        name = f"{one.source} to {one.dst}"
        if math.isnan(one.off):
            text = f"{name}: the window is too short to tell whether the load was what was scheduled throughout"
            yield gate("load-course", None, text, measured=one.off, limit=limit, required=False)
            continue
        kept = limit is None or one.off <= limit
        text = f"{name}: in pieces of {one.piece_s:.3g} s the load is off its schedule's course by {one.off:.1%} (rms)"
        text += f"; it varies by {one.arrived:.1%}, the schedule by {one.scheduled:.1%}"
        text += "" if kept else f": more than {limit:.3g} of its mean"
        yield gate("load-course", kept, text, measured=one.off, limit=limit, required=limit is not None)
