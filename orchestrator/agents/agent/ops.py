"""Who answers which request, from the greeting to the farewell."""

from __future__ import annotations

import fcntl
import functools
import json
import os
import signal
import socket
import sys
import time
from typing import Any, Callable, Dict, Generator, Optional, Tuple

from .changes import Changes, Journal, take_back
from .checks import check
from .children import KILL_S, Children, adopt, ladder
from .commands import COMMAND_S, Commands
from .files import Files
from .folders import Folder
from .home import MARKER, Home, read_marker
from .launches import Launches
from .locks import Locks
from .loop import Loop, Task
from .proc import descendants, elsewhere, here, identity, process_table
from .steps import Refusal, Steps
from .sweep import Sweep

FAREWELL_S = 5.0  # for the last answer to be taken


class Agent:
    """Everything of one run on one node."""

    def __init__(self, fds: Tuple[int, int], early: bytes) -> None:
        self.loop = Loop(fds, early, self.handle)
        self.home = Home()
        self.locks = Locks(self.loop.selector)
        self.children = Children(self.home)
        self.commands = Commands(self.children, self.loop.selector)
        self.launches = Launches(self.loop, self.home, self.children)
        self.changes = Changes(self.commands)
        self.files = Files(self.home, self.loop.wire)
        self.marker: Optional[int] = None
        self.farewell: Any = None
        self.ops: Dict[str, Callable[..., Any]] = {
            "hello": self.hello,
            "lock": self.locks.lock,
            "ping": self.ping,
            "check": functools.partial(check, self.commands),
            "run_command": self.commands.run_command,
            "read": self.files.read,
            "put": self.files.put,
            "start": self.launches.start,
            "go": self.launches.go,
            "stop": self.launches.stop,
            "signal": self.launches.signal,
            "wait": self.launches.wait,
            "change": self.changes.change,
            "undo": self.changes.undo,
            "cancel": self.loop.cancel,
            "files": self.files.listing,
            "fetch": self.files.fetch,
            "disk": self.files.disk,
            "list_processes": self.launches.list_processes,
            "sweep": self.sweep,
            "remove": self.remove,
        }

    def serve(self) -> None:
        """Answer until the input ends or a signal comes, then put everything down."""
        self.loop.catch_signals(self.children.reap)
        adopt()
        try:
            self.loop.serve()
        finally:
            for number in (signal.SIGTERM, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN)
            self.finish()

    def handle(self, header: Any, payload: bytes) -> None:
        if not isinstance(header, dict) or not isinstance(header.get("id"), (int, type(None))):
            self.loop.wire.send({"id": None, "error": "a request is an object with a number", "kind": "bad-request"})
            return
        values = {key: value for key, value in header.items() if key not in ("id", "op", "bytes")}
        if "bytes" in header:
            values["payload"] = payload
        op = header.get("op")
        if op == "bye":
            self.farewell, self.loop.ending = header.get("id"), True
            return
        if op == "fetch":
            values["request"] = header.get("id")
        if op == "hello":
            self.loop.wire.node = str(header.get("node"))
        else:
            values.pop("node", None)
        self.loop.tasks.append(Task(header.get("id"), self.carry_out(op, values), whole=op in ("change", "undo")))
        self.loop.woken = True

    def carry_out(self, op: Any, values: Dict[str, Any]) -> Steps[Any]:
        if not isinstance(op, str) or op not in self.ops:
            raise Refusal("bad-request", "no request named %r" % (op,))
        if not self.home.run and op in ("put", "start", "change", "undo", "files", "fetch", "remove"):
            raise Refusal("bad-request", "%s before hello" % op)
        result = self.ops[op](**values)
        if isinstance(result, Generator):
            result = yield from result
        return result

    def finish(self) -> None:
        """End all descendants, take every change back, and say so to whoever still listens."""
        loop, journal = self.loop, self.changes.journal
        loop.selector.unregister(loop.wire.reader)
        loop.finish_whole(COMMAND_S + KILL_S)
        _, left = loop.drive(ladder(lambda: descendants(process_table(), os.getpid()), [(signal.SIGTERM, 1.0)]))
        undone, failed = loop.drive(take_back(journal, self.commands)) if journal else ([], [])
        if self.farewell is not None:
            loop.answer(self.farewell, {"left": left, "undone": undone, "failed": failed})
            end = time.monotonic() + FAREWELL_S
            while loop.wire.pending and time.monotonic() < end:
                loop.turn(0.05)

    def hello(
        self, *, node: str, run: str, folder: str, holder: Dict[str, Any], silence_s: float = 0.0
    ) -> Dict[str, Any]:
        home = self.home
        if home.run:
            raise Refusal("bad-request", "hello was said before")
        if not folder.startswith("/") or "/" in run + node or not run or not node:
            raise ValueError("a run, a node, or a folder that is not absolute: %r %r %r" % (run, node, folder))
        home.node, self.locks.holder = node, holder
        self.locks.hold("orch-run-%s/%s" % (run, node))
        made = home.settle(folder)
        self.marker = self.mark(made)
        try:
            fcntl.flock(self.marker, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Refusal("locked", "another agent works in %s" % made.path, holder={}) from None
        self.inherit(Journal(made, home.agents), os.pread(self.marker, 1 << 16, 0))
        about = dict(identity(), run=run, node=node, holder=holder, pid=os.getpid())
        os.ftruncate(self.marker, 0)
        os.pwrite(self.marker, json.dumps(about).encode() + b"\n", 0)
        home.run, home.open, self.loop.silence_s = run, made, silence_s
        return {
            "pid": os.getpid(), "uid": os.geteuid(), "user": home.user.pw_name if home.user else None,
            "folder": made.path, "python": "%d.%d.%d" % sys.version_info[:3], "executable": sys.executable,
            "hostname": socket.gethostname(),
            "boot": about["boot"], "wall_ns": time.time_ns(), "monotonic_ns": time.monotonic_ns(),
        }  # fmt: skip

    def mark(self, folder: Folder) -> int:
        """A descriptor of the file that says whose folder it is."""
        try:
            return folder.create(MARKER, os.O_RDWR, 0o600, self.home.agents)
        except FileExistsError:
            return folder.open(MARKER, os.O_RDWR, self.home.whose)

    def inherit(self, journal: Journal, marker: bytes) -> None:
        """Take over what the run's agent before this one has not taken back, unless a reboot has."""
        before = read_marker(marker)
        if before and elsewhere(before):
            told = "%s is of the machine %s" % (journal.folder.path, before.get("machine"))
            raise Refusal("folder", told + ": each host of an inventory needs a name of its own")
        self.changes.journal, self.changes.inherited = journal, set(journal.pending)
        if before and not here(before):
            for key in self.changes.inherited:
                journal.done(key)

    def ping(self) -> Dict[str, Any]:
        return {"wall_ns": time.time_ns(), "monotonic_ns": time.monotonic_ns()}

    def sweep(self, *, work: str, keep_data: bool) -> Steps[Dict[str, Any]]:
        place = self.home.place(work)
        report = yield from Sweep(self.home, self.commands, work=place, keep_data=keep_data).carry_out()
        if self.changes.journal is not None:
            undone, failed = yield from take_back(self.changes.journal, self.commands, self.changes.inherited)
            report["undone"] += undone
            report["failed"] += failed
        return report

    def remove(self) -> Dict[str, Any]:
        alive = descendants(process_table(), os.getpid())
        pending = list(self.changes.book().pending)
        if alive or pending:
            raise Refusal("busy", "processes %s, changes %s" % (alive, pending))
        self.home.leave()
        return {}
