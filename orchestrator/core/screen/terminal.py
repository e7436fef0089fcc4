"""Spell out control characters of what others said, since a terminal obeys them.

`guarded` is the one way out: within it, whatever goes to standard output and standard error is spelled out. What takes
less (names, cells of tables) or more (the live line) calls `escaped` itself and says which lines are meant.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO, cast

_BIDI = (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_SPELLED = {  # as JSON spells them, so that JSON stays JSON
    code: f"\\u{code:04x}"
    for code in (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029, *_BIDI, *range(0xD800, 0xE000))
}
_IN_LINES = {code: told for code, told in _SPELLED.items() if chr(code) not in "\n\t"}


def escaped(text: str) -> str:
    """Text whose lines are meant: all other control characters, bidirectional overrides and half pairs spelled out."""
    return text if text.isascii() and text.isprintable() else text.translate(_IN_LINES)


def line(text: str) -> str:
    """Text that is one line, or a cell of a table: line ends and tabs are spelled out, too."""
    return text if text.isascii() and text.isprintable() else text.translate(_SPELLED)


class _Guarded:
    """A stream that spells out what is written to it."""

    def __init__(self, stream: TextIO) -> None:
        self.plain = stream

    def write(self, text: str) -> int:
        self.plain.write(escaped(text))
        return len(text)

    def writelines(self, lines: Any) -> None:
        for text in lines:
            self.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.plain, name)


@contextmanager
def guarded() -> Iterator[None]:
    """Spell out whatever is printed within."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (cast("TextIO", _Guarded(stream)) for stream in before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def plain(stream: TextIO) -> TextIO:
    """Return the stream itself, for a line that is rewritten, or data that goes to no terminal."""
    return stream.plain if isinstance(stream, _Guarded) else stream
