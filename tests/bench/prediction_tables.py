"""Tables of predictions: every setting with its prediction, what was measured, the difference by term, and the counts.

Counts are made from the rows of the other two tables, so that those of a recorded file can be made again.
"""

from __future__ import annotations

import math
import re
import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from orchestrator.parts.terms import NAMES
from orchestrator.predict.predicttext import PredictedSetting
from orchestrator.predict.recorded_errors import WITHIN, Margin, margin
from tests.bench.figure import Table

SETTINGS = ("setting", "predicted (ms)", "by its inputs (ms)", "measured (ms)", "error", "not hidden")
TERMS = "By term: ms of rank 0, predicted / measured (bold: more than 20 % of the term apart)"
RESOLVED_MS = 4  # terms that are shorter on both sides are not judged: the tables have whole ms

Row = Sequence[str]


def settings_table(found: Sequence[PredictedSetting]) -> Table:
    """Return a line for each setting that was measured; `not hidden` is communication while no rank computed."""
    rows = [
        (
            f"`{one.label}`",
            _ms(one.prediction.iteration_s),
            " to ".join(map(_ms, one.prediction.by_inputs_s)),
            _ms(one.measured.iteration_s),
            f"{one.error:+.1%}",
            f"{one.measured.terms.exposed_s / one.measured.iteration_s:.0%}",
        )
        for one in found
        if one.measured is not None
    ]
    return Table(title="Every setting", columns=SETTINGS, rows=tuple(rows))


def terms_table(found: Sequence[PredictedSetting]) -> Table:
    """Return a line for each setting."""
    names = [name.removesuffix("_s") for name in NAMES]
    rows = []
    for one in found:
        if one.measured is not None:
            theirs, own = one.measured.terms.parts(), one.prediction.terms.parts()
            rows.append((f"`{one.label}`", *(_cell(own[name], theirs[name]) for name in names)))
    return Table(title=TERMS, columns=("setting", *names), rows=tuple(rows))


def counts_table(settings: Sequence[Row], columns: Sequence[str], terms: Sequence[Row]) -> Table:
    """Return how often intervals held and terms were met, from the rows of both tables."""
    errors = {row[0]: float(row[4].rstrip("%")) / 100 for row in settings}
    worst = max(errors, key=lambda setting: abs(errors[setting]))
    count, mean = len(settings), statistics.fmean(map(abs, errors.values()))
    narrow = sum(low <= measured <= high for low, high, measured in _measured(settings).values())
    rows: list[tuple[str, str, str]] = [
        (f"{count} settings, mean error of the iteration", f"{mean:.1%}", "10 %"),
        ("the largest", f"{abs(errors[worst]):.1%}: {worst}", ""),
        ("intervals by inputs alone that hold", _of(narrow, count), ""),
        ("intervals as printed, with the setting itself left out, that hold", _of(held_out(settings), count), "92 %"),
        ("the same, with all settings at its link rate left out", _of(held_out(settings, by=_rate), count), ""),
    ]
    for name, (met, of) in terms_met(columns, terms).items():
        rows.append((f"term {name} within {WITHIN:.0%} of itself", _of(met, of), "all"))
    return Table(title="", columns=("what", "measured", "goal"), rows=tuple(rows))


def margins_of(settings: Sequence[Row]) -> dict[str, Margin]:
    """Return the margin of each workload that takes all of its settings in."""
    by_workload: dict[str, list[tuple[float, float, float]]] = defaultdict(list)
    for label, found in _measured(settings).items():
        by_workload[_workload(label)].append(found)
    return {workload: margin(found) for workload, found in by_workload.items()}


def held_out(settings: Sequence[Row], *, by: Callable[[str], str] | None = None) -> int:
    """Return how many settings lie in the interval that others make: those of its workload, and not alike in `by`."""
    found = _measured(settings)
    count = 0
    for label, (low, high, measured) in found.items():
        others = [
            one
            for other, one in found.items()
            if other != label and _workload(other) == _workload(label) and (by is None or by(other) != by(label))
        ]
        made = margin(others)
        count += low * math.exp(-made.below) <= measured <= high * math.exp(made.above)
    return count


def terms_met(columns: Sequence[str], terms: Sequence[Row]) -> Mapping[str, tuple[int, int]]:
    """Return for each term how many settings met it, of how many where it is long enough to be judged."""
    found: dict[str, tuple[int, int]] = {}
    for place, name in enumerate(columns[1:], 1):
        cells = [pair for row in terms if (pair := _pair(row[place])) is not None and max(pair) >= RESOLVED_MS]
        if cells:
            found[name] = (sum(_is_met(*pair) for pair in cells), len(cells))
    return found


def _measured(settings: Sequence[Row]) -> dict[str, tuple[float, float, float]]:
    """Return low and high end by the inputs and the measured iteration of each setting, in ms."""
    found = {}
    for row in settings:
        low, high = row[2].split(" to ")
        found[row[0].strip("`")] = float(low), float(high), float(row[3])
    return found


def _workload(label: str) -> str:
    return label.partition("-")[0]


def _rate(label: str) -> str:
    found = re.search(r"\d+gbit", label)
    return found[0] if found else "25gbit"


def _pair(cell: str) -> tuple[float, float] | None:
    parts = cell.strip("*").split(" / ")
    return (float(parts[0]), float(parts[1])) if len(parts) == 2 else None


def _is_met(predicted: float, measured: float) -> bool:
    return abs(predicted - measured) <= WITHIN * measured


def _cell(predicted_s: float, measured_s: float) -> str:
    if not predicted_s and not measured_s:
        return ""
    return marked(f"{_ms(predicted_s)} / {_ms(measured_s)}")


def marked(cell: str) -> str:
    """Return a cell in bold where its term is judged and missed."""
    told, pair = cell.strip("*"), _pair(cell)
    return f"**{told}**" if pair is not None and max(pair) >= RESOLVED_MS and not _is_met(*pair) else told


def _of(count: int, of: int) -> str:
    return f"{count} of {of}"


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.0f}"
