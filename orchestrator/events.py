"""The log of a run for analysis: every phase and process, with wall and monotonic time, one JSON object a line."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any


class EventLog:
    """Appends to `events.jsonl`; safe from several threads; each line is flushed at once."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", encoding="utf-8")
        self._lock = threading.Lock()

    def write(self, event: str, **data: Any) -> None:
        line = json.dumps({"event": event, "wall_ns": time.time_ns(), "monotonic_ns": time.monotonic_ns(), **data})
        with self._lock:
            if not self._file.closed:
                self._file.write(line + "\n")
                self._file.flush()

    def close(self) -> None:
        with self._lock:
            self._file.close()
