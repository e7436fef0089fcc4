"""What an agent does when it is asked: a real one carries out requests with wild arguments, where it can harm nothing.

It is an ordinary user's, in namespaces of its own, in which all files but those of a few empty folders are read-only.
"""

from __future__ import annotations

import atexit
import json
import os
import random
import select
import shutil
import subprocess
import sys
import tempfile
import time
import zlib
from pathlib import Path
from typing import Any

from orchestrator.agents.agent import frames
from orchestrator.core.errors import OrchError
from orchestrator.remote.connection import MAGIC
from orchestrator.remote.frames import Frames, frame
from orchestrator.remote.transport.bootstrap import agent_argv, agent_source
from tests.fuzz import mutate
from tests.fuzz.target import Target

PATIENCE_S = 60.0
SOON_S = 1.0  # after which requests that may rightly take long are called off
INPUTS_EACH = 200  # of one agent
NOBODY = 65534
FOLDERS = ("/tmp", "/var/tmp", "/dev/shm")  # empty ones of the agent's own
WORK = "/var/tmp/work"
HELLO: dict[str, Any] = {
    "op": "hello",
    "node": "n1",
    "run": "r1",
    "folder": f"{WORK}/r1.n1",
    "holder": {"user": "u"},
    "silence_s": 300.0,
    "proof": "x",
}
STARTED = {
    "op": "start",
    "name": "p",
    "argv": ["sleep", "600"],
    "env": {"A": "1"},
    "ready": {"kind": "started"},
    "ready_within_s": 5.0,
}
RULE = ["sh", "-c", "echo x >> /var/tmp/rules"]
GOOD: tuple[dict[str, Any], ...] = (
    STARTED, STARTED,
    {**STARTED, "argv": ["sh", "-c", "echo ready; exec sleep 600"], "ready": {"kind": "line", "pattern": "^ready$"}},
    {**STARTED, "argv": ["sh", "-c", "echo 1; echo 2"], "ready": {"kind": "exited"}, "follow": "stdout"},
    {**STARTED, "argv": ["cat"], "gate": True, "privileged": True},
    {**STARTED, "ready": {"kind": "listening", "port": 9}, "ready_within_s": 0.1},
    {"op": "go", "name": "p", "at_ns": 1 << 60, "every_ns": 10**8},
    {"op": "go", "name": "p"}, {"op": "signal", "name": "p", "number": 15}, {"op": "list_processes"},
    {"op": "stop", "name": "p", "signals": [[2, 0.1], [15, 0.1]]}, {"op": "wait", "name": "p", "timeout_s": 0.1},
    {"op": "put", "path": "p/x", "mode": 420, "privileged": False, "append": False, "content": "hello"},
    {"op": "fetch", "path": "p/x", "offset": 0, "most": 5}, {"op": "files"}, {"op": "disk", "path": "/"},
    {"op": "read", "paths": ["/proc/version", "p/x"], "globs": ["/sys/class/net/*/mtu"]},
    {"op": "run_command", "argv": ["sh", "-c", "cat; exit 3"], "timeout_s": 5.0, "privileged": False},
    {"op": "run_commands", "lines": [["echo", "x"], ["false"]], "each_s": 1.0, "timeout_s": 5.0},
    {"op": "change", "key": "k", "undo": [["true"]], "apply": [RULE], "presence": [["cat", "/var/tmp/rules"], "^x$"]},
    {"op": "change", "key": "k", "undo": [["false"]], "apply": [["false"]]}, {"op": "undo", "key": "k"},
    {"op": "check", "requirements": [{"kind": "program", "what": "sh"}, {"kind": "module", "what": "json"},
                                     {"kind": "privilege", "what": "net"}, {"kind": "mtu", "what": "lo 9000"}]},
    {"op": "lock", "name": "k", "holder": {"user": "u"}}, {"op": "cancel", "request": 2}, {"op": "ping"},
    {"op": "sweep", "work": WORK, "keep_data": False, "forget": "r0"},
)  # fmt: skip
RARE: tuple[dict[str, Any], ...] = (HELLO, {"op": "remove"}, {"op": "bye"})
VALUES = (
    0,
    1,
    9,
    15,
    19,
    -9,
    1e308,
    "p",
    "k",
    "x",
    "p/x",
    "../x",
    "/proc/self/mem",
    [["true"]],
    [],
    {},
    "started",
    "line",
    "exited",
    "listening",
    "(",
    "lo",
    WORK,
    f"{WORK}/r1.n1",
    "/",
    ["sleep", "0.05"],
)


def _made(source: random.Random) -> bytes:
    """A few requests, most of them with a value or two that are not as they should be."""
    many = [source.choice(GOOD) for _ in range(source.choice((1, 2, 3, 5)))]
    if source.random() < 0.02:
        many.insert(0 if source.random() < 0.5 else len(many), source.choice(RARE))
    wild = [mutate.value(source, one, VALUES) if source.random() < 0.7 else one for one in many]
    return mutate.text(source, wild)


