"""The channel between a controller and an agent, both ways: frames, answers and events, and requests."""

from __future__ import annotations

import json
import os
import queue
import random
import struct
from pathlib import Path
from typing import Any

from orchestrator.agents.agent.ops import Agent
from orchestrator.core.deadline import Deadline
from orchestrator.core.errors import BadAnswer, OrchError
from orchestrator.parts.launch import Launch, Requirement
from orchestrator.parts.topology import Node
from orchestrator.remote.agent_client import AgentClient
from orchestrator.remote.connection import MAGIC
from orchestrator.remote.events import events
from orchestrator.remote.frames import Frames
from orchestrator.remote.replies import refusal
from tests.fuzz import mutate
from tests.fuzz.target import Target

PATIENCE_S = 60.0
LAUNCH = Launch(name="p", node="n1", role="traffic", argv=("x",))
NEED = Requirement(node="n1", kind="program", what="x", remedy="", needed_by="")
GOOD: dict[str, dict[str, Any]] = {
    "hello": {"pid": 7, "uid": 0, "user": None, "folder": "/w/r1.n1", "python": "3.11.2", "executable": "/x",
              "hostname": "h", "boot": "b", "wall_ns": 1, "monotonic_ns": 1},
    "ping": {"wall_ns": 1, "monotonic_ns": 1},
    "check": {"findings": [{"found": True, "detail": "", "broken": False}]},
    "run_command": {"status": 0, "stdout": "", "stderr": ""},
    "run_commands": {"done": [{"status": 0, "stdout": "", "stderr": ""}, None]},
    "read": {"wall_ns": 1, "texts": {"/x": "1", "/y": None}},
    "start": {"pid": 1, "started_ns": 1, "ready_ns": 1},
    "stop": {"status": 0, "killed": False, "was_over": False, "ended_ns": 1, "user_s": 0.5, "system_s": 0.0,
             "max_rss_bytes": 1, "tail": ""},
    "files": {"files": [{"path": "x", "bytes": 1}], "left": [{"path": "y", "why": "a link", "kept": False}]},
    "disk": {"free_bytes": 1, "total_bytes": 2},
    "list_processes": {"processes": [{"pid": 1, "argv": ["x"], "name": ""}]},
    "sweep": {"killed": [{"pid": 1, "argv": [], "run": "r"}], "left": [1], "undone": [], "removed": [], "kept": [],
              "failed": [{"id": "k", "argv": ["x"], "status": 1, "tail": ""}], "alive": [], "already": [],
              "forgotten": [], "stayed": []},
    "undo": {"error": "x", "kind": "locked", "argv": ["x"], "tail": "t", "holder": {"user": "u"},
             "undo_failed": {"argv": ["x"], "status": 1, "tail": "x"}},
}  # fmt: skip
ASKED = {
    "hello": lambda client, until: client.hello(until),
    "ping": lambda client, until: client.clock(1, until),
    "check": lambda client, until: client.check([NEED], until),
    "run_command": lambda client, until: client.run(["x"], until),
    "run_commands": lambda client, until: client.run_all([["x"], ["y"]], until, each_s=9.0),
    "read": lambda client, until: client.read(["/x"], until),
    "start": lambda client, until: client.start(LAUNCH, until),
    "stop": lambda client, until: client.stop(LAUNCH, until),
    "files": lambda client, until: client.files(until),
    "disk": lambda client, until: client.disk(until),
    "list_processes": lambda client, until: client.processes(until),
    "sweep": lambda client, until: client.sweep(until, keep_data=True),
    "undo": lambda client, until: client.undo("k", until),
}
EVENTS: tuple[dict[str, Any], ...] = (
    {"event": "exit", "name": "p", "status": 0, "wall_ns": 1, "node": "n1"},
    {"event": "lines", "name": "p", "lines": ["x", "y"], "wall_ns": 1, "node": "n1"},
    {"id": 1, "more": True, "bytes": 3},
    {"id": None, "error": "not JSON"},
    {"id": 1, "ok": True},
)
REQUESTS: tuple[dict[str, Any], ...] = (
    {"op": "hello", "node": "n1", "run": "r1", "folder": "/w/r1.n1", "holder": {"user": "u"}, "silence_s": 9.0},
    {"op": "ping"}, {"op": "disk", "path": "/"}, {"op": "wait", "name": "p", "timeout_s": 0.0}, {"op": "bye"},
    {"op": "stop", "name": "p", "signals": [[15, 1.0]]}, {"op": "signal", "name": "p", "number": 15},
    {"op": "go", "name": "p"}, {"op": "undo", "key": "k"}, {"op": "cancel", "request": 1}, {"op": "files"},
    {"op": "change", "key": "k", "undo": [["true"]], "apply": [["true"]]}, {"op": "fetch", "path": "x", "offset": 0},
    {"op": "put", "path": "x", "mode": 420, "privileged": False, "bytes": 2}, {"op": "remove"},
)  # fmt: skip
HARMLESS = ("ping", "disk", "wait", "stop", "signal", "go", "undo", "cancel", "files", "fetch", "put", "change")
NUMBERS = (0, 1, 7, "r1", "p", "bye", "ping", [[15, 1.0]], [1], 1 << 20, (1 << 20) + 1, 1 << 25)


