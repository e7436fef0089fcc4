"""A figure's drawing as SVG and PDF, and its numbers as CSV and LaTeX, beside each other under one name."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from orchestrator.core.errors import StoreError
from orchestrator.report.figure import tables
from orchestrator.report.figure.curves import Figure
from orchestrator.report.figure.flow_times import FEWEST_P99, FlowTimes, SizeBin, SizeCurve
from orchestrator.report.figure.tables import Table
from orchestrator.report.style import beside, errorbars, figure, from_zero, legend, look, save

OVER_RUNS = "Geometric mean over runs with its 95 % interval (Student's t); without a bar: one run"


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
        (*((curve.label,) if found.series else ()), *_value(found, point.text, point.at), str(point.level.runs),
         str(point.iterations), *tables.numbers(point.level.estimate))
        for curve in found.curves
        for point in curve.points
    ]  # fmt: skip
    head = (
        *((found.series,) if found.series else ()),
        found.axis,
        "runs",
        "iterations",
        found.quantity.axis,
        "low",
        "high",
    )
    return Table(title=f"{found.quantity.title} over {found.over}", head=head, rows=tuple(rows), note=OVER_RUNS,
                 common=found.common, multiplied=found.quantity.scales)  # fmt: skip


def _value(found: Figure, text: str, at: float) -> tuple[str]:
    return (f"{at:.6g}" if found.unit else text,)


# Flows


def _flows(found: FlowTimes) -> Any:
    drawing, (panel,) = figure(height_in=2.9)
    for number, curve in enumerate(found.curves):
        for quantile, place in (("median", 2 * number), ("99th percentile", 2 * number + 1)):
            bins = _known(curve, quantile)
            if bins:
                label = ", ".join(filter(None, (_label(found, curve.label), quantile)))
                errorbars(panel, [one.middle_bytes for one in bins], [_level(one, quantile).estimate for one in bins],
                          number=place, label=label)  # fmt: skip
    panel.set(xscale="log", yscale="log", xlabel="size of the flow (bytes)", ylabel=_of_flows(found))
    legend(panel, columns=2)
    return drawing


def _of_flows(found: FlowTimes) -> str:
    return "slowdown" if found.slowdown else "completion time (s)"


def _level(one: SizeBin, quantile: str) -> Any:
    return one.p50 if quantile == "median" else one.p99


def _known(curve: SizeCurve, quantile: str) -> Sequence[SizeBin]:
    return [one for one in curve.bins if not math.isnan(_level(one, quantile).estimate.value)]


def _table_of_flows(found: FlowTimes) -> Table:
    rows = [
        (*((curve.label,) if found.series else ()), f"{one.low_bytes:.4g}", f"{one.high_bytes:.4g}", str(one.p50.runs),
         str(one.flows), *tables.numbers(one.p50.estimate), *tables.numbers(one.p99.estimate))
        for curve in found.curves
        for one in curve.bins
    ]  # fmt: skip
    what = _of_flows(found)
    head = (*((found.series,) if found.series else ()), "bytes from", "bytes below", "runs", "flows", f"{what}, median",
            "low", "high", f"{what}, 99th percentile", "low", "high")  # fmt: skip
    note = (
        f"{OVER_RUNS}, whose interval is within it. "
        f"99th percentiles of runs with at least {FEWEST_P99} flows of a size. Flows that did not end: {found.lost}"
    )
    if found.slowdown:
        note += (
            ". Slowdown: completion time over that of the flow's layer-2 bytes on the slowest link, without propagation"
        )
    return Table(title=f"{what} of cross traffic by flow size", head=head, rows=tuple(rows), note=note,
                 common=found.common, multiplied=True)  # fmt: skip
