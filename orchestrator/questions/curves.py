"""Curves of iteration time over cross traffic: one training beside one kind of traffic, load by load."""

from __future__ import annotations

import bisect
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from orchestrator.analysis.compare import window_settings
from orchestrator.analysis.compare.points import MeasuredPoint, PointWindow
from orchestrator.analysis.compare.window_settings import Setting
from orchestrator.analysis.traffic import sharedlink
from orchestrator.core.errors import ConfigError
from orchestrator.questions.iterations import settings
from orchestrator.questions.registry import source, step
from orchestrator.questions.rows import REPETITION, RUN, Measured, Row, Rows, by_run, grouped

NO_TRAFFIC = "none"
GBIT, MB = 1e9, 1e6


def loaded_points(measured: Measured) -> list[tuple[MeasuredPoint, Row]]:
    """Return every point of one training with the columns that tell of which curve it is.

    A point without cross traffic is one of every curve that was set alike but for its traffic. `set` is what sets the
    curves of a model and a kind of traffic apart (", horovod", ", time dilated 10 times"), empty where nothing does.
    """
    return measured.once("loaded points", lambda: _loaded_points(measured))


def _loaded_points(measured: Measured) -> list[tuple[MeasuredPoint, Row]]:
    every = [(point, *_curve(point)) for point in measured.points if len(point.manifest.jobs) == 1]
    loaded = [one for one in every if one[1]["traffic"] != NO_TRAFFIC]
    known = {(tuple(columns.items()), setting): None for _, columns, setting in loaded}
    for point, columns, setting in every:
        if columns["traffic"] != NO_TRAFFIC:
            continue
        mine = [
            (point, dict(kind), curve)
            for kind, curve in known
            if curve.without_traffic == setting.without_traffic and {**dict(kind), "traffic": NO_TRAFFIC} == columns
        ]
        loaded += mine or [(point, columns, setting.without_traffic)]
    apart = _apart([(columns, setting) for _, columns, setting in loaded])
    return [(point, {**columns, "set": text}) for (point, columns, _), text in zip(loaded, apart, strict=True)]


def _curve(point: MeasuredPoint) -> tuple[Row, Setting]:
    (window,), job = point.windows[:1], point.job
    mine = window_settings.of_windows(window.entry)[window.record.name]
    columns = {
        "model": str(job.model),
        "traffic": mine.traffic if window.record.loads else NO_TRAFFIC,
        "transport": _transport(window),
        "ranks": len(job.ranks),
        "workload": job.workload,
        "dilation": point.manifest.dilation,
    }
    return columns, mine.setting


def _apart(curves: Sequence[tuple[Row, Setting]]) -> list[str]:
    """Return what sets each curve apart from the others of its model and traffic: columns, then other settings."""
    texts = {"transport": "over {}", "ranks": "{} ranks", "workload": "{}", "dilation": "time dilated {} times"}
    found = []
    for columns, setting in curves:
        alike = [one for one in curves if all(one[0][name] == columns[name] for name in ("model", "traffic"))]
        told = [
            text.format(columns[name])
            for name, text in texts.items()
            if any(one[name] != columns[name] for one, _ in alike) and columns[name] not in ("", 1)
        ]
        settings = list(dict.fromkeys(of for one, of in alike if one == columns))
        differing = window_settings.differences(settings)[settings.index(setting)].split(", ")
        told += [one.rpartition(".")[2] for one in differing if one and not one.endswith(" not set")]
        found.append("".join(f", {one}" for one in told))
    return found


def _transport(window: PointWindow) -> str:
    """Return "tcp", or "rdma" where captures saw less than half of the bytes by theory; "" where neither is known."""
    for row in window.record.training:
        if row.sent_bytes is not None and row.theory_bytes:
            return "tcp" if row.sent_bytes > 0.5 * row.theory_bytes else "rdma"
    return ""


def capacity_bps(point: MeasuredPoint) -> float:
    """Return the rate of the link that cross traffic and training share, or that a condition set (bit/s)."""
    return min(sharedlink.capacity_bps(point.manifest.topology), _curve(point)[1].least_rate_bps)


@source
def curves(
    measured: Measured, *, columns: dict[str, str] | None = None, defaults: dict[str, Any] | None = None
) -> Rows:
    """Return iteration times of one training over the load of cross traffic: a row a point and repetition.

    Columns: `model`, `traffic` (the part's name, "-burst" with bursts, "none"), `transport` (tcp or rdma, as captures
    tell), `ranks`, `workload`, `dilation`, `set` (what sets curves of a model and kind of traffic apart),
    `requested_gbps`, `load_gbps` (as captured, at full size) and `point_gbps` (its mean over repetitions), `seconds`
    (mean), `p50_s`, `p99_s`, `variance_s` (variance over mean), `iterations`, `theory_mb` (what a rank sends an
    iteration by theory), `capacity_gbps` (of the link that both share). A point without cross traffic is in every curve
    that was set alike but for its traffic. `columns` and `defaults` as of `iterations`, for what tells more.
    """
    rows: Rows = []
    for point, told in loaded_points(measured):
        job, scale = point.job, point.scale
        keys = {
            **told,
            **settings(point, columns, defaults),
            "requested_gbps": round(point.windows[0].record.requested_bps * scale / GBIT, 6),
            "theory_mb": job.theory_bytes * scale / MB,
            "capacity_gbps": capacity_bps(point) / GBIT,
            "scale": scale,
        }
        windows = [one for one in point.windows if one.record.achieved_bps is not None]
        mine = by_run(point, [(one.entry.run, _times(one, job.name, scale)) for one in windows], keys)
        rows += [{**row, "point_gbps": sum(one["load_gbps"] for one in mine) / len(mine)} for row in mine]
    return rows


