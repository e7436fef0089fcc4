"""The agent: one process on a node that starts, watches and puts down whatever a run needs there.

It arrives over its own channel and runs from memory: standard library only, Python 3.8 or later, nothing imported from
elsewhere. A frame is four bytes (big endian) with the length of a JSON header, the header, and `header["bytes"]` raw
bytes. When its input ends, or nothing comes for too long, whoever asked is gone: it ends everything it started, takes
back every change and exits.
"""

# Plain paths and open descriptors, for a small and quick start on the node: ruff's flake8-use-pathlib is off here.
# ruff: noqa: PTH102, PTH106, PTH110, PTH112, PTH115, PTH118, PTH120, PTH123, PTH207, PTH208
from __future__ import annotations

import ctypes
import fcntl
import glob
import hashlib
import json
import os
import pwd
import re
import resource
import selectors
import shutil
import signal
import socket
import stat
import struct
import subprocess
import sys
import tempfile
import time
from typing import Any, Callable, Dict, Generator, List, NamedTuple, Optional, Tuple, TypeVar, Union

MAGIC = b"\0orch-agent 1\n"  # tells our frames from whatever a login shell prints before them
MARKER = ".orch-run.json"  # lies in every run's folder: who made it; the living agent holds a lock on it
JOURNAL = "undo.jsonl"
HEADER_LIMIT = 1 << 22
PAYLOAD_LIMIT = 1 << 28
OUTPUT_LIMIT = 1 << 20  # of each stream of a command
READ_LIMIT = 1 << 18  # of a file asked for by `read`
READ_TOTAL = 1 << 23
CHUNK = 1 << 18
BACKLOG = 1 << 20  # bytes waiting for the channel above which nothing more is produced
FOLLOW_S = 0.05
KILL_S = 3.0  # how long to go on killing what will not die
COMMAND_S = 10.0
SBIN = ("/usr/local/sbin", "/usr/sbin", "/sbin")
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*\Z")

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
LIBC = ctypes.CDLL(None, use_errno=True)

FIND_MODULES = """
import importlib.util, json, sys
sys.path = [entry for entry in sys.path if entry]
found = {}
for name in sys.argv[1:]:
    try:
        spec = importlib.util.find_spec(name.partition(".")[0])
    except (ImportError, ValueError) as error:
        found[name] = [False, str(error)]
    else:
        where = spec and (spec.origin or ", ".join(spec.submodule_search_locations or ()))
        found[name] = [spec is not None, where or "no such module"]
print(json.dumps(found))
"""

Reply = Union[Dict[str, Any], Tuple[Dict[str, Any], bytes]]
T = TypeVar("T")
# A task yields for how many seconds it may sleep (any child's end wakes it too), or None: until the output has drained.
Steps = Generator[Optional[float], None, T]


class Refusal(Exception):
    """A request that cannot be granted, told to whoever asked."""

    def __init__(self, kind: str, message: str, **more: Any) -> None:
        super().__init__(message)
        self.kind = kind
        self.more = more


class Row(NamedTuple):
    """One line of the process table."""

    pid: int
    parent: int
    group: int
    session: int
    state: str


class Completed(NamedTuple):
    """How a command ended; a negative status is a signal's number."""

    status: int
    stdout: str
    stderr: str
    timed_out: bool


class Child:
    """A process that this agent started, until it is reaped and after."""

    def __init__(self, popen: subprocess.Popen[bytes]) -> None:
        self.popen = popen
        self.pid = popen.pid
        self.status: Optional[int] = None
        self.usage: Optional[resource.struct_rusage] = None
        self.ended_ns = 0


class Process:
    """A launch: a child with a name, a folder, and perhaps a gate."""

    def __init__(self, name: str, folder: str, child: Child) -> None:
        self.name = name
        self.folder = folder
        self.child = child
        self.killed = False


class Task:
    """An answer that takes a while."""

    def __init__(self, request: Any, steps: Steps[Any]) -> None:
        self.request = request
        self.steps = steps
        self.wake_at: Optional[float] = 0.0


