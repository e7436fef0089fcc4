"""Tables as pages show them: columns that hold something, cells with notes below, captions beside what may scroll."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

MOST_OPEN = 20  # rows; a longer table is folded

_NOTHING = ("", "-")  # texts of a cell that says nothing


@dataclass(frozen=True, slots=True)
class Column:
    """The head of a column; numbers stand to the right."""

    name: str
    number: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A cell: its text, smaller notes below, its `look` (good, bad, open or none) and where it links to."""

    text: str
    notes: tuple[str, ...] = ()
    look: str = ""
    link: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table of a page: its title, how to read it, its columns, and its rows of as many cells."""

    title: str
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]

    @property
    def folded(self) -> bool:
        """Whether a page shows it folded, with what it holds as the line that opens it."""
        return len(self.rows) > MOST_OPEN


def number(name: str) -> Column:
    """The head of a column of numbers."""
    return Column(name, number=True)


def table(
    title: str, columns: Sequence[str | Column], rows: Sequence[Sequence[str | Cell]], *, caption: str = ""
) -> Table:
    """A table of these rows, without the columns in which no row says anything."""
    heads = [one if isinstance(one, Column) else Column(one) for one in columns]
    cells = [[one if isinstance(one, Cell) else Cell(text=one) for one in row] for row in rows]
    kept = [at for at in range(len(heads)) if any(_says(row[at]) for row in cells)]
    return Table(
        title=title, caption=caption, columns=tuple(heads[at] for at in kept),
        rows=tuple(tuple(row[at] for at in kept) for row in cells),
    )  # fmt: skip


def _says(cell: Cell) -> bool:
    return cell.text not in _NOTHING or any(cell.notes)
