"""Judge whether measurements agree with a printed value: their interval against bounds that were stated beforehand.

Agreement is an interval within the bounds (two one-sided tests: Schuirmann, "A comparison of the two one-sided tests
procedure and the power approach for assessing the equivalence of average bioavailability", Journal of Pharmacokinetics
and Biopharmaceutics 15(6), 1987), never a difference that no test finds: noise widens intervals, so that noisy runs say
nothing. Intervals are Student's at 95 % and runs are the unit; of a single run there is none, and nothing can be told.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Literal, TypeVar

import numpy as np

from orchestrator.analysis.stats.statistics import TAIL, UNKNOWN, Estimate, student_t

Outcome = Literal["agrees", "differs", "cannot tell"]

AGREES: Outcome = "agrees"
DIFFERS: Outcome = "differs"
CANNOT_TELL: Outcome = "cannot tell"

T = TypeVar("T")


def outcome(of: Estimate, low: float, high: float) -> Outcome:
    """Judge an interval: within the bounds, wholly beyond one of them, or neither; a bound may be infinite."""
    if low <= of.low and of.high <= high:
        return AGREES
    return DIFFERS if of.low > high or of.high < low else CANNOT_TELL


def each_time(true: Sequence[bool]) -> Outcome:
    """Judge what has to hold in each repetition: of two at least, and two that contradict it."""
    against = len(true) - sum(true)
    if len(true) < 2 or against == 1:
        return CANNOT_TELL
    return DIFFERS if against else AGREES


def over_runs(values: Iterable[float], *, tests: int = 1) -> Estimate:
    """Return the mean of one value a run with its interval; NaN bounds of a single run, all NaN where one is NaN.

    `tests` is how many intervals were looked at to choose this one: each is as wide as Bonferroni asks for.
    """
    of = np.array(list(values), np.float64)
    if not len(of):
        return UNKNOWN
    mean = float(of.mean())
    if len(of) < 2:
        return Estimate(mean, math.nan, math.nan)
    half = student_t(1 - TAIL / tests, len(of) - 1) * float(of.std(ddof=1)) / math.sqrt(len(of))
    return Estimate(mean, mean - half, mean + half)


def difference(some: Sequence[float], others: Sequence[float], *, tests: int = 1) -> Estimate:
    """Return how far the mean of some runs is above that of others, with Welch's interval; NaN of single runs."""
    sides = [np.asarray(side, np.float64) for side in (some, others)]
    if not all(len(side) for side in sides):
        return UNKNOWN
    middle = float(sides[0].mean() - sides[1].mean())
    if any(len(side) < 2 for side in sides):
        return Estimate(middle, math.nan, math.nan)
    squares = [float(side.var(ddof=1)) / len(side) for side in sides]
    total = sum(squares)
    if total == 0:
        return Estimate(middle, middle, middle)
    freedom = total**2 / sum(square**2 / (len(side) - 1) for square, side in zip(squares, sides, strict=True))
    half = student_t(1 - TAIL / tests, freedom) * math.sqrt(total)
    return Estimate(middle, middle - half, middle + half)


def ratio(some: Sequence[float], others: Sequence[float], *, tests: int = 1) -> Estimate:
    """Return the geometric mean of some runs over that of others, by `difference` of logarithms; NaN if one is <= 0."""
    if not all(value > 0 for value in (*some, *others)):
        return UNKNOWN
    of = difference([math.log(value) for value in some], [math.log(value) for value in others], tests=tests)
    return Estimate(*(math.exp(value) for value in (of.value, of.low, of.high)))


def repetitions(points: Iterable[Sequence[T]]) -> list[list[T]]:
    """Return the first run of every point, then the second of every point, as far as all have one.

    What needs all points (a fit, a regression, a claim about all models) is worked out once a repetition.
    """
    return [list(of_all) for of_all in zip(*points, strict=False)]
