"""Events that agents send unasked: read from their channel, and queued in order until they are taken."""

from __future__ import annotations

import queue
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from orchestrator.agents.agent.launches import ExitEvent, LinesEvent
from orchestrator.core.errors import BadAnswer, TransportError
from orchestrator.remote.replies import read


@dataclass(frozen=True, slots=True)
class ProcessExited:
    """A started process has ended; a negative status is a signal's number. `wall_ns` is the node's clock."""

    node: str
    name: str
    status: int
    wall_ns: int


@dataclass(frozen=True, slots=True)
class LineRead:
    """A whole line of a followed file; `wall_ns` is when the agent read it, by the node's clock."""

    node: str
    name: str
    text: str
    wall_ns: int


@dataclass(frozen=True, slots=True)
class AgentLost:
    """The channel ended unasked, or nothing was heard on it for too long.

    `error` says why, and names the node or link at fault; `since` is of this process's monotonic clock.
    """

    node: str
    error: TransportError
    since: float

    @property
    def reason(self) -> str:
        return self.error.message + (f"\n{self.error.tail}" if self.error.tail else "")


AgentEvent = ProcessExited | LineRead | AgentLost


def events(node: str, header: Mapping[str, object]) -> Iterator[AgentEvent]:
    """Yield the events in a message that an agent sent unasked."""
    kind, of = header["event"], "nothing (an event)"
    if kind == "exit":
        ended = read(ExitEvent, header, of=of, node=node)
        yield ProcessExited(node, ended.name, ended.status, ended.wall_ns)
    elif kind == "lines":
        told = read(LinesEvent, header, of=of, node=node)
        for text in told.lines:
            yield LineRead(node, told.name, text, told.wall_ns)
    else:
        raise BadAnswer(f"an event of unknown kind: {str(kind)[:30]}", node=node)


MOST_BYTES = 64 << 20  # of a node's events that wait, by what they take of memory
_EVENT_BYTES = 128  # of an event, beside its text


class Inbox:
    """A queue of events of all nodes; a node with too many untaken events is refused, and dropped."""

    def __init__(self) -> None:
        self._events: queue.SimpleQueue[AgentEvent] = queue.SimpleQueue()
        self._waiting: Counter[str] = Counter()  # bytes of each node
        self._lock = threading.Lock()

    def put(self, event: AgentEvent) -> None:
        """Queue an event, from any thread; BadAnswer where too many of its node wait. AgentLost is always taken."""
        with self._lock:
            waiting = self._waiting[event.node] + _size(event)
            if waiting > MOST_BYTES and not isinstance(event, AgentLost):
                raise BadAnswer(
                    f"its agent floods the controller: {MOST_BYTES >> 20} MiB of its events wait", node=event.node
                )
            self._waiting[event.node] = waiting
        self._events.put(event)

    def get(self, wait_s: float = 0.0) -> AgentEvent:
        """Return the next event, waiting at most so long; queue.Empty when none has come."""
        event = self._events.get(timeout=wait_s) if wait_s > 0 else self._events.get_nowait()
        with self._lock:
            self._waiting[event.node] -= _size(event)
        return event

    def __len__(self) -> int:
        return self._events.qsize()


def _size(event: AgentEvent) -> int:
    return _EVENT_BYTES + (sys.getsizeof(event.text) if isinstance(event, LineRead) else 0)
