"""What agents said on their own account and nobody has taken yet, in the order in which it came, within bounds."""

from __future__ import annotations

import queue
import sys
import threading
from collections import Counter

from orchestrator.core.errors import BadAnswer
from orchestrator.remote.answers import AgentEvent, AgentLost, LineRead

MOST_BYTES = 64 << 20  # of a node's events that wait, by what they take of memory
_EVENT_BYTES = 128  # of an event, beside its text


class Inbox:
    """Events of all nodes; one that says more than anybody takes is refused, so that it is let go."""

    def __init__(self) -> None:
        self._events: queue.SimpleQueue[AgentEvent] = queue.SimpleQueue()
        self._waiting: Counter[str] = Counter()  # bytes of each node
        self._lock = threading.Lock()

    def put(self, event: AgentEvent) -> None:
        """Take an event, in any thread; BadAnswer where too many of its node wait. A loss always goes in."""
        with self._lock:
            waiting = self._waiting[event.node] + _size(event)
            if waiting > MOST_BYTES and not isinstance(event, AgentLost):
                raise BadAnswer(
                    f"its agent floods the controller: {MOST_BYTES >> 20} MiB of its events wait", node=event.node
                )
            self._waiting[event.node] = waiting
        self._events.put(event)

    def get(self, wait_s: float = 0.0) -> AgentEvent:
        """The next event, waited for as long; queue.Empty when none has come."""
        event = self._events.get(timeout=wait_s) if wait_s > 0 else self._events.get_nowait()
        with self._lock:
            self._waiting[event.node] -= _size(event)
        return event

    def __len__(self) -> int:
        return self._events.qsize()


def _size(event: AgentEvent) -> int:
    return _EVENT_BYTES + (sys.getsizeof(event.text) if isinstance(event, LineRead) else 0)
