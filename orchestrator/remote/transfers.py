"""Limits how many transfers go on at a time, so that those behind one slow link, such as a gateway, do not time out."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from orchestrator.core.deadline import Deadline
from orchestrator.core.errors import DeadlineExceeded

AT_ONCE = 8  # of a controller: of 10 Mbit/s each has 150 KB a second

_slots = threading.BoundedSemaphore(AT_ONCE)


@contextmanager
def turn(deadline: Deadline, *, node: str) -> Iterator[None]:
    """Hold one of the few slots for large transfers; DeadlineExceeded when none gets free."""
    if not _slots.acquire(timeout=deadline.remaining):
        raise DeadlineExceeded("gave up waiting for its turn to send or fetch files", node=node)
    try:
        yield
    finally:
        _slots.release()
