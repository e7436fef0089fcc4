"""Rates of a training's traffic over time: of everything, of its biggest flow, of pairs of hosts."""

from __future__ import annotations

import itertools
import math
from typing import Any, Literal

import numpy as np

from orchestrator.analysis.traffic import periodicity, traffic
from orchestrator.core.errors import ConfigError
from orchestrator.questions import captured
from orchestrator.questions.captured import Floats, Summary, summaries
from orchestrator.questions.iterations import chosen
from orchestrator.questions.registry import source
from orchestrator.questions.rows import REPETITION, RUN, Measured, Rows, by_run

Of = Literal["total", "biggest", "pairs"]
_PARTS = 50  # of a run over time


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
    of hosts with payload, which `line` names). `mean_gbps` and `peak_gbps` are over all bins, `sending_gbps` over those
    in which it sends, whose share is `duty`. `together` is how alike the rates of the flows are that carry 99 % of the
    payload: the mean correlation of all pairs of them, NaN of one flow. Means over the captured windows of a run.
    `columns`, `defaults` and `where` as of `volumes`.
    """
    rows: Rows = []
    for point, keys in chosen(measured, columns, defaults, where):
        found = [(one, _series(one, of)) for one in summaries(measured, point)]
        for line in dict.fromkeys(line for _, series in found for line in series):
            values = [(one.run, _told(one, series[line])) for one, series in found if line in series]
            rows += by_run(point, values, {**keys, "line": line})
    return rows


def _series(one: Summary, of: Of) -> dict[str, Floats]:
    if of == "total":
        return {"all": one.total}
    if of == "biggest":
        return {"biggest flow": one.each[0]}
    if of != "pairs":
        raise ConfigError(f"rates: of: {of}; accepted: total, biggest, pairs")
    found: dict[str, Floats] = {}
    for (src, dst), series in zip(one.pairs, one.each, strict=True):
        line = f"{src}-{dst}"
        found[line] = found[line] + series if line in found else series
    return found


def _told(one: Summary, series: Floats) -> dict[str, float]:
    sending = periodicity.busy(series)
    return {
        "mean_gbps": float(series.mean()),
        "peak_gbps": float(series.max()),
        "sending_gbps": float(series[sending].mean()) if sending.any() else 0.0,
        "duty": float(sending.mean()),
        "together": together(one.big),
        "payload_bytes": one.volume.step_payload,
    }


def together(big: Floats) -> float:
    """Return the mean correlation of all pairs of rows, -1 to 1; NaN of fewer than two."""
    if len(big) < 2:
        return math.nan
    matrix = np.atleast_2d(np.corrcoef(big))
    return float(np.mean([matrix[a, b] for a, b in itertools.combinations(range(len(big)), 2)]))


@source
def rate_series(
    measured: Measured,
    *,
    of: Of = "pairs",
    seconds: float = 0.25,
    columns: dict[str, str] | None = None,
    defaults: dict[str, Any] | None = None,
    where: dict[str, Any] | None = None,
) -> Rows:
    """Return layer-2 rates over time (`gbps`, at full size) in bins of 10 ms: a row a bin of each run's first window.

    Shown are `seconds` from a third of the window on; `at_s` is since the first of them. `of`, `line` and the columns
    of each row that are of the whole window are those of `rates`; `payload_bytes` is what all hosts send in a step.
    """
    rows: Rows = []
    for point, keys in chosen(measured, columns, defaults, where):
        first = {one.run: one for one in reversed(summaries(measured, point))}
        for one in first.values():
            begin, count = len(one.total) // 3, round(seconds / one.width_s)
            for line, series in _series(one, of).items():
                (row,) = by_run(point, [(one.run, _told(one, series))], {**keys, "line": line})
                shown = series[begin : begin + count]
                rows += [
                    {**row, "at_s": place * one.width_s, "gbps": float(value)} for place, value in enumerate(shown)
                ]
    return rows


@source
def flow_series(
    measured: Measured,
    *,
    columns: dict[str, str] | None = None,
    defaults: dict[str, Any] | None = None,
    where: dict[str, Any] | None = None,
) -> Rows:
    """Return layer-2 rates over time (`gbps`, at full size) of all flows of the first training: a row a bin of a flow.

    Of the first captured run of each point, from its begin to its end in fiftieths. `line` numbers flows, the one with
    most payload first; `at_s` is since the first packet.
    """
    rows: Rows = []
    for point, keys in chosen(measured, columns, defaults, where):
        for one in itertools.islice(captured.windows(point), 1):
            whole, job = one.whole, point.job.name
            mine = np.flatnonzero(traffic.of_job(whole, job) & (whole.packets > 0))
            width_ns = max(1, (whole.end_ns - whole.begin_ns) // _PARTS // whole.width_ns) * whole.width_ns
            for number, flow in enumerate(mine[np.argsort(-whole.payload_bytes[mine], kind="stable")], 1):
                series = traffic.series(whole, np.arange(len(whole)) == flow, width_ns=width_ns)
                fixed = {**keys, RUN: one.window.entry.run, REPETITION: 1, "line": number}
                rows += [
                    {**fixed, "at_s": place * width_ns / 1e9, "gbps": float(value) * 8 * one.run.scale / width_ns}
                    for place, value in enumerate(series)
                ]
    return rows
