"""Tables of HTML pages, without empty columns, and numbers as text: rates, sizes, shares."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

MOST_OPEN = 20  # rows; a longer table is folded

_NOTHING = ("", "-")  # texts of a cell that says nothing


class Number(str):
    """The head of a column of numbers, which are aligned to the right."""

    __slots__ = ()


class Cell(str):
    """A cell: its text, smaller notes below, its `look` (good, bad, open or none) and where it links to."""

    __slots__ = ("link", "look", "notes")
    notes: tuple[str, ...]
    look: str
    link: str

    def __new__(cls, text: str, *, notes: tuple[str, ...] = (), look: str = "", link: str = "") -> Cell:
        """Make a cell of a text."""
        cell = super().__new__(cls, text)
        cell.notes, cell.look, cell.link = notes, look, link
        return cell


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table of a page: its title, how to read it, its columns and which are numbers, and rows of as many cells."""

    title: str
    caption: str
    columns: tuple[str, ...]
    numbers: tuple[bool, ...]
    rows: tuple[tuple[Cell, ...], ...]

    @property
    def folded(self) -> bool:
        """Whether a page shows the table folded, below a line that says what it holds."""
        return len(self.rows) > MOST_OPEN


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], *, caption: str = "") -> Table:
    """Return a table of these rows, of texts or cells, without the columns in which no row says anything."""
    cells = [[one if isinstance(one, Cell) else Cell(one) for one in row] for row in rows]
    kept = [at for at in range(len(columns)) if any(_says(row[at]) for row in cells)]
    return Table(
        title=title,
        caption=caption,
        columns=tuple(columns[at] for at in kept),
        numbers=tuple(isinstance(columns[at], Number) for at in kept),
        rows=tuple(tuple(row[at] for at in kept) for row in cells),
    )


def _says(cell: Cell) -> bool:
    return cell not in _NOTHING or any(cell.notes)


def percent(share: float) -> str:
    """Return a difference as a share, with its sign; empty for NaN."""
    return "" if math.isnan(share) else f"{share:+.1%}"


def share(part: float) -> str:
    """Return a part of 1; empty for NaN."""
    return "" if math.isnan(part) else f"{part:.1%}"


def rate(bps: float) -> str:
    """Return a rate in bit/s as text; empty for NaN."""
    return _with_unit(bps, ((1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s"), (1.0, "bit/s")))


def size(amount: float) -> str:
    """Return a size in bytes as text; empty for NaN."""
    return _with_unit(amount, ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B")))


def _with_unit(value: float, units: Sequence[tuple[float, str]]) -> str:
    if math.isnan(value):
        return ""
    factor, unit = next((pair for pair in units if value >= pair[0]), units[-1])
    return f"{value / factor:.4g} {unit}"
