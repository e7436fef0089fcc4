"""What the page of a study is made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from orchestrator.report.run.figures import Picture
from orchestrator.report.study.comparison import Comparison
from orchestrator.report.study.text import Rows


class Table(NamedTuple):
    """A table of texts."""

    title: str
    caption: str
    head: tuple[str, ...]
    rows: Rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A figure, table, equation or claim of the paper: what ours is, its pictures, ours beside the printed values."""

    title: str
    text: str = ""
    pictures: tuple[Picture, ...] = ()
    comparisons: tuple[Comparison, ...] = ()
    tables: tuple[Table, ...] = ()

    @property
    def empty(self) -> bool:
        return not (self.pictures or self.comparisons or any(table.rows for table in self.tables))


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """A whole page.

    `made_of` says how much was measured ("52 points of 120 runs"), `limits` what cannot be compared on the whole and
    why, `contradictions` where the paper contradicts itself.
    """

    made_of: str
    sections: tuple[Section, ...]
    limits: tuple[str, ...] = ()
    contradictions: tuple[str, ...] = ()
