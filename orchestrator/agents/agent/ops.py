"""The operations of an agent: the handler of each request, from the greeting to the farewell.

An operation takes what the request holds as keywords. It returns its answer, a named tuple, or a generator that does
(`steps.Steps`); the controller asks by a method of `remote.agent_client.AgentClient`.
"""

from __future__ import annotations

import errno
import fcntl
import functools
import json
import os
import signal
import socket
import sys
import time
from typing import TYPE_CHECKING, Any, Callable, Dict, Generator, List, NamedTuple, Optional, Sequence, Tuple

from .checks import check
from .children import KILL_S, Children, adopt, ladder
from .commands import COMMAND_S, Commands
from .containers import Containers, Images
from .files import Files
from .folders import MARKER, Folder, RunFolder
from .launches import Launches
from .locks import Holder, Locks
from .loop import Loop, Task, speak_when_busy
from .proc import descendants, elsewhere, identity, process_table
from .steps import JsonObject, Refusal, Steps
from .sweep import Sweep, Swept
from .undo import Changes, FailedChange, Journal, UndoReport, about_of, undo_changes

if TYPE_CHECKING:
    from .bounds import Count, Pid

FULL = {errno.ENOSPC: "no space is left", errno.EDQUOT: "the quota is used up"}
FAREWELL_S = 5.0  # for the last answer to be taken
SUCCEED_S = 10.0  # for a lost agent to put everything down before it is killed


class Greeting(NamedTuple):
    """The answer to `hello`: who answers.

    `user` is the user to whom it drops under sudo, `folder` the run's on the node.
    """

    pid: Pid
    uid: Count
    user: Optional[str]
    folder: str
    python: str
    executable: str
    hostname: str
    boot: str
    wall_ns: int
    monotonic_ns: int


class Clocks(NamedTuple):
    """The answer to `ping`: instants of the node's clocks."""

    wall_ns: int
    monotonic_ns: int


class Farewell(NamedTuple):
    """The answer to `bye`: keys of changes that were taken back, or did not stand; processes that would not go."""

    undone: Sequence[str]
    already: Sequence[str]
    failed: Sequence[FailedChange]
    left: Sequence[int]


def said_in(marker: int) -> JsonObject:
    """Return what an agent has written about itself in the marker file of a run's folder; nothing if none has."""
    return about_of(os.pread(marker, 1 << 16, 0))


