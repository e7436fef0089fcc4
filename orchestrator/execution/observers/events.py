"""The log of a run for analysis: every phase and process, with wall and monotonic time, one JSON object a line."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any


class EventLog:
    """Appends to `events.jsonl`; safe from several threads; each line is flushed at once.

    A line that cannot be written (a full disk) is no reason to stop putting things back: the first error is kept in
    `failed`, for the run to act upon.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", encoding="utf-8")
        self._lock = threading.Lock()
        self.failed: OSError | None = None

    def write(self, event: str, **data: Any) -> None:
        line = json.dumps({"event": event, "wall_ns": time.time_ns(), "monotonic_ns": time.monotonic_ns(), **data})
        with self._lock:
            if self._file.closed:
                return
            try:
                self._file.write(line + "\n")
                self._file.flush()
            except OSError as error:
                self.failed = self.failed or error

    def close(self) -> None:
        with self._lock:
            try:
                self._file.close()
            except OSError as error:
                self.failed = self.failed or error
