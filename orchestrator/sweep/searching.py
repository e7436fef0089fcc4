"""Search for where a curve bends: which place to measure next, from what was measured at others; pure.

A search goes over the places of one axis in order. It measures the lowest one, brackets by bisection the first place
that is slower by a given share (or not valid), and measures around it. Its answer comes with an interval, by the delta
method from how far measurements at one place, and those of the flat region from their line, differ. While that is wider
than asked, the place whose repetition narrows it most is measured again.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from orchestrator.analysis.stats import onset
from orchestrator.analysis.stats.onset import FEWEST_FLAT, FLAT_WITHIN, RULE, Floats
from orchestrator.analysis.stats.statistics import TAIL, Estimate, student_t

_NUDGE = 1e-4  # of a logarithm, to see how much an answer depends on it


@dataclass(frozen=True, slots=True)
class Sample:
    """What was measured at a place: the logarithms of times (seconds) of the valid ones of `tried` measurements."""

    logs: tuple[float, ...] = ()
    tried: int = 0

    def with_measured(self, logs: Sequence[float]) -> Sample:
        """Return the sample after another measurement, which gave this logarithm, or none."""
        return Sample((*self.logs, *logs), self.tried + 1)

    @property
    def mean(self) -> float:
        return sum(self.logs) / len(self.logs)


@dataclass(frozen=True, slots=True)
class Next:
    """The place that is measured next, and why."""

    place: int
    why: str


@dataclass(frozen=True, slots=True)
class Answer:
    """Where a curve bends, in the unit of the axis, with its 95 % interval; NaN where nowhere, and `why`."""

    where: Estimate
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """What is looked for over `places`, numbers in rising order.

    `slower` is the share of the time at the lowest place by which a place is slower; of a knee it is that of the
    congestion point's rule, and of the first place that is not valid it is infinite. An interval reaches `within` of
    the answer at most, `most` are measured at most. `start` is the place at which the bend is predicted.
    """

    places: tuple[float, ...]
    knee: bool
    slower: float
    within: float
    most: int
    start: int | None = None


def step(search: Search, samples: Mapping[int, Sample]) -> Next | Answer:
    """Return what a search measures next, or its answer, from the samples by place."""
    count = sum(one.tried for one in samples.values())
    if 0 not in samples:
        return Next(0, "the lowest")
    beyond = sorted(place for place, one in samples.items() if _is_beyond(search, one, samples[0]))
    high = beyond[0] if beyond else len(search.places)
    low = max((place for place in samples if place < high), default=-1)
    if low < 0:
        return _nowhere("the lowest place is not valid")
    if high - low > 1:
        gap = f"between {_number(search, low)} and {_number(search, high)}"
        if count >= search.most:
            return _nowhere(f"{count} measurements are the most, and the bend lies {gap}")
        return Next(_between(search, low, high), gap if beyond else _onwards(search, low))
    return _beside(search, samples, low, high, count)


def _beside(search: Search, samples: Mapping[int, Sample], low: int, high: int, count: int) -> Next | Answer:
    """Go on once two neighbours are known of which one is beyond the bend."""
    if high == len(search.places):
        return _nowhere("no place is slower, or not valid" if math.isinf(search.slower) else "no place is slower")
    if math.isinf(search.slower):
        at, before = search.places[high], search.places[low]
        return Answer(Estimate(at, before, at), "the places below and above are neighbours")
    if not samples[high].logs:
        return _nowhere(f"{_number(search, high)} is not valid: its time is not known")
    if search.knee:
        return _knee(search, samples, high, count)
    return _crossing(search, samples, (0, low, high), count)


def _is_beyond(search: Search, one: Sample, lowest: Sample) -> bool:
    return not one.logs or not lowest.logs or one.mean - lowest.mean > math.log1p(search.slower)


def _between(search: Search, low: int, high: int) -> int:
    """Return a place between two: the middle, or further and further away from where the bend is predicted."""
    start, end = search.start, len(search.places)
    if start is None or not 0 < start < end:
        return (low + high) // 2
    if low < start < high:
        return start
    if high == end:
        return min(low + 2 * max(1, low - start), end - 1)
    if low == 0:
        return max(high - 2 * max(1, start - high), 1)
    return (low + high) // 2


def _onwards(search: Search, low: int) -> str:
    return "where the bend is predicted" if search.start is not None and low < search.start else "none is slower so far"


def _knee(search: Search, samples: Mapping[int, Sample], high: int, count: int) -> Next | Answer:
    """Go on once the first slower place is known: its followers, the flat region, then what is known least."""
    followers = range(high, high + RULE.tangent_points)
    if followers[-1] >= len(search.places):
        return _nowhere(f"fewer than {RULE.tangent_points} places are slower")
    lacking = next((place for place in followers if place not in samples or not samples[place].logs), None)
    if lacking is not None and lacking not in samples:
        return Next(lacking, "the tangent's points")
    if lacking is not None:
        return _nowhere(f"{_number(search, lacking)} is not valid: its time is not known")
    places = [place for place in sorted(samples) if samples[place].logs]
    every = np.array(search.places[: places[-1] + 1])
    numbers = every[places]
    logs = np.array([samples[place].mean for place in places])

    from scipy.interpolate import PchipInterpolator

    def filled(logs: Floats) -> Floats:
        """Return times at every place, those between measured ones on monotone cubics of their logarithms."""
        times: Floats = np.exp(PchipInterpolator(numbers, logs)(every))
        return times

    seconds = filled(logs)
    in_flat = [place for place in places if place < high and seconds[place] <= (1 + FLAT_WITHIN) * seconds[0]]
    if len(in_flat) < FEWEST_FLAT:
        gaps = [(b - a, a) for a, b in itertools.pairwise(places[: len(in_flat) + 1]) if b - a > 1]
        if gaps:
            width, begin = max(gaps)
            return Next(begin + width // 2, f"the flat region has {len(in_flat)} places, and needs {FEWEST_FLAT}")
    found = onset.onset(every, seconds, search.places[-1])
    if isinstance(found, str):
        return _nowhere(found.removeprefix("none: "))
    flat = onset.flat_points(every, seconds, search.places[-1])
    steep = onset.steep_points(seconds, flat)
    in_flat = [place for place in places if place < flat]
    off = logs[: len(in_flat)] - np.log(found.flat[0] + found.flat[1] * every[in_flat])

    def crossing(logs: Floats) -> float:
        return onset.crossing_of(*onset.fitted(every, filled(logs), flat, steep))

    beside = (float(off @ off), max(0, len(in_flat) - 2))
    return _narrowed(search, samples, places, crossing, count, beside=beside)


def _crossing(search: Search, samples: Mapping[int, Sample], used: Sequence[int], count: int) -> Next | Answer:
    """Go on once two neighbours are known of which one is slower: the crossing of the line between them."""
    places = list(dict.fromkeys(used))
    low, high = search.places[used[1]], search.places[used[2]]

    def crossing(logs: Floats) -> float:
        bound, below, above = float(logs[0]) + math.log1p(search.slower), float(logs[-2]), float(logs[-1])
        return low + (high - low) * (bound - below) / (above - below)

    return _narrowed(search, samples, places, crossing, count, beside=(0.0, 0))


def _narrowed(
    search: Search,
    samples: Mapping[int, Sample],
    places: Sequence[int],
    crossing: Callable[[Floats], float],
    count: int,
    *,
    beside: tuple[float, int],
) -> Next | Answer:
    """Return the crossing if its interval is narrow enough, else the place whose repetition narrows it most.

    `beside` are squares of logarithms, and their degrees of freedom, that tell how far measurements differ, beside
    those of repetitions.
    """
    logs = np.array([samples[place].mean for place in places])
    counts = np.array([len(samples[place].logs) for place in places])
    repeated = [(np.var(one.logs) * len(one.logs), len(one.logs) - 1) for one in samples.values() if len(one.logs) > 1]
    squares = beside[0] + sum(square for square, _ in repeated)
    freedom = beside[1] + sum(free for _, free in repeated)
    at = crossing(logs)
    slopes = np.array([(crossing(logs + _NUDGE * unit) - at) / _NUDGE for unit in np.eye(len(logs))])
    half = math.inf
    if freedom:
        error = math.sqrt(squares / freedom * float(np.sum(slopes**2 / counts)))
        half = student_t(1 - TAIL, freedom) * error
    where = Estimate(at, at - half, at + half)
    if half <= search.within:
        return Answer(where, f"known within {search.within:g}")
    if count >= search.most:
        return Answer(where, "no more measurements are allowed")
    gains = slopes**2 / counts - slopes**2 / (counts + 1)
    known = f"± {half:.2g}" if freedom else "without an interval"
    return Next(places[int(np.argmax(gains))], f"the bend is at {at:.4g} {known}; this narrows it most")


def _number(search: Search, place: int) -> str:
    return f"{search.places[place]:g}" if place < len(search.places) else "the end"


def _nowhere(why: str) -> Answer:
    return Answer(Estimate(math.nan, math.nan, math.nan), why)
