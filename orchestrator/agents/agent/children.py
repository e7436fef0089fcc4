"""Starts processes in sessions of their own, reaps them, and ends them with all below them.

A program whose file has capabilities loses the wish to be killed with its parent, and nobody may look at its
environment, so that no sweep would know it. A guard stands between: it has a pipe from the agent, ends the program at
the pipe's end, and takes over the program's end as its own.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import select
import shutil
import signal
import stat
import struct
import subprocess
import time
from typing import Any, Callable, Dict, List, NoReturn, Optional, Tuple

from .folders import O_PATH, Folder, RunFolder
from .steps import Refusal, Steps

FILE_CAPABILITIES = "security.capability"
AT_START = 1  # flag of a file's capabilities: they are in effect from the first instruction
ASKED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
PATIENCE_S = 2.0  # after each of the signals


def capabilities(program: str) -> int:
    """Return the capabilities that a program has by its file, whoever starts it."""
    try:
        flags, low, _, high, _ = struct.unpack_from("<5I", os.getxattr(program, FILE_CAPABILITIES))
    except (OSError, struct.error):
        return 0
    return low | high << 32 if flags & AT_START else 0


def stand_guard(pipe: int) -> None:
    """Fork a guard in a child that is not a program yet: the guard stays and waits, its child returns and goes on."""
    program = os.fork()
    if not program:
        return
    for fd in map(int, os.listdir("/proc/self/fd")):
        if fd > 2 and fd != pipe:
            try:
                os.close(fd)
            except OSError:
                continue  # that of the listing itself
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    end_as(watch(program, pipe))


def watch(program: int, pipe: int) -> int:
    """Wait for the program's end, and kill it when the pipe ends; return its wait status.

    What asks the program to end asks this process, too, which goes on as long as the program does.
    """
    woken, waker = os.pipe()
    os.set_blocking(waker, False)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    for number in (*ASKED, signal.SIGCHLD):
        signal.signal(number, lambda *_: None)
    ladder = [signal.SIGKILL, signal.SIGTERM, signal.SIGINT]
    patience_s: Optional[float] = None
    while True:
        done, status = os.waitpid(program, os.WNOHANG)
        if done:
            return status
        ready = select.select([woken] if patience_s else [woken, pipe], [], [], patience_s)[0]
        if woken in ready:
            os.read(woken, 4096)
        elif ladder:
            os.kill(program, ladder.pop())
            patience_s = PATIENCE_S


def end_as(status: int) -> NoReturn:
    """End with the program's status: the same exit status, or the same signal."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.WEXITSTATUS(status))


KILL_S = 3.0  # how long to go on killing what will not die
SBIN = ("/usr/local/sbin", "/usr/sbin", "/sbin")

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 1, 36, 47, 4
LIBC = ctypes.CDLL(None, use_errno=True)


class Child:
    """A process that this agent started, until it is reaped and after."""

    def __init__(self, popen: subprocess.Popen[bytes], held: Optional[int]) -> None:
        self.popen = popen
        self.held = held  # a descriptor at whose end its guard ends it
        self.pid = popen.pid
        self.status: Optional[int] = None
        self.usage: Optional[resource.struct_rusage] = None
        self.ended_ns = 0

    @property
    def stdin(self) -> Any:
        """The writing end of its standard input; None where it has no pipe of ours."""
        return self.popen.stdin


def find_program(name: str, folder: Optional[Folder] = None) -> str:
    """Return the path to execute for a program's name; a relative one is in `folder`, where it will be started."""
    if "/" in name:
        where = folder.fd if folder else None
        if os.access(name, os.X_OK, dir_fd=where):
            return name
        refuse_noexec(name, where)
        if os.access(name, os.F_OK, dir_fd=where):
            raise Refusal("not-executable", "%s cannot be executed: it has no permission to be" % name)
    else:
        places = [entry for entry in os.environ.get("PATH", os.defpath).split(":") if entry.startswith("/")]
        found = shutil.which(name, path=":".join(places + [entry for entry in SBIN if entry not in places]))
        if found:
            return found
    raise Refusal("missing", "no program named %r on this node" % name)


