"""Connection to an agent: frames in both directions, requests matched with answers, and an end to silent agents."""

from __future__ import annotations

import itertools
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

from orchestrator.agents.agent.loop import Answered
from orchestrator.core.deadline import Deadline, Patience
from orchestrator.core.errors import BadAnswer, DeadlineExceeded, OrchError, TransportError, last_lines
from orchestrator.core.machines.remedies import remedy, unstarted
from orchestrator.parts.protocols import Channel
from orchestrator.remote.events import AgentEvent, AgentLost, events
from orchestrator.remote.frames import Frames, frame
from orchestrator.remote.heartbeat import MONITOR, PING_S, Hearing, Silence
from orchestrator.remote.replies import read, refusal

MAGIC = b"\0orch-agent 1\n"  # what an agent says first; a login shell may have printed something before it
NOISE_LIMIT = 1 << 16  # bytes of that; it is skipped where a greeting follows, and told where none does
GREETING_S = 30.0  # of silence, after which an agent that has not greeted is given up
READ_SIZE = 1 << 18

T = TypeVar("T")


class Request:
    """A request, and its answer once that has come; times are of this machine's clock."""

    def __init__(self, op: str, *, node: str, sink: Callable[[bytes], None] | None = None) -> None:
        self.op = op
        self.node = node
        self.sink = sink
        self.size = 0  # of its frame
        self.answered = threading.Event()
        self.reply: Mapping[str, object] = {}
        self.error: Exception | None = None
        self.sent_ns = 0
        self.received_ns = 0

    def read(self, kind: type[T]) -> T:
        """Return the answer, once it has come, as the agent's named tuple for it; else BadAnswer."""
        return read(kind, self.reply, of=repr(self.op), node=self.node)

    def fail(self, error: Exception) -> None:
        """Fail the request: whoever waits for the answer gets this error instead."""
        self.error = error
        self.answered.set()


