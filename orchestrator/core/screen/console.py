"""Print lines at the terminal; a closed terminal or a full disk behind it fails nothing."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TextIO

from orchestrator.core.screen import colour, terminal


def tell(text: str, *, stream: TextIO | None = None) -> None:
    """Print lines, to standard output by default; what cannot be written is dropped without an error.

    For what is told while something has still to be put back, or beside an exit status that has to be true.
    """
    out = stream if stream is not None else sys.stdout
    try:
        out.write(text + "\n")
        out.flush()
    except (OSError, ValueError):  # gone, or closed
        _drop(out)


def tell_verdicts(text: str, *, stream: TextIO | None = None) -> None:
    """Print lines as `tell` does, their verdicts in colour where they go to a terminal."""
    shown, out = _coloured(text, stream if stream is not None else sys.stdout)
    tell(shown, stream=out)


def print_verdicts(text: str, *, stream: TextIO | None = None) -> None:
    """Print lines as `print` does, which fails where they cannot be written; likewise in colour."""
    shown, out = _coloured(text, stream if stream is not None else sys.stdout)
    print(shown, file=out)


def _coloured(text: str, stream: TextIO) -> tuple[str, TextIO]:
    """Return text, in colour if a terminal takes it, and the stream that takes it as it is."""
    if not colour.wanted(stream):
        return text, stream
    return colour.verdicts(terminal.escaped(text)), terminal.plain(stream)


_NOTED: set[str] = set()


def note(text: str, *, hint: str | None = None) -> None:
    """Print to standard error, once a command, what its user should know although the command goes on."""
    if text not in _NOTED:
        _NOTED.add(text)
        told = f"orch: {terminal.line(text)}" + (f"\n  remedy: {terminal.line(hint)}" if hint else "")
        tell(told, stream=sys.stderr)


def forget_notes() -> None:
    """Begin a new command: notes may be printed again."""
    _NOTED.clear()


def let_go() -> bool:
    """Flush the standard streams; return whether all of standard output could be written."""
    whole = True
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            _drop(stream)
            whole = whole and stream is not sys.stdout
    return whole


def _drop(stream: TextIO) -> None:
    """Discard what waits in a stream, which would be written again, and fail again, at exit."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
