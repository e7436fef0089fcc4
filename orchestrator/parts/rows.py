"""Rows of the tables of a run: what readers of output give, without a library for tables."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orchestrator.parts.schema import captured, cross_traffic, fabric, hosts, training
from orchestrator.parts.schema.column import ColumnType, Table

Row = Mapping[str, Any]  # value by column
Columns = Mapping[str, Sequence[Any] | Any]  # column name -> values of equal length (lists or arrays)

MOST_ROWS = 1 << 24  # of a table from one launch: 2 GB of thirteen columns

BIN_NS = 10_000_000  # width of the bins of `packets`, unless a reader asks for another

CONNECTIONS = "connections"  # in `unread.what`: those of NCCL's log, on which the gate `transport` rests
_SHOWN = 120  # characters of what was not understood

# Instants are `*_ns`: nanoseconds since the epoch in the controller's time base (the node's clock plus its measured
# offset). Rates and sizes are as they were on the wire, not multiplied back by the scale. The store adds the columns
# `run`, and for the output of a launch `node` and `launch`, in front.
DESCRIBED: Mapping[str, Table] = {
    **training.TABLES,
    **cross_traffic.TABLES,
    **captured.TABLES,
    **hosts.TABLES,
    **fabric.TABLES,
}
TABLES: Mapping[str, Mapping[str, ColumnType]] = {
    name: {column: one.type for column, one in table.columns.items()} for name, table in DESCRIBED.items()
}


@dataclass(slots=True)
class _Passed:
    """Things of one kind in one file that were passed over: how many, and the line and text of the first."""

    count: int
    line: int
    text: str


class Unread:
    """What a reader tells of a launch's output: what it passed over (the table `unread`), and what else is odd."""

    def __init__(self) -> None:
        self._passed: dict[tuple[str, str], _Passed] = {}
        self._notes: list[str] = []

    def add(self, file: str, what: str, *, line: int = 0, text: str = "", count: int = 1) -> None:
        """Count things of a kind ("lines") in a file of the launch's folder.

        `line` (from 1; 0: not known) and `text` count where they are the first.
        """
        known = self._passed.get((file, what))
        if known is None:
            self._passed[file, what] = _Passed(count, line, _shown(text))
        else:
            known.count += count

    def note(self, text: str) -> None:
        """Say in words what else is to be known of the output."""
        self._notes.append(text)

    def sentences(self) -> list[str]:
        """Return all of it in words, each sentence once: what was passed over, then the notes."""
        passed = [
            f"{file}: {one.count} {what} passed over"
            + (f", the first in line {one.line}" if one.line else "")
            + (f": {one.text}" if one.text else "")
            for (file, what), one in self._passed.items()
        ]
        return list(dict.fromkeys([*passed, *self._notes]))

    def rows(self) -> Columns:
        """Return the table `unread`."""
        found = [(*key, one.count, one.line, one.text) for key, one in self._passed.items()]
        return {name: [row[place] for row in found] for place, name in enumerate(TABLES["unread"])}


def _shown(text: str) -> str:
    """Return the beginning of what stands in a file, on one line and in characters that any column can hold."""
    plain = "".join(character if character.isprintable() else " " for character in text[: 2 * _SHOWN])
    return " ".join(plain.split())[:_SHOWN]


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchOutput:
    """What one launch wrote: the folder of its files, and which launch it was.

    Readers tell `unread` what they passed over, and what else is odd.
    """

    folder: Path
    node: str
    launch: str
    job: str | None
    rank: int | None
    window: str | None  # of a traffic launch
    source: str | None  # of a traffic launch
    offset_ns: int  # controller's clock minus the node's: add it to what the node stamped
    unread: Unread = field(default_factory=Unread, compare=False, repr=False)


class Gathering:
    """The columns of a table from rows that come one at a time: 8 bytes a number, each word once."""

    def __init__(self, table: str) -> None:
        codes = {"int64": "q", "float64": "d"}
        self.columns: dict[str, Any] = {
            name: array(codes[kind]) if kind in codes else [] for name, kind in TABLES[table].items()
        }
        self._table = table
        self._words: dict[str, str] = {}
        self._count = 0

    def add(self, rows: Iterable[Row]) -> None:
        """Append rows; a column that a row lacks is missing in it, and what is no column is left out.

        ValueError where a row lacks a required column, and beyond MOST_ROWS.
        """
        required = DESCRIBED[self._table].required
        for row in rows:
            self._count += 1
            if self._count > MOST_ROWS:
                raise ValueError(f"there are more than {MOST_ROWS:,} rows of the table {self._table}")
            for name, column in self.columns.items():
                value = row.get(name)
                if value is None and name in required and name not in row:
                    raise ValueError(f"a row of the table {self._table} lacks {name}")
                try:
                    column.append(self._words.setdefault(value, value) if isinstance(value, str) else value)
                except TypeError:  # it is missing, or none of its kind, which the table will say
                    self.columns[name] = [*column, value]


def gathered(table: str, rows: Iterable[Row]) -> Columns:
    """Return the columns of a table from rows that come one at a time, as `Gathering.add` takes them."""
    found = Gathering(table)
    found.add(rows)
    return found.columns
