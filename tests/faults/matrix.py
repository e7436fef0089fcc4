"""The rows of the matrix: what each breaks, on which testbed, in which variants, and about how long that takes."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.faults.scene import Scene

LOCAL, INVENTORY, SUDO = "local", "inventory", "sudo"
ROWS = 40
MODULES = (
    "processes", "interrupts", "terminals", "control", "hosts", "disks", "ssh", "tools", "clocks", "hostile",
    "controllers", "leftovers", "sizes", "links",
)  # fmt: skip
USUAL_S = 12

_cases: list[Case] = []


@dataclass(frozen=True)
class Case:
    """One thing to carry out: a row, in one of its variants, on one kind of testbed."""

    row: int
    variant: str
    place: str
    what: str
    carry_out: Callable[[Scene], None]
    about_s: int
    root: bool  # whether it takes root, beyond what the testbed itself takes
    hosts: int  # of an inventory
    ci: bool  # whether the tests carry it out once

    @property
    def name(self) -> str:
        return f"{self.row}{'/' + self.variant if self.variant else ''}@{self.place}"

    def is_meant(self, word: str) -> bool:
        """Whether a word of the command line means this case: 7, 7/ranks, 7@local or 7/ranks@local."""
        row, _, place = word.partition("@")
        number, _, variant = row.partition("/")
        return number == str(self.row) and variant in ("", self.variant) and place in ("", self.place)


def row(
    number: int,
    what: str,
    *,
    on: Sequence[str] = (LOCAL,),
    variant: str = "",
    about_s: int = USUAL_S,
    root: bool = False,
    hosts: int = 3,
    ci: bool = False,
) -> Callable[[Callable[[Scene], None]], Callable[[Scene], None]]:
    """Enter a function into the matrix; several variants of a row have a function each, or one for several."""

    def enter(carry_out: Callable[[Scene], None]) -> Callable[[Scene], None]:
        _cases.extend(
            Case(number, variant, place, what, carry_out, about_s, root or place != LOCAL, hosts, ci) for place in on
        )
        return carry_out

    return enter


def cases(words: Sequence[str] = ()) -> list[Case]:
    """The cases that these words mean, or all of them, by row; LookupError for a word that means none."""
    for module in MODULES:
        importlib.import_module(f"tests.faults.{module}")
    found = sorted(_cases, key=lambda case: case.row)
    for word in words:
        if not any(case.is_meant(word) for case in found):
            raise LookupError(word)
    return [case for case in found if not words or any(case.is_meant(word) for word in words)]
