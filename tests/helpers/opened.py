"""Counts how often files are opened, by whatever means."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_listening: list[Counter[Path]] = []


def _hear(event: str, arguments: tuple[object, ...]) -> None:
    if event == "open" and isinstance(arguments[0], str | bytes):
        for counter in _listening:
            counter[Path(os.fsdecode(arguments[0])).absolute()] += 1


sys.addaudithook(_hear)  # there is no way to take one away: it counts nothing outside of `opens`


@contextmanager
def opens(folder: Path) -> Iterator[Counter[str]]:
    """How often this process opens each file below a folder, by its path from there; filled in at the end."""
    found: Counter[str] = Counter()
    counter: Counter[Path] = Counter()
    _listening.append(counter)
    try:
        yield found
    finally:
        _listening.remove(counter)
        found.update({str(path.relative_to(folder)): n for path, n in counter.items() if path.is_relative_to(folder)})
