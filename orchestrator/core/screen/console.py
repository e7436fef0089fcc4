"""Print lines at the terminal; one that is gone, or a full disk behind it, keeps nobody from going on."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TextIO

from orchestrator.core.screen import terminal


def tell(text: str, *, stream: TextIO | None = None) -> None:
    """Print lines, to standard output unless said otherwise; what cannot be written is given up without a word.

    For what is told while something has still to be put back, or beside an exit status that has to be true.
    """
    out = stream if stream is not None else sys.stdout
    try:
        out.write(text + "\n")
        out.flush()
    except (OSError, ValueError):  # gone, or closed
        _drop(out)


_NOTED: set[str] = set()


def note(text: str, *, hint: str | None = None) -> None:
    """Tell on standard error, once a command, what its user should know although the command goes on."""
    if text not in _NOTED:
        _NOTED.add(text)
        told = f"orch: {terminal.line(text)}" + (f"\n  remedy: {terminal.line(hint)}" if hint else "")
        tell(told, stream=sys.stderr)


def forget_notes() -> None:
    """Forget which notes were told, since a new command begins."""
    _NOTED.clear()


def let_go() -> bool:
    """Write what waits in the standard streams; whether all that went to standard output could be written."""
    whole = True
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            _drop(stream)
            whole = whole and stream is not sys.stdout
    return whole


def _drop(stream: TextIO) -> None:
    """Let what waits in a stream go nowhere; it would be tried again, and complained of, at exit."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
