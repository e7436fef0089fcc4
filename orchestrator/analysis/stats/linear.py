"""Multiple linear regression by ordinary least squares, categories as indicators against their first level."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import special

from orchestrator.analysis.stats.statistics import TAIL, Estimate

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Coefficient:
    """A coefficient with its 95 % interval and the probability of one as far from 0 where it is 0 (Student's t).

    `level` is the category's level that the indicator is of, empty for a number.
    """

    name: str
    level: str
    estimate: Estimate
    p: float

    @property
    def significant(self) -> bool:
        """Whether the interval leaves 0 out."""
        return self.estimate.low > 0 or self.estimate.high < 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Regression:
    """A fit over `rows` observations; `base` are the levels against which indicators stand."""

    intercept: Coefficient
    coefficients: tuple[Coefficient, ...]
    base: Mapping[str, str]
    r2: float
    rows: int

    def of(self, name: str) -> tuple[Coefficient, ...]:
        """Return the coefficients of a regressor: one of a number, one a level but the first of a category."""
        return tuple(one for one in self.coefficients if one.name == name)


def fit(
    y: npt.ArrayLike,
    numbers: Mapping[str, npt.ArrayLike],
    categories: Mapping[str, Sequence[str]],
    *,
    bases: Mapping[str, str] | None = None,
) -> Regression | None:
    """Fit `y` on numbers and categories by least squares; None where the rows do not determine the coefficients.

    The base of a category is its level in `bases`, else the first one that its sequence has.
    """
    target = np.asarray(y, np.float64)
    names: list[tuple[str, str]] = [("", "")]
    columns: list[Floats] = [np.ones(len(target))]
    for name, values in numbers.items():
        names.append((name, ""))
        columns.append(np.asarray(values, np.float64))
    base = {}
    for name, labels in categories.items():
        first = (bases or {}).get(name)
        levels = list(dict.fromkeys([*(label for label in labels if label == first), *labels]))
        base[name] = levels[0] if levels else ""
        for level in levels[1:]:
            names.append((name, level))
            columns.append(np.array([label == level for label in labels], np.float64))
    design = np.column_stack(columns)
    if len(target) <= design.shape[1] or np.linalg.matrix_rank(design) < design.shape[1]:
        return None
    freedom = len(target) - design.shape[1]
    orthogonal, triangular = np.linalg.qr(design)
    values = np.linalg.solve(triangular, orthogonal.T @ target)
    unexplained = float(np.sum((target - design @ values) ** 2))
    spread = np.linalg.inv(triangular)
    errors = np.sqrt(np.sum(spread**2, axis=1) * unexplained / freedom)
    width = float(special.stdtrit(freedom, 1 - TAIL))
    with np.errstate(divide="ignore", invalid="ignore"):  # a fit without errors
        chances = 2 * special.stdtr(freedom, -np.abs(values) / errors)
    all_of_them = [
        Coefficient(
            name=name,
            level=level,
            estimate=Estimate(float(value), float(value - width * error), float(value + width * error)),
            p=float(p),
        )
        for (name, level), value, error, p in zip(names, values, errors, chances, strict=True)
    ]
    return Regression(
        intercept=all_of_them[0],
        coefficients=tuple(all_of_them[1:]),
        base=base,
        r2=1 - unexplained / varied if (varied := float(np.sum((target - target.mean()) ** 2))) else math.nan,
        rows=len(target),
    )
