"""A figure's numbers for a paper: CSV and LaTeX that carry conditions, scale and n."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator
from dataclasses import dataclass

from orchestrator.analysis.stats.statistics import Estimate
from orchestrator.report.figure.windows import Common

_LATEX = str.maketrans({
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
})  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows of texts under heads, how to read them, and what they were measured under.

    `multiplied` says that values or sizes were multiplied back by the scale.
    """

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str
    common: Common
    multiplied: bool


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
    writer.writerow(table.head)
    writer.writerows(table.rows)
    return out.getvalue()


def latex_text(table: Table) -> str:
    """A `tabular` of booktabs, with scale, n and how to read it below, and conditions as comments above."""
    columns = len(table.head)
    below = f"{table.note}. {_scale_text(table)}; n = {len(table.common.runs)} runs."
    lines = [f"% {_one_line(line)}" for line in about(table)]
    lines += [rf"\begin{{tabular}}{{{'l' + 'r' * (columns - 1)}}}", r"\toprule", _row(table.head), r"\midrule"]
    lines += [_row(row) for row in table.rows]
    lines += [
        r"\bottomrule",
        rf"\multicolumn{{{columns}}}{{p{{0.9\linewidth}}}}{{\footnotesize {escaped(below)}}}",
        r"\end{tabular}",
    ]
    return "\n".join(lines) + "\n"


def _row(cells: tuple[str, ...]) -> str:
    return " & ".join(escaped(cell) or "--" for cell in cells) + r" \\"


def escaped(text: str) -> str:
    """Text as LaTeX shows it, whatever a file called its things."""
    return _one_line(text).translate(_LATEX)


def _one_line(text: str) -> str:
    return " ".join(text.split())
