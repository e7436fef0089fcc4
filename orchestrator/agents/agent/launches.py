"""Launches: processes with a name and a folder, started until they are ready, followed, and stopped."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import time
from typing import TYPE_CHECKING, Dict, List, NamedTuple, Optional, Sequence, Set, Tuple, TypedDict, Union

from .children import Child, Children, ladder
from .container_call import Words
from .container_lines import Container, checked
from .containers import Containers, Inside
from .files import Lines, last_words
from .folders import Folder, RunFolder
from .frames import BACKLOG
from .loop import Loop, Task
from .proc import command_line, descendants, listening, process_table, tags
from .steps import Refusal, Steps, as_json

if TYPE_CHECKING:
    from .bounds import Count, Pid

FOLLOW_S = 0.05
ENDED_S = 10.0  # for one that was killed to be gone: the kernel first takes back its threads and memory
DYING_S = 2.0  # from when a process has closed its input to when it is over
STREAMS = ("stdout", "stderr")
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*\Z")


class Ready(TypedDict, total=False):
    """When a launch is ready: `kind` "started", "exited" (well), "listening" at a port, or "line" of a file."""

    kind: str
    pattern: str
    file: str
    port: int


class Running(NamedTuple):
    """The answer to `start`: a launch that is ready; instants of the node's clock."""

    pid: Pid
    started_ns: int
    ready_ns: int


class Instant(NamedTuple):
    """The answer to `go`: when the gate opened, by the node's clock."""

    wall_ns: int


class Ended(NamedTuple):
    """The answer to `wait` and `stop`: how a launch ended; a negative status is a signal's number.

    `was_over`: before it was asked to end. `killed`: neither it nor its children would go.
    """

    status: int
    killed: bool
    was_over: bool
    ended_ns: int
    user_s: float
    system_s: float
    max_rss_bytes: Count
    tail: str


class RunProcess(NamedTuple):
    """A process of the run on this node; `name` is its launch's, or empty."""

    pid: Pid
    argv: Sequence[str]
    name: str


class Processes(NamedTuple):
    """The answer to `list_processes`."""

    processes: Sequence[RunProcess]


class LinesEvent(NamedTuple):
    """An event: whole lines of a followed file."""

    event: str
    name: str
    lines: Sequence[str]
    wall_ns: int


class ExitEvent(NamedTuple):
    """An event: the end of a launch; instants are of the node's clock."""

    event: str
    name: str
    status: int
    wall_ns: int


class Process:
    """A launch: a child with a name, a folder, and perhaps a gate."""

    def __init__(self, name: str, folder: Folder, child: Union[Child, Inside]) -> None:
        self.name = name
        self.folder = folder
        self.child = child
        self.killed = False


