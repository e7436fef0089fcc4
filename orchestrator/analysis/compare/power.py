"""Compute how many nights and runs are needed to find a change (statistical power), from their variation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.analysis.compare.regression import DEFAULT, ENOUGH_FREEDOM, POWER, Rule
from orchestrator.analysis.stats.statistics import student_t

MOST_NIGHTS = 60
MOST_RUNS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Spreads:
    """Standard deviations by which runs of a night, and nights, differ, as shares of 1.

    `nights` is the number of nights that say so, 0 where it is assumed.
    """

    run: float
    night: float
    nights: int


ASSUMED = Spreads(run=0.005, night=0.005, nights=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """A baseline of so many nights and each night of so many runs, and the smallest change that they find."""

    nights: int
    runs: int
    detectable: float


def seen(nights: Sequence[Sequence[float]]) -> Spreads | None:
    """Estimate the spreads of one point from the logarithms of its runs' medians, a sequence a night.

    None for a single night. The nights' own spread is what their means differ by beyond what their runs explain.
    """
    means = [math.fsum(logs) / len(logs) for logs in nights]
    freedom = sum(len(logs) - 1 for logs in nights)
    if len(nights) < 2 or not freedom:
        return None
    squares = math.fsum((log - mean) ** 2 for logs, mean in zip(nights, means, strict=True) for log in logs)
    run = squares / freedom
    middle = math.fsum(means) / len(means)
    total = math.fsum((mean - middle) ** 2 for mean in means) / (len(means) - 1)
    share = math.fsum(1 / len(logs) for logs in nights) / len(nights)
    return Spreads(run=math.sqrt(run), night=math.sqrt(max(0.0, total - run * share)), nights=len(nights))


def effort(change: float, spreads: Spreads, *, rule: Rule = DEFAULT) -> Effort | None:
    """Return the fewest runs in all, baseline and night, that find a change (a share of 1) of the median.

    None beyond bounds.

    Reckoned for nights that move all points at once, where other points lend nothing.
    """
    found: list[Effort] = []
    for nights in range(ENOUGH_FREEDOM + 1, MOST_NIGHTS + 1):
        for runs in range(1, MOST_RUNS + 1):
            least = _detectable(nights, runs, spreads, rule)
            if least <= change:
                found.append(Effort(nights=nights, runs=runs, detectable=least))
                break
    return min(found, key=lambda one: (one.nights + 1) * one.runs, default=None)


def _detectable(nights: int, runs: int, spreads: Spreads, rule: Rule) -> float:
    error = math.sqrt((spreads.night**2 + spreads.run**2 / runs) * (1 + 1 / nights))
    limit = student_t(1 - rule.level("p50", "night") / 2, nights - 1) * error
    return math.expm1(max(limit, math.log1p(rule.margin["p50"])) + student_t(POWER, nights - 1) * error)