class Connection:
    """A channel to the agent of a node, with a thread for each direction; several threads may ask at once.

    `on_event` is called in the thread that reads, or in one of its own when nothing is heard any more. An agent that
    hears nothing for `silence_s` ends; a ping goes out long before, whenever nothing was asked for PING_S.
    """

    def __init__(
        self, node: str, channel: Channel, *, on_event: Callable[[AgentEvent], None], silence_s: float
    ) -> None:
        self.node = node
        self._channel = channel
        self._on_event = on_event
        self._silence_s = silence_s
        self._lock = threading.Lock()
        self._pending: dict[int, Request] = {}
        self._ids = itertools.count(1)
        self._closing = False
        self._greeted = False
        self._noise = b""  # what came before the greeting, until that has come
        self._begun = threading.Event()  # whether the greeting has come, or none will
        self._lost: TransportError | None = None
        self._hearing = Hearing(node, channel.way, self._fallen_silent)
        self._out: queue.SimpleQueue[tuple[bytes, Request] | None] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read_loop, name=f"agent-{node}-in", daemon=True)
        self._writer = threading.Thread(target=self._write_loop, name=f"agent-{node}-out", daemon=True)
        self._reader.start()
        self._writer.start()

    def await_greeting(self, deadline: Deadline) -> None:
        """Wait until the agent has greeted, or failed to: later requests then raise why.

        An agent that says nothing for GREETING_S, or has not greeted by the deadline, is let go.
        """
        began, heard = time.monotonic(), 0
        while not self._begun.wait(min(GREETING_S, deadline.remaining)):
            if len(self._noise) == heard or deadline.expired:
                waited_s = time.monotonic() - began
                self._end(self._unstarted(f"no greeting came in {waited_s:.0f} s"), began)
                self._channel.close()
                return
            heard = len(self._noise)

    def ask(
        self,
        op: str,
        deadline: Deadline | Patience,
        values: Mapping[str, object] | None = None,
        *,
        payload: bytes | None = None,
        sink: Callable[[bytes], None] | None = None,
        late_s: float = 0.0,
        argv: Sequence[str] | None = None,
    ) -> Request:
        """Send a request and wait for its answer, whose `read` decodes it; a refusal is raised."""
        pending = Request(op, node=self.node, sink=sink)
        request = self._send(values or {}, payload, pending)
        try:
            while not pending.answered.wait(deadline.remaining + late_s):
                if deadline.remaining:  # what has come of the answer has put it off
                    continue
                raise DeadlineExceeded(
                    f"gave up waiting for the agent to answer {op!r}",
                    node=self.node,
                    argv=argv,
                    hint="the node may be overloaded, or its agent stopped",
                )
        finally:
            self._settle(request)
        if pending.error is not None:
            raise pending.error
        if "error" in pending.reply:
            raise refusal(self.node, pending.reply, argv)
        return pending

    def close(self, deadline: Deadline) -> Request | None:
        """Say goodbye and close the channel; return the agent's last message, None if it was gone or closed already."""
        with self._lock:
            already, self._closing = self._closing or self._lost is not None, True
        try:
            if already:
                return None
            reply = self.ask("bye", deadline)
            self._reader.join(deadline.remaining)
            return reply
        finally:
            MONITOR.remove(self._hearing)
            self._channel.close()
            self._out.put(None)

    def _write_loop(self) -> None:
        while (item := self._next_frame()) is not None:
            data, pending = item
            pending.sent_ns = time.time_ns()
            try:
                self._channel.write(data)
            except (OSError, TransportError):
                self._channel.close()  # the reader sees the end and says what it was
                return

    def _next_frame(self) -> tuple[bytes, Request] | None:
        while True:
            try:
                return self._out.get(timeout=PING_S)
            except queue.Empty:
                if self._begun.is_set():
                    return frame({"id": 0, "op": "ping"}), Request(
                        "ping", node=self.node
                    )  # nobody waits for the answer

    def _bytes(self) -> Iterator[bytes]:
        """Yield the bytes that the agent sends, from the end of its greeting on."""
        while MAGIC not in self._noise:
            if len(self._noise) > NOISE_LIMIT:
                size = len(self._noise)
                raise BadAnswer(f"what answers is no agent of ours: it has printed {size} bytes and no greeting")
            if not (data := self._channel.read(READ_SIZE)):
                return
            self._noise += data
        MONITOR.add(self._hearing)
        first, self._noise = self._noise.partition(MAGIC)[2], b""
        self._greeted = True
        self._begun.set()
        yield first
        while data := self._heard():
            yield data

    def _heard(self) -> bytes:
        """Return the next bytes from the agent."""
        self._hearing.listening = True
        data = self._channel.read(READ_SIZE)
        self._hearing.heard, self._hearing.listening = True, False
        return data

    def _read_loop(self) -> None:
        frames = Frames()
        reason = "its reader failed"  # unless it is known why
        try:
            for data in self._bytes():
                for header, payload in frames.feed(data):
                    self._handle(header, payload)
            reason = ""
        except (OSError, OrchError, MemoryError) as error:
            reason = error.message if isinstance(error, OrchError) else str(error) or type(error).__name__
        finally:
            try:
                self._ended(reason)
            finally:
                if reason:  # after a breach of the protocol; the agent then ends everything
                    self._channel.close()

    def _ended(self, reason: str) -> None:
        """Handle the end of the channel; the error says why, as far as that is known."""
        stood_still_s = MONITOR.stood_still_s()
        if stood_still_s >= self._silence_s:
            message = (
                f"orch was stopped for {stood_still_s:.0f} s, and agents that hear nothing for so long end the run"
            )
            self._end(TransportError(message, hint="measure again"), time.monotonic())
            return
        how = "the channel to the agent ended" + (f": {reason}" if reason else "")
        if not self._greeted:
            self._end(self._unstarted(how), time.monotonic())
            return
        error = TransportError(f"its agent is gone: {how}", node=self.node)
        try:
            said = self._channel.diagnosis()
            error.tail, error.hint = last_lines(said), remedy(said)
        finally:
            self._end(error, time.monotonic())

    def _unstarted(self, how: str) -> TransportError:
        """Return the error for an agent that did not greet, with what the host printed instead, on both streams."""
        streams = (self._noise.decode(errors="replace"), self._channel.diagnosis())
        said = "\n".join(text for text in map(str.strip, streams) if text)
        message = f"its agent did not start: {how}"
        return TransportError(message, node=self.node, tail=said, hint=remedy(said) or unstarted(self._channel.by_hand))

    def _fallen_silent(self, silence: Silence) -> None:
        """Drop a silent agent, in a thread that nobody waits for: closing its channel may take long."""
        threading.Thread(target=self._let_go, args=(silence,), name=f"agent-{self.node}-end", daemon=True).start()

    def _let_go(self, silence: Silence) -> None:
        try:
            self._end(TransportError(silence.message, node=silence.node, hint=silence.hint), silence.since)
        finally:
            self._channel.close()

    def _end(self, error: TransportError, since: float) -> None:
        """Fail all requests and report the agent as lost; the first error found counts."""
        with self._lock:
            if self._lost is not None:
                return
            self._lost = error
            waiting = list(self._pending.values())
            self._pending.clear()
            asked = self._closing
        self._begun.set()
        MONITOR.remove(self._hearing)
        try:
            if not asked:  # first, so that waiting threads find it
                self._on_event(AgentLost(self.node, error, since))
        finally:
            for pending in waiting:
                pending.fail(error.again())
            self._out.put(None)

    def _handle(self, header: Mapping[str, object], payload: bytes) -> None:
        received_ns = time.time_ns()
        if "event" in header:
            for event in events(self.node, header):
                self._tell(event)
            return
        if header.get("id") is None:
            raise BadAnswer(f"the agent cannot read what it is sent: {str(header.get('error'))[:200]}")
        request = read(Answered, header, of="a request", node=self.node).id
        if header.get("more"):
            self._sink(request, payload)
        elif (pending := self._settle(request)) is not None:
            pending.received_ns = received_ns
            pending.reply = header
            pending.answered.set()

    def _tell(self, event: AgentEvent) -> None:
        try:
            self._on_event(event)
        except Exception as error:  # waiting and later requests raise it
            raise OrchError(f"handling an event of its agent failed: {type(error).__name__}: {error}") from error

    def _sink(self, request: int, payload: bytes) -> None:
        """Write a part of an answer to its sink; where that fails, the error is the answer, and the agent may stop."""
        with self._lock:
            pending = self._pending.get(request)
        if pending is None or pending.sink is None:
            return
        try:
            pending.sink(payload)
        except (OSError, ValueError, OrchError) as error:
            self._settle(request)
            pending.fail(error)
            cancel = frame({"id": 0, "op": "cancel", "request": request})
            self._out.put((cancel, Request("cancel", node=self.node)))

    def _settle(self, request: int) -> Request | None:
        """Stop waiting for an answer; return the request, if it was still waited for."""
        with self._lock:
            pending = self._pending.pop(request, None)
            self._hearing.owed -= 0 if pending is None else pending.size
        return pending

    def _send(self, values: Mapping[str, object], payload: bytes | None, pending: Request) -> int:
        request = next(self._ids)
        header: dict[str, object] = {**values, "id": request, "op": pending.op}
        if payload is not None:
            header["bytes"] = len(payload)
        data = frame(header, payload or b"")
        pending.size = len(data)
        with self._lock:
            if self._lost is not None:
                raise self._lost.again()
            self._pending[request] = pending
            self._hearing.owed += pending.size
        self._out.put((data, pending))
        return request