def _raw(text: bytes, payload: bytes = b"", length: int | None = None) -> bytes:
    return struct.pack(">I", len(text) if length is None else length) + text + payload


def _stream(source: random.Random, good: tuple[dict[str, Any], ...]) -> bytes:
    """A few frames with changed values, and then perhaps changed bytes."""
    made = b""
    for place in range(source.choice((1, 1, 2, 5))):
        header = {"id": place + 1, **source.choice(good)}
        payload = source.randbytes(header["bytes"]) if "bytes" in header else b""
        text = mutate.text(source, mutate.value(source, header, NUMBERS) if source.random() < 0.7 else header)
        made += _raw(text, payload)
    return mutate.havoc(source, (made,)) if source.random() < 0.4 else made


def _frames(data: bytes, _: Path) -> None:
    """What comes in one piece and in two is the same; events and refusals are read, or refused."""
    whole, first = _heard((data,))
    for cut in (1, len(data) // 2, len(data) - 1):
        assert _heard((data[:cut], data[cut:])) == (whole, first), "it matters how the bytes were cut"
    for header, _payload in whole:
        for read in (
            lambda spoken: list(events("n1", spoken)) if "event" in spoken else None,
            lambda spoken: refusal("n1", spoken, None) if "error" in spoken else None,
        ):
            try:
                read(header)
            except BadAnswer as error:
                _hold(error)


def _hold(error: OrchError) -> None:
    assert error.node == "n1", "it does not tell whose agent it was"
    assert len(error.message) < 1000, "it repeats what the agent says"


def _heard(pieces: tuple[bytes, ...]) -> tuple[list[tuple[dict[str, Any], bytes]], str]:
    frames, heard = Frames(), []
    try:
        for piece in pieces:
            heard.extend(frames.feed(piece))
    except BadAnswer as error:
        return heard, str(error).partition(": ")[0]  # then what had come by then
    return heard, ""


class _Script:
    """A channel whose far end greets, says what the input is once it is asked, and goes."""

    way = ()
    by_hand = ""

    def __init__(self, said: bytes) -> None:
        self._said = said
        self._out: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._out.put(MAGIC)

    def read(self, size: int) -> bytes:
        return self._out.get()

    def write(self, data: bytes) -> None:
        for piece in (self._said, b""):
            self._out.put(piece)

    def close(self) -> None:
        self._out.put(b"")

    def diagnosis(self) -> str:
        return ""


def _answer(source: random.Random) -> bytes:
    """Which request, in a byte, and what is said to it."""
    place = source.randrange(len(ASKED))
    good = {"id": 1, "ok": True, **GOOD[list(ASKED)[place]]}
    if source.random() < 0.2:
        good = {"id": 1, **GOOD["undo"]}
    return bytes([place]) + _stream(source, ({**good, "id": 1},))


def _answers(data: bytes, _: Path) -> None:
    asked = list(ASKED.values())[data[0] % len(ASKED)] if data else ASKED["ping"]
    node = Node(name="n1", work="/nowhere", python="/x")
    client = AgentClient(node, _Script(data[1:] or b"\0"), run="r1", holder={}, on_event=lambda _: None)
    try:
        asked(client, Deadline.after(PATIENCE_S))
    except OrchError as error:
        _hold(error)
    finally:
        client._connection._channel.close()
        client._connection._reader.join(PATIENCE_S)


def _requests(data: bytes, folder: Path) -> None:
    """The agent's own reading, with the requests that do nothing to a node; a controller understands the answers."""
    reader, writer = os.pipe()
    agent = Agent((reader, writer), data)
    agent.ops = {name: agent.ops[name] for name in HARMLESS}
    try:
        agent.loop.handle_frames()
        for _ in range(20):
            if not agent.loop.tasks or agent.loop.ending:
                break
            agent.loop.step_tasks()
        said = _taken(reader) + bytes(agent.loop.wire.pending)
    finally:
        agent.loop.selector.close()
        for fd in (reader, writer):
            os.close(fd)
    for header, _payload in Frames().feed(said):
        json.dumps(header)


def _taken(reader: int) -> bytes:
    found = b""
    try:
        while data := os.read(reader, 1 << 16):
            found += data
    except BlockingIOError:
        pass
    return found


TARGETS = (
    Target(name="frames", make=lambda source: _stream(source, EVENTS), read=_frames, ours=(), share=150),
    Target(name="answers", make=_answer, read=_answers, ours=(), share=100),
    Target(name="requests", make=lambda source: _stream(source, REQUESTS), read=_requests, ours=(), share=150),
)
