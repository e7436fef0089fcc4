"""What is compared with what: pairs in one block, runs of one session, or nights; and the test that each allows.

Iterations of one run share whatever was particular to it (where processes were placed, a busy neighbour, how switches
hashed its flows), and runs of one night what was particular to the night. So the unit is the largest that tells the
sides apart: the night, where the sides were measured in different ones; the block, where both were measured in turn
within each; else the run. A unit's value is the mean of the logarithms of its runs' quantiles.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from orchestrator.analysis.stats.moderation import Moderated, Spread, Steadied, moderated

Unit = Literal["block", "run", "night"]

ENOUGH_FREEDOM = 4  # five nights in a baseline: from here on what nights differ by is taken from them alone


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """The logarithm of a run's quantile, and where the run stands."""

    run: str
    night: str
    block: str
    log: float


Sides = tuple[Sequence[Value], Sequence[Value]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Error:
    """A standard error with its degrees of freedom, and how many independent tests the points amount to."""

    error: float
    freedom: float
    tests: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Contrast:
    """The logarithm of b over a with its standard error, None where it is not known.

    `assumed` is the error if nights differ by what is assumed of them at most: what a verdict rests on where nights are
    too few to say what they differ by.
    """

    log_ratio: float
    known: Error | None
    assumed: Error | None = None


def unit_of(sides: Sequence[Sides]) -> Unit:
    """The unit that tells the two sides of these points apart."""
    nights, blocks = (
        [{getattr(value, what) for pair in sides for value in pair[side]} for side in (0, 1)]
        for what in ("night", "block")
    )
    if nights[0] != nights[1]:
        return "night"
    return "block" if len(blocks[0] & blocks[1]) >= 2 else "run"


def contrasts(points: Mapping[str, Sides], unit: Unit, *, night_spread: float) -> dict[str, Contrast]:
    """The contrast of every point that both sides have, by this unit.

    `night_spread` is the standard deviation by which nights are assumed to differ at most, as a share of 1.
    """
    whole = {point: pair for point, pair in points.items() if pair[0] and pair[1]}
    if unit == "night":
        return _of_nights(whole, night_spread)
    return _of_blocks(whole) if unit == "block" else _of_runs(whole)


def _of_blocks(points: Mapping[str, Sides]) -> dict[str, Contrast]:
    differences: dict[str, dict[str, float]] = {}
    for point, (a, b) in points.items():
        first, second = _means(a, "block"), _means(b, "block")
        differences[point] = {block: second[block] - first[block] for block in sorted(first.keys() & second.keys())}
    whole = {point: found for point, found in differences.items() if found}
    steadied = moderated({point: _spread(found) for point, found in whole.items()})
    return {
        point: Contrast(log_ratio=_mean(found), known=_error(steadied, point, 1 / len(found)))
        for point, found in whole.items()
    }


def _of_runs(points: Mapping[str, Sides]) -> dict[str, Contrast]:
    sides = {point: (_means(a, "run"), _means(b, "run")) for point, (a, b) in points.items()}
    steadied = moderated({point: _spread(*pair) for point, pair in sides.items()})
    return {
        point: Contrast(log_ratio=_mean(b) - _mean(a), known=_error(steadied, point, 1 / len(a) + 1 / len(b)))
        for point, (a, b) in sides.items()
    }


def _of_nights(points: Mapping[str, Sides], night_spread: float) -> dict[str, Contrast]:
    nights = {point: (_means(a, "night"), _means(b, "night")) for point, (a, b) in points.items()}
    steadied = moderated({point: _spread(*pair) for point, pair in nights.items()})
    within = moderated({point: _within_nights(pair) for point, pair in points.items()})
    found = {}
    for point, (a, b) in nights.items():
        counts = (len(a), len(b))
        shares = (_share_of_runs(points[point][0]), _share_of_runs(points[point][1]))
        of_runs = within.points.get(point)
        known = _known_nights(steadied, point, counts, shares, of_runs)
        assumed = None
        if sum(counts) - 2 < ENOUGH_FREEDOM and of_runs is not None:
            seen = steadied.points.get(point)
            assumed = _assumed_nights(math.log1p(night_spread) ** 2, seen, counts, shares, of_runs, tests=len(nights))
        found[point] = Contrast(log_ratio=_mean(b) - _mean(a), known=known, assumed=assumed)
    return found


def _known_nights(
    steadied: Steadied, point: str, counts: tuple[int, int], shares: tuple[float, float], of_runs: Moderated | None
) -> Error | None:
    """The error by what nights were seen to differ by; a night of fewer runs is less certain than those seen."""
    found = _error(steadied, point, sum(1 / count for count in counts))
    if found is None or of_runs is None:
        return found
    usual = _usual_share(counts, shares)
    beyond = math.fsum(max(0.0, share - usual) / count for share, count in zip(shares, counts, strict=True))
    return replace(found, error=math.sqrt(found.error**2 + of_runs.variance * beyond))


def _assumed_nights(
    assumed: float,
    seen: Moderated | None,
    counts: tuple[int, int],
    shares: tuple[float, float],
    of_runs: Moderated,
    *,
    tests: int,
) -> Error:
    """The error if nights have the variance that is assumed, or the one that was seen where that is larger."""
    if seen is not None and seen.own:
        assumed = max(assumed, seen.variance - of_runs.variance * _usual_share(counts, shares))
    nightly = assumed * sum(1 / count for count in counts)
    runs = of_runs.variance * math.fsum(share / count for share, count in zip(shares, counts, strict=True))
    # Satterthwaite's freedom: what is assumed is known exactly.
    freedom = of_runs.freedom * ((nightly + runs) / runs) ** 2
    return Error(error=math.sqrt(nightly + runs), freedom=freedom, tests=float(tests))


def _usual_share(counts: tuple[int, int], shares: tuple[float, float]) -> float:
    """One over the runs of a night, over the nights that tell what nights differ by."""
    weights = [count - 1 for count in counts]
    return float(np.average(shares, weights=weights)) if sum(weights) else 0.0


def _error(steadied: Steadied, point: str, factor: float) -> Error | None:
    of = steadied.points.get(point)
    if of is None:
        return None
    return Error(error=math.sqrt(of.variance * factor), freedom=of.freedom, tests=steadied.tests)


def _means(values: Sequence[Value], what: Unit) -> dict[str, float]:
    """The mean of each unit's runs; several windows of a run count as one."""
    runs: dict[tuple[str, str], list[float]] = defaultdict(list)
    for value in values:
        runs[getattr(value, what), value.run].append(value.log)
    units: dict[str, list[float]] = defaultdict(list)
    for (unit, _), logs in runs.items():
        units[unit].append(math.fsum(logs) / len(logs))
    return {unit: math.fsum(logs) / len(logs) for unit, logs in units.items()}


def _spread(*groups: Mapping[str, float]) -> Spread:
    """What units differ by within their groups; a unit's name holds over points, a group's number over sides."""
    residuals: dict[str, float] = {}
    for number, group in enumerate(groups):
        middle = _mean(group)
        residuals |= {f"{number} {unit}": value - middle for unit, value in group.items()}
    return Spread(freedom=sum(len(group) - 1 for group in groups), residuals=residuals)


def _within_nights(pair: Sides) -> Spread:
    nights: dict[str, list[Value]] = defaultdict(list)
    for value in (value for side in pair for value in side):
        nights[value.night].append(value)
    return _spread(*(_means(values, "run") for _, values in sorted(nights.items())))


def _share_of_runs(side: Sequence[Value]) -> float:
    """The mean over nights of one over a night's runs."""
    runs: dict[str, set[str]] = defaultdict(set)
    for value in side:
        runs[value.night].add(value.run)
    return math.fsum(1 / len(found) for found in runs.values()) / len(runs)


def _mean(found: Mapping[str, float]) -> float:
    return math.fsum(found.values()) / len(found)
