"""The controller's end of an agent's channel: every request has a deadline, every failure says where and why."""

from __future__ import annotations

import hashlib
import json
import queue
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from orchestrator.deadline import Deadline
from orchestrator.errors import AgentError, DeadlineExceeded, LaunchError, LockedError, OrchError, TransportError
from orchestrator.launch import Exited, Launch, Line, Listening, Ready, Requirement
from orchestrator.protocols import Channel
from orchestrator.topology import Node

MAGIC = b"\0orch-agent 1\n"  # what an agent says first; a login shell may have printed something before it
NOISE_LIMIT = 1 << 16
PUT_CHUNK = 1 << 20
READ_SIZE = 1 << 18
CLOSE_S = 15.0
ANSWER_S = 1.0  # how much later than the agent's own time limit its answer, which says more than ours, may come


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
    """The channel ended and nobody had asked for it."""

    node: str
    reason: str


AgentEvent = ProcessExited | LineRead | AgentLost


@dataclass(frozen=True, slots=True)
class Greeting:
    """What an agent says of itself; `user` is whom it drops to, when it runs under sudo."""

    pid: int
    uid: int
    user: str | None
    python: str
    executable: str
    hostname: str
    boot: str
    wall_ns: int
    monotonic_ns: int


@dataclass(frozen=True, slots=True)
class ClockSample:
    """Controller's clock minus the node's, known to within `uncertainty_ns` either way."""

    offset_ns: int
    uncertainty_ns: int


@dataclass(frozen=True, slots=True)
class Finding:
    """Whether a requirement is met, and what was seen."""

    requirement: Requirement
    found: bool
    detail: str


@dataclass(frozen=True, slots=True)
class Completed:
    """How a command ended, with what it printed (at most 1 MiB each)."""

    status: int
    stdout: str
    stderr: str


@dataclass(frozen=True, slots=True)
class Texts:
    """Small files of the node, as they were at `wall_ns` of its clock; None for one that cannot be read."""

    wall_ns: int
    texts: Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class Disk:
    """Room where a run's folder lies."""

    free_bytes: int
    total_bytes: int


@dataclass(frozen=True, slots=True)
class Running:
    """A launch that is ready; instants of the node's clock."""

    pid: int
    started_ns: int
    ready_ns: int


@dataclass(frozen=True, slots=True)
class Stopped:
    """How a launch ended: `was_over` before it was asked to, `killed` because neither it nor its children would go.

    `complaint` is empty when the status is one that its launch accepts after being asked.
    """

    status: int
    killed: bool
    was_over: bool
    ended_ns: int
    user_s: float
    system_s: float
    max_rss_bytes: int
    tail: str
    complaint: str = ""


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file in the run's folder on the node, by its path in it."""

    path: str
    bytes: int


@dataclass(frozen=True, slots=True)
class RemoteProcess:
    """A process of the run on the node; `name` is its launch's, or empty; `run` is set by a sweep."""

    pid: int
    argv: tuple[str, ...]
    name: str = ""
    run: str = ""


@dataclass(frozen=True, slots=True)
class Swept:
    """What a sweep found and did: folders are absolute, `undone` are keys of changes, `failed` are sentences."""

    killed: tuple[RemoteProcess, ...]
    left: tuple[int, ...]
    undone: tuple[str, ...]
    failed: tuple[str, ...]
    removed: tuple[str, ...]
    kept: tuple[str, ...]
    alive: tuple[str, ...]


class _Pending:
    """A request that waits for its answer."""

    def __init__(self, sink: Callable[[bytes], None] | None) -> None:
        self.sink = sink
        self.answered = threading.Event()
        self.reply: dict[str, Any] = {}
        self.error: Exception | None = None
        self.sent_ns = 0
        self.received_ns = 0


def _ready(ready: Ready) -> dict[str, Any]:
    if isinstance(ready, Line):
        return {"kind": "line", "pattern": ready.pattern, "file": ready.file}
    if isinstance(ready, Listening):
        return {"kind": "listening", "port": ready.port}
    return {"kind": "exited" if isinstance(ready, Exited) else "started"}


