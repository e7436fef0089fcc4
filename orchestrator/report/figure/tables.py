"""A figure's numbers for a paper: CSV and LaTeX that carry conditions, scale and n."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

from orchestrator.analysis.stats.statistics import Estimate
from orchestrator.report.figure.windows import Common

LOW, HIGH = "low", "high"  # columns of the ends of an interval, in this order
_LATEX = str.maketrans({
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", "*": "{*}", "[": "{[}", "]": "{]}",  # a row may begin with one, and LaTeX looks for both there
})  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows of texts under heads, how to read them, and what they were measured under.

    `series` names what `labels` has a value of for each row, where there are several curves; both may be empty.
    `multiplied` says that values or sizes were multiplied back by the scale.
    """

    title: str
    series: str
    labels: tuple[str, ...]
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str
    common: Common
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
    """Value, low and high end to five digits; empty for what is not known."""
    value, low, high = ("" if math.isnan(end) else f"{end:.5g}" for end in (one.value, one.low, one.high))
    return value, low, high


def about(table: Table) -> Iterator[str]:
    """What stands above the rows, a line each."""
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
    if table.common.scales == (1,):
        return "scale: full size"
    back = "rates and sizes are multiplied back" if table.multiplied else "rates are multiplied back"
    return f"scale: {scales}; {back}, durations are as measured"


def csv_text(table: Table) -> str:
    """CSV with the conditions as comments (`#`) above the head."""
    out = io.StringIO()
    out.writelines(f"# {_one_line(line)}\n" for line in about(table))
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(table.whole_head)
    writer.writerows(table.whole_rows)
    return out.getvalue()


def latex_text(table: Table) -> str:
    """A `tabular` of booktabs, with scale, n and how to read it below, and conditions as comments above.

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
    """Head and rows with one column for both ends of an interval."""
    lows = [place for place, name in enumerate(table.whole_head) if name == LOW]

    def merged(cells: tuple[str, ...], ends: str) -> tuple[str, ...]:
        intervals = {low: ends or (f"{cells[low]} to {cells[low + 1]}" if cells[low] else "") for low in lows}
        return tuple(intervals.get(place, cell) for place, cell in enumerate(cells) if place - 1 not in intervals)

    return merged(table.whole_head, "95 % interval"), [merged(row, "") for row in table.whole_rows]


def _head(cells: tuple[str, ...]) -> str:
    """Heads on several lines each, so that columns are no wider than their numbers need."""
    stacked = (r" \\ ".join(escaped(part) for part in re.split(r"(?<=,) | (?=\()", cell)) for cell in cells)
    return " & ".join(rf"\shortstack{{{cell}}}" for cell in stacked) + r" \\"


def _row(cells: tuple[str, ...]) -> str:
    return " & ".join(escaped(cell) or "--" for cell in cells) + r" \\"


def escaped(text: str) -> str:
    """Text as LaTeX shows it, whatever a file called its things."""
    return _one_line(text).translate(_LATEX)


def _one_line(text: str) -> str:
    return " ".join(text.split())