class _Agent:
    """An agent in its place, and the channel to it."""

    def __init__(self) -> None:
        self.inputs = 0
        self._frames = Frames()
        self._greeted = b""
        self._number = 0
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the agent
        self._process = subprocess.Popen(
            placed(agent_argv(_python())), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._said, bufsize=0
        )
        self._write(agent_source())

    def carry_out(self, requests: list[Any]) -> None:
        """Have requests answered, or called off, and what they began ended; it goes on if it was not to end."""
        self.inputs += 1
        asked = [self._send(request) for request in requests if isinstance(request, dict) and _sent(request)]
        ends = any(isinstance(one, dict) and one.get("op") in ("bye", "hello", "remove") for one in requests)
        left = self._answered(set(asked), SOON_S)
        for number in left:
            self._send({"op": "cancel", "request": number})
        last = self._send({"op": "stop", "name": self._named("p"), "signals": [[9, 0.1]]})
        if self._answered({last}, PATIENCE_S) and not ends:
            raise AssertionError(self._end() or "it does not answer any more")
        if ends or self.inputs >= INPUTS_EACH:
            self.close()

    def close(self) -> None:
        """Have it end, in order."""
        _agents.clear()
        if self._process.poll() is None:
            self._answered({self._send({"op": "bye"})}, PATIENCE_S)
        if told := self._end():
            raise AssertionError(told)

    def hello(self) -> None:
        if self._answered({self._send(HELLO)}, PATIENCE_S):
            raise AssertionError(self._end() or "it does not answer a greeting")

    def _send(self, request: dict[str, Any]) -> int:
        """Ask for something by the names of this input; the number of the request."""
        self._number += 1
        header = {key: value for key, value in request.items() if key not in ("bytes", "content")}
        for kind in ("p", "k"):
            header = {key: self._named(kind) if value == kind else value for key, value in header.items()}
        payload = zlib.compress(str(request["content"]).encode(errors="replace")) if "content" in request else b""
        sizes = {"bytes": len(payload)} if payload else {}
        self._write(frame({**header, "id": self._number, **sizes}, payload))
        return self._number

    def _named(self, kind: str) -> str:
        return f"{kind}{self.inputs}"

    def _write(self, data: bytes) -> None:
        try:
            self._process.stdin.write(data)  # type: ignore[union-attr]
        except BrokenPipeError:
            return  # how it has ended is told when an answer is missed

    def _answered(self, numbers: set[int], within_s: float) -> set[int]:
        """Those of these requests that have no answer after so long; each answer is held against what it has to be."""
        left, until = set(numbers), time.monotonic() + within_s
        while left and select.select([self._process.stdout], [], [], max(0.0, until - time.monotonic()))[0]:
            data = os.read(self._process.stdout.fileno(), 1 << 18)  # type: ignore[union-attr]
            if not data:
                break
            for header, _payload in self._frames.feed(self._after_greeting(data)):
                left.discard(header.get("id", 0))
                if header.get("id") and "event" not in header and not header.get("more"):  # 0: it is busy, and alive
                    _hold(header)
        return left

    def _after_greeting(self, data: bytes) -> bytes:
        if MAGIC in self._greeted:
            return data
        self._greeted += data
        return self._greeted.partition(MAGIC)[2]

    def _end(self) -> str:
        """See that it is gone; how it has ended, where that is not in order."""
        self._process.stdin.close()  # type: ignore[union-attr]
        try:
            status = self._process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            status = self._process.wait()
        self._process.stdout.close()  # type: ignore[union-attr]
        self._said.seek(0)
        told = self._said.read().decode(errors="replace").strip().splitlines()
        self._said.close()
        return f"it ended with status {status}: {told[-1] if told else 'it said nothing'}" if status or told else ""


def _sent(request: dict[str, Any]) -> bool:
    """Whether a controller could send it: a larger frame ends the agent, as it should."""
    return _finite(request) and len(json.dumps(request)) < frames.HEADER_LIMIT // 2


def _finite(request: dict[str, Any]) -> bool:
    """Whether it is JSON at all: what is not is for the target of frames."""
    try:
        json.dumps(request, allow_nan=False)
    except ValueError:
        return False
    return True


def _hold(answer: dict[str, Any]) -> None:
    """An answer says whether it is one, and a refusal says of which kind, and why."""
    assert isinstance(answer.get("ok"), bool), f"it does not say whether it is an answer: {answer!s:.200}"
    if not answer["ok"]:
        assert isinstance(answer.get("error"), str), "a refusal does not say why"
        assert isinstance(answer.get("kind"), str), "a refusal does not say of which kind it is"


def placed(argv: list[str]) -> list[str]:
    """What starts a program where it can harm nothing: as nobody where we are root, else as root of nothing."""
    alone = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--net", "--ipc", "--uts", "--mount-proc"]
    lines = ["mount --make-rprivate /", "mount -o remount,bind,ro /"]
    lines += [f"mount -t tmpfs -o mode=1777,size=64m none {folder}" for folder in FOLDERS]
    other = f"setpriv --reuid {NOBODY} --regid {NOBODY} --clear-groups --no-new-privs "
    root = os.geteuid() == 0
    script = " && ".join([*lines, f'exec {other if root else ""}"$@"'])
    return [*alone, *([] if root else ["--user", "--map-root-user"]), "sh", "-c", script, "-", *argv]


def _python() -> str:
    """An interpreter that anybody may use: that of a virtual environment may lie where only root may go."""
    return shutil.which("python3", path="/usr/bin:/usr/local/bin:/bin") or sys.executable


_agents: list[_Agent] = []  # the one of this process, once there is one


def _operations(data: bytes, _: Path) -> None:
    try:
        requests = json.loads(data)
    except ValueError:  # made smaller
        return
    if not isinstance(requests, list):
        return
    if not _agents:
        _agents.append(_Agent())
        if not any(isinstance(one, dict) and one.get("op") == "hello" for one in requests[:1]):
            _agents[0].hello()
    try:
        _agents[0].carry_out(requests)
    except (AssertionError, OrchError):
        _agents.clear()
        raise


@atexit.register
def _close() -> None:
    if _agents:
        _agents[0].close()


TARGETS = (Target(name="operations", make=_made, read=_operations, ours=(), share=20, seconds=60),)
