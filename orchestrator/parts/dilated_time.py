"""Divide the time of a dilated run back: what its processes logged, as rows of tables in full-size seconds.

A run at scale 10 and dilation 10, its time divided by ten, is a run at scale 10 whose links are as fast as that scale
says: rates over divided seconds, sizes and durations agree, so that whatever reads tables knows nothing of dilation.
Files of a run's hosts keep the time that passed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from orchestrator.parts.rows import Columns
from orchestrator.parts.schema.column import unit

_INSTANT = "ns since the epoch"
_FACTORS = {"ns": -1, "s": -1, "bit/s": 1}  # the power of the dilation by which values of a unit are multiplied
_OF_COUNTERS = {"_ns": -1, "_us": -1, "_usec": -1, "_ms": -1, "_s": -1, "_bps": 1}  # likewise, by a counter's name


@dataclass(frozen=True, slots=True, kw_only=True)
class DividedTime:
    """Time since about the beginning of a run, divided by its dilation.

    Time stands still at a whole multiple of `dilation` seconds at or after the beginning, so that bins of time whose
    widths were multiplied begin at multiples of their divided widths, and nothing lies before the beginning.
    """

    began_ns: int
    dilation: int

    @property
    def origin_ns(self) -> int:
        whole = self.dilation * 10**9
        return -(-self.began_ns // whole) * whole

    def instant(self, wall_ns: int) -> int:
        """Return an instant of the run (ns since the epoch) divided back."""
        return self.origin_ns + (wall_ns - self.origin_ns) // self.dilation

    def columns(self, table: str, columns: Columns) -> Columns:
        """Return columns of a table, each divided back by its unit; without dilation they are the same."""
        if self.dilation == 1:
            return columns
        found = {name: self._column(name, values) for name, values in columns.items()}
        if table == "counters":
            found["value"] = self._counted(columns["counter"], columns["value"])
        return found

    def tables(self, found: Mapping[str, Columns]) -> dict[str, Columns]:
        """Return the same of several tables."""
        return {table: self.columns(table, columns) for table, columns in found.items()}

    def _column(self, name: str, values: Any) -> Any:
        of = unit(name)
        if of == _INSTANT:
            return self._each(values, self.instant)
        power = _FACTORS.get(of)
        if power is None:
            return values
        if of == "ns":
            return self._each(values, lambda value: value // self.dilation)
        factor = float(self.dilation) ** power
        return self._each(values, lambda value: value * factor)

    def _counted(self, names: Any, values: Any) -> list[float | None]:
        """Return values of counters that count time, or are rates, divided back."""
        factors = {
            name: next(
                (float(self.dilation) ** power for end, power in _OF_COUNTERS.items() if name.endswith(end)), 1.0
            )
            for name in set(names)
        }
        return [None if value is None else value * factors[name] for name, value in zip(names, values, strict=True)]

    @staticmethod
    def _each(values: Any, change: Any) -> Any:
        if isinstance(values, np.ndarray):
            return change(values)
        return [None if value is None else change(value) for value in values]
