"""Lay out text for a screen: tables, and paragraphs that keep their indent."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Sequence
from itertools import zip_longest

from orchestrator.core.screen import terminal

_NARROWEST = 40


def columns() -> int | None:
    """Return how wide standard output is; None where it is no terminal, so that lines stay whole."""
    return max(_NARROWEST, shutil.get_terminal_size().columns) if sys.stdout.isatty() else None


def hanging(text: str, width: int | None, *, indent: str = "", rest: str | None = None) -> str:
    """Return a paragraph after `indent`, its further lines after `rest` (as wide as `indent`, if not given).

    It is broken between words alone, and not at all where there is no `width`.
    """
    if width is None:
        return indent + text
    rest = " " * len(indent) if rest is None else rest
    lines = textwrap.wrap(
        text, width, initial_indent=indent, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False
    )
    return "\n".join(lines)


def table(head: Sequence[str], rows: Sequence[Sequence[str]], *, indent: str = "", width: int | None = None) -> str:
    r"""Lay out columns under a head, numbers (all but the first column) to the right.

    A head of several lines keeps narrow columns narrow: "sent/\ntheory". Cells are one line, whatever they hold. A
    table that is wider than `width` has what the first column says on lines of their own, above the rest of each row.
    """
    lines = _lines(head, rows, indent)
    if width is None or max(map(len, lines)) <= width:
        return "\n".join(lines)
    _, *below = head
    first, *inner = _lines(["", *below], [["", *row[1:]] for row in rows], indent + "  ")
    heads = len(_lines(["", *below], [], ""))
    lines = [first, *inner[: heads - 1]]
    for row, cells in zip(rows, inner[heads - 1 :], strict=True):
        lines += [indent + terminal.line(row[0]), cells] if row[0] else [cells]
    return "\n".join(lines)


def saying(head: Sequence[str], rows: Sequence[Sequence[str]]) -> tuple[list[str], list[list[str]]]:
    """Return the table without the columns in which every row has a dash; the first column stays."""
    kept = [at for at in range(len(head)) if at == 0 or not rows or any(row[at] not in ("", "-") for row in rows)]
    return [head[at] for at in kept], [[row[at] for at in kept] for row in rows]


def _lines(head: Sequence[str], rows: Sequence[Sequence[str]], indent: str) -> list[str]:
    rows = [[terminal.line(cell) for cell in row] for row in rows]
    names = [name.split("\n") for name in head]
    heads = list(zip_longest(*(lines[::-1] for lines in names), fillvalue=""))[::-1]  # aligned at the bottom
    widths = [max(map(len, [*lines, *(row[i] for row in rows)])) for i, lines in enumerate(names)]
    lines = []
    for row in [*heads, ["-" * width for width in widths], *rows]:
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        lines.append((indent + "  ".join(cells)).rstrip())
    return lines
