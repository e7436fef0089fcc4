"""What is told at the terminal: one that is gone, or a full disk behind it, keeps nobody from going on."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TextIO


def tell(text: str, *, stream: TextIO | None = None) -> None:
    """Print lines, to standard output unless said otherwise; what cannot be written is given up without a word.

    For what is told while something has still to be put back, or beside an exit status that has to be true.
    """
    out = stream if stream is not None else sys.stdout
    with contextlib.suppress(OSError, ValueError):  # gone, or closed
        out.write(text + "\n")
        out.flush()


def let_go() -> bool:
    """Write what waits in the standard streams; whether it could be. What could not would be complained of at exit."""
    whole = True
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            whole = False
            with contextlib.suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    return whole
