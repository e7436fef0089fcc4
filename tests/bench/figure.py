"""What a benchmark gives: numbers, what they are held against in the same run, and how they are told."""

from __future__ import annotations

import dataclasses
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How thoroughly to measure, and a folder that goes when the benchmarks do.

    A bench of many settings measures those that `only`, a regular expression, is found in, and of them the `most`.
    """

    quick: bool
    scratch: Path
    only: str = ""
    most: int | None = None

    def times(self, full: int, quick: int) -> int:
        """How often to repeat something."""
        return quick if self.quick else full


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """Repetitions of one number, and those of a peer or the one value that it should keep to.

    `against` names the reference: "goal" where it is a limit (at most), "theory" or "requested" where it is a value to
    hit, else a peer that did the same in the same run. `interval` is that of a ratio. `over` makes the figure a point
    of curves: of each the axis, the place on it, and the name of the line. `tabled` says that a `Table` has it, too.
    """

    what: str
    unit: str
    values: tuple[float, ...]
    against: str = ""
    reference: tuple[float, ...] = ()
    interval: tuple[float, float] | None = None
    note: str = ""
    over: tuple[tuple[str, float, str], ...] = ()
    tabled: bool = False

    @property
    def ratio(self) -> float | None:
        """Median of the values over the median of the reference."""
        return statistics.median(self.values) / statistics.median(self.reference) if self.reference else None

    def text(self) -> str:
        """The figure in a line."""
        line = f"{self.what:<58} {spread(self.values)} {self.unit}"
        if self.reference:
            bound = "at most " if self.against == "goal" else ""
            line += f" | {self.against} {bound}{spread(self.reference)} | ratio {self.ratio:.3f}"
        if self.interval:
            line += f" | 95 % interval {self.interval[0]:.4f}..{self.interval[1]:.4f}"
        return line + (f" | {self.note}" if self.note else "")

    def as_data(self) -> dict[str, Any]:
        """The figure for JSON."""
        return {**dataclasses.asdict(self), "median": statistics.median(self.values), "ratio": self.ratio}


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows of numbers and text that are no repetitions of one number; drawn on the page that shows the bench."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]

    def as_data(self) -> dict[str, Any]:
        """Return the table for JSON."""
        return {"title": self.title, "columns": list(self.columns), "rows": [list(row) for row in self.rows]}


def spread(values: Sequence[float]) -> str:
    """Median, and the range where there are several values."""
    median = number(statistics.median(values))
    return median if len(values) == 1 else f"{median} ({number(min(values))}..{number(max(values))}, n={len(values)})"


def number(value: float) -> str:
    """Four significant digits, in full where that is short."""
    return f"{value:,.0f}" if abs(value) >= 1e4 else f"{value:.4g}"


def bootstrapped(ratios: Sequence[float], *, seed: int = 1, resamples: int = 5000) -> tuple[float, float]:
    """95 % percentile interval of the mean of these ratios, resampled (Efron and Tibshirani 1993, section 13.3)."""
    source = random.Random(seed)  # noqa: S311
    means = sorted(statistics.fmean(source.choices(ratios, k=len(ratios))) for _ in range(resamples))
    return means[int(0.025 * resamples)], means[int(0.975 * resamples) - 1]
