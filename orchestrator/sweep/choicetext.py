"""Text on what a sweep, or an experiment, chose to measure, and why it went on no longer."""

from __future__ import annotations

import math
from typing import TypedDict

from orchestrator.analysis.compare import power
from orchestrator.analysis.stats.statistics import UNKNOWN, Estimate
from orchestrator.core import where
from orchestrator.core.units import duration_text, share_text
from orchestrator.experiment.sweepfile import Definition
from orchestrator.experiment.until import Until
from orchestrator.sweep import sweeptext
from orchestrator.sweep.choosing import Bend, Standing
from orchestrator.sweep.searching import Next


def aim(until: Until) -> str:
    """Return what is to be known: "until the interval of the mean reaches 2 % at most"."""
    if until.effect is not None:
        return f"until an effect on the {until.of} is found, or one of {share_text(until.effect)} excluded"
    return f"until the interval of the {until.of} reaches {share_text(until.interval or 0.0)} at most"


def outlook(definition: Definition, spread: float | None) -> tuple[str, ...]:
    """Return how a sweep chooses, and from what it is expected when it ends; `spread` as of `choosing.expected`."""
    until = definition.until
    if until is None:
        return ()
    head = f"each measured {count_text(until)}, {aim(until)}{budget_text(definition)}"
    if until.effect is not None:
        return (head, "an effect may show at once or never: the runs below are the most that there may be")
    source = (
        f"runs differ by {100 * spread:.2g} % (standard deviation), as earlier ones did"
        if spread is not None
        else f"runs differ by {100 * power.ASSUMED.run:.2g} % (standard deviation), which is assumed"
    )
    return (head, f"the runs below are those that are likely if {source}")


def count_text(until: Until) -> str:
    """Return how many repetitions there may be: "3 to 20 times"."""
    return f"{until.least} to {until.most} times" if until.most > until.least else f"{until.most} times"


def known_text(standing: Standing, until: Until) -> str:
    """Return what is known: "mean 161.2 ms ± 1.7 %", or of a ratio "mean +3.2 % (+1.1 % to +5.4 %)"."""
    estimate = standing.estimate
    if until.effect is None:
        return f"{until.of} {_level(estimate, standing.reach)}"
    if not math.isfinite(estimate.high):
        return "ratio unknown"
    change, low, high = (f"{100 * (value - 1):+.1f} %" for value in (estimate.value, estimate.low, estimate.high))
    return f"{until.of} {change} ({low} to {high})"


def _level(estimate: Estimate, reach: float) -> str:
    if math.isnan(estimate.value):
        return "unknown"
    within = f"± {100 * reach:.2g} %" if math.isfinite(reach) else "without an interval"
    return f"{1e3 * estimate.value:.4g} ms {within}"


def subject(definition: Definition, standing: Standing) -> str:
    """Return the point that something is known of, or both points of a pair."""
    points = {point.point: point for point in definition.points}
    return " and ".join(sweeptext.values_text(points[name].values) for name in standing.points)


def line(definition: Definition, standing: Standing) -> str:
    """Return why a point needs no more: "load=8gbit: mean 161.2 ms ± 1.7 % after 5 repetitions: it is known"."""
    until = definition.until
    if until is None:
        raise AssertionError("nothing stands where nothing is asked for")
    return f"{subject(definition, standing)}: {progress_text(standing, until)}"


def progress_text(standing: Standing, until: Until) -> str:
    """Return what is known and why no more is measured: "mean 161.2 ms ± 1.7 % after 5 repetitions: it is known"."""
    times = "1 repetition" if standing.count == 1 else f"{standing.count} repetitions"
    ended = f": {standing.ended}" if standing.ended else ""
    return f"{known_text(standing, until)} after {times}{ended}"


def searching_for(definition: Definition) -> tuple[str, ...]:
    """Return what a sweep looks for, and how many measurements that takes; empty where it looks for nothing."""
    for axis in definition.file.searched:
        asked = definition.file.axes[axis]
        what = {"knee": "the knee", "first-invalid": "the first number that is not valid"}.get(
            str(asked.find), f"the first number at which the mean is {asked.find} longer"
        )
        return (
            f"looks for {what} along {axis}, within {asked.within:g}{asked.unit}: at most {asked.most} measurements "
            "of each curve",
            "the runs below are the first ones; each further one follows from those before",
        )
    return ()


def bend(definition: Definition, found: Bend) -> str:
    """Return where a curve bends, or what is measured next and why."""
    (axis,) = definition.file.searched
    name = sweeptext.short_names(definition.axes)[axis]
    curve, unit = f"{found.curve}: " if found.curve else "", definition.file.axes[axis].unit
    if isinstance(found.found, Next):
        return f"{curve}next {name}, {found.found.why}, after {len(found.steps)} measurements"
    at = found.found.where
    if math.isnan(at.value):
        return f"{curve}{name} bends nowhere: {found.found.why}"
    return (
        f"{curve}{name} bends at {at.value:.4g}{unit} ({at.low:.4g} to {at.high:.4g}) "
        f"after {len(found.steps)} measurements: {found.found.why}"
    )


def chosen(definition: Definition, found: Bend) -> list[str]:
    """Return a line for each measurement of a curve: its point, and why it was chosen."""
    (axis,) = definition.file.searched
    values = {point.point: point.values[axis] for point in definition.points}
    return [f"  {where.text_of(values[name])}: {why}" for name, why in found.steps]


class BendData(TypedDict):
    """Where a curve bends, in the unit of the axis; None is what is not known. `steps` are points and why each came."""

    curve: str
    value: float | None
    low: float | None
    high: float | None
    why: str
    steps: list[tuple[str, str]]


def bend_data(found: Bend) -> BendData:
    """Return the same for JSON."""
    value, low, high = _known(UNKNOWN if isinstance(found.found, Next) else found.found.where)
    return {
        "curve": found.curve,
        "value": value,
        "low": low,
        "high": high,
        "why": found.found.why,
        "steps": list(found.steps),
    }


class StandingData(TypedDict):
    """What is known of a point or a pair; the level is in seconds, None is what is not known."""

    points: list[str]
    repetitions: int
    value: float | None
    low: float | None
    high: float | None
    ended: str


def data(standing: Standing) -> StandingData:
    """Return the same for JSON."""
    value, low, high = _known(standing.estimate)
    return {
        "points": list(standing.points),
        "repetitions": standing.count,
        "value": value,
        "low": low,
        "high": high,
        "ended": standing.ended,
    }


def _known(estimate: Estimate) -> tuple[float | None, ...]:
    """Return value and interval for JSON, which has neither NaN nor infinity."""
    return tuple(one if math.isfinite(one) else None for one in (estimate.value, estimate.low, estimate.high))


def budget_text(definition: Definition) -> str:
    """Return the time that a sweep may take; empty where it may take any."""
    budget_s = definition.file.budget
    return "" if budget_s is None else f", within {duration_text(budget_s)}"