def _times(window: PointWindow, job: str, scale: int) -> Row:
    seconds = window.iterations(job).seconds
    mean = float(np.mean(seconds))
    return {
        "load_gbps": float(window.record.achieved_bps or 0.0) * scale / GBIT,
        "seconds": mean,
        "p50_s": float(np.median(seconds)),
        "p99_s": float(np.quantile(seconds, 0.99, method="inverted_cdf")),
        "variance_s": float(np.var(seconds, ddof=1)) / mean if len(seconds) > 1 else math.nan,
        "iterations": float(len(seconds)),
    }


@source
def curve_iterations(measured: Measured, *, loads_gbps: list[float], near_gbps: float) -> Rows:
    """Return every iteration of the point of a curve that is nearest to each load: `seconds`, and `at_gbps`, that load.

    Columns as of `curves`; a load that no point comes nearer to than `near_gbps` has no rows.
    """
    rows: Rows = []
    for of_curve in _by_curve(measured).values():
        for load in loads_gbps:
            point, columns, reached = min(of_curve, key=lambda one: abs(one[2] - load))
            if abs(reached - load) > near_gbps:
                continue
            for window in point.windows:
                keys = {**columns, "at_gbps": load, RUN: window.entry.run, REPETITION: repetition(point, window)}
                rows += [{**keys, "seconds": float(one)} for one in window.iterations(point.job.name).seconds]
    return rows


def repetition(point: MeasuredPoint, window: PointWindow) -> int:
    """Return the number of a window's run among those of its point, from 1 on."""
    return list(dict.fromkeys(one.entry.run for one in point.windows)).index(window.entry.run) + 1


def _by_curve(measured: Measured) -> dict[Any, list[tuple[MeasuredPoint, Row, float]]]:
    """Return the points of each curve with their columns and mean captured load (Gbit/s)."""
    found: dict[Any, list[tuple[MeasuredPoint, Row, float]]] = defaultdict(list)
    for point, columns in loaded_points(measured):
        loads = [one.record.achieved_bps for one in point.windows if one.record.achieved_bps is not None]
        if loads:
            found[tuple(columns.items())].append((point, columns, float(np.mean(loads)) * point.scale / GBIT))
    return found


def windows_near(
    measured: Measured, *, traffic: Sequence[str], loads_gbps: Sequence[float], near_gbps: float
) -> Iterator[tuple[MeasuredPoint, PointWindow, Row]]:
    """Yield the windows of the point of each curve that is nearest to each load, with its columns and `at_gbps`."""
    for of_curve in _by_curve(measured).values():
        for load in loads_gbps:
            point, columns, reached = min(of_curve, key=lambda one: abs(one[2] - load))
            if columns["traffic"] in traffic and abs(reached - load) <= near_gbps:
                for window in point.windows:
                    yield point, window, {**columns, "at_gbps": load}


@step
def interpolated(
    rows: Rows,
    *,
    of: list[str],
    over: str,
    at: str,
    by: list[str],
    logarithmic: bool = True,
    apart: float = math.inf,
    near: float = 0.0,
) -> Rows:
    """Return the values of columns `of` at a place `at` (a column) between measured points of a curve, by repetition.

    A curve is the rows with the same `by`, and its points lie along the column `over`. Values are interpolated in their
    logarithms (`logarithmic`) in a straight line between the two points next to the place. Beyond the first or the last
    point, and between points that are more than `apart`, a place has the values of a point that is as `near` as this,
    else no row. Columns that are the same on all points of a curve are kept.
    """
    found: Rows = []
    for of_all in grouped(rows, [*by, at, REPETITION]).values():
        points = sorted((row for row in of_all if _usable(row, [over, *of])), key=lambda row: row[over])
        place = of_all[0][at]
        if not points or place is None:
            continue
        x = [row[over] for row in points]
        right = bisect.bisect_left(x, place)
        if not x[0] <= place <= x[-1] or (x[right] > place and x[right] - x[right - 1] > apart):
            nearest = min(points, key=lambda row: abs(row[over] - place))
            if abs(nearest[over] - place) <= near:
                found.append({**same(of_all), over: place, at: place, **{name: nearest[name] for name in of}})
            continue
        values = {name: _between(place, x, [row[name] for row in points], logarithmic) for name in of}
        found.append({**same(of_all), over: place, at: place, **values})
    return found


def same(rows: Rows) -> Row:
    """Return the columns whose value is the same in all rows; a run's id that is not stays the first one's."""
    (first, *others) = rows
    return {
        name: value for name, value in first.items() if name == RUN or all(row.get(name) == value for row in others)
    }


def _usable(row: Row, names: Sequence[str]) -> bool:
    return all(isinstance(row.get(name), int | float) and math.isfinite(row[name]) for name in names)


def _between(place: float, x: Sequence[float], y: Sequence[float], logarithmic: bool) -> float:
    if not logarithmic:
        return float(np.interp(place, x, y))
    if min(y) <= 0:
        raise ConfigError("interpolated: a value that is not positive; accepted: logarithmic: false")
    return float(np.exp(np.interp(place, x, np.log(y))))