def _hint(said: str) -> str | None:
    """What would mend a channel that ended, from what the far end printed."""
    text = said.lower()
    if "sudo" in text and ("password" in text or "not allowed" in text or "may not run" in text):
        return "let the user run python on the node with sudo and without a password, or set `sudo: false`"
    if "not found" in text or "no such file" in text:
        return "install Python 3.8 or later on the node, or set `python` to its path"
    return None


def holder_text(holder: Mapping[str, Any]) -> str:
    """Who holds a lock, for people."""
    if not holder:
        return "somebody who did not say who it is"
    who = f"{holder.get('user', '?')}@{holder.get('host', '?')}"
    return f"{who}, process {holder.get('pid', '?')}, run {holder.get('run', '?')}, since {holder.get('since', '?')}"


class Leash:
    """An agent on a node, as seen by the controller; several threads may ask at once.

    `on_event` is called in a thread of the leash and must not block or ask the leash. An agent that hears nothing for
    `silence_s` takes its controller, or the network between, for dead; the leash speaks up in time while it lives.
    """

    def __init__(
        self,
        node: Node,
        channel: Channel,
        *,
        run: str,
        holder: Mapping[str, Any],
        on_event: Callable[[AgentEvent], None],
        silence_s: float = 120.0,
    ) -> None:
        self.node = node
        self._channel = channel
        self._run = run
        self._holder = dict(holder)
        self._on_event = on_event
        self._silence_s = silence_s
        self._lock = threading.Lock()
        self._pending: dict[int, _Pending] = {}
        self._last_id = 0
        self._closing = False
        self._lost: TransportError | None = None
        self._out: queue.SimpleQueue[tuple[bytes, _Pending] | None] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read_loop, name=f"leash-{node.name}-in", daemon=True)
        self._writer = threading.Thread(target=self._write_loop, name=f"leash-{node.name}-out", daemon=True)
        self._reader.start()
        self._writer.start()

    # The channel

    def _write_loop(self) -> None:
        while (item := self._next_frame()) is not None:
            frame, pending = item
            pending.sent_ns = time.time_ns()
            try:
                self._channel.write(frame)
            except (OSError, TransportError):
                self._channel.close()  # the reader sees the end and says what it was
                return

    def _next_frame(self) -> tuple[bytes, _Pending] | None:
        try:
            return self._out.get(timeout=self._silence_s / 6)
        except queue.Empty:
            return _frame({"id": 0, "op": "ping"}), _Pending(None)  # nobody waits for the answer

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
        except (OSError, TransportError, ValueError) as error:
            reason = str(error)
        self._end(reason)

    def _end(self, reason: str) -> None:
        said = self._channel.diagnosis()
        error = TransportError(
            "the channel to the agent ended" + (f": {reason}" if reason else ""),
            node=self.node.name,
            tail=said,
            hint=_hint(said),
        )
        with self._lock:
            self._lost = error
            waiting = list(self._pending.values())
            self._pending.clear()
            asked = self._closing
        for pending in waiting:
            pending.error = error
            pending.answered.set()
        self._out.put(None)
        if not asked:
            self._on_event(AgentLost(self.node.name, error.message + (f"\n{error.tail}" if error.tail else "")))

    def _handle(self, header: dict[str, Any], payload: bytes) -> None:
        received_ns = time.time_ns()
        name = self.node.name
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

    def _send(self, op: str, values: Mapping[str, Any], payload: bytes | None, pending: _Pending) -> int:
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

    def _ask(
        self,
        op: str,
        deadline: Deadline,
        values: Mapping[str, Any] | None = None,
        *,
        payload: bytes | None = None,
        sink: Callable[[bytes], None] | None = None,
        late_s: float = 0.0,
        argv: Sequence[str] | None = None,
    ) -> _Pending:
        """One request and its answer; an answer that is a refusal is raised."""
        pending = _Pending(sink)
        request = self._send(op, values or {}, payload, pending)
        try:
            if not pending.answered.wait(deadline.remaining + late_s):
                raise DeadlineExceeded(
                    f"gave up waiting for the agent to answer {op!r}",
                    node=self.node.name,
                    argv=argv,
                    hint="the node may be overloaded, or its agent stopped",
                )
        finally:
            with self._lock:
                self._pending.pop(request, None)
        if pending.error is not None:
            raise pending.error
        if "error" in pending.reply:
            raise self._refusal(pending.reply, argv)
        return pending

    def _refusal(self, reply: Mapping[str, Any], argv: Sequence[str] | None) -> OrchError:
        message, kind = str(reply["error"]), reply.get("kind")
        words = reply.get("argv") or argv
        tail = str(reply.get("tail") or "")
        if kind == "locked":
            return LockedError(f"held by {holder_text(reply.get('holder') or {})}", node=self.node.name)
        if kind == "timeout":
            return DeadlineExceeded(message, node=self.node.name, argv=words, tail=tail)
        hint = "install it on the node, or name it by its path" if kind == "missing" else None
        error = AgentError(message, node=self.node.name, argv=words, tail=tail, hint=hint)
        if reply.get("undo_failed"):
            error.hint = "the change could not be taken back either: " + str(reply["undo_failed"].get("tail"))
        return error

    # What can be asked

    def hello(self, deadline: Deadline, *, folder: str | None = None) -> Greeting:
        """Make the run's folder, in the node's work folder unless given as an absolute path, and learn who answers."""
        values = {
            "node": self.node.name,
            "run": self._run,
            "folder": folder or str(PurePosixPath(self.node.work) / self._run),
            "holder": self._holder,
            "silence_s": self._silence_s,
        }
        reply = self._ask("hello", deadline, values).reply
        return Greeting(**{key: reply[key] for key in Greeting.__dataclass_fields__})

    def lock(self, name: str, deadline: Deadline) -> None:
        """Hold a lock of the whole node until this agent ends, however it ends; LockedError names the holder."""
        self._ask("lock", deadline, {"name": name, "holder": self._holder})

    def clock(self, samples: int, deadline: Deadline) -> ClockSample:
        """Compare the clocks: of several pings with four timestamps, the one with the shortest round trip counts.

        The offset is the mean of both ways, as in NTP (RFC 5905, section 8); half the round trip bounds its error.
        """
        best: tuple[int, int] | None = None
        for _ in range(samples):
            ping = self._ask("ping", deadline)
            there = int(ping.reply["wall_ns"])
            trip = (ping.received_ns - ping.sent_ns, (ping.sent_ns + ping.received_ns) // 2 - there)
            best = trip if best is None or trip[0] < best[0] else best
        if best is None:
            raise ValueError("a clock needs at least one sample")
        return ClockSample(best[1], (best[0] + 1) // 2)

    def check(self, requirements: Sequence[Requirement], deadline: Deadline) -> list[Finding]:
        """Look for what a run needs, in the order asked."""
        wanted = [
            {"kind": need.kind, "what": need.what, "python": need.python or self.node.python} for need in requirements
        ]
        findings = self._ask("check", deadline, {"requirements": wanted}).reply["findings"]
        return [Finding(need, seen["found"], seen["detail"]) for need, seen in zip(requirements, findings, strict=True)]

    def run(self, argv: Sequence[str], deadline: Deadline, *, stdin: bytes = b"", privileged: bool = True) -> Completed:
        """Run a short command to its end, with the agent's own rights unless not `privileged`."""
        values = {"argv": list(argv), "timeout_s": deadline.remaining, "privileged": privileged}
        reply = self._ask("run_command", deadline, values, payload=stdin, late_s=ANSWER_S, argv=argv).reply
        return Completed(reply["status"], reply["stdout"], reply["stderr"])

    def read(self, paths: Sequence[str], deadline: Deadline, *, globs: Sequence[str] = ()) -> Texts:
        """Small files such as counters, all in one go; of each at most its last 256 KiB."""
        reply = self._ask("read", deadline, {"paths": list(paths), "globs": list(globs)}).reply
        return Texts(reply["wall_ns"], reply["texts"])

    def put(self, path: str, content: bytes | Path, deadline: Deadline) -> None:
        """Write a file in the run's folder; a Path is read here and stays executable if it is."""
        if isinstance(content, Path):
            mode = 0o755 if content.stat().st_mode & 0o100 else 0o644
            with content.open("rb") as file:
                self._put_parts(path, iter(lambda: file.read(PUT_CHUNK), b""), mode, deadline)
        else:
            parts = (content[at : at + PUT_CHUNK] for at in range(0, len(content), PUT_CHUNK))
            self._put_parts(path, parts, 0o644, deadline)

    def _put_parts(self, path: str, parts: Iterator[bytes], mode: int, deadline: Deadline) -> None:
        values = {"path": path, "mode": mode}
        self._ask("put", deadline, values, payload=next(parts, b""))
        for part in parts:
            self._ask("put", deadline, {**values, "append": True}, payload=part)

    def start(self, launch: Launch, deadline: Deadline) -> Running:
        """Put a launch's files, start it, and return when it is ready; LaunchError with its last words otherwise."""
        values = {
            "name": launch.name,
            "argv": list(launch.argv),
            "env": dict(launch.env),
            "ready": _ready(launch.ready),
            "ready_within_s": min(launch.ready_within_s, deadline.remaining),
            "gate": launch.gate,
            "follow": launch.follow,
            "privileged": launch.privileged,
        }
        try:
            for name, content in launch.files.items():
                self.put(f"{launch.name}/{name}", content, deadline)
            reply = self._ask("start", deadline, values, late_s=ANSWER_S, argv=launch.argv).reply
        except (AgentError, OSError) as error:
            raise _launch_error(launch, error) from error
        return Running(reply["pid"], reply["started_ns"], reply["ready_ns"])

    def go(self, name: str, deadline: Deadline) -> int:
        """Open a launch's gate; when, by the node's clock in nanoseconds."""
        try:
            return int(self._ask("go", deadline, {"name": name}).reply["wall_ns"])
        except AgentError as error:
            message = f"{name} cannot go: {error.message}"
            raise LaunchError(message, node=self.node.name, tail=error.tail) from error

    def stop(self, launch: Launch, deadline: Deadline, *, grace: float = 1.0) -> Stopped:
        """Ask a launch and all its children to end as it wishes to be asked, then kill; grace periods times `grace`."""
        signals = [[int(number), grace_s * grace] for number, grace_s in launch.stop.signals]
        values = {"name": launch.name, "signals": signals}
        reply = self._ask("stop", deadline, values, late_s=ANSWER_S, argv=launch.argv).reply
        complaint = ""
        if not reply["was_over"] and reply["status"] not in launch.stop.ok:
            complaint = f"{launch.name} ended with status {reply['status']} when it was asked to end"
        fields = [key for key in Stopped.__dataclass_fields__ if key != "complaint"]
        return Stopped(**{key: reply[key] for key in fields}, complaint=complaint)

    def signal(self, name: str, number: int, deadline: Deadline) -> None:
        """Send a signal to a launch's process group."""
        self._ask("signal", deadline, {"name": name, "number": int(number)})

    def wait(self, name: str, deadline: Deadline) -> int:
        """Wait until a launch has ended; its exit status."""
        values = {"name": name, "timeout_s": deadline.remaining}
        return int(self._ask("wait", deadline, values, late_s=ANSWER_S).reply["status"])

    def change(
        self, key: str, deadline: Deadline, *, undo: Sequence[Sequence[str]], apply: Sequence[Sequence[str]]
    ) -> None:
        """Change something on the node; the undo is on its disk first, and is run when this leash ends or breaks."""
        values = {"key": key, "undo": [list(argv) for argv in undo], "apply": [list(argv) for argv in apply]}
        self._ask("change", deadline, values)

    def undo(self, key: str, deadline: Deadline) -> None:
        """Take a change back."""
        self._ask("undo", deadline, {"key": key})

    def files(self, deadline: Deadline) -> list[RemoteFile]:
        """Every file in the run's folder, by path."""
        return [RemoteFile(file["path"], file["bytes"]) for file in self._ask("files", deadline).reply["files"]]

    def fetch(self, path: str, destination: Path, deadline: Deadline) -> str:
        """Bring a file of the run's folder home and return its SHA-256.

        It lies beside its destination as `*.part` until it is complete and its hash is right; an interrupted one is
        taken up where it stopped.
        """
        part = destination.with_name(destination.name + ".part")
        part.parent.mkdir(parents=True, exist_ok=True)
        digest = hashlib.sha256()
        with part.open("ab+") as file:
            offset = _hash_into(digest, file)

            def sink(data: bytes) -> None:
                file.write(data)
                digest.update(data)

            reply = self._ask("fetch", deadline, {"path": path, "offset": offset}, sink=sink).reply
        if reply["sha256"] != digest.hexdigest():
            part.unlink()
            raise AgentError(f"{path} changed while it was fetched", node=self.node.name, hint="fetch it again")
        part.replace(destination)
        return digest.hexdigest()

    def disk(self, deadline: Deadline, *, path: str | None = None) -> Disk:
        """Room at `path`, or where the run's folder lies."""
        reply = self._ask("disk", deadline, {"path": path}).reply
        return Disk(reply["free_bytes"], reply["total_bytes"])

    def processes(self, deadline: Deadline) -> list[RemoteProcess]:
        """What still runs of this run on the node, by descent and by tag, except its agent."""
        found = self._ask("list_processes", deadline).reply["processes"]
        return [RemoteProcess(entry["pid"], tuple(entry["argv"]), name=entry["name"]) for entry in found]

    def sweep(self, deadline: Deadline, *, keep_data: bool, work: str | None = None) -> Swept:
        """Put down what runs whose agents died left on the node: processes, changes and, unless kept, folders."""
        reply = self._ask("sweep", deadline, {"work": work or self.node.work, "keep_data": keep_data}).reply
        failed = tuple(f"{entry['id']}: {' '.join(entry['argv'])}: {entry['tail']}" for entry in reply["failed"])
        return Swept(
            killed=tuple(RemoteProcess(one["pid"], tuple(one["argv"]), run=one["run"]) for one in reply["killed"]),
            left=tuple(reply["left"]),
            undone=tuple(reply["undone"]),
            failed=failed,
            removed=tuple(reply["removed"]),
            kept=tuple(reply["kept"]),
            alive=tuple(reply["alive"]),
        )

    def remove(self, deadline: Deadline) -> None:
        """Delete the run's folder on the node; refused while processes or changes of the run remain."""
        self._ask("remove", deadline)

    def close(self, deadline: Deadline | None = None) -> None:
        """Have the agent end everything, take all changes back and exit; AgentError names what it could not."""
        deadline = deadline or Deadline.after(CLOSE_S)
        with self._lock:
            already, self._closing = self._closing or self._lost is not None, True
        try:
            if already:
                return
            reply = self._ask("bye", deadline).reply
            self._reader.join(deadline.remaining)
        finally:
            self._channel.close()
            self._out.put(None)
        if reply["failed"] or reply["left"]:
            tail = "\n".join(f"{entry['id']}: {entry['tail']}" for entry in reply["failed"])
            left = f"; processes that would not end: {reply['left']}" if reply["left"] else ""
            message = f"{len(reply['failed'])} changes could not be taken back{left}"
            raise AgentError(message, node=self.node.name, tail=tail, hint="`orch clean` tries again")


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


def _hash_into(digest: Any, file: BinaryIO) -> int:
    """Hash what a file holds already; its size in bytes."""
    file.seek(0)
    size = 0
    while data := file.read(PUT_CHUNK):
        digest.update(data)
        size += len(data)
    return size


def _launch_error(launch: Launch, error: OrchError | OSError) -> LaunchError:
    if isinstance(error, OSError):
        return LaunchError(f"{launch.name} cannot be put on the node: {error}", node=launch.node)
    return LaunchError(
        f"{launch.name} {error.message}" if error.tail or error.argv else f"{launch.name}: {error.message}",
        node=launch.node,
        argv=launch.argv,
        tail=error.tail,
        hint=error.hint,
    )
