"""The connection to an agent: frames both ways, requests matched with their answers, and a word in time when idle."""

from __future__ import annotations

import json
import queue
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from orchestrator.answers import AgentEvent, AgentLost, LineRead, ProcessExited
from orchestrator.deadline import Deadline
from orchestrator.errors import (
    AgentError,
    DeadlineExceeded,
    LockedError,
    NeverStartedError,
    OrchError,
    TransportError,
)
from orchestrator.lock import told
from orchestrator.protocols import Channel
from orchestrator.remedies import remedy

MAGIC = b"\0orch-agent 1\n"  # what an agent says first; a login shell may have printed something before it
NOISE_LIMIT = 1 << 16
READ_SIZE = 1 << 18


class Request:
    """A request, and its answer once that has come; instants of this machine's clock."""

    def __init__(self, sink: Callable[[bytes], None] | None) -> None:
        self.sink = sink
        self.answered = threading.Event()
        self.reply: dict[str, Any] = {}
        self.error: Exception | None = None
        self.sent_ns = 0
        self.received_ns = 0


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
        """One request and its answer; an answer that is a refusal is raised."""
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
        return pending

    def close(self, deadline: Deadline) -> Mapping[str, Any]:
        """Say goodbye and close the channel; what the agent said last, nothing if it was gone or closed already."""
        with self._lock:
            already, self._closing = self._closing or self._lost is not None, True
        try:
            if already:
                return {}
            reply = self.ask("bye", deadline).reply
            self._reader.join(deadline.remaining)
            return reply
        finally:
            self._channel.close()
            self._out.put(None)

    def _write_loop(self) -> None:
        while (item := self._next_frame()) is not None:
            frame, pending = item
            pending.sent_ns = time.time_ns()
            try:
                self._channel.write(frame)
            except (OSError, TransportError):
                self._channel.close()  # the reader sees the end and says what it was
                return

    def _next_frame(self) -> tuple[bytes, Request] | None:
        try:
            return self._out.get(timeout=self._silence_s / 6)
        except queue.Empty:
            return _frame({"id": 0, "op": "ping"}), Request(None)  # nobody waits for the answer

    def _bytes(self) -> Iterator[bytes]:
        """What the agent sends, from the end of its first words on."""
        seen = b""
        while MAGIC not in seen and len(seen) < NOISE_LIMIT:
            if not (data := self._channel.read(READ_SIZE)):
                return
            seen += data
        yield seen.partition(MAGIC)[2]
        while data := self._channel.read(READ_SIZE):
            yield data

    def _read_loop(self) -> None:
        received = bytearray()
        reason = ""
        try:
            for data in self._bytes():
                received += data
                while (frame := _take(received)) is not None:
                    self._handle(*frame)
        except (OSError, TransportError, ValueError, KeyError, TypeError) as error:
            reason = str(error)
        self._end(reason)

    def _end(self, reason: str) -> None:
        said = self._channel.diagnosis()
        error = TransportError(
            "the channel to the agent ended" + (f": {reason}" if reason else ""),
            node=self._node,
            tail=said,
            hint=remedy(said),
        )
        with self._lock:
            self._lost = error
            waiting = list(self._pending.values())
            self._pending.clear()
            asked = self._closing
        if not asked:  # first, so that whoever waits finds it told
            self._on_event(AgentLost(self._node, error.message + (f"\n{error.tail}" if error.tail else "")))
        for pending in waiting:
            pending.error = error
            pending.answered.set()
        self._out.put(None)

    def _handle(self, header: dict[str, Any], payload: bytes) -> None:
        received_ns = time.time_ns()
        name = self._node
        if header.get("event") == "exit":
            self._on_event(ProcessExited(name, header["name"], header["status"], header["wall_ns"]))
        elif header.get("event") == "lines":
            for text in header["lines"]:
                self._on_event(LineRead(name, header["name"], text, header["wall_ns"]))
        elif header.get("more"):
            self._sink(header["id"], payload)
        elif header.get("id") is None:
            raise ValueError(f"the agent cannot follow us: {header.get('error')}")
        else:
            with self._lock:
                pending = self._pending.pop(header["id"], None)
            if pending is not None:
                pending.received_ns = received_ns
                pending.reply = header
                pending.answered.set()

    def _sink(self, request: int, payload: bytes) -> None:
        with self._lock:
            pending = self._pending.get(request)
        if pending is not None and pending.sink is not None and pending.error is None:
            try:
                pending.sink(payload)
            except OSError as error:
                pending.error = error

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
        self._out.put((_frame(header, payload or b""), pending))
        return request


def _frame(header: Mapping[str, Any], payload: bytes = b"") -> bytes:
    text = json.dumps(header).encode()
    return struct.pack(">I", len(text)) + text + payload


def _take(received: bytearray) -> tuple[dict[str, Any], bytes] | None:
    """Cut the first whole frame off what has been received."""
    if len(received) < 4:
        return None
    (length,) = struct.unpack_from(">I", received)
    if len(received) < 4 + length:
        return None
    header: dict[str, Any] = json.loads(bytes(received[4 : 4 + length]))
    end = 4 + length + int(header.get("bytes", 0))
    if len(received) < end:
        return None
    payload = bytes(received[4 + length : end])
    del received[:end]
    return header, payload


def _refusal(node: str, reply: Mapping[str, Any], argv: Sequence[str] | None) -> OrchError:
    message, kind = str(reply["error"]), reply.get("kind")
    words = reply.get("argv") or argv
    tail = str(reply.get("tail") or "")
    if kind == "locked":
        return LockedError(f"held by {told(reply.get('holder') or {})}", node=node)
    if kind == "timeout":
        return DeadlineExceeded(message, node=node, argv=words, tail=tail)
    hint = "install it on the node, or name it by its path" if kind == "missing" else None
    sort = NeverStartedError if kind == "unknown" else AgentError
    error = sort(message, node=node, argv=words, tail=tail, hint=hint)
    if reply.get("undo_failed"):
        error.hint = "the change could not be taken back either: " + str(reply["undo_failed"].get("tail"))
    return error
