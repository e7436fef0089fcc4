"""Hold a load over time against its schedule: in spans of any length, and in bursts.

Spans. Let A be the bytes that arrived and S those that were scheduled, times a factor by which both are the same over
the window (the gate `load` judges the mean). A link that is full excuses that bytes come late: S is served first come,
first served, at the rate that the link leaves it, which gives E. Over each span of length L, A has to be within

    limit L + grace                                 in seconds of the mean load

of E: a rate and a burst, as a token bucket has them (RFC 2697), so that no length of pieces is chosen. What is found is
the smallest limit by which all spans are within.

Bursts. The periods of a window are laid upon one another, in pairs: the bytes of flows by their planned and by their
actual starts, and those that arrived beside E. The distance of two such profiles is the share of bytes that one has
elsewhere than the other (their total variation). What is found is the distance of a profile from the one that is due,
over that of a constant rate: 0 for bursts as they are due, 1 for none, and more for bursts at other times. Where a link
passes on less than half of what was planned of them, nothing is found by what arrived.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from cross_traffic.schedule_files import BurstShape
from orchestrator.analysis.traffic.throughput import Bins
from orchestrator.analysis.windows.generated_flows import Schedule
from orchestrator.validity.window import LoadCourse

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

GRACE_S = 0.1  # of the mean load: what TCP holds back for round trips, losses and the ends of bins
GRACE_FLOWS = 2  # of the largest, which one time-out delays whole
FULL = 0.8  # of what a link carries, above which it has no room to be counted on
FINE_NS = 1_000_000  # of the bins of `cross_packets`
PASSED_ON = 0.5  # of the distance of bursts from a constant rate, below which a link is too slow for them


@dataclass(frozen=True, slots=True)
class End:
    """A link that a load crosses: what it carries (bit/s), and by captures there all that it carried, and the load."""

    carries_bps: float
    total: Bins
    load: Bins


@dataclass(frozen=True, slots=True)
class Bursts:
    """The bursts of a schedule from `zero_ns` on, and what arrived in bins of a millisecond (None: not captured)."""

    shape: BurstShape
    zero_ns: int
    arrived: Bins | None


def course(
    source: str,
    dst: str,
    arrived: Bins,
    span_ns: tuple[int, int],
    *,
    schedule: Schedule | None = None,
    ends: Sequence[End] = (),
    unseen_s: float = 0.0,
    bursts: Bursts | None = None,
) -> LoadCourse:
    """Compare what arrived with the schedule, or with a constant load where there is none.

    `ends` are the receiver's link, then the senders', as far as they were captured; `unseen_s` is for how long a link
    that was not may have been full of something else.
    """
    width = arrived.width_ns
    begin = span_ns[0] // width * width + width  # the first whole bin
    count = max(0, (span_ns[1] - begin) // width)
    start = min(begin, int(schedule.start_ns.min()) // width * width) if schedule and len(schedule.start_ns) else begin
    before = (begin - start) // width
    came = _steps(arrived, start, width, before + count)
    due = _due(schedule, start, width, before + count)
    empty = LoadCourse(source=source, dst=dst, seconds=count * width / 1e9)
    if due[before:].sum() == 0 or not count:
        return empty
    if came[before:].sum() == 0:
        return replace(empty, off=1.0, swing_s=empty.seconds, grace_s=0.0, end_s=empty.seconds, due=1.0, arrived=0.0)
    largest = 0.0 if schedule is None else float(schedule.wire_bytes.max())
    mean = float(due[before:].mean())
    grace_s = GRACE_S + unseen_s + GRACE_FLOWS * largest / mean * width / 1e9
    if empty.seconds < 2 * grace_s:
        return replace(empty, grace_s=grace_s)
    due *= float(came[before:].mean()) / mean
    due = served(due, _room(ends, came, start, width))
    at_s = np.arange(count + 1) * width / 1e9
    ahead_s = np.r_[0.0, np.cumsum((came - due)[before:])] / float(came[before:].mean()) * width / 1e9
    off, first, last = worst_span(ahead_s, at_s, grace_s)
    there = slice(before + first, before + last if last > first else before + count)
    started, bytes_off = _bursts_off(bursts, schedule, ends, span_ns) if bursts and schedule else (math.nan, math.nan)
    return replace(
        empty,
        grace_s=grace_s,
        off=off,
        swing_s=float(np.ptp(ahead_s)),
        begin_s=float(at_s[first]),
        end_s=float(at_s[last]) if last > first else empty.seconds,
        due=float(due[there].mean() / came[before:].mean()),
        arrived=float(came[there].mean() / came[before:].mean()),
        bursts=bursts is not None,
        bursts_started_off=started,
        bursts_arrived_off=bytes_off,
    )


def _steps(bins: Bins, first_ns: int, width_ns: int, count: int) -> Floats:
    """Return the amount in each of `count` steps from `first_ns` on; bins that are wider than a step fill several."""
    wide = max(1, bins.width_ns // width_ns)
    place = (bins.start_ns - first_ns) // width_ns
    total = np.zeros(count)
    for more in range(wide):
        inside = (place + more >= 0) & (place + more < count)
        total += np.bincount(place[inside] + more, bins.amount[inside] / wide, count)[:count]
    return total


def _due(schedule: Schedule | None, first_ns: int, width_ns: int, count: int) -> Floats:
    if schedule is None:
        return np.ones(count)
    return _binned(schedule.start_ns, schedule.wire_bytes, first_ns, width_ns, count)


def _binned(at_ns: Ints, amount: Floats, first_ns: int, width_ns: int, count: int) -> Floats:
    place = (at_ns - first_ns) // width_ns
    inside = (place >= 0) & (place < count)
    return np.bincount(place[inside], amount[inside], count).astype(np.float64)


def _room(ends: Sequence[End], came: Floats, first_ns: int, width_ns: int) -> Floats:
    """Return what the links leave a load in each step: what it took itself where one of them was full."""
    left, full = [], np.zeros(len(came), bool)
    for end in ends:
        most = end.carries_bps * width_ns / 8e9
        total = _steps(end.total, first_ns, width_ns, len(came))
        left.append(np.clip(most - total + _steps(end.load, first_ns, width_ns, len(came)), 0.0, None))
        full |= total >= FULL * most
    if not left:
        return np.full(len(came), math.inf)
    room = np.minimum(left[0], np.sum(left[1:], axis=0)) if len(left) > 1 else left[0]
    return np.where(full, came, room)


def _bursts_off(
    bursts: Bursts, schedule: Schedule, ends: Sequence[End], span_ns: tuple[int, int]
) -> tuple[float, float]:
    """Return how far off the bursts were by the starts of flows, and by what arrived; NaN where that is not known."""
    begin, end = span_ns
    shape = bursts.shape
    planned = _profile(schedule.start_ns, schedule.wire_bytes, shape, bursts.zero_ns, span_ns)
    height = _distance(_constant(shape), planned)
    if not height > 0:
        return math.nan, math.nan
    started = _distance(_profile(schedule.started_ns, schedule.wire_bytes, shape, bursts.zero_ns, span_ns), planned)
    started /= height
    if bursts.arrived is None or shape.period_s * 1e9 < 2 * FINE_NS:
        return started, math.nan
    # What is due is seen through the same bins as what arrived, since they are no part of the period.
    shape = replace(shape, width_s=max(shape.width_s, FINE_NS / 1e9))
    first = begin // FINE_NS * FINE_NS
    count = int(end - first) // FINE_NS
    middle = first + FINE_NS * np.arange(count) + FINE_NS // 2
    came = _steps(bursts.arrived, first, FINE_NS, count)
    due = _binned(schedule.start_ns, schedule.wire_bytes, first, FINE_NS, count)
    due = served(due, _fine_room(ends, first, count))
    found, expected = (_profile(middle, amount, shape, bursts.zero_ns, span_ns) for amount in (came, due))
    left = _distance(_constant(shape), expected)
    return started, _distance(found, expected) / left if left >= PASSED_ON * height else math.nan


def _fine_room(ends: Sequence[End], first_ns: int, count: int) -> Floats:
    """Return what the receiver's link leaves in steps of a millisecond; what else it carries is even within a bin."""
    if not ends:
        return np.full(count, math.inf)
    most = ends[0].carries_bps * FINE_NS / 8e9
    other = _steps(ends[0].total, first_ns, FINE_NS, count) - _steps(ends[0].load, first_ns, FINE_NS, count)
    return np.clip(most - other, (1 - FULL) * most, None)


