"""The connection to an agent: frames both ways, requests matched with their answers, and a word in time when idle."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from orchestrator.answers import AgentEvent, AgentLost, LineRead, ProcessExited
from orchestrator.deadline import Deadline
from orchestrator.errors import (
    AgentError,
    BadAnswer,
    DeadlineExceeded,
    LockedError,
    NeverStartedError,
    OrchError,
    TransportError,
    last_lines,
    shortened,
)
from orchestrator.frames import Frames, frame
from orchestrator.lock import told
from orchestrator.protocols import Channel
from orchestrator.remedies import remedy
from orchestrator.replies import Fields

MAGIC = b"\0orch-agent 1\n"  # what an agent says first; a login shell may have printed something before it
NOISE_LIMIT = 1 << 16
READ_SIZE = 1 << 18


class Request:
    """A request, and its answer once that has come; instants of this machine's clock."""

    def __init__(self, sink: Callable[[bytes], None] | None) -> None:
        self.sink = sink
        self.answered = threading.Event()
        self.reply: dict[str, Any] = {}
        self.fields = Fields({}, of="nothing", node="")
        self.error: Exception | None = None
        self.sent_ns = 0
        self.received_ns = 0

    def fail(self, error: Exception) -> None:
        """Whoever waits for the answer gets this instead."""
        self.error = error
        self.answered.set()


class Connection:
    """A channel to the agent of a node, with a thread for each direction; several threads may ask at once.

    `on_event` is called in the thread that reads. When nothing was asked for a sixth of `silence_s`, a ping goes out.
    """

    def __init__(
        self, node: str, channel: Channel, *, on_event: Callable[[AgentEvent], None], silence_s: float
    ) -> None:
        self._node = node
        self._channel = channel
        self._on_event = on_event
        self._silence_s = silence_s
        self._lock = threading.Lock()
        self._pending: dict[int, Request] = {}
        self._last_id = 0
        self._closing = False
        self._lost: TransportError | None = None
        self._out: queue.SimpleQueue[tuple[bytes, Request] | None] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read_loop, name=f"leash-{node}-in", daemon=True)
        self._writer = threading.Thread(target=self._write_loop, name=f"leash-{node}-out", daemon=True)
        self._reader.start()
        self._writer.start()

    def ask(
        self,
        op: str,
        deadline: Deadline,
        values: Mapping[str, Any] | None = None,
        *,
        payload: bytes | None = None,
        sink: Callable[[bytes], None] | None = None,
        late_s: float = 0.0,
        argv: Sequence[str] | None = None,
    ) -> Request:
        """One request and its answer; an answer that is a refusal is raised. `fields` of it tells what it holds."""
        pending = Request(sink)
        request = self._send(op, values or {}, payload, pending)
        try:
            if not pending.answered.wait(deadline.remaining + late_s):
                raise DeadlineExceeded(
                    f"gave up waiting for the agent to answer {op!r}",
                    node=self._node,
                    argv=argv,
                    hint="the node may be overloaded, or its agent stopped",
                )
        finally:
            with self._lock:
                self._pending.pop(request, None)
        if pending.error is not None:
            raise pending.error
        if "error" in pending.reply:
            raise _refusal(self._node, pending.reply, argv)
        pending.fields = Fields(pending.reply, of=repr(op), node=self._node)
        return pending

    def close(self, deadline: Deadline) -> Fields | None:
        """Say goodbye and close the channel; what the agent said last, None if it was gone or closed already."""
        with self._lock:
            already, self._closing = self._closing or self._lost is not None, True
        try:
            if already:
                return None
            reply = self.ask("bye", deadline).fields
            self._reader.join(deadline.remaining)
            return reply
        finally:
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
        try:
            return self._out.get(timeout=self._silence_s / 6)
        except queue.Empty:
            return frame({"id": 0, "op": "ping"}), Request(None)  # nobody waits for the answer

    def _bytes(self) -> Iterator[bytes]:
        """What the agent sends, from the end of its first words on."""
        seen = b""
        while MAGIC not in seen:
            if len(seen) > NOISE_LIMIT:
                raise BadAnswer(f"what answers is no agent of ours: it has printed {len(seen)} bytes and no greeting")
            if not (data := self._channel.read(READ_SIZE)):
                return
            seen += data
        yield seen.partition(MAGIC)[2]
        while data := self._channel.read(READ_SIZE):
            yield data

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
                self._end(reason)
            finally:
                if reason:  # who does not keep to the protocol is not listened to; an agent puts everything down then
                    self._channel.close()

    def _end(self, reason: str) -> None:
        """Tell everybody that the agent is lost, whatever befalls one of them."""
        error = TransportError("the channel to the agent ended" + (f": {reason}" if reason else ""), node=self._node)
        try:
            said = self._channel.diagnosis()
            error.tail, error.hint = last_lines(said), remedy(said)
        finally:
            with self._lock:
                self._lost = error
                waiting = list(self._pending.values())
                self._pending.clear()
                asked = self._closing
            try:
                if not asked:  # first, so that whoever waits finds it told
                    self._on_event(AgentLost(self._node, error.message + (f"\n{error.tail}" if error.tail else "")))
            finally:
                for pending in waiting:
                    pending.fail(error)
                self._out.put(None)

    def _handle(self, header: dict[str, Any], payload: bytes) -> None:
        received_ns = time.time_ns()
        if "event" in header:
            for event in _events(self._node, header):
                self._tell(event)
            return
        fields = Fields(header, of="a request", node=self._node)
        if header.get("id") is None:
            raise BadAnswer(f"the agent cannot follow us: {str(header.get('error'))[:200]}")
        request = fields.integer("id", least=0)
        if header.get("more"):
            self._sink(request, payload)
            return
        with self._lock:
            pending = self._pending.pop(request, None)
        if pending is not None:
            pending.received_ns = received_ns
            pending.reply = header
            pending.answered.set()

    def _tell(self, event: AgentEvent) -> None:
        try:
            self._on_event(event)
        except Exception as error:  # whoever waits for an answer is told, and so is whoever asks next
            raise OrchError(f"an event of its agent could not be taken: {type(error).__name__}: {error}") from error

    def _sink(self, request: int, payload: bytes) -> None:
        """Hand on a part of an answer; where it cannot be taken, that is the answer, and the agent may stop."""
        with self._lock:
            pending = self._pending.get(request)
        if pending is None or pending.sink is None:
            return
        try:
            pending.sink(payload)
        except (OSError, ValueError, OrchError) as error:
            with self._lock:
                self._pending.pop(request, None)
            pending.fail(error)
            self._out.put((frame({"id": 0, "op": "cancel", "request": request}), Request(None)))

    def _send(self, op: str, values: Mapping[str, Any], payload: bytes | None, pending: Request) -> int:
        with self._lock:
            if self._lost is not None:
                raise self._lost
            self._last_id += 1
            request = self._last_id
            self._pending[request] = pending
        header = {**values, "id": request, "op": op}
        if payload is not None:
            header["bytes"] = len(payload)
        self._out.put((frame(header, payload or b""), pending))
        return request


