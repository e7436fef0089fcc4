"""One JSON line an iteration, whole or not at all."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping
from pathlib import Path


class IterationLog:
    """The file `iterations.jsonl`: each line is written by one call and is in the file when that returns."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._lock = threading.Lock()

    def write(self, record: Mapping[str, object]) -> None:
        line = json.dumps(record, separators=(",", ":")).encode() + b"\n"
        with self._lock:
            os.write(self._file, line)

    def close(self) -> None:
        """Let a line that is being written end, and write no more: the lock is kept until the process is gone."""
        self._lock.acquire()
        os.close(self._file)