def process_table() -> Dict[int, Row]:
    """Every process that is not a zombie, by pid."""
    table = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open("/proc/%s/stat" % entry, "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
        except OSError:
            continue
        row = Row(int(entry), int(fields[1]), int(fields[2]), int(fields[3]), fields[0].decode())
        if row.state not in "ZX":
            table[row.pid] = row
    return table


def descendants(table: Dict[int, Row], root: int) -> List[int]:
    children: Dict[int, List[int]] = {}
    for row in table.values():
        children.setdefault(row.parent, []).append(row.pid)
    found: List[int] = []
    todo = [root]
    while todo:
        below = children.get(todo.pop(), [])
        found += below
        todo += below
    return found


def tags(pid: int) -> Dict[str, str]:
    """The environment variables of ours that a process carries; none where we may not look."""
    try:
        with open("/proc/%d/environ" % pid, "rb") as file:
            entries = file.read().decode(errors="replace").split("\0")
    except OSError:
        return {}
    return dict(entry.split("=", 1) for entry in entries if entry.startswith("ORCH_") and "=" in entry)


def command_line(pid: int) -> List[str]:
    try:
        with open("/proc/%d/cmdline" % pid, "rb") as file:
            return file.read().decode(errors="replace").rstrip("\0").split("\0")
    except OSError:
        return []


def hit(pids: List[int], number: int) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            continue  # gone already, or root's: what remains is counted afterwards


def find_program(name: str, folder: str = "/") -> str:
    if "/" in name:
        path = os.path.normpath(os.path.join(folder, name))
        if os.access(path, os.X_OK):
            return path
    else:
        places = [entry for entry in os.environ.get("PATH", os.defpath).split(":") if entry.startswith("/")]
        found = shutil.which(name, path=":".join(places + [entry for entry in SBIN if entry not in places]))
        if found:
            return found
    raise Refusal("missing", "no program named %r on this node" % name)


def listening(port: int) -> bool:
    """Whether any TCP socket of this network namespace listens on the port."""
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(table) as file:
                rows = [line.split() for line in file.readlines()[1:]]
        except OSError:
            continue
        if any(row[3] == "0A" and int(row[1].rpartition(":")[2], 16) == port for row in rows):
            return True
    return False


def last_words(folder: str) -> str:
    """The end of what a process printed, errors first."""
    for name in ("stderr", "stdout"):
        try:
            with open(os.path.join(folder, name), "rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - 4096))
                text = file.read(4096).decode(errors="replace").strip()
        except OSError:
            continue
        if text:
            return text
    return ""


def identity() -> Dict[str, str]:
    """What makes kernel state ours to restore: after a reboot or in another network namespace it is somebody else's."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        return {"boot": file.read().strip(), "netns": os.readlink("/proc/self/ns/net")}


def argvs(value: Any) -> List[List[str]]:
    if not isinstance(value, list) or not all(
        isinstance(argv, list) and argv and all(isinstance(word, str) for word in argv) for argv in value
    ):
        raise ValueError("not a list of argument lists: %r" % (value,))
    return value


class Lines:
    """Whole lines of a file that is being written, from its start."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.offset = 0
        self.rest = b""

    def new(self) -> List[str]:
        try:
            with open(self.path, "rb") as file:
                file.seek(self.offset)
                data = file.read(1 << 20)
        except FileNotFoundError:
            return []
        self.offset += len(data)
        whole, newline, rest = (self.rest + data).rpartition(b"\n")
        self.rest = rest
        return whole.decode(errors="replace").split("\n") if newline else []


class Journal:
    """Commands that take changes back, on disk before the change is made."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.pending: Dict[str, List[List[str]]] = {}
        try:
            with open(path, "rb+") as file:
                data = file.read()
                whole = data[: data.rfind(b"\n") + 1]
                if whole != data:  # a crash while it was written: then the change had not begun
                    file.truncate(len(whole))
        except FileNotFoundError:
            return
        for line in whole.splitlines():
            entry = json.loads(line)
            if entry.get("done"):
                self.pending.pop(entry["id"], None)
            else:
                self.pending[entry["id"]] = argvs(entry["undo"])

    def append(self, entry: Dict[str, Any]) -> None:
        record = json.dumps(entry).encode() + b"\n"
        fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            before = os.fstat(fd).st_size
            if os.write(fd, record) != len(record):
                os.ftruncate(fd, before)
                raise OSError("the disk is full: %s cannot be written" % self.path)
            os.fsync(fd)
        finally:
            os.close(fd)
        folder = os.open(os.path.dirname(self.path), os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def add(self, key: str, undo: List[List[str]]) -> None:
        self.append({"id": key, "undo": undo})
        self.pending[key] = undo

    def done(self, key: str) -> None:
        self.pending.pop(key, None)
        self.append({"id": key, "done": True})


class Drain:
    """Takes what a command prints, and forgets what is beyond the limit."""

    def __init__(self, selector: selectors.BaseSelector, stream: Any) -> None:
        self.selector = selector
        self.stream = stream
        self.data = bytearray()
        os.set_blocking(stream.fileno(), False)
        selector.register(stream, selectors.EVENT_READ, self.take)

    def take(self) -> None:
        try:
            data = os.read(self.stream.fileno(), 1 << 16)
        except BlockingIOError:
            return
        self.data += data[: OUTPUT_LIMIT - len(self.data)]
        if not data:
            self.close()

    def close(self) -> None:
        if not self.stream.closed:
            self.selector.unregister(self.stream)
            self.stream.close()

    def finish(self) -> str:
        """The text so far, with what still lies in the pipe; a grandchild that holds it open does not matter."""
        before = -1
        while not self.stream.closed and before != len(self.data):
            before = len(self.data)
            self.take()
        self.close()
        return bytes(self.data).decode(errors="replace")


class Wire:
    """Frames in and out over two file descriptors, never blocking."""

    def __init__(self, selector: selectors.BaseSelector, fds: Tuple[int, int], early: bytes) -> None:
        self.selector = selector
        self.reader, self.writer = fds
        self.received = bytearray(early)
        self.pending = bytearray()
        self.writing = False
        self.node = ""
        for fd in fds:
            os.set_blocking(fd, False)

    def read(self) -> bool:
        """Take what has come; False at the end of the stream."""
        try:
            data = os.read(self.reader, 1 << 18)
        except BlockingIOError:
            return True
        except OSError:
            return False
        self.received += data
        return bool(data)

    def frames(self) -> Generator[Tuple[Any, bytes], None, None]:
        while len(self.received) >= 4:
            (length,) = struct.unpack_from(">I", self.received)
            if length > HEADER_LIMIT:
                raise Refusal("protocol", "a frame's header of %d bytes" % length)
            if len(self.received) < 4 + length:
                return
            try:
                header = json.loads(self.received[4 : 4 + length].decode())
            except ValueError as error:
                del self.received[: 4 + length]
                self.send({"id": None, "error": "not JSON: %s" % error, "kind": "bad-request"})
                continue
            size = header.get("bytes", 0) if isinstance(header, dict) else 0
            if not isinstance(size, int) or not 0 <= size <= PAYLOAD_LIMIT:
                raise Refusal("protocol", "a frame of %r bytes" % (size,))
            end = 4 + length + size
            if len(self.received) < end:
                return
            payload = bytes(self.received[4 + length : end])
            del self.received[:end]
            yield header, payload

    def send(self, header: Dict[str, Any], payload: bytes = b"") -> None:
        if payload:
            header["bytes"] = len(payload)
        text = json.dumps(dict(header, node=self.node)).encode()
        self.pending += struct.pack(">I", len(text)) + text + payload
        self.flush()

    def flush(self) -> None:
        while self.pending:
            try:
                written = os.write(self.writer, self.pending[: 1 << 18])
            except BlockingIOError:
                break
            except OSError:
                self.pending.clear()  # nobody reads any more: the end of the input says the rest
                break
            del self.pending[:written]
        if bool(self.pending) != self.writing:
            self.writing = not self.writing
            if self.writing:
                self.selector.register(self.writer, selectors.EVENT_WRITE, self.flush)
            else:
                self.selector.unregister(self.writer)


class Agent:
    """Everything of one run on one node."""

    def __init__(self, fds: Tuple[int, int], early: bytes) -> None:
        self.selector = selectors.DefaultSelector()
        self.wire = Wire(self.selector, fds, early)
        self.selector.register(self.wire.reader, selectors.EVENT_READ, self.receive)
        self.tasks: List[Task] = []
        self.children: Dict[int, Child] = {}
        self.processes: Dict[str, Process] = {}
        self.locks: Dict[str, socket.socket] = {}
        self.journal: Optional[Journal] = None
        self.marker: Optional[int] = None
        self.run = self.node = self.folder = ""
        self.holder: Dict[str, Any] = {}
        self.ending = False
        self.farewell: Any = None
        self.heard_at = time.monotonic()
        self.silence_s = 0.0  # how long nobody may speak to us; 0 for as long as they like
        self.woken = False
        self.user: Optional[pwd.struct_passwd] = None
        if os.geteuid() == 0 and int(os.environ.get("SUDO_UID", "0")) > 0:
            self.user = pwd.getpwuid(int(os.environ["SUDO_UID"]))
        requests: Tuple[Callable[..., Any], ...] = (
            self.hello, self.lock, self.ping, self.check, self.run_command, self.read, self.put, self.start, self.go,
            self.stop, self.signal, self.wait, self.change, self.undo, self.files, self.fetch, self.disk,
            self.list_processes, self.sweep, self.remove,
        )  # fmt: skip
        self.ops = {request.__name__: request for request in requests}

    # The loop

    def serve(self) -> None:
        """Answer until the input ends or a signal comes, then put everything down."""
        wakeup, waker = os.pipe()
        for fd in (wakeup, waker):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(
            signal.SIGINT, signal.SIG_IGN
        )  # Ctrl-C is the controller's to handle; it needs its agents for that
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda *_: setattr(self, "ending", True))
        self.selector.register(wakeup, selectors.EVENT_READ, lambda: self.reap(wakeup))
        LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self.wire.pending += MAGIC
        self.wire.flush()
        try:
            self.handle_frames()
            while not self.ending:
                self.turn(self.idle_s())
                self.step_tasks()
                if self.silence_s and time.monotonic() - self.heard_at >= self.silence_s:
                    break
        finally:
            for number in (signal.SIGTERM, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN)
            self.finish()

    def turn(self, wait_s: Optional[float]) -> None:
        for key, _ in self.selector.select(wait_s):
            key.data()

    def receive(self) -> None:
        self.heard_at = time.monotonic()
        if not self.wire.read():
            self.ending = True
        self.handle_frames()

    def handle_frames(self) -> None:
        try:
            for header, payload in self.wire.frames():
                self.handle(header, payload)
        except Refusal as refusal:  # the stream cannot be followed any more
            self.wire.send({"id": None, "error": str(refusal), "kind": refusal.kind})
            self.ending = True

    def handle(self, header: Any, payload: bytes) -> None:
        if not isinstance(header, dict):
            self.wire.send({"id": None, "error": "a request is an object", "kind": "bad-request"})
            return
        values = {key: value for key, value in header.items() if key not in ("id", "op", "bytes")}
        if "bytes" in header:
            values["payload"] = payload
        op = header.get("op")
        if op == "bye":
            self.farewell, self.ending = header.get("id"), True
            return
        if op == "fetch":
            values["request"] = header.get("id")
        if op == "hello":
            self.wire.node = str(header.get("node"))
        else:
            values.pop("node", None)
        self.tasks.append(Task(header.get("id"), self.carry_out(op, values)))
        self.woken = True

    def carry_out(self, op: Any, values: Dict[str, Any]) -> Steps[Any]:
        if not isinstance(op, str) or op not in self.ops:
            raise Refusal("bad-request", "no request named %r" % (op,))
        if not self.run and op in ("put", "start", "change", "undo", "files", "fetch", "remove"):
            raise Refusal("bad-request", "%s before hello" % op)
        result = self.ops[op](**values)
        if isinstance(result, Generator):
            result = yield from result
        return result

    def step_tasks(self) -> None:
        everyone, self.woken = self.woken, False
        now = time.monotonic()
        for task in list(self.tasks):
            drained = len(self.wire.pending) < BACKLOG
            if (drained if task.wake_at is None else everyone or task.wake_at <= now) and self.step(task):
                self.tasks.remove(task)

    def step(self, task: Task) -> bool:
        """Let a task go on; True when it is over and answered."""
        try:
            pause = next(task.steps)
        except StopIteration as end:
            self.answer(task.request, end.value)
        except Refusal as refusal:
            self.answer(task.request, dict(refusal.more, error=str(refusal), kind=refusal.kind))
        except OSError as error:
            self.answer(task.request, {"error": str(error), "kind": "os", "errno": error.errno})
        except (ValueError, TypeError, LookupError, AttributeError, re.error, OverflowError) as error:
            text = "%s: %s" % (type(error).__name__, error)
            self.answer(task.request, {"error": text, "kind": "bad-request"})
        except subprocess.SubprocessError as error:
            self.answer(task.request, {"error": str(error), "kind": "os"})
        else:
            task.wake_at = None if pause is None else time.monotonic() + pause
            return False
        return True

    def answer(self, request: Any, result: Any) -> None:
        if request is None and not (isinstance(result, dict) and "error" in result):
            return  # a task of the agent's own
        header, payload = result if isinstance(result, tuple) else (result or {}, b"")
        self.wire.send(dict(header, id=request, ok="error" not in header), payload)

    def idle_s(self) -> Optional[float]:
        if self.woken:
            return 0.0
        times = [task.wake_at for task in self.tasks if task.wake_at is not None]
        if any(task.wake_at is None for task in self.tasks) and len(self.wire.pending) < BACKLOG:
            return 0.0
        if self.silence_s:
            times.append(self.heard_at + self.silence_s)
        return max(0.0, min(times) - time.monotonic()) if times else None

    def drive(self, steps: Steps[T]) -> T:
        """Run one task to its end while requests wait."""
        while True:
            try:
                pause = next(steps)
            except StopIteration as end:
                result: T = end.value
                return result
            self.turn(min(0.05 if pause is None else pause, 0.05))

    def reap(self, wakeup: int) -> None:
        try:
            while os.read(wakeup, 4096):
                continue
        except BlockingIOError:
            pass
        self.woken = True
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            child = self.children.pop(pid, None)
            if child is not None:
                child.ended_ns = time.time_ns()
                child.usage = usage
                child.status = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
                child.popen.returncode = child.status

    # Processes

    def spawn(self, argv: List[str], folder: str, user: Optional[pwd.struct_passwd] = None, **more: Any) -> Child:
        """Start a process in a session of its own that the kernel kills should this agent be killed."""
        if not argv or not all(isinstance(word, str) for word in argv):
            raise ValueError("not an argument list: %r" % (argv,))
        program = find_program(argv[0], folder)
        agent = os.getpid()
        groups = os.getgrouplist(user.pw_name, user.pw_gid) if user else []

        def prepare() -> None:
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGCHLD):
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, [])
            if user:
                os.setgroups(groups)
                os.setgid(user.pw_gid)
                os.setuid(user.pw_uid)
            LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)  # a change of user would have cleared it
            if os.getppid() != agent:
                os._exit(127)

        popen = subprocess.Popen(
            argv,
            executable=program,
            cwd=folder,
            start_new_session=True,
            preexec_fn=prepare,  # noqa: PLW1509 - there is one thread
            bufsize=0,
            **more,
        )
        child = self.children[popen.pid] = Child(popen)
        return child

    def environment(self, launch: str, user: Optional[pwd.struct_passwd], more: Dict[str, str]) -> Dict[str, str]:
        env = dict(os.environ)
        if user:
            env = {key: value for key, value in env.items() if not key.startswith("SUDO_")}
            env.update(HOME=user.pw_dir, USER=user.pw_name, LOGNAME=user.pw_name)
        env.update(more)
        env.update(ORCH_RUN=self.run, ORCH_NODE=self.node, ORCH_LAUNCH=launch)
        return env

    def command(
        self, argv: List[str], timeout_s: float, stdin: bytes = b"", user: Optional[pwd.struct_passwd] = None
    ) -> Steps[Completed]:
        """Run a command to its end and keep what it prints; after `timeout_s` it is killed with all its children."""
        env = self.environment("", user, {"LC_ALL": "C.UTF-8"})
        with tempfile.TemporaryFile() if stdin else open(os.devnull, "rb+") as text:
            text.write(stdin)
            text.seek(0)
            pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
            child = self.spawn(argv, "/", user, env=env, stdin=text, **pipes)
        drains = [Drain(self.selector, child.popen.stdout), Drain(self.selector, child.popen.stderr)]
        end = time.monotonic() + timeout_s
        late = False
        while child.status is None:
            if time.monotonic() >= end:
                late, end = True, end + KILL_S
                hit([child.pid, *descendants(process_table(), child.pid)], signal.SIGKILL)
            yield max(0.0, end - time.monotonic())
        stdout, stderr = (drain.finish() for drain in drains)
        return Completed(child.status, stdout, stderr, late)

    def commands(self, lines: List[List[str]]) -> Steps[Optional[Dict[str, Any]]]:
        """Run commands one after the other; what went wrong with the first that failed, or None."""
        for argv in lines:
            try:
                done = yield from self.command(argv, COMMAND_S)
            except (OSError, Refusal, subprocess.SubprocessError) as error:
                return {"argv": argv, "status": None, "tail": str(error)}
            if done.status or done.timed_out:
                return {"argv": argv, "status": done.status, "tail": done.stdout + done.stderr}
        return None

    def members(self, process: Process) -> List[int]:
        """The living processes of a launch: below it, in its session, or with its name in their environment."""
        table = process_table()
        mine = set(descendants(table, os.getpid()))
        below = set(descendants(table, process.child.pid)) if process.child.status is None else set()
        found = []
        for pid in mine:
            if pid in self.children:
                own = self.children[pid] is process.child
            else:
                own = pid in below or process.child.pid in (table[pid].session, table[pid].group)
                own = own or tags(pid).get("ORCH_LAUNCH") == process.name
            if own:
                found.append(pid)
        return found

    def ladder(self, find: Callable[[], List[int]], signals: List[Tuple[int, float]]) -> Steps[Tuple[bool, List[int]]]:
        """Each signal to all that `find` finds, with its grace in seconds, then SIGKILL until none remain.

        Returns whether SIGKILL was needed and which processes would not die.
        """
        for number, grace_s in signals:
            left = find()
            hit(left, number)
            end = time.monotonic() + grace_s
            pause = 0.01
            while left and time.monotonic() < end:
                yield max(0.0, min(pause, end - time.monotonic()))
                pause = min(0.2, pause * 1.5)
                left = find()
        left = find()
        killed = bool(left)
        end = time.monotonic() + KILL_S
        while left and time.monotonic() < end:
            hit(left, signal.SIGKILL)
            yield 0.01
            left = find()
        return killed, left

    def finish(self) -> None:
        """End all descendants, take every change back, and say so to whoever still listens."""
        self.tasks.clear()
        self.selector.unregister(self.wire.reader)
        _, left = self.drive(self.ladder(lambda: descendants(process_table(), os.getpid()), [(signal.SIGTERM, 1.0)]))
        undone, failed = self.drive(self.take_back(self.journal)) if self.journal else ([], [])
        if self.farewell is not None:
            self.answer(self.farewell, {"left": left, "undone": undone, "failed": failed})
            end = time.monotonic() + 1.0
            while self.wire.pending and time.monotonic() < end:
                self.turn(0.05)

    def take_back(self, journal: Journal) -> Steps[Tuple[List[str], List[Dict[str, Any]]]]:
        """Carry out the undo commands of a journal, last change first; which went well, and what did not."""
        undone, failed = [], []
        for key, undo in reversed(list(journal.pending.items())):
            wrong = yield from self.commands(undo)
            if wrong:
                failed.append(dict(wrong, id=key))
                continue
            undone.append(key)
            try:
                journal.done(key)
            except OSError:
                continue  # a full disk: it is undone once more later, which is safer than never
        return undone, failed

    # Requests

    def hello(
        self, *, node: str, run: str, folder: str, holder: Dict[str, Any], silence_s: float = 0.0
    ) -> Dict[str, Any]:
        if self.run:
            raise Refusal("bad-request", "hello was said before")
        if not folder.startswith("/") or "/" in run + node or not run or not node:
            raise ValueError("a run, a node, or a folder that is not absolute: %r %r %r" % (run, node, folder))
        self.node, self.holder = node, holder
        self.hold("orch-run-%s/%s" % (run, node))
        self.make_folder(folder)
        known = os.lstat(folder)
        if not stat.S_ISDIR(known.st_mode) or not self.ours(known):
            raise Refusal("folder", "%s belongs to user %d" % (folder, known.st_uid))
        path = os.path.join(folder, MARKER)
        self.marker = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(self.marker, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Refusal("locked", "another agent works in %s" % folder, holder={}) from None
        self.journal = Journal(os.path.join(folder, JOURNAL))
        about = dict(identity(), run=run, node=node, holder=holder, pid=os.getpid())
        os.ftruncate(self.marker, 0)
        os.pwrite(self.marker, json.dumps(about).encode() + b"\n", 0)
        self.run, self.folder, self.silence_s = run, os.path.realpath(folder), silence_s
        return {
            "pid": os.getpid(), "uid": os.geteuid(), "user": self.user.pw_name if self.user else None,
            "python": "%d.%d.%d" % sys.version_info[:3], "executable": sys.executable, "hostname": socket.gethostname(),
            "boot": about["boot"], "wall_ns": time.time_ns(), "monotonic_ns": time.monotonic_ns(),
        }  # fmt: skip

    def ours(self, status: os.stat_result) -> bool:
        """Whether a file's owner is one whom this agent works for."""
        return status.st_uid in (os.geteuid(), self.user.pw_uid if self.user else os.geteuid())

    def own(self, path: str) -> None:
        if self.user:
            os.chown(path, self.user.pw_uid, self.user.pw_gid)

    def make_folder(self, path: str) -> None:
        parent = os.path.dirname(path)
        if not os.path.isdir(parent):
            self.make_folder(parent)
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:
            return
        self.own(path)

    def inside(self, path: str) -> str:
        """The absolute path of something in the run's folder."""
        full = os.path.realpath(os.path.join(self.folder, path))
        if not path or not full.startswith(self.folder + "/"):
            raise ValueError("%r is not in the run's folder" % path)
        return full

    def hold(self, name: str) -> None:
        """Listen on an abstract socket, which the kernel frees when this process dies, and tell who holds it."""
        server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        server.setblocking(False)
        try:
            server.bind("\0" + name)
        except OSError as error:
            server.close()
            raise Refusal("locked", "%s is taken: %s" % (name, error.strerror), name=name) from None
        server.listen(16)
        self.locks[name] = server
        self.selector.register(server, selectors.EVENT_READ, lambda: self.tell(server))

    def tell(self, server: socket.socket) -> None:
        try:
            visitor, _ = server.accept()
        except OSError:
            return
        with visitor:
            try:
                visitor.send(json.dumps(self.holder).encode())
            except OSError:
                return

    def lock(self, *, name: str, holder: Dict[str, Any]) -> Steps[Dict[str, Any]]:
        name = "orch-lock-" + name
        if name in self.locks:
            return {}
        self.holder = holder
        try:
            self.hold(name)
        except Refusal as refusal:
            other = yield from self.ask(name)
            raise Refusal("locked", str(refusal), holder=other) from None
        return {}

    def ask(self, name: str) -> Steps[Dict[str, Any]]:
        """Who holds a lock, as far as its agent answers within a second."""
        end = time.monotonic() + 1.0
        data = b""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.setblocking(False)
            try:
                client.connect("\0" + name)
                while time.monotonic() < end:
                    try:
                        part = client.recv(4096)
                    except BlockingIOError:
                        yield 0.01
                        continue
                    if not part:
                        break
                    data += part
            except OSError:
                return {}
        try:
            answer = json.loads(data.decode())
        except ValueError:
            return {}
        return answer if isinstance(answer, dict) else {}

    def ping(self) -> Dict[str, Any]:
        return {"wall_ns": time.time_ns(), "monotonic_ns": time.monotonic_ns()}

    def check(self, *, requirements: List[Dict[str, str]]) -> Steps[Dict[str, Any]]:
        modules: Dict[str, List[str]] = {}
        for need in requirements:
            if need["kind"] == "module":
                modules.setdefault(need.get("python") or sys.executable, []).append(need["what"])
        known: Dict[Tuple[str, str], Any] = {}
        for python, names in modules.items():
            known.update(((python, name), answer) for name, answer in (yield from self.find_modules(python, names)))
        findings = []
        for need in requirements:
            kind, what = need["kind"], need["what"]
            if kind == "module":
                found, detail = known[need.get("python") or sys.executable, what]
            elif kind == "program":
                try:
                    found, detail = True, find_program(what)
                except Refusal as refusal:
                    found, detail = False, str(refusal)
            elif kind == "privilege":
                found, detail = os.geteuid() == 0, "user %d" % os.geteuid()
            elif kind == "device":
                found = os.path.exists("/sys/class/net/" + what)
                detail = "devices: " + ", ".join(sorted(os.listdir("/sys/class/net")))
            else:
                raise ValueError("no requirement of kind %r" % kind)
            findings.append({"found": bool(found), "detail": detail})
        return {"findings": findings}

    def find_modules(self, python: str, names: List[str]) -> Steps[List[Tuple[str, Any]]]:
        try:
            done = yield from self.command([python, "-c", FIND_MODULES, *sorted(set(names))], 30.0, user=self.user)
        except (Refusal, OSError) as error:
            return [(name, (False, str(error))) for name in names]
        if done.status:
            wrong = (done.stderr.strip().splitlines() or ["ended with status %d" % done.status])[-1]
            return [(name, (False, "%s: %s" % (python, wrong))) for name in names]
        return list(json.loads(done.stdout.splitlines()[-1]).items())

    def run_command(
        self, *, argv: List[str], timeout_s: float, payload: bytes = b"", privileged: bool = True
    ) -> Steps[Reply]:
        done = yield from self.command(argv, timeout_s, payload, None if privileged else self.user)
        if done.timed_out:
            raise Refusal("timeout", "ran longer than %g s" % timeout_s, argv=argv, tail=done.stdout + done.stderr)
        return {"status": done.status, "stdout": done.stdout, "stderr": done.stderr}

    def read(self, *, paths: List[str], globs: List[str]) -> Dict[str, Any]:
        names = list(paths)
        for pattern in globs:
            names += sorted(glob.glob(pattern))
        texts: Dict[str, Optional[str]] = {}
        total = 0
        wall_ns = time.time_ns()
        for name in names:
            try:
                with open(name, "rb") as file:
                    limit = min(READ_LIMIT, READ_TOTAL - total)
                    size = os.fstat(file.fileno()).st_size  # 0 for what the kernel makes up
                    if size > limit:
                        file.seek(size - limit)
                    data = file.read(limit)
            except OSError:
                texts[name] = None
                continue
            total += len(data)
            texts[name] = data.decode(errors="replace")
        return {"wall_ns": wall_ns, "texts": texts}

    def put(self, *, path: str, mode: int, payload: bytes, append: bool = False) -> Dict[str, Any]:
        full = self.inside(path)
        self.make_folder(os.path.dirname(full))
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | (os.O_APPEND if append else os.O_TRUNC)
        fd = os.open(full, flags, mode)
        with open(fd, "wb") as file:
            os.fchmod(fd, mode)
            file.write(payload)
        self.own(full)
        return {}

    def start(
        self, *, name: str, argv: List[str], env: Dict[str, str], ready: Dict[str, Any], ready_within_s: float,
        gate: bool = False, follow: Optional[str] = None, privileged: bool = False,
    ) -> Steps[Dict[str, Any]]:  # fmt: skip
        if not NAME.match(name):
            raise ValueError("not a name for a process: %r" % name)
        if name in self.processes:
            raise Refusal("bad-request", "%s was started before" % name)
        if ready["kind"] == "listening" and listening(ready["port"]):
            raise Refusal("port", "something listens on TCP port %d already" % ready["port"])
        user = None if privileged else self.user
        folder = os.path.join(self.folder, name)
        self.make_folder(folder)
        pattern = re.compile(ready["pattern"]) if ready["kind"] == "line" else None
        streams = {}
        try:
            for stream in ("stdout", "stderr"):
                path = os.path.join(folder, stream)
                streams[stream] = open(path, "ab")  # noqa: SIM115
                self.own(path)
            stdin = subprocess.PIPE if gate else subprocess.DEVNULL
            child = self.spawn(
                argv, folder, user, env=self.environment(name, user, env), stdin=stdin, **streams
            )  # fmt: skip
        finally:
            for opened in streams.values():
                opened.close()
        process = self.processes[name] = Process(name, folder, child)
        self.tasks.append(Task(None, self.watch(process, Lines(os.path.join(folder, follow)) if follow else None)))
        started_ns = time.time_ns()
        yield from self.await_ready(process, ready, pattern, ready_within_s)
        return {"pid": child.pid, "started_ns": started_ns, "ready_ns": time.time_ns()}

    def await_ready(
        self, process: Process, ready: Dict[str, Any], pattern: Optional[re.Pattern[str]], within_s: float
    ) -> Steps[None]:
        kind = ready["kind"]
        lines = Lines(os.path.join(process.folder, ready.get("file", "stdout")))
        began = time.monotonic()
        while kind != "started":
            status = process.child.status  # looked at before the files, so that the last line counts
            if kind == "line" and pattern and any(pattern.search(line) for line in lines.new()):
                return
            if (kind == "exited" and status == 0) or (kind == "listening" and listening(ready["port"])):
                return
            if status is not None:
                tail = last_words(process.folder)
                raise Refusal("exited", "ended with status %d before it was ready" % status, status=status, tail=tail)
            waited = time.monotonic() - began
            if waited >= within_s:
                yield from self.ladder(lambda: self.members(process), [])
                tail = last_words(process.folder)
                raise Refusal("unready", "was not ready within %g s" % within_s, tail=tail)
            yield max(0.0, min(0.01 if waited < 2.0 else 0.05, within_s - waited))

    def watch(self, process: Process, lines: Optional[Lines]) -> Steps[None]:
        """Send the lines of a followed file as they come, and the process's end after them."""
        while True:
            over = process.child.status is not None
            new = lines.new() if lines else []
            if new:
                self.wire.send({"event": "lines", "name": process.name, "lines": new, "wall_ns": time.time_ns()})
            elif over:
                break
            yield None if len(self.wire.pending) > BACKLOG else (FOLLOW_S if lines else 3600.0)
        if process.child.popen.stdin:
            process.child.popen.stdin.close()
        child = process.child
        self.wire.send({"event": "exit", "name": process.name, "status": child.status, "wall_ns": child.ended_ns})

    def known(self, name: str) -> Process:
        if name not in self.processes:
            raise Refusal("bad-request", "no process named %r was started" % name)
        return self.processes[name]

    def go(self, *, name: str) -> Dict[str, Any]:
        process = self.known(name)
        if process.child.status is not None:
            raise Refusal(
                "exited", "%s has ended" % name, status=process.child.status, tail=last_words(process.folder)
            )  # fmt: skip
        if process.child.popen.stdin is None:
            raise Refusal("bad-request", "%s has no gate" % name)
        process.child.popen.stdin.write(b"go\n")
        return {"wall_ns": time.time_ns()}

    def result(self, process: Process) -> Dict[str, Any]:
        child = process.child
        usage = child.usage
        return {
            "status": child.status, "killed": process.killed, "ended_ns": child.ended_ns,
            "user_s": usage.ru_utime if usage else 0.0, "system_s": usage.ru_stime if usage else 0.0,
            "max_rss_bytes": usage.ru_maxrss * 1024 if usage else 0, "tail": last_words(process.folder),
        }  # fmt: skip

    def stop(self, *, name: str, signals: List[List[float]]) -> Steps[Dict[str, Any]]:
        process = self.known(name)
        rungs = [(int(number), float(grace_s)) for number, grace_s in signals]
        was_over = process.child.status is not None
        killed, left = yield from self.ladder(lambda: self.members(process), rungs)
        process.killed = killed
        end = time.monotonic() + KILL_S
        while process.child.status is None and time.monotonic() < end:
            yield 0.01
        if left or process.child.status is None:
            raise Refusal("stuck", "would not die: processes %s" % left, tail=last_words(process.folder))
        return dict(self.result(process), was_over=was_over)

    def signal(self, *, name: str, number: int) -> Dict[str, Any]:
        process = self.known(name)
        if process.child.status is None:
            os.killpg(process.child.pid, number)
        return {}

    def wait(self, *, name: str, timeout_s: float) -> Steps[Dict[str, Any]]:
        process = self.known(name)
        end = time.monotonic() + timeout_s
        while process.child.status is None:
            if time.monotonic() >= end:
                raise Refusal("timeout", "%s still runs after %g s" % (name, timeout_s))
            yield max(0.0, end - time.monotonic())
        return self.result(process)

    def book(self) -> Journal:
        if self.journal is None:
            raise Refusal("bad-request", "no hello was said")
        return self.journal

    def change(self, *, key: str, undo: List[List[str]], apply: List[List[str]]) -> Steps[Dict[str, Any]]:
        journal = self.book()
        argvs(apply)
        if key in journal.pending:
            raise Refusal("bad-request", "%s is changed already" % key)
        journal.add(key, argvs(undo))
        wrong = yield from self.commands(apply)
        if wrong:
            also = yield from self.commands(undo)
            if not also:
                journal.done(key)
            raise Refusal("failed", "cannot apply %s" % key, undo_failed=also, **wrong)
        return {}

    def undo(self, *, key: str) -> Steps[Dict[str, Any]]:
        journal = self.book()
        if key not in journal.pending:
            raise Refusal("bad-request", "nothing to undo for %s" % key)
        wrong = yield from self.commands(journal.pending[key])
        if wrong:
            raise Refusal("failed", "cannot undo %s" % key, **wrong)
        journal.done(key)
        return {}

    def files(self) -> Dict[str, Any]:
        files = []
        for folder, _, names in os.walk(self.folder):
            for name in names:
                path = os.path.join(folder, name)
                status = os.lstat(path)
                if stat.S_ISREG(status.st_mode) and name != MARKER:
                    files.append({"path": os.path.relpath(path, self.folder), "bytes": status.st_size})
        return {"files": sorted(files, key=lambda file: str(file["path"]))}

    def fetch(self, *, path: str, offset: int, request: Any) -> Steps[Dict[str, Any]]:
        """Send a file from `offset` on in frames of their own; the reply has the SHA-256 of the whole."""
        digest = hashlib.sha256()
        with open(self.inside(path), "rb") as file:
            size = os.fstat(file.fileno()).st_size
            at = 0
            while at < size:
                data = file.read(min(CHUNK, size - at))
                if not data:
                    raise Refusal("changed", "%s became shorter while it was read" % path)
                digest.update(data)
                fresh = data[max(0, offset - at) :]
                at += len(data)
                if fresh:
                    self.wire.send({"id": request, "more": True}, fresh)
                yield None
        return {"sha256": digest.hexdigest(), "size": size}

    def disk(self, *, path: Optional[str] = None) -> Dict[str, Any]:
        free = os.statvfs(path or self.folder)
        return {"free_bytes": free.f_bavail * free.f_frsize, "total_bytes": free.f_blocks * free.f_frsize}

    def list_processes(self) -> Dict[str, Any]:
        """Processes of this run: everything below this agent, and what carries its tag."""
        table = process_table()
        mine = set(descendants(table, os.getpid()))
        found = []
        for pid in sorted(table):
            tag = tags(pid)
            tagged = bool(self.run) and (tag.get("ORCH_RUN"), tag.get("ORCH_NODE")) == (self.run, self.node)
            if pid != os.getpid() and (pid in mine or tagged):
                found.append({"pid": pid, "argv": command_line(pid), "name": tag.get("ORCH_LAUNCH", "")})
        return {"processes": found}

    def strays(self, alive: List[Tuple[str, str]]) -> List[int]:
        """Processes with the tag of a run whose agent on this node is gone."""
        table = process_table()
        mine = {os.getpid(), *descendants(table, os.getpid())}
        found = []
        for pid in table:
            tag = tags(pid) if pid not in mine else {}
            if "ORCH_RUN" not in tag or "ORCH_NODE" not in tag:
                continue
            run, node = tag["ORCH_RUN"], tag["ORCH_NODE"]
            if (run, node) == (self.run, self.node):
                found.append(pid)
            elif (run, node) not in alive:
                try:  # as seen from the process's own network namespace, where its agent would be
                    with open("/proc/%d/net/unix" % pid) as file:
                        held = any(line.endswith(" @orch-run-%s/%s\n" % (run, node)) for line in file)
                except OSError:
                    continue
                if not held:
                    found.append(pid)
        return found

    def sweep(self, *, work: str, keep_data: bool) -> Steps[Dict[str, Any]]:
        """End what dead agents left: processes by their tag, changes by their journals, and folders if asked."""
        markers: List[str] = []
        for depth in ("*", "*/*", "*/*/*"):
            markers += glob.glob(os.path.join(glob.escape(work), depth, MARKER))
        abouts, alive, held = [], [], []
        try:
            for path in sorted(markers):
                about, fd = self.open_marker(path)
                if fd is None:
                    alive.append((str(about.get("run")), str(about.get("node"))))
                else:
                    held.append(fd)
                    abouts.append((os.path.dirname(path), about))
            named = [
                {"pid": pid, "argv": command_line(pid), "run": tags(pid).get("ORCH_RUN", "")}
                for pid in self.strays(alive)
            ]
            _, left = yield from self.ladder(lambda: self.strays(alive), [(signal.SIGTERM, 1.0)])
            report: Dict[str, Any] = {"undone": [], "failed": [], "removed": [], "kept": []}
            for folder, about in abouts:
                yield from self.sweep_folder(folder, about, keep_data, report)
                if not keep_data:
                    self.prune(os.path.dirname(folder), work)
        finally:
            for fd in held:
                os.close(fd)
        return dict(report, killed=named, left=left, alive=sorted({run for run, _ in alive}))

    def open_marker(self, path: str) -> Tuple[Dict[str, Any], Optional[int]]:
        """What a run's folder says of itself, and its lock; None for the lock where its agent lives, or is not ours."""
        try:
            fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
        except OSError:
            return {}, None
        held = True
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            held = False
        held = held and self.ours(os.fstat(fd)) and self.ours(os.lstat(os.path.dirname(path)))
        try:
            about = json.loads(os.read(fd, 1 << 16).decode())
        except ValueError:
            about = {}  # its agent died while it said hello: nothing was started
        if held:
            return about, fd
        os.close(fd)
        return about, None

    def sweep_folder(
        self, folder: str, about: Dict[str, Any], keep_data: bool, report: Dict[str, Any]
    ) -> Steps[None]:  # fmt: skip
        path = os.path.join(folder, JOURNAL)
        safe = True
        if os.path.lexists(path):
            status = os.lstat(path)
            if stat.S_ISREG(status.st_mode) and self.ours(status):
                safe = yield from self.sweep_journal(Journal(path), about, report)
        if keep_data or not safe:
            report["kept"].append(folder)
            return
        try:
            shutil.rmtree(folder)
        except OSError as error:
            report["failed"].append({"id": folder, "argv": [], "status": None, "tail": str(error)})
        else:
            report["removed"].append(folder)

    def sweep_journal(self, journal: Journal, about: Dict[str, Any], report: Dict[str, Any]) -> Steps[bool]:
        if any(about.get(key) != value for key, value in identity().items()):
            return True  # a reboot or the end of its network namespace has undone it
        undone, failed = yield from self.take_back(journal)
        report["undone"] += undone
        report["failed"] += failed
        return not failed

    def prune(self, folder: str, work: str) -> None:
        """Remove folders that became empty, up to the work folder, which stays."""
        while folder.startswith(work.rstrip("/") + "/"):
            try:
                os.rmdir(folder)
            except OSError:
                return
            folder = os.path.dirname(folder)

    def remove(self) -> Dict[str, Any]:
        alive = descendants(process_table(), os.getpid())
        pending = list(self.book().pending)
        if alive or pending:
            raise Refusal("busy", "processes %s, changes %s" % (alive, pending))
        shutil.rmtree(self.folder)
        return {}


def main() -> None:
    reader, writer = os.dup(0), os.dup(1)
    os.set_blocking(reader, False)
    stdin: Any = sys.stdin.buffer
    first = stdin.read1(1 << 20) or b""  # what came along with this text
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(2, 1)  # a stray print must not get between the frames
    os.close(null)
    os.chdir("/")
    Agent((reader, writer), first).serve()


if __name__ == "__main__":
    main()
