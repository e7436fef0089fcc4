"""Summarise runs that repeat each other: the level of each point over its runs, as a table and a curve over load.

What an interval within a run cannot say, where another run would have come out, these say: the run is the unit.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from orchestrator.analysis.compare import window_settings
from orchestrator.analysis.compare.window_settings import Setting
from orchestrator.analysis.stats.levels import Level, level, one_a_run
from orchestrator.analysis.stats.statistics import Estimate
from orchestrator.core.errors import StoreError
from orchestrator.report.runs import Run
from orchestrator.report.style import errorbars, figure, from_zero, legend
from orchestrator.report.tables import rate
from orchestrator.store.manifests.records import Manifest, Window
from orchestrator.store.rundir import Entry


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPoint:
    """The measurements under one load (bit/s at full size, as requested): the median iteration time over runs.

    `achieved_bps` is the mean of what arrived, the requested load where that was not captured.
    """

    requested_bps: float
    achieved_bps: float
    level: Level


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadCurve:
    """A job that was set alike at every point but for the load; `label` says what sets it apart from other curves."""

    label: str
    points: tuple[LoadPoint, ...]


@dataclass(frozen=True, slots=True)
class _Key:
    """The settings that the points of a curve share."""

    job: str
    setting: Setting


@dataclass(frozen=True, slots=True, kw_only=True)
class _WindowMedian:
    """A job's median in a window of a run (seconds, with its interval within the run), and the loads beside it."""

    run: str
    requested_bps: float
    achieved_bps: float
    p50: Estimate


def curves(runs: Sequence[Run]) -> tuple[LoadCurve, ...]:
    """Return the curves of these runs' valid windows; none of runs whose experiment cannot be read."""
    seen: dict[_Key, list[_WindowMedian]] = defaultdict(list)
    for run in runs:
        for key, one in _window_medians(run):
            seen[key].append(one)
    for key in [key for key in seen if not key.setting.traffic]:
        loaded = [other for other in seen if _without_traffic(other) == key and other != key]
        for other in loaded:
            seen[other] += seen[key]
        if loaded:  # it is the point at zero load of those
            del seen[key]
    names = _labels(list(seen))
    return tuple(LoadCurve(label=names[key], points=_points(found)) for key, found in seen.items())


def _without_traffic(key: _Key) -> _Key:
    return replace(key, setting=key.setting.without_traffic)


def _window_medians(run: Run) -> Iterator[tuple[_Key, _WindowMedian]]:
    try:
        settings = window_settings.of_windows(Entry(run.path, run.manifest))
    except StoreError:
        return
    for window in run.windows:
        point = run.manifest.points.get(window.name)
        if not window.valid or window.name not in settings or (point is not None and point.recheck):
            continue
        for row in window.training:
            if row.p50_s is not None:
                low, high = (math.nan if end is None else end for end in (row.p50_low_s, row.p50_high_s))
                requested, achieved = _loads(run.manifest, window)
                yield (
                    _Key(row.job, settings[window.name].setting),
                    _WindowMedian(
                        run=run.id, requested_bps=requested, achieved_bps=achieved, p50=Estimate(row.p50_s, low, high)
                    ),
                )


def _loads(manifest: Manifest, window: Window) -> tuple[float, float]:
    requested, achieved = window.requested_bps, window.achieved_bps
    known = requested if achieved is None or math.isnan(achieved) else achieved
    return requested * manifest.scale, known * manifest.scale


def _points(found: Sequence[_WindowMedian]) -> tuple[LoadPoint, ...]:
    at: dict[float, list[_WindowMedian]] = defaultdict(list)
    for one in found:
        at[one.requested_bps].append(one)
    return tuple(
        LoadPoint(
            requested_bps=load,
            achieved_bps=float(np.mean([one.achieved_bps for one in at[load]])),
            level=level(one_a_run((one.run, one.p50) for one in at[load])),
        )
        for load in sorted(at)
    )


def _labels(keys: Sequence[_Key]) -> dict[_Key, str]:
    texts = window_settings.differences([key.setting for key in keys])
    several = len({key.job for key in keys}) > 1
    return {
        key: ", ".join(filter(None, (key.job if several or not text else "", text)))
        for key, text in zip(keys, texts, strict=True)
    }


def rows(found: Sequence[LoadCurve]) -> list[tuple[str, ...]]:
    """Return a row a point that several runs measured: what, load, runs, median, interval, between and within runs."""
    return [
        (
            curve.label,
            rate(point.requested_bps) if point.requested_bps else "none",
            str(point.level.runs),
            f"{1e3 * point.level.estimate.value:.4g}",
            f"{1e3 * point.level.estimate.low:.4g} to {1e3 * point.level.estimate.high:.4g}",
            f"{point.level.between:.2%}",
            "unknown" if math.isnan(point.level.within) else f"{point.level.within:.0%}",
        )
        for curve in found
        for point in curve.points
        if point.level.runs > 1
    ]


def drawn(found: Sequence[LoadCurve]) -> tuple[Any, str] | None:
    """Draw iteration time over load with intervals over runs.

    None unless a curve has two loads and a point two runs.
    """
    shown = [curve for curve in found if len(curve.points) > 1]
    if not any(point.level.runs > 1 for curve in shown for point in curve.points):
        return None
    drawing, (panel,) = figure(height_in=2.9)
    for number, curve in enumerate(shown):
        errorbars(
            panel,
            [point.achieved_bps / 1e9 for point in curve.points],
            [point.level.estimate for point in curve.points],
            number=number,
            label=curve.label,
        )
    panel.set(xlabel="cross traffic as received (Gbit/s)", ylabel="median iteration time (s)")
    from_zero(panel)
    legend(panel, columns=2)
    caption = "Geometric mean of the runs' medians, with its 95 % interval over runs (Student's t)."
    if any(point.level.runs == 1 for curve in shown for point in curve.points):
        caption += " Points without bars were measured in one run, which does not say where another would lie."
    return drawing, caption
