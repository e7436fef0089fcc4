"""Read lines of JSON as rank programs write them: the records that are whole, of values that tables can hold.

The last line may be cut where a rank was killed, and any other may be damaged: a reader leaves such lines out, counts
them, and goes on behind them. A file is read line by line, so that it costs what its reader keeps of it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from orchestrator.core.opendata import JsonObject
from orchestrator.core.paths import safepath
from orchestrator.parts.rows import Unread

LONGEST = 1 << 22  # bytes of a line: some 50,000 spans of an iteration

_Made = TypeVar("_Made")

_STRICT, _LENIENT = json.JSONDecoder(), json.JSONDecoder(strict=False)  # which takes a line's end within a text
_BETWEEN = re.compile(r"[\s,]*")
_NEXT = re.compile(r"[,\n]\s*(?=\{)")  # where an object of an array may begin; one behind a key is within another
_CLOSED = re.compile(r"\]\s*(?:(?:,[^\[\]{}]*)?\})?\s*\Z")  # the end of a file that has its end
_PIECE = 1 << 22  # characters of which errors are made at once: an error costs as many as lie before it
_MOST_DAMAGED = 10_000  # of one file; what comes then is passed over
_WIDEST = 100  # characters that an object on a line of its own is indented
_DEEP = 1000  # characters that an object has at least which is nested too deeply to be read


def nobody(what: str, **_: object) -> None:
    """Tell nobody what is passed over, where it does not matter; else `Unread.add` of a file."""


def records(path: Path, unread: Unread, made: Callable[[JsonObject], _Made | None]) -> Iterator[_Made]:
    """Give what `made` gives for the objects in the lines of a file, in order; nothing where there is no file.

    A line that is no object, or of which `made` gives None, is told `unread`. ValueError as of `texts`.
    """
    for number, line in enumerate(texts(path), start=1):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            record = None
        one = made(record) if isinstance(record, dict) else None
        if one is not None:
            yield one
        elif line.strip():
            unread.add(path.name, "lines", line=number, text=line)


def texts(path: Path) -> Iterator[str]:
    """Give the lines of a file in order; none where there is no file. ValueError at one of more than LONGEST bytes."""
    try:
        file = safepath.opened(path)
    except FileNotFoundError:
        return
    with file:
        while line := file.readline(LONGEST + 1):
            if len(line) > LONGEST:
                raise ValueError(f"{path.name} has a line of more than {LONGEST >> 20} MiB")
            yield line.decode("utf-8", "replace")


def objects(
    text: str, told: Callable[..., None] = nobody, *, what: str = "events", begin: int = 0, endless: bool = False
) -> Iterator[JsonObject]:
    """Give the objects of the JSON array that begins at the first bracket behind `begin`, in order.

    What is damaged, or is no object, is `told`, and reading goes on at the next object. So is an end that is
    missing, unless the file is `endless`: its writer is ended by a signal and never closes the array.
    """
    opened = text.find("[", begin)
    if opened < 0:
        if text.strip():
            told(what, text=text)
        return
    array, at, closed, damaged = _Array(text), opened + 1, False, 0
    while (at := array.behind(at)) < len(text):
        if text[at] == "]":  # which is not the last one where it is of an array within a damaged object
            at, closed = array.next(at), True
            continue
        found, end, whole = array.read(at)
        if isinstance(found, dict):
            yield found
        following = end if found is not None else array.next(end, beside=at)
        cut_off = found is None and following == len(text) and not _CLOSED.search(text, end)
        if not (whole and isinstance(found, dict)) and not (cut_off and endless):
            kind = f"{what} that the end cuts off" if cut_off else what
            told(
                "rests of the file" if damaged == _MOST_DAMAGED else kind, line=array.line(at), text=text[at : at + 200]
            )
            damaged += 1
        if damaged > _MOST_DAMAGED:
            return
        closed, at = found is None and following == len(text), following
    if not closed and not endless:
        told("end of the file missing", line=array.line(len(text)))


class _Array:
    """A JSON array that may be damaged anywhere, and what reading it cost so far."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._piece, self._origin = text[:_PIECE], 0
        self._line, self._counted = 1, 0
        self._spent = 0  # characters that were read in vain

    def line(self, at: int) -> int:
        """Return the number of a line, from 1; places come in order."""
        self._line, self._counted = self._line + self._text.count("\n", self._counted, at), at
        return self._line

    def behind(self, at: int) -> int:
        """Find the first character from there on that is not between two elements."""
        found = _BETWEEN.match(self._text, at)
        return found.end() if found else at

    def next(self, at: int, *, beside: int | None = None) -> int:
        """Find where an object may begin from there on; the text's end where there is none.

        `beside` is where a damaged one begins: those within it are indented more, where it stands on a line of its own.
        """
        found = None
        if beside is not None:
            indent = self._text[max(0, beside - _WIDEST) : beside].rpartition("\n")
            if indent[1] and not indent[2].strip():
                found = re.compile(rf"\n{indent[2]}(?=\{{)").search(self._text, at)
                if found is None and indent[2]:
                    return len(self._text)
        found = found or _NEXT.search(self._text, at)
        return found.end() if found else len(self._text)

    def read(self, at: int) -> tuple[Any, int, bool]:
        """Read the element that begins there, its end, and whether it is undamaged; else None and where to go on."""
        if at - self._origin > _PIECE // 2:
            self._piece, self._origin = self._text[at : at + _PIECE], at
        began = at - self._origin
        for decoder in (_STRICT, _LENIENT):
            try:
                found, end = decoder.raw_decode(self._piece, began)
                return (() if found is None else found), self._origin + end, decoder is _STRICT
            except RecursionError:
                return None, at + _DEEP, False
            except ValueError as error:
                reached = getattr(error, "pos", began)
                if not str(error).startswith("Invalid control character"):
                    break
        self._spent += reached - began
        # Objects within a damaged one are looked for, but not again and again over a whole file.
        return None, max(at + 1, self._origin + reached if self._spent > 8 * len(self._text) else 0), False


def is_whole(value: object) -> bool:
    """Tell whether it is a count, a place or an instant; a column holds 64 bits, of which one is left for sums."""
    return type(value) is int and 0 <= value < 2**62


def is_real(value: object) -> bool:
    """Tell whether it is a finite number, which a float can hold."""
    return (type(value) is int and abs(value) < 2**62) or (type(value) is float and math.isfinite(value))


def is_time(value: object) -> bool:
    """Tell whether it is a number of seconds, of which a column holds nanoseconds; one below zero is of rounding."""
    return is_real(value) and abs(value) < 2**32  # type: ignore[arg-type]


def is_text(value: object) -> bool:
    """Tell whether it is text that can be written down: JSON can spell halves of characters."""
    return isinstance(value, str) and (value.isascii() or not any("\ud800" <= one <= "\udfff" for one in value))