def locked(marker: int) -> bool:
    """Lock the marker file; return False where another agent has it locked."""
    try:
        fcntl.flock(marker, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class Agent:
    """The state and the operations of one run on one node."""

    def __init__(self, fds: Tuple[int, int], early: bytes) -> None:
        self.loop = Loop(fds, early, self.handle)
        self.run_folder = RunFolder()
        self.locks = Locks(self.loop.selector)
        self.children = Children(self.run_folder)
        self.commands = Commands(self.children, self.loop.selector)
        self.changes = Changes(self.commands)
        self.containers = Containers(self.loop, self.run_folder, self.children, self.changes)
        self.images = Images(self.run_folder, self.commands, self.containers)
        self.launches = Launches(self.loop, self.run_folder, self.children, self.containers)
        self.files = Files(self.run_folder, self.loop.wire)
        self.marker = -1
        self.farewell: Any = None
        self.ops: Dict[str, Callable[..., Any]] = {
            "hello": self.hello,
            "lock": self.locks.lock,
            "ping": self.ping,
            "check": functools.partial(check, self.commands),
            "image": self.images.look,
            "run_command": self.commands.run_command,
            "run_commands": self.commands.run_commands,
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
        """Answer until the input ends or a signal comes, then end everything."""
        self.loop.catch_signals(self.children.reap)
        adopt()
        speak_when_busy(self.loop)
        try:
            self.loop.serve()
        finally:
            for number in (signal.SIGTERM, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN)
            self.finish()

    def handle(self, header: object, payload: bytes) -> None:
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
        self.loop.tasks.append(Task(header.get("id"), self.carry_out(op, values), must_finish=op in ("change", "undo")))
        self.loop.woken = True

    def carry_out(self, op: object, values: JsonObject) -> Steps[Any]:
        if not isinstance(op, str) or op not in self.ops:
            raise Refusal("bad-request", "no request named %r" % (op,))
        if not self.run_folder.run and op in ("put", "start", "change", "undo", "files", "fetch", "remove"):
            raise Refusal("bad-request", "%s before hello" % op)
        try:
            result = self.ops[op](**values)
            if isinstance(result, Generator):
                result = yield from result
        except OSError as error:
            place = error.filename or (self.run_folder.open.path if self.run_folder.open else values.get("folder"))
            if error.errno in FULL:
                raise Refusal("full", "%s at %s" % (FULL[error.errno], place)) from None
            if op in ("hello", "put"):
                why = "cannot write where the run's files are to lie: %s: %s" % (place, error.strerror)
                raise Refusal("unwritable", why) from None
            raise
        return result

    def finish(self) -> None:
        """End all descendants, take every change back, and say so to whoever still listens."""
        loop, journal = self.loop, self.changes.journal
        loop.selector.unregister(loop.wire.reader)
        loop.shutting_down = True
        loop.finish_whole(COMMAND_S + KILL_S)
        _, left = loop.drive(ladder(self.living, [(signal.SIGTERM, 1.0)]))
        taken = loop.drive(undo_changes(journal, self.commands)) if journal else UndoReport([], [], [])
        if self.farewell is not None:
            loop.answer(self.farewell, Farewell(taken.undone, taken.already, taken.failed, left))
            end = time.monotonic() + FAREWELL_S
            while loop.wire.pending and time.monotonic() < end:
                loop.turn(0.05)

    def living(self) -> List[int]:
        """Return the processes below this agent, or in its containers, which a daemon may hold."""
        return list(dict.fromkeys([*descendants(process_table(), os.getpid()), *self.containers.members()]))

    def hello(
        self, *, node: str, run: str, folder: str, holder: Holder, silence_s: float = 0.0, proof: str = ""
    ) -> Steps[Greeting]:
        run_folder = self.run_folder
        if run_folder.run:
            raise Refusal("bad-request", "hello was said before")
        if not folder.startswith("/") or "/" in run + node or not run or not node:
            raise ValueError("a run, a node, or a folder that is not absolute: %r %r %r" % (run, node, folder))
        silence_s = float(silence_s)  # which the loop goes by: here what is none is refused
        run_folder.node, self.locks.holder = node, holder
        made = run_folder.settle(folder)
        self.marker = self.mark(made)
        lock = "orch-run-%s/%s" % (run, node)
        yield from self.succeed(lock, proof)
        if not locked(self.marker):
            other = said_in(self.marker).get("holder")
            raise Refusal("locked", "another agent works in %s" % made.path, holder=other)
        self.locks.show(lock)
        before = said_in(self.marker)
        self.inherit(Journal(made, run_folder.agents, before), before)
        at = identity()
        about = dict(at, run=run, node=node, holder=holder, pid=os.getpid(), proof=proof)
        text = json.dumps(about).encode() + b"\n"
        os.pwrite(self.marker, text, 0)  # over what it said before: at no instant it says nothing
        os.ftruncate(self.marker, len(text))
        run_folder.run, run_folder.open, self.loop.silence_s = run, made, silence_s
        return Greeting(
            pid=os.getpid(),
            uid=os.geteuid(),
            user=run_folder.user.pw_name if run_folder.user else None,
            folder=made.path,
            python="%d.%d.%d" % sys.version_info[:3],
            executable=sys.executable,
            hostname=socket.gethostname(),
            boot=at["boot"],
            wall_ns=time.time_ns(),
            monotonic_ns=time.monotonic_ns(),
        )

    def mark(self, folder: Folder) -> int:
        """Open the marker file of a run's folder and return its descriptor."""
        try:
            return folder.create(MARKER, os.O_RDWR, 0o600, self.run_folder.agents)
        except FileExistsError:
            return folder.open(MARKER, os.O_RDWR, self.run_folder.owner)

    def succeed(self, lock: str, proof: str) -> Steps[None]:
        """End this run's previous agent on the node, which our controller has lost: only the two share the proof.

        Only the agent and root can read it. One that is stopped goes on first, to put everything down itself.
        """
        pid, before = self.locks.owner(lock), said_in(self.marker)
        if pid and proof and (before.get("pid"), before.get("proof")) == (pid, proof):
            yield from ladder(
                # The last of its threads to end gives up what it held.
                lambda: [pid] if pid in process_table() or self.locks.owner(lock) or not locked(self.marker) else [],
                [(int(signal.SIGTERM), 0.0), (int(signal.SIGCONT), SUCCEED_S)],
            )

    def inherit(self, journal: Journal, before: JsonObject) -> None:
        """Take over the changes that this run's previous agent has not taken back, unless the node has rebooted."""
        if before and elsewhere(before):
            message = "%s is of the machine %s" % (journal.folder.path, before.get("machine"))
            raise Refusal("folder", message + ": each host of an inventory needs a name of its own")
        self.changes.journal, self.changes.inherited = journal, set(journal.pending)

    def ping(self) -> Clocks:
        return Clocks(time.time_ns(), time.monotonic_ns())

    def sweep(self, *, work: str, keep_data: bool, forget: str = "", stayed_s: Optional[float] = None) -> Steps[Swept]:
        place = self.run_folder.place(work)
        report = yield from Sweep(
            self.run_folder, self.commands, work=place, keep_data=keep_data, forget=forget, stayed_s=stayed_s
        ).carry_out()
        journal = self.changes.journal
        if journal is not None:
            taken = yield from undo_changes(journal, self.commands, self.changes.inherited)
            report = report._replace(
                undone=[*report.undone, *taken.undone],
                already=[*report.already, *taken.already],
                failed=[*report.failed, *taken.failed, *journal.unreadable()],
            )
        return report

    def remove(self, *, keep: Sequence[str] = ()) -> None:
        alive = descendants(process_table(), os.getpid())
        journal = self.changes.book()
        if alive or journal.pending:
            left = ["process %d" % pid for pid in alive] + list(journal.pending)
            raise Refusal("busy", "the run's folder stays, for what is left of the run: %s" % ", ".join(left))
        about = {key: value for key, value in said_in(self.marker).items() if key not in ("pid", "proof")}
        self.run_folder.leave(frozenset(keep), json.dumps(dict(about, since=time.time())).encode() + b"\n")
