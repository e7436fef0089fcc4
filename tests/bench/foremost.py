"""Schedules the ranks of our own runs before other work of the machine, which a benchmark cannot end."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

EVERY_S = 0.3
PROGRAM = b"rank.pyz"
DEEPEST = 60  # processes from a rank up to this one


@contextmanager
def ranks_first() -> Iterator[None]:
    """While the block lasts, ranks get real-time priority (SCHED_RR); without the right to it nothing happens."""
    ended = threading.Event()
    thread = threading.Thread(target=_look, args=(ended,), name="foremost", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _look(ended: threading.Event) -> None:
    seen: set[int] = set()
    while not ended.wait(EVERY_S):
        above = _parents()
        for pid in above.keys() - seen:
            if _descends(pid, above) and _is_rank(pid):
                seen.add(pid)
                with suppress(OSError):  # it has ended, or we may not
                    for thread in Path(f"/proc/{pid}/task").iterdir():
                        os.sched_setscheduler(int(thread.name), os.SCHED_RR, os.sched_param(1))


def _parents() -> dict[int, int]:
    """The parent of each process of the machine."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            found[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
    return found


def _descends(pid: int, above: dict[int, int]) -> bool:
    """Whether a process was started by this one, or by one that it started."""
    for _ in range(DEEPEST):
        if pid == os.getpid():
            return True
        pid = above.get(pid, 0)
    return False


def _is_rank(pid: int) -> bool:
    try:
        return PROGRAM in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
