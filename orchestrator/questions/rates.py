"""Rates of a training's traffic over time: of everything, of its biggest flow, of pairs of hosts."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np

from orchestrator.analysis.compare.points import MeasuredPoint
from orchestrator.analysis.traffic import periodicity, traffic
from orchestrator.core.errors import ConfigError
from orchestrator.questions import captured
from orchestrator.questions.captured import Floats, Summary, chosen, summaries
from orchestrator.questions.registry import source
from orchestrator.questions.rows import Measured, Rows, by_run

Of = Literal["total", "biggest", "pairs"]


@source
def rates(
    measured: Measured,
    *,
    of: Of = "total",
    columns: dict[str, str] | None = None,
    defaults: dict[str, Any] | None = None,
    where: dict[str, Any] | None = None,
) -> Rows:
    """Return layer-2 rates (Gbit/s at full size, bins of 10 ms) of the first training, by point and run.

    `of` is `total` (all links together), `biggest` (the flow with most payload) or `pairs` (a row for each ordered pair
    of hosts with payload, `src` and `dst`). `mean_gbps` and `peak_gbps` are over all bins, `sending_gbps` over those in
    which it sends, whose share is `duty`. `together` is how alike the rates of the flows that carry 99 % of the payload
    are: the mean correlation of all pairs of them, NaN of one flow. Means over the captured windows of a run.
    """
    rows: Rows = []
    for point, keys in chosen(measured, columns, defaults, where):
        found = [(one, _series(one, of)) for one in summaries(measured, point)]
        for pair in dict.fromkeys(pair for _, series in found for pair in series):
            ends = {} if of != "pairs" else {"src": pair[0], "dst": pair[1]}
            values = [(one.run, _told(one, series[pair])) for one, series in found if pair in series]
            rows += by_run(point, values, {**keys, **ends})
    return rows


def _series(one: Summary, of: Of) -> dict[tuple[str, str], Floats]:
    if of == "total":
        return {("", ""): one.total}
    if of == "biggest":
        return {("", ""): one.each[0]}
    if of != "pairs":
        raise ConfigError(f"rates: of: {of}; accepted: total, biggest, pairs")
    found: dict[tuple[str, str], Floats] = {}
    for pair, series in zip(one.pairs, one.each, strict=True):
        found[pair] = found.get(pair, 0.0) + series
    return found


def _told(one: Summary, series: Floats) -> dict[str, float]:
    sending = periodicity.busy(series)
    return {
        "mean_gbps": float(series.mean()),
        "peak_gbps": float(series.max()),
        "sending_gbps": float(series[sending].mean()) if sending.any() else 0.0,
        "duty": float(sending.mean()),
        "together": together(one.big),
    }


def together(big: Floats) -> float:
    """Return the mean correlation of all pairs of rows, -1 to 1; NaN of fewer than two."""
    if len(big) < 2:
        return math.nan
    matrix = np.corrcoef(big)
    return float(np.mean([matrix[a, b] for a, b in itertools.combinations(range(len(big)), 2)]))


@source
def rate_series(
    measured: Measured,
    *,
    of: Literal["biggest", "pairs", "flows"] = "pairs",
    seconds: float = 0.25,
    columns: dict[str, str] | None = None,
    defaults: dict[str, Any] | None = None,
    where: dict[str, Any] | None = None,
) -> Rows:
    """Return layer-2 rates over time (Gbit/s at full size) of the first captured window of each point: a row a bin.

    `of` is `biggest` (the flow with most payload), `pairs` (ordered pairs of hosts) or `flows` (every flow of the
    training). `line` names whose rate it is, the one with most payload first; `at_s` is since the first bin. Bins of
    10 ms; shown are `seconds` from a third of the window on. Of `flows` they are a fiftieth of the whole run.
    """
    rows: Rows = []
    for point, keys in chosen(measured, columns, defaults, where):
        found = _flows(point) if of == "flows" else _part(summaries(measured, point), of, seconds)
        for line, at_s, series in found:
            rows += [
                {**keys, "repetition": 1, "line": line, "at_s": float(at), "gbps": float(value)}
                for at, value in zip(at_s, series, strict=True)
            ]
    return rows


def _part(found: tuple[Summary, ...], of: Of, seconds: float) -> Iterator[tuple[str, Floats, Floats]]:
    for one in found[:1]:
        begin, count = len(one.total) // 3, round(seconds / one.width_s)
        for (src, dst), series in _series(one, of).items():
            shown = series[begin : begin + count]
            yield f"{src}-{dst}" if src else "biggest flow", np.arange(len(shown)) * one.width_s, shown


def _flows(point: MeasuredPoint) -> Iterator[tuple[str, Floats, Floats]]:
    for one in itertools.islice(captured.windows(point), 1):
        whole = one.whole
        mine = traffic.of_job(whole, point.job.name) & (whole.packets > 0)
        width_ns = max(1, (whole.end_ns - whole.begin_ns) // 50 // whole.width_ns) * whole.width_ns
        order = sorted(np.flatnonzero(mine), key=lambda row: -whole.payload_bytes[row])
        for number, row in enumerate(order, 1):
            series = traffic.series(whole, np.arange(len(whole)) == row, width_ns=width_ns)
            yield f"{number:03d}", np.arange(len(series)) * width_ns / 1e9, series * 8 * one.run.scale / width_ns