def _phases_ns(shape: BurstShape) -> Ints:
    """Return the bounds of the phases of two periods, since bursts that come half as often are in one of them."""
    edges = np.array(shape.phases_ns())
    return np.concatenate([edges, edges[1:] + edges[-1]])


def _profile(at_ns: Ints, amount: Floats, shape: BurstShape, zero_ns: int, span_ns: tuple[int, int]) -> Floats:
    """Return the share of the amounts in each phase of two periods; NaN where there is nothing."""
    edges = _phases_ns(shape)
    inside = (at_ns >= span_ns[0]) & (at_ns < span_ns[1])
    found, _ = np.histogram((at_ns[inside] - zero_ns) % edges[-1], edges, weights=amount[inside])
    return np.asarray(found / found.sum() if found.sum() else np.full(len(found), math.nan))


def _constant(shape: BurstShape) -> Floats:
    """Return the profile of a constant rate."""
    edges = _phases_ns(shape)
    return np.asarray(np.diff(edges) / edges[-1])


def _distance(one: Floats, other: Floats) -> float:
    """Return the share of the bytes that one profile has in other phases than the other."""
    return float(np.abs(one - other).sum()) / 2


def served(due: Floats, room: Floats) -> Floats:
    """Return what a queue of unlimited length passes on in each step of what is due, with room for so much."""
    passed, waiting = np.zeros(len(due)), 0.0
    for step, (more, most) in enumerate(zip(due.tolist(), room.tolist(), strict=True)):
        waiting += more
        passed[step] = min(waiting, most)
        waiting -= passed[step]
    return passed


def worst_span(ahead_s: Floats, at_s: Floats, grace_s: float) -> tuple[float, int, int]:
    """Return the largest of (|growth of `ahead_s`| - grace_s) / length over all spans, and where that one lies.

    The maximum of a ratio by Dinkelbach (Management Science 13, 1967): each turn finds the span that exceeds the last
    ratio by most, in one pass, until none does. 0 where none exceeds the grace.
    """
    ratio, place = 0.0, (0, 0)
    while True:
        found: tuple[float, int, int] = (0.0, 0, 0)
        for side in (ahead_s, -ahead_s):
            above = side - ratio * at_s
            lowest = np.minimum.accumulate(above)
            end = int(np.argmax(above - lowest))
            over = float(above[end] - lowest[end]) - grace_s
            if over > found[0]:
                found = (over, int(np.argmin(above[: end + 1])), end)
        over, begin, end = found
        if over <= 1e-9:
            return ratio, *place
        ratio = (abs(float(ahead_s[end] - ahead_s[begin])) - grace_s) / float(at_s[end] - at_s[begin])
        place = (begin, end)
