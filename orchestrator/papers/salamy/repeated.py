"""Repetitions of a curve: what is judged of it is worked out of each by itself, so that runs are the unit."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from orchestrator.analysis.compare.curves import CurvePoint, Series
from orchestrator.analysis.stats import agreement
from orchestrator.analysis.stats.statistics import UNKNOWN, Estimate

Floats = npt.NDArray[np.float64]


def repetitions(points: Sequence[CurvePoint]) -> list[Floats]:
    """Return the times (s) of these points once a repetition: of each run that has all of them.

    Where no run has, points are runs of their own: the first run of each point, then the second of each.
    """
    shared = [run for run in (points[0].runs if points else ()) if all(run in point.runs for point in points)]
    if shared:
        return [np.array([point.runs[run] for point in points]) for run in shared]
    return [np.array(times) for times in agreement.repetitions(list(point.runs.values()) for point in points)]


def times_at(series: Series, load_bps: float) -> list[float]:
    """Return the time at a load (s) by repetition, ln t interpolated between the two measured points next to it."""
    loads = series.curve.load_bps
    if not len(loads) or not loads[0] <= load_bps <= loads[-1]:
        return []
    above = min(max(1, int(np.searchsorted(loads, load_bps))), len(loads) - 1)
    places = [above - 1, above] if len(loads) > 1 else [0]
    found = repetitions([series.points[place] for place in places])
    return [float(np.exp(np.interp(load_bps, loads[places], np.log(times)))) for times in found]


def time_at(series: Series, load_bps: float) -> Estimate:
    """Return the time at a load (s) with its interval over repetitions; NaN outside of the measured points."""
    value = series.seconds_at(load_bps)
    if math.isnan(value):
        return UNKNOWN
    over = agreement.over_runs(math.log(seconds) for seconds in times_at(series, load_bps))
    return Estimate(value, math.exp(over.low), math.exp(over.high))
