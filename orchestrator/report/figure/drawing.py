"""Write a figure as SVG and PDF, and its numbers as CSV and LaTeX, under one name."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.analysis.stats.statistics import Estimate
from orchestrator.core.errors import StoreError
from orchestrator.report.figure.curves import Figure
from orchestrator.report.figure.flow_times import FEWEST_P99, FlowTimes, SizeBin
from orchestrator.report.figure.windows import SharedSettings
from orchestrator.report.style import beside, errorbars, figure, from_zero, legend, look, save

QUANTILES = ("median", "99th percentile")
ROOM = 2.0  # above and below what is drawn, on a logarithmic axis
OVER_RUNS = "Geometric mean over runs with its 95 % interval (Student's t)"

LOW, HIGH = "low", "high"  # columns of the ends of an interval, in this order
_LATEX = str.maketrans({
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", "*": "{*}", "[": "{[}", "]": "{]}",  # a row may begin with one, and LaTeX looks for both there
})  # fmt: skip


def write(found: Figure | FlowTimes, stem: Path) -> list[Path]:
    """Write STEM.svg, .pdf, .csv and .tex; StoreError where they cannot be written."""
    table = _table_of_flows(found) if isinstance(found, FlowTimes) else _table(found)
    texts = {".csv": csv_text(table), ".tex": latex_text(table)}
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
            *numbers(point.level.estimate),
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
    """Return a quantile of a bin in the unit shown: a slowdown as it is, seconds in milliseconds."""
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
            *(number for at in QUANTILES for number in numbers(_shown(found, one, at))),
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows of texts under heads, how to read them, and the conditions of measuring.

    `series` names what `labels` has a value of for each row, where there are several curves; both may be empty.
    `multiplied` says that values or sizes were multiplied back by the scale.
    """

    title: str
    series: str
    labels: tuple[str, ...]
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str
    common: SharedSettings
    multiplied: bool

    @property
    def whole_head(self) -> tuple[str, ...]:
        """With the column of the series."""
        return (self.series, *self.head) if self.series else self.head

    @property
    def whole_rows(self) -> tuple[tuple[str, ...], ...]:
        """With the label of each."""
        if not self.series:
            return self.rows
        return tuple((label, *row) for label, row in zip(self.labels, self.rows, strict=True))


def numbers(one: Estimate) -> tuple[str, str, str]:
    """Return value, low and high end to five digits; empty for what is not known."""
    value, low, high = ("" if math.isnan(end) else f"{end:.5g}" for end in (one.value, one.low, one.high))
    return value, low, high


def about(table: Table) -> Iterator[str]:
    """Yield the lines above the rows."""
    common = table.common
    yield table.title
    yield f"{table.note}."
    yield _scale_text(table)
    yield f"runs (n = {len(common.runs)}): {', '.join(common.runs)}"
    yield f"orch at commit: {', '.join(common.commits) or 'not known'}"
    for key, value in common.conditions:
        yield f"{key}: {value}"
    for line in common.left_out:
        yield f"not counted: {line}"


def _scale_text(table: Table) -> str:
    scales = ", ".join(f"1:{scale}" for scale in table.common.scales)
    dilations = ", ".join(str(dilation) for dilation in table.common.dilations)
    times = "as measured" if dilations == "1" else f"divided back by the dilation of time ({dilations})"
    if table.common.scales == (1,) and dilations == "1":
        return "scale: full size"
    back = "rates and sizes are multiplied back" if table.multiplied else "rates are multiplied back"
    return f"scale: {scales}; {back}, durations are {times}"


def csv_text(table: Table) -> str:
    """Return the table as CSV, with the conditions as comments (`#`) above the head."""
    out = io.StringIO()
    out.writelines(f"# {_one_line(line)}\n" for line in about(table))
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(table.whole_head)
    writer.writerows(table.whole_rows)
    return out.getvalue()


def latex_text(table: Table) -> str:
    """Return a `tabular` of booktabs, with scale, n and how to read it below, and conditions as comments above.

    It is as wide as its text and at most as wide as a column of the paper: what is wider is scaled down (graphicx).
    """
    head, rows = _with_intervals(table)
    below = f"{table.note}. {_scale_text(table)}; n = {len(table.common.runs)} runs."
    lines = [f"% {_one_line(line)}" for line in about(table)]
    lines += [r"\begin{minipage}{\linewidth}\centering\footnotesize\setlength{\tabcolsep}{4pt}%", r"\sbox0{%"]
    lines += [rf"\begin{{tabular}}{{{'l' + 'r' * (len(head) - 1)}}}", r"\toprule", _head(head), r"\midrule"]
    lines += [_row(row) for row in rows]
    lines += [
        r"\bottomrule",
        r"\end{tabular}}%",
        r"\ifdim\wd0>\linewidth\resizebox{\linewidth}{!}{\usebox0}\else\usebox0\fi",
    ]
    return "\n".join([*lines, rf"\par\smallskip\raggedright {escaped(below)}", r"\end{minipage}", ""])


def _with_intervals(table: Table) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return head and rows with one column for both ends of an interval."""
    lows = [place for place, name in enumerate(table.whole_head) if name == LOW]

    def merged(cells: tuple[str, ...], ends: str) -> tuple[str, ...]:
        intervals = {low: ends or (f"{cells[low]} to {cells[low + 1]}" if cells[low] else "") for low in lows}
        return tuple(intervals.get(place, cell) for place, cell in enumerate(cells) if place - 1 not in intervals)

    return merged(table.whole_head, "95 % interval"), [merged(row, "") for row in table.whole_rows]


def _head(cells: tuple[str, ...]) -> str:
    """Return heads on several lines each, so that columns are no wider than their numbers need."""
    stacked = (r" \\ ".join(escaped(part) for part in re.split(r"(?<=,) | (?=\()", cell)) for cell in cells)
    return " & ".join(rf"\shortstack{{{cell}}}" for cell in stacked) + r" \\"


def _row(cells: tuple[str, ...]) -> str:
    return " & ".join(escaped(cell) or "--" for cell in cells) + r" \\"


def escaped(text: str) -> str:
    """Escape text for LaTeX."""
    return _one_line(text).translate(_LATEX)


def _one_line(text: str) -> str:
    return " ".join(text.split())
