"""Compute how many nights and runs are needed to find a change (statistical power), from their variation.

The very rule that judges nights (nights.py) is applied to simulated baselines. How far nights and runs differ is itself
an estimate of few nights: simulated baselines have variances that these nights leave possible (a scaled inverse
chi-square each), so that what is promised is kept on average over what nights may turn out to be.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from orchestrator.analysis.compare import nights as of_nights
from orchestrator.analysis.compare.regression import DEFAULT, POWER, Rule
from orchestrator.analysis.stats.statistics import student_t

Floats = npt.NDArray[np.float64]

MOST_NIGHTS = 60
MOST_RUNS = 20
_NIGHTS = (5, 6, 8, 10, 12, 15, 20, 25, 30, 40, 50, MOST_NIGHTS)  # tried baselines
_RUNS = (1, 2, 3, 4, 6, 8, 12, MOST_RUNS)
_DRAWS = 100
CONFIRMED = 2  # nights in a row that decide


@dataclass(frozen=True, slots=True, kw_only=True)
class Spreads:
    """Standard deviations by which runs of a night, and nights, differ, as shares of 1.

    `nights` is the number of nights that say so, 0 where it is assumed, and `runs` the degrees of freedom of `run`.
    """

    run: float
    night: float
    nights: int
    runs: int = 0


ASSUMED = Spreads(run=0.005, night=0.005, nights=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """A baseline of so many nights and each night of so many runs, and the share of changes that they find."""

    nights: int
    runs: int
    found: float

    @property
    def runs_in_all(self) -> int:
        """Runs of the baseline and of the nights that decide."""
        return (self.nights + CONFIRMED) * self.runs


def seen(nights: Sequence[Sequence[float]]) -> Spreads | None:
    """Estimate the spreads of one point from the logarithms of its runs' means, a sequence a night.

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
    return Spreads(run=math.sqrt(run), night=math.sqrt(max(0.0, total - run * share)), nights=len(nights), runs=freedom)


def effort(change: float, spreads: Spreads, *, points: int = 1, rule: Rule = DEFAULT) -> Effort | None:
    """Return the fewest runs in all that find a change (a share of 1) of the mean at every one of `points`.

    None beyond bounds. It is found in POWER of such cases, by the second of two nights that have it.
    """
    needed = 1 - (1 - POWER) / points
    least: Effort | None = None
    for nights in _NIGHTS:
        fewer = [runs for runs in _RUNS if least is None or (nights + CONFIRMED) * runs < least.runs_in_all]
        share = partial(share_found, change, spreads, nights=nights, points=points, rule=rule, needed=needed)
        if not fewer or share(runs=fewer[-1]) < needed:
            continue
        for runs in fewer:
            found = share(runs=runs)
            if found >= needed:
                least = Effort(nights=nights, runs=runs, found=found)
                break
    return least


def share_found(
    change: float, spreads: Spreads, *, nights: int, runs: int, points: int, rule: Rule, needed: float = 0.0
) -> float:
    """Return in what share of cases a change at one of `points` is found in two nights.

    A share that cannot reach `needed` is not worked out: what it is at most, which is less, is returned.
    """
    from scipy import special

    level, assumed = rule.level("mean", "night"), math.log1p(rule.night_spread)
    _, in_a_row = of_nights.shares(CONFIRMED)
    size, bound = math.log1p(change), math.log1p(rule.margin["mean"])
    uncertain = student_t(0.977, (nights + CONFIRMED) * (runs - 1)) / 2 if runs > 1 else 0.0
    random = np.random.default_rng(1)
    missed = 0.0  # of _DRAWS cases
    for night, run in _possible(spreads, rule):
        error = math.hypot(night, run / math.sqrt(runs))
        drawn = list(random.normal(0, error, nights))
        # Other points differ as far as this one. Rounded, limits are kept from draw to draw.
        moving = round(of_nights.moving([of_nights.moves(drawn, assumed)] * points), 1)
        shown = of_nights.baseline(drawn, assumed, moving, level)
        threshold = max(shown.threshold(level / moving * in_a_row, uncertain * run / math.sqrt(runs), CONFIRMED), bound)
        found = float(special.ndtr((size - shown.level - threshold) / max(error, of_nights.RESOLUTION))) ** CONFIRMED
        missed += 1 - found
        if 1 - missed / _DRAWS < needed:
            break
    return 1 - missed / _DRAWS


def _possible(spreads: Spreads, rule: Rule) -> Iterator[tuple[float, float]]:
    """Yield standard deviations of nights and runs that what was seen leaves possible, evenly by probability.

    Nights differ by no more than is assumed of them, or than was seen.
    """
    from scipy import special

    if not spreads.nights:
        yield from [(spreads.night, spreads.run)] * _DRAWS
        return
    places = (np.arange(_DRAWS) + 0.5) / _DRAWS
    nights, runs = (
        np.sqrt(freedom / special.chdtri(freedom, 1 - places)) for freedom in (spreads.nights - 1, max(1, spreads.runs))
    )
    within = spreads.run / math.sqrt(1 + spreads.runs / spreads.nights)
    total = math.hypot(spreads.night, within)
    most = max(rule.night_spread, spreads.night)
    order = np.random.default_rng(2).permutation(_DRAWS)
    for night, run in zip(nights, runs[order], strict=True):
        own = math.sqrt(max(0.0, (total * night) ** 2 - (within * run) ** 2))
        yield min(own, most), spreads.run * float(run)
