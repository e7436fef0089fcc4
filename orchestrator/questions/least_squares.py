"""Ordinary least squares and correlations over points, worked out once a repetition."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from orchestrator.analysis.stats import linear
from orchestrator.analysis.stats.linear import Regression
from orchestrator.questions.registry import step
from orchestrator.questions.rows import REPETITION, Rows, grouped


@step
def least_squares(
    rows: Rows,
    *,
    y: str,
    numbers: list[str] | None = None,
    categories: dict[str, Any] | None = None,
    by: list[str] | None = None,
) -> Rows:
    """Fit `y` on columns of numbers and on categories (column: its base level) in each repetition: a row a coefficient.

    `regressor` and `level` say what it is of (`intercept` first; a category has one for each level but its base),
    `coefficient` is its value, `low` and `high` its 95 % interval within the repetition, `p` the probability of one as
    far from 0 were it 0 (Student's t). `correlation` is that of `y` with a number, NaN for other regressors. `r2`,
    `points` and `mean_y` are of the fit. Only repetitions that all points have are fitted; none where the points do not
    tell the regressors apart. `by` has columns whose values are fitted apart.
    """
    found: Rows = []
    for keys, of_all in grouped(rows, by or []).items():
        each = grouped(of_all, [REPETITION])
        whole = max(len(of) for of in each.values())
        for (repetition,), of in each.items():
            fit = _fit(of, y, numbers or [], categories or {}) if len(of) == whole else None
            if fit is None:
                continue
            fixed = {
                **dict(zip(by or [], keys, strict=True)),
                REPETITION: repetition,
                "r2": fit.r2,
                "points": fit.rows,
                "mean_y": float(np.mean([row[y] for row in of])),
            }
            found += [
                {
                    **fixed,
                    "regressor": one.name or "intercept",
                    "level": one.level,
                    "coefficient": one.estimate.value,
                    "low": one.estimate.low,
                    "high": one.estimate.high,
                    "p": one.p,
                    "correlation": _correlated(of, one.name, y) if one.name in (numbers or []) else math.nan,
                }
                for one in (fit.intercept, *fit.coefficients)
            ]
    return found


def _fit(rows: Rows, y: str, numbers: list[str], categories: dict[str, Any]) -> Regression | None:
    return linear.fit(
        [row[y] for row in rows],
        {name: [row[name] for row in rows] for name in numbers},
        {name: [str(row[name]) for row in rows] for name in categories},
        bases={name: str(base) for name, base in categories.items()},
    )


@step
def correlation(rows: Rows, *, x: str, y: str, by: list[str] | None = None) -> Rows:
    """Return Pearson's correlation of two columns over the points of each repetition, as `correlation`.

    NaN where a column does not vary; `points` is their number. `by` has columns whose values are correlated apart.
    """
    found: Rows = []
    for keys, of in grouped(rows, [*(by or []), REPETITION]).items():
        fixed = dict(zip([*(by or []), REPETITION], keys, strict=True))
        found.append({**fixed, "correlation": _correlated(of, x, y), "points": len(of)})
    return found


def _correlated(rows: Rows, x: str, y: str) -> float:
    one, other = (np.array([row[name] for row in rows], np.float64) for name in (x, y))
    if len(rows) < 2 or np.ptp(one) == 0 or np.ptp(other) == 0:
        return math.nan
    return float(np.corrcoef(one, other)[0, 1])
