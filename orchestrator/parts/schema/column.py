"""Columns and tables as plain data: types, meanings, units, and what a reader has to give."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

ColumnType = Literal["int64", "float64", "string", "bool"]

_UNITS = {  # by the end of a column's name, the first that fits
    "width_ns": "ns",
    "_ns": "ns since the epoch",
    "_s": "s",
    "_bps": "bit/s",
    "bytes": "bytes",
    "_share": "share of 1",
}


@dataclass(frozen=True, slots=True)
class Column:
    """A column: the type of its values, and what they mean."""

    type: ColumnType
    text: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """A table: what a row of it is, and its columns in their order.

    `required` names the columns that a reader has to give: those that tell rows apart, and those that the analysis
    cannot do without. A reader may lack any other one, as one does that is older than the column: it is null then.
    """

    row: str
    columns: Mapping[str, Column]
    required: tuple[str, ...] = ()


def unit(name: str) -> str:
    """Return the unit of a column, which the end of its name tells; empty for one that has none."""
    if name == "seconds" or name.startswith("bytes"):
        return "s" if name == "seconds" else "bytes"
    return next((of_column for end, of_column in _UNITS.items() if name.endswith(end)), "")