class Launches:
    """Everything that was started by name, and the requests about it."""

    def __init__(self, loop: Loop, run_folder: RunFolder, children: Children, containers: Containers) -> None:
        self.loop = loop
        self.run_folder = run_folder
        self.children = children
        self.containers = containers
        self.processes: Dict[str, Process] = {}
        self.called_off: Set[str] = set()  # asked to end before they were asked to start

    def start(
        self,
        *,
        name: str,
        argv: List[str],
        env: Dict[str, str],
        ready: Ready,
        ready_within_s: float,
        gate: bool = False,
        follow: Optional[str] = None,
        privileged: bool = False,
        container: Optional[Container] = None,
    ) -> Steps[Running]:
        if not NAME.match(name):
            raise ValueError("not a name for a process: %r" % name)
        if name in self.processes:
            raise Refusal("bad-request", "%s was started before" % name)
        if name in self.called_off:
            raise Refusal("bad-request", "was asked to end before it was started")
        if ready["kind"] == "listening" and listening(ready["port"]):
            raise Refusal("port", "something listens on TCP port %d already" % ready["port"])
        owner = self.run_folder.agents if privileged else self.run_folder.owner
        pattern = re.compile(ready["pattern"]) if ready["kind"] == "line" else None
        wanted = checked(container) if container else None
        with contextlib.ExitStack() as opened:
            folder = opened.enter_context(self.run_folder.below(name, owner))
            streams = {
                stream: opened.enter_context(open(folder.append(stream, 0o644, owner), "ab")) for stream in STREAMS
            }
            child: Union[Child, Inside]
            if wanted is None:
                stdin = subprocess.PIPE if gate else subprocess.DEVNULL
                env = self.children.environment(name, env, privileged=privileged)
                child = self.children.spawn(argv, folder, privileged=privileged, env=env, stdin=stdin, **streams)
            else:
                words = Words(argv, self.children.tagged(name, env), gate, *(streams[s].fileno() for s in STREAMS))
                child = self.containers.start(
                    name, wanted, words, folder=folder, within_s=ready_within_s, streams=streams
                )
            process = self.processes[name] = Process(name, folder.again(), child)
        lines = self.lines(process, follow) if follow else None
        self.loop.tasks.append(Task(None, self.watch(process, lines)))
        started_ns = time.time_ns()
        yield from self.await_ready(process, ready, pattern, ready_within_s)
        return Running(child.pid, started_ns, time.time_ns())

    def lines(self, process: Process, name: str) -> Lines:
        return Lines(process.folder, name, self.run_folder.owner)

    def words(self, process: Process) -> str:
        return last_words(process.folder, self.run_folder.owner)

    def await_ready(
        self, process: Process, ready: Ready, pattern: Optional[re.Pattern[str]], within_s: float
    ) -> Steps[None]:
        kind = ready["kind"]
        lines = self.lines(process, ready.get("file", "stdout") if ready["kind"] == "line" else "stdout")
        began = time.monotonic()
        if isinstance(process.child, Inside):
            yield from self.await_container(process, process.child)
        while kind != "started":
            status = process.child.status  # looked at before the files, so that the last line counts
            if kind == "line" and pattern and any(pattern.search(line) for line in lines.new()):
                return
            if (kind == "exited" and status == 0) or (ready["kind"] == "listening" and listening(ready["port"])):
                return
            if status is not None:
                tail = self.words(process)
                raise Refusal("exited", "ended with status %d before it was ready" % status, status=status, tail=tail)
            waited = time.monotonic() - began
            if waited >= within_s:
                yield from ladder(lambda: self.members(process), [])
                tail = self.words(process)
                raise Refusal("unready", "was not ready within %g s" % within_s, tail=tail)
            yield max(0.0, min(0.01 if waited < 2.0 else 0.05, within_s - waited))

    def await_container(self, process: Process, inside: Inside) -> Steps[None]:
        """Wait until the launch has begun in its container."""
        while not inside.up:
            if inside.trouble:
                raise Refusal("exited", inside.trouble, status=inside.status, tail=self.words(process))
            yield 0.01

    def watch(self, process: Process, lines: Optional[Lines]) -> Steps[None]:
        """Send the lines of a followed file as they come, and the process's end after them."""
        while True:
            status = process.child.status
            new = lines.new() if lines else []
            if new:
                self.loop.wire.send(as_json(LinesEvent("lines", process.name, new, time.time_ns())))
            elif status is not None and not (lines and lines.behind):
                break
            pause_s = 3600.0 if not lines else 0.0 if lines.behind else FOLLOW_S
            yield None if len(self.loop.wire.pending) > BACKLOG else pause_s
        if process.child.stdin:
            process.child.stdin.close()
        self.loop.wire.send(as_json(ExitEvent("exit", process.name, status, process.child.ended_ns)))

    def known(self, name: str) -> Process:
        if name not in self.processes:
            raise Refusal("unknown", "no process named %r was started" % name)
        return self.processes[name]

    def go(self, *, name: str, at_ns: int = 0, every_ns: int = 0) -> Steps[Instant]:
        """Open a launch's gate; by `at_ns`, on this node's clock, it begins, and every `every_ns` an iteration may."""
        process = self.known(name)
        child = process.child
        line = b"go %d %d\n" % (at_ns, every_ns) if at_ns else b"go\n"
        if child.stdin is None:
            raise Refusal("bad-request", "%s has no gate" % name)
        if child.status is None:
            try:
                child.stdin.write(line)
                return Instant(time.time_ns())
            except BrokenPipeError:  # it is about to end, or will never listen
                yield from self.ended(child, DYING_S)
        if child.status is None:
            raise Refusal("deaf", "%s does not listen at its gate" % name, tail=self.words(process))
        raise Refusal("exited", "%s has ended" % name, status=child.status, tail=self.words(process))

    def ended(self, child: Union[Child, Inside], within_s: float) -> Steps[None]:
        end = time.monotonic() + within_s
        while child.status is None and time.monotonic() < end:
            yield 0.01

    def cleared(self, inside: Inside) -> Steps[None]:
        """Wait until nothing of a launch's container is left; what cannot be removed is tried again at the end."""
        inside.call_off()
        end = time.monotonic() + 2 * ENDED_S
        while not inside.cleared and time.monotonic() < end:
            yield 0.02

    def result(self, process: Process, status: int, *, was_over: bool) -> Ended:
        usage = process.child.usage
        return Ended(
            status=status,
            killed=process.killed,
            was_over=was_over,
            ended_ns=process.child.ended_ns,
            user_s=usage.ru_utime if usage else 0.0,
            system_s=usage.ru_stime if usage else 0.0,
            max_rss_bytes=usage.ru_maxrss * 1024 if usage else 0,
            tail=self.words(process),
        )

    def stop(self, *, name: str, signals: List[Tuple[int, float]]) -> Steps[Ended]:
        if name not in self.processes:
            self.called_off.add(name)
        process = self.known(name)
        rungs = [(int(number), float(grace_s)) for number, grace_s in signals]
        was_over = process.child.status is not None
        killed, left = yield from ladder(lambda: self.members(process), rungs)
        process.killed = killed
        if isinstance(process.child, Inside):
            yield from self.cleared(process.child)
        yield from self.ended(process.child, ENDED_S)
        status = process.child.status
        if left or status is None:
            message = "would not die: processes %s" % (left or [process.child.pid])
            raise Refusal("stuck", message, tail=self.words(process))
        return self.result(process, status, was_over=was_over)

    def signal(self, *, name: str, number: int) -> None:
        process = self.known(name)
        if process.child.status is None:
            os.killpg(process.child.pid, number)

    def wait(self, *, name: str, timeout_s: float) -> Steps[Ended]:
        process = self.known(name)
        end = time.monotonic() + timeout_s
        while True:
            status = process.child.status
            if status is not None:
                return self.result(process, status, was_over=True)
            if time.monotonic() >= end:
                raise Refusal("timeout", "%s still runs after %g s" % (name, timeout_s))
            yield max(0.0, end - time.monotonic())

    def members(self, process: Process) -> List[int]:
        """Return the living processes of a launch: below it, in its session, or with its name in their environment.

        Parents come first: one that hears of its child's end before it is asked to end itself takes that for a failure.
        """
        if isinstance(process.child, Inside):
            return process.child.members()
        table = process_table()
        mine = descendants(table, os.getpid())
        below = set(descendants(table, process.child.pid)) if process.child.status is None else set()
        found = []
        for pid in mine:
            if pid in self.children.living:
                own = self.children.living[pid] is process.child
            else:
                own = pid in below or process.child.pid in (table[pid].session, table[pid].group)
                own = own or tags(pid).get("ORCH_LAUNCH") == process.name
            if own:
                found.append(pid)
        return found

    def list_processes(self) -> Processes:
        """Return the processes of this run: everything below this agent, and what carries its tag."""
        run_folder = self.run_folder
        table = process_table()
        mine = set(descendants(table, os.getpid()))
        found: List[RunProcess] = []
        for pid in sorted(table):
            tag = tags(pid)
            tagged = bool(run_folder.run) and (tag.get("ORCH_RUN"), tag.get("ORCH_NODE")) == (
                run_folder.run,
                run_folder.node,
            )
            if pid != os.getpid() and (pid in mine or tagged):
                found.append(RunProcess(pid, command_line(pid), tag.get("ORCH_LAUNCH", "")))
        return Processes(found)
