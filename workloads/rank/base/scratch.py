"""Temporary files of a rank lie in its own folder and go with it: a framework removes its own only at a usual exit."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

FOLDER = Path("scratch")


def own_scratch() -> Callable[[], None]:
    """From now on Python's temporary files go there; what is given removes them, for a process that is asked to end."""
    FOLDER.mkdir(exist_ok=True)
    tempfile.tempdir = str(FOLDER.resolve())
    return lambda: shutil.rmtree(FOLDER, ignore_errors=True)