def refuse_noexec(name: str, where: Optional[int]) -> None:
    """Raise for a program with an executable mode on a file system mounted noexec."""
    with contextlib.suppress(OSError):
        fd = os.open(name, O_PATH, dir_fd=where)
        try:
            mode, flags = os.fstat(fd).st_mode, os.fstatvfs(fd).f_flag
        finally:
            os.close(fd)
        if stat.S_ISREG(mode) and mode & 0o111 and flags & os.ST_NOEXEC:
            path = name if name.startswith("/") or where is None else os.readlink("/proc/self/fd/%d" % where)
            message = "%s cannot be executed: its file system is mounted noexec" % os.path.join(path, name)
            raise Refusal("noexec", message)


def hit(pids: List[int], number: int) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            continue  # gone already, or root's: what remains is counted afterwards


def adopt() -> None:
    """Become the subreaper: the parent of every descendant that loses its own."""
    LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def ladder(find: Callable[[], List[int]], signals: List[Tuple[int, float]]) -> Steps[Tuple[bool, List[int]]]:
    """Send each signal to all that `find` finds, with its grace in seconds, then SIGKILL until none remain.

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


class Children:
    """The processes that this agent has started and not yet reaped."""

    def __init__(self, run_folder: RunFolder) -> None:
        self.run_folder = run_folder
        self.living: Dict[int, Child] = {}

    def spawn(self, argv: List[str], folder: Optional[Folder], *, privileged: bool, **more: Any) -> Child:
        """Start a process in a session of its own that is killed should this agent be killed.

        It works in `folder`, whatever its path leads to by now, or in the root of the file system. It has the agent's
        rights if it is `privileged`; else it is the user's, without any of them.
        """
        if not argv or not all(isinstance(word, str) for word in argv):
            raise ValueError("not an argument list: %r" % (argv,))
        program = find_program(argv[0], folder)
        agent = os.getpid()
        user = None if privileged else self.run_folder.user
        groups = os.getgrouplist(user.pw_name, user.pw_gid) if user else []
        forgotten = capabilities(program) and (user or os.geteuid())  # by the kernel, to be killed with its parent
        pipe = os.pipe() if forgotten else ()

        def prepare() -> None:
            if folder:
                os.fchdir(folder.fd)
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGCHLD):
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, [])
            # A core dump in a launch's folder is no result, and as large as the process was; who wants one sets its own
            # limit higher.
            resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
            if pipe:
                stand_guard(pipe[0])
            if user:
                os.setgroups(groups)
                os.setgid(user.pw_gid)
                os.setuid(user.pw_uid)
            if not privileged:
                LIBC.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
            LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)  # a change of user would have cleared it
            if not pipe and os.getppid() != agent:
                os._exit(127)

        with contextlib.ExitStack() as closing:
            for fd in pipe:
                closing.callback(os.close, fd)
            popen = subprocess.Popen(
                argv,
                executable=program,
                start_new_session=True,
                preexec_fn=prepare,  # noqa: PLW1509 - there is one thread
                bufsize=0,
                **more,
            )
            held = os.dup(pipe[1]) if pipe else None
        child = self.living[popen.pid] = Child(popen, held)
        return child

    def environment(self, launch: str, more: Dict[str, str], *, privileged: bool) -> Dict[str, str]:
        """Return the environment of a child: the agent's, without sudo's variables for a user, plus `more` and tags."""
        env = dict(os.environ)
        user = None if privileged else self.run_folder.user
        if user:
            env = {key: value for key, value in env.items() if not key.startswith("SUDO_")}
            env.update(HOME=user.pw_dir, USER=user.pw_name, LOGNAME=user.pw_name)
        env.update(self.tagged(launch, more))
        return env

    def tagged(self, launch: str, more: Dict[str, str]) -> Dict[str, str]:
        """Return these variables with the tags of a launch."""
        return dict(more, ORCH_RUN=self.run_folder.run, ORCH_NODE=self.run_folder.node, ORCH_LAUNCH=launch)

    def reap(self) -> None:
        """Reap every child that has ended: note its status, and discard adopted ones."""
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            child = self.living.pop(pid, None)
            if child is not None:
                if child.held is not None:
                    os.close(child.held)
                child.ended_ns = time.time_ns()
                child.usage = usage
                child.status = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
                child.popen.returncode = child.status
