"""Intervals of time as (begin, end) in nanoseconds: unions, intersections, and their lengths."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

Interval = tuple[int, int]


def merged(intervals: Iterable[Interval]) -> list[Interval]:
    """Return the union of intervals as disjoint ones in order."""
    found: list[Interval] = []
    for begin, end in sorted(intervals):
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((begin, end))
    return found


def common(some: Sequence[Interval], others: Sequence[Interval]) -> list[Interval]:
    """Return the intersection of two unions of disjoint intervals in order."""
    found = []
    i = k = 0
    while i < len(some) and k < len(others):
        begin, end = max(some[i][0], others[k][0]), min(some[i][1], others[k][1])
        if begin < end:
            found.append((begin, end))
        if some[i][1] < others[k][1]:
            i += 1
        else:
            k += 1
    return found


def length_s(intervals: Iterable[Interval]) -> float:
    """Return the total length of disjoint intervals in seconds."""
    return sum(end - begin for begin, end in intervals) / 1e9


def overlap_s(compute: Iterable[Interval], communication: Iterable[Interval]) -> dict[str, float]:
    """Return the seconds of computing, of communicating, and of both at once: columns of the table `overlaps`."""
    computed, communicated = merged(compute), merged(communication)
    parts = ("compute_s", computed), ("communication_s", communicated), ("overlap_s", common(computed, communicated))
    return {name: length_s(intervals) for name, intervals in parts}
