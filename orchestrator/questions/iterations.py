"""Iteration times by point and run."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from orchestrator.analysis.compare.points import MeasuredPoint, PointWindow
from orchestrator.analysis.stats.iterations import JobSeries
from orchestrator.core.units import quantity
from orchestrator.questions.registry import source
from orchestrator.questions.rows import Measured, Rows, by_run, meets


def settings(
    point: MeasuredPoint, named: dict[str, str] | None, defaults: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Return what a point was set to, as columns: `named` has a path such as `workload.*.batch` for each.

    A value with a unit ("8gbit", "64%") becomes its number in SI units.
    """
    found = {}
    for column, path in (named or {}).items():
        value = point.value(path, (defaults or {}).get(column))
        known = quantity(value) if isinstance(value, str) else None
        found[column] = known[1] if known else value
    return found


def chosen(
    measured: Measured, columns: dict[str, str] | None, defaults: dict[str, Any] | None, where: dict[str, Any] | None
) -> Iterator[tuple[MeasuredPoint, dict[str, Any]]]:
    """Yield the points with these values (each one or one of several), and the columns that tell them apart."""
    for point in measured.points:
        keys = {
            "workload": point.job.workload,
            "model": point.job.model,
            "ranks": len(point.job.ranks),
            "scale": point.scale,
            **settings(point, columns, defaults),
        }
        if meets(keys, where or {}):
            yield point, keys


@source
def iterations(
    measured: Measured,
    *,
    columns: dict[str, str] | None = None,
    defaults: dict[str, Any] | None = None,
    where: dict[str, Any] | None = None,
) -> Rows:
    """Return iteration times (seconds) of the first training: `seconds` (mean), `p50_s`, `p99_s`, `cv`, `compute_s`.

    `columns` has a setting's path, such as `workload.*.model` or `conditions.*.rate`, for each column that tells points
    apart; `defaults` what stands where nothing was set; `where` keeps the points with these values of the columns, each
    one or a list of several.
    Beside them stand `model`, `workload`, `ranks`, `scale`, and `load_bps` (cross traffic that was achieved, at full
    size; NaN where it was not measured, 0 without any).
    """
    rows: Rows = []
    for point, keys in chosen(measured, columns, defaults, where):
        timed = ((window, window.iterations(point.job.name)) for window in point.windows)
        rows += by_run(point, ((one.entry.run, _values(point, one, of)) for one, of in timed if len(of.seconds)), keys)
    return rows


def _values(point: MeasuredPoint, window: PointWindow, times: JobSeries) -> dict[str, float]:
    seconds = times.seconds
    loads = [load.achieved_bps for load in window.record.loads]
    mean = float(np.mean(seconds))
    return {
        "seconds": mean,
        "p50_s": float(np.median(seconds)),
        "p99_s": float(np.quantile(seconds, 0.99)),
        "cv": float(np.std(seconds) / mean) if mean else math.nan,
        "compute_s": float(np.mean(times.compute_s)),
        "load_bps": math.nan if None in loads else float(sum(load or 0.0 for load in loads)) * point.scale,
    }
