"""A figure's drawing as SVG and PDF, and its numbers as CSV and LaTeX, beside each other under one name."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from orchestrator.analysis.stats.statistics import Estimate
from orchestrator.core.errors import StoreError
from orchestrator.report.figure import tables
from orchestrator.report.figure.curves import Figure
from orchestrator.report.figure.flow_times import FEWEST_P99, FlowTimes, SizeBin
from orchestrator.report.figure.tables import HIGH, LOW, Table
from orchestrator.report.style import beside, errorbars, figure, from_zero, legend, look, save

QUANTILES = ("median", "99th percentile")
ROOM = 2.0  # above and below what is drawn, on a logarithmic axis
OVER_RUNS = "Geometric mean over runs with its 95 % interval (Student's t)"


def write(found: Figure | FlowTimes, stem: Path) -> list[Path]:
    """Write STEM.svg, .pdf, .csv and .tex; StoreError where they cannot be written."""
    table = _table_of_flows(found) if isinstance(found, FlowTimes) else _table(found)
    texts = {".csv": tables.csv_text(table), ".tex": tables.latex_text(table)}
    try:
        with look():
            save(_flows(found) if isinstance(found, FlowTimes) else _curves(found), stem)
        for suffix, text in texts.items():
            beside(stem, suffix).write_text(text, encoding="utf-8")
    except OSError as error:
        raise StoreError(f"cannot write {stem}.*: {error.strerror}") from error
    return [beside(stem, suffix) for suffix in (".svg", ".pdf", *texts)]


def _curves(found: Figure) -> Any:
    drawing, (panel,) = figure(height_in=2.9)
    for number, curve in enumerate(found.curves):
        estimates = [point.level.estimate for point in curve.points]
        errorbars(
            panel, [point.at for point in curve.points], estimates, number=number, label=_label(found, curve.label)
        )
    if not found.unit:
        places = {point.at: point.text for curve in found.curves for point in curve.points}
        panel.set_xticks(list(places), list(places.values()))
    panel.set(xlabel=found.axis, ylabel=found.quantity.axis)
    from_zero(panel)
    legend(panel, columns=3)
    return drawing


def _label(found: Figure | FlowTimes, value: str) -> str:
    return f"{found.series.rpartition('.')[2]} {value}" if found.series else ""


def _table(found: Figure) -> Table:
    rows = [
        (
            point.text if not found.unit else f"{point.at:.6g}",
            str(point.level.runs),
            str(point.iterations),
            *tables.numbers(point.level.estimate),
        )
        for curve in found.curves
        for point in curve.points
    ]
    return Table(
        title=f"{found.quantity.title} over {found.over}",
        series=found.series,
        labels=tuple(curve.label for curve in found.curves for _ in curve.points),
        rows=tuple(rows),
        head=(found.axis, "runs", "iterations", found.quantity.axis, LOW, HIGH),
        note=f"{OVER_RUNS}; one run has none",
        common=found.common,
        multiplied=found.quantity.scales,
    )


# Flows


def _flows(found: FlowTimes) -> Any:
    drawing, (panel,) = figure(height_in=2.9)
    drawn: list[float] = []
    lines = [(curve, at) for curve in found.curves for at in QUANTILES]
    for number, (curve, at) in enumerate(lines):
        bins = [(one.middle_bytes, _shown(found, one, at)) for one in curve.bins]
        known = [(size, estimate) for size, estimate in bins if not math.isnan(estimate.value)]
        label = ", ".join(filter(None, (_label(found, curve.label), at)))
        drawn += [estimate.value for _, estimate in known]
        if known:
            errorbars(panel, *zip(*known, strict=True), number=number, label=label)
    panel.set(xscale="log", yscale="log", xlabel="size of the flow (bytes)", ylabel=_of_flows(found))
    if drawn:  # intervals of two runs may reach over many decades: they are cut at the edge
        panel.set_ylim(min(drawn) / ROOM, max(drawn) * ROOM)
    legend(panel, columns=2)
    return drawing


def _of_flows(found: FlowTimes) -> str:
    return "slowdown" if found.slowdown else "completion time (ms)"


def _shown(found: FlowTimes, one: SizeBin, at: str) -> Estimate:
    """A quantile of a bin: a slowdown as it is, seconds in milliseconds."""
    estimate = (one.p50 if at == QUANTILES[0] else one.p99).estimate
    factor = 1.0 if found.slowdown else 1e3
    return Estimate(factor * estimate.value, factor * estimate.low, factor * estimate.high)


def _table_of_flows(found: FlowTimes) -> Table:
    what = _of_flows(found)
    rows = [
        (
            f"{one.low_bytes:.4g}",
            f"{one.high_bytes:.4g}",
            str(one.p50.runs),
            str(one.flows),
            *(number for at in QUANTILES for number in tables.numbers(_shown(found, one, at))),
        )
        for curve in found.curves
        for one in curve.bins
    ]
    note = (
        f"{OVER_RUNS}; of one run the interval is within it. "
        f"99th percentiles of runs with at least {FEWEST_P99} flows of a size. Flows that did not end: {found.lost}"
    )
    if found.slowdown:
        note += (
            ". Slowdown: completion time over that of the flow's layer-2 bytes on the slowest link, without propagation"
        )
    quantiles = (cell for at in QUANTILES for cell in (f"{what}, {at}", LOW, HIGH))
    return Table(
        title=f"{what} of cross traffic by flow size",
        series=found.series,
        labels=tuple(curve.label for curve in found.curves for _ in curve.bins),
        rows=tuple(rows),
        head=("bytes from", "bytes below", "runs", "flows", *quantiles),
        note=note,
        common=found.common,
        multiplied=True,
    )
