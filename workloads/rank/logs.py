"""Write the logs of a rank: a JSON line an iteration, and the spans in which it computed and communicated."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Tuple, Union

COMPUTE, COMMUNICATION = "compute", "communication"


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
        """Finish a line that is being written, and write no more: the lock is kept until the process is gone."""
        self._lock.acquire()
        os.close(self._file)


# Lane, name, what, peer, bytes, begin and end by the monotonic clock in ns; before these two, where a process group has
# not all ranks, its ranks.
Span = Union[Tuple[str, str, str, int, int, int, int], Tuple[str, str, str, int, int, str, int, int]]


class Trace:
    """Collects the spans of an iteration, from any thread, and writes them to `trace.jsonl` when it has ended.

    A span that still runs then belongs to the iteration in which it ends.
    """

    def __init__(self, path: Path, *, wanted: bool) -> None:
        self._log = IterationLog(path) if wanted else None
        self._lock = threading.Lock()
        self._spans: list[Span] = []

    def add(
        self,
        lane: str,
        name: str,
        *,
        begin_ns: int,
        end_ns: int,
        what: str = "",
        peer: int = -1,
        size: int = 0,
        group: Sequence[int] = (),
    ) -> None:
        """Add a span of `size` bytes from `begin_ns` to `end_ns` of the monotonic clock.

        `group` are the ranks of a process group that is not that of all ranks.
        """
        if self._log is None:
            return
        told = (lane, name, what, peer, size)
        span: Span = (*told, " ".join(map(str, group)), begin_ns, end_ns) if group else (*told, begin_ns, end_ns)
        with self._lock:
            self._spans.append(span)

    def communicated(
        self, name: str, begin_ns: int, *, size: int, what: str = "", peer: int = -1, group: Sequence[int] = ()
    ) -> None:
        """Add the span of a communication that began at `begin_ns` has just ended."""
        end_ns = time.monotonic_ns()
        self.add(COMMUNICATION, name, begin_ns=begin_ns, end_ns=end_ns, what=what, peer=peer, size=size, group=group)

    def computed(self, name: str, begin_ns: int, end_ns: int, *, what: str = "") -> None:
        """Add the time of a computation."""
        self.add(COMPUTE, name, begin_ns=begin_ns, end_ns=end_ns, what=what)

    def close_iteration(self, iteration: int, *, start_ns: int, mono_start_ns: int) -> None:
        """Write what ended since the last call; the two instants are the same one by both clocks."""
        if self._log is None:
            return
        with self._lock:
            spans, self._spans = self._spans, []
        spans.sort(key=lambda span: span[-2])
        self._log.write({"iteration": iteration, "start_ns": start_ns, "mono_start_ns": mono_start_ns, "spans": spans})

    def close(self) -> None:
        if self._log is not None:
            self._log.close()
