"""Retries SSH logins that a busy server drops, with few logins at a time at any one server.

sshd drops connections while many are not logged in yet (`MaxStartups`), before it says a word.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from orchestrator.core.deadline import Deadline
from orchestrator.core.errors import DeadlineExceeded
from orchestrator.remote.transport.ssh_config import Hop

T = TypeVar("T")

AT_ONCE = 8  # sshd begins to drop connections at 10
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 2.0

_gates: dict[str | tuple[str, int], threading.BoundedSemaphore] = {}
_gates_lock = threading.Lock()


class DroppedError(Exception):
    """The server, or a host before it, closed the connection before its SSH version came."""


def patiently(hop: Hop, attempt: Callable[[], T], deadline: Deadline) -> T:
    """Return what `attempt` returns, repeated after DroppedError, which is raised when the deadline has passed."""
    pause = _FIRST_PAUSE_S
    while True:
        with _turn(hop, deadline):
            try:
                return attempt()
            except DroppedError:
                if deadline.remaining < pause:
                    raise
        time.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 - so that those who were dropped do not return at once
        pause = min(2 * pause, _LONGEST_PAUSE_S)


@contextmanager
def _turn(hop: Hop, deadline: Deadline) -> Iterator[None]:
    """Hold one of the few slots for those that log in at the same server, or by the same ProxyCommand, at a time."""
    settings = hop.settings
    with _gates_lock:
        key = settings.proxycommand or (settings.hostname, settings.port)
        gate = _gates.setdefault(key, threading.BoundedSemaphore(AT_ONCE))
    if not gate.acquire(timeout=deadline.remaining):
        raise DeadlineExceeded("gave up waiting for its turn to log in by SSH", node=hop.target.name)
    try:
        yield
    finally:
        gate.release()