def _events(node: str, header: Mapping[str, Any]) -> Iterator[AgentEvent]:
    """What an agent says on its own account."""
    fields = Fields(header, of="nothing (an event)", node=node)
    kind, name, wall_ns = header["event"], fields.text("name"), fields.integer("wall_ns")
    if kind == "exit":
        yield ProcessExited(node, name, fields.integer("status"), wall_ns)
    elif kind == "lines":
        for text in fields.texts("lines"):
            yield LineRead(node, name, text, wall_ns)
    else:
        raise BadAnswer(f"an event of unknown kind: {str(kind)[:30]}", node=node)


def _refusal(node: str, reply: Mapping[str, Any], argv: Sequence[str] | None) -> OrchError:
    fields = Fields(reply, of="a request, a refusal", node=node)
    message, kind, tail = (
        shortened(fields.text("error")),
        fields.text_or_none("kind"),
        fields.text_or_none("tail") or "",
    )
    words = fields.texts("argv") if reply.get("argv") else argv
    if kind == "locked":
        holder = fields.inner("holder").words("user", "host", "pid", "run", "since") if reply.get("holder") else {}
        return LockedError(f"held by {shortened(told(holder))}", node=node)
    if kind == "timeout":
        return DeadlineExceeded(message, node=node, argv=words, tail=tail)
    hint = "install it on the node, or name it by its path" if kind == "missing" else None
    sort = NeverStartedError if kind == "unknown" else AgentError
    error = sort(message, node=node, argv=words, tail=tail, hint=hint)
    if reply.get("undo_failed"):
        said = fields.inner("undo_failed").text_or_none("tail")
        error.hint = f"the change could not be taken back either: {said}"
    return error
