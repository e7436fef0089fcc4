"""Processes that a test starts, and that end with it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any


@contextmanager
def ended(argv: Sequence[object], **options: Any) -> Iterator[subprocess.Popen[Any]]:
    """Start a process, and kill it at the end: one that has no end of its own would outlive an assertion that fails."""
    with subprocess.Popen(list(map(str, argv)), **options) as process:
        try:
            yield process
        finally:
            process.kill()
