"""Score how well the communication of jobs fits on one link: CASSINI's compatibility.

S. Rajasekaran, M. Ghobadi and A. Akella, "CASSINI: Network-Aware Job Scheduling in Machine Learning Clusters", NSDI
2024, section 3. The demand of a job, bit/s over the time since its iteration began, is put on a circle whose perimeter
is the least common multiple of the periods of all jobs, each as often as its period goes into that, and turned by the
shift of the job. The score is 1 less the mean of what all demands together ask beyond the capacity, as a share of
the capacity: 1 where they never do, and below 0 where several jobs always do.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def demand(begins_ns: Ints, period_s: float, times_ns: Ints, sent_bytes: Floats, *, steps: int) -> Floats:
    """Return the mean rate (bit/s) in each of `steps` equal parts of a period since an iteration began.

    `sent_bytes` is a cumulative counter sampled at `times_ns`; iterations that are not sampled whole are left out. All
    NaN where none is.
    """
    width_ns = period_s * 1e9 / steps
    edges = begins_ns[:, None] + np.arange(steps + 1) * width_ns
    if not len(times_ns) or not len(edges):
        return np.full(steps, np.nan)
    whole = (edges[:, 0] >= times_ns[0]) & (edges[:, -1] <= times_ns[-1])
    if not whole.any():
        return np.full(steps, np.nan)
    sent = np.interp(edges[whole] - times_ns[0], (times_ns - times_ns[0]).astype(np.float64), sent_bytes)
    rates: Floats = np.diff(sent, axis=1).mean(axis=0) * 8 / (width_ns * 1e-9)
    return rates


def score(demands: Sequence[Floats], shifts: Sequence[int], capacity_bps: float) -> float:
    """Return CASSINI's compatibility score of jobs on a link.

    Each demand has the rates of one period in steps of the same length for all jobs; a shift is how many steps later
    its iterations begin. ValueError for no demand, or one without steps.
    """
    if not demands or not all(len(one) for one in demands):
        raise ValueError("no demand")
    around = math.lcm(*(len(one) for one in demands))
    turned = [np.roll(np.tile(one, around // len(one)), by) for one, by in zip(demands, shifts, strict=True)]
    together = np.sum(turned, axis=0)
    return float(1 - np.maximum(together - capacity_bps, 0).mean() / capacity_bps)


def busy_together(some: Sequence[tuple[int, int]], others: Sequence[tuple[int, int]]) -> int:
    """Return how long spans of two groups are under way at once: of each group, those that overlap count once."""
    first, second = _joined(some), _joined(others)
    total = place = 0
    for begin, end in first:
        while place and second[place - 1][1] > begin:
            place -= 1
        while place < len(second) and second[place][0] < end:
            total += max(0, min(end, second[place][1]) - max(begin, second[place][0]))
            place += 1
    return total


def _joined(spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return spans in order, those that overlap as one."""
    joined: list[tuple[int, int]] = []
    for begin, end in sorted(spans):
        if joined and begin <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((begin, end))
    return joined
