"""Changes of rows that measurements of the right kind must be told apart from, and ratios of rows."""

from __future__ import annotations

import hashlib
import math
from typing import Any

import numpy as np

from orchestrator.analysis.stats import agreement
from orchestrator.core.errors import ConfigError
from orchestrator.questions.registry import step
from orchestrator.questions.rows import REPETITION, RUN, Rows, grouped


def _others(row: dict[str, Any], *without: str) -> tuple[Any, ...]:
    """Return what tells rows apart beside some columns: texts, whole numbers and booleans, not measured numbers."""
    return tuple(
        (name, value)
        for name, value in row.items()
        if name not in (RUN, *without) and not isinstance(value, float | list | dict)
    )


@step
def rotated(rows: Rows, *, column: str, over: str) -> Rows:
    """Return the rows with the values of `column` moved on by one along the sorted values of `over`.

    Each model has the volume of the next one, each load the time of the next: another input of the same distribution.
    Rows that have nothing in `over` stay as they are.
    """

    def nowhere(row: dict[str, Any]) -> bool:
        return row[over] is None or (isinstance(row[over], float) and math.isnan(row[over]))

    changed: Rows = [row for row in rows if nowhere(row)]
    for of_all in grouped((row for row in rows if not nowhere(row)), [REPETITION]).values():
        places = sorted({row[over] for row in of_all}, key=lambda value: (isinstance(value, str), value))
        means = {place: [row[column] for row in of_all if row[over] == place] for place in places}
        following = dict(zip(places, [*places[1:], *places[:1]], strict=True))
        counts: dict[Any, int] = {}
        for row in of_all:
            values = means[following[row[over]]]
            at = counts.setdefault(row[over], 0)
            counts[row[over]] += 1
            changed.append({**row, column: values[at % len(values)]})
    return changed


@step
def noise(rows: Rows, *, column: str, seed: int = 1) -> Rows:
    """Return the rows with values of `column` drawn anew, whatever they are of.

    They lie between half of the least value and twice the largest: noise, also where all values are much alike.
    """
    values = [float(row[column]) for row in rows if row[column] is not None and not math.isnan(row[column])]
    if not values:
        return rows
    low, high = min(values) - abs(min(values)) / 2, max(values) + abs(max(values))
    digest = hashlib.sha256(f"{column} {seed}".encode()).digest()
    drawn = np.random.default_rng(int.from_bytes(digest[:8], "big")).uniform(low, high, len(rows))
    return [{**row, column: float(value)} for row, value in zip(rows, drawn, strict=True)]


@step
def interval(rows: Rows, *, column: str, by: list[str]) -> Rows:
    """Return the rows with `column_low` and `column_high`: the 95 % interval of its mean over repetitions.

    `by` has the columns that tell apart what is repeated. NaN of a single repetition.
    """
    found: Rows = []
    for of in grouped(rows, by).values():
        each = [np.mean([row[column] for row in mine]) for mine in grouped(of, [REPETITION]).values()]
        level = agreement.over_runs(map(float, each))
        found += [{**row, f"{column}_low": level.low, f"{column}_high": level.high} for row in of]
    return found


@step
def ratio(rows: Rows, *, of: str, over: str, to: Any, by: list[str] | None = None, name: str = "ratio") -> Rows:
    """Return each row's value of `of` as a share of that of the row with `over` equal to `to`, in its repetition.

    `by` has the columns that both rows share (default: all that are no measured numbers). Rows without such a partner
    are left out, and so is the partner.
    """

    def place(row: dict[str, Any]) -> tuple[Any, ...]:
        return tuple(row.get(one) for one in (*by, REPETITION)) if by is not None else _others(row, over)

    bases = {place(row): row[of] for row in rows if row.get(over) == to}
    if rows and over not in rows[0]:
        raise ConfigError(f"ratio: {over}: no such column; accepted: {', '.join(rows[0])}")
    return [
        {**row, name: row[of] / base}
        for row in rows
        if row.get(over) != to and (base := bases.get(place(row))) not in (None, 0)
    ]
