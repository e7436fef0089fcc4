"""The socket on which a container's first process calls the agent, and their messages (`container_rank.py`)."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import selectors
import socket
import struct
import time
from array import array
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple, TypedDict

from .container_lines import SOCKET
from .folders import Folder
from .loop import Loop
from .proc import descendants, process_table
from .steps import JsonObject, Refusal, Steps

LOOK_S = 0.01
MESSAGE_BYTES = 1 << 16
INHERITED = (
    resource.RLIMIT_NOFILE,
    resource.RLIMIT_NPROC,
    resource.RLIMIT_MEMLOCK,
    resource.RLIMIT_CORE,
    resource.RLIMIT_STACK,
)
NAMESPACES = ("net", "ipc")  # that a rank shares with its host


class Wanted(TypedDict):
    """The first message to a container's first process: the rank to start, and what it would inherit of the agent.

    That is its processors, limits by number (soft, hard), nice value and umask.
    """

    argv: List[str]
    env: Dict[str, str]
    affinity: List[int]
    limits: Dict[str, Tuple[int, int]]
    nice: int
    umask: int


class Began(TypedDict):
    """The first process's answer: the container's namespaces, or why the rank could not be started."""

    net: str
    ipc: str
    error: Optional[str]


class RankEnded(TypedDict):
    """The first process's last message: how the rank ended; a negative status is a signal's number."""

    status: int
    user_s: float
    system_s: float
    max_rss_kib: int


class Words(NamedTuple):
    """A launch for the container to run, with descriptors for its output; `gate` whether it has an input."""

    argv: List[str]
    env: Dict[str, str]
    gate: bool
    stdout: int
    stderr: int


class Call:
    """The call of one container: a listening socket, then the connection of the container's first process."""

    def __init__(self, folder: Folder, uid: int, gid: int, words: Words) -> None:
        self.folder = folder.again()
        self.uid = uid
        self.words = words
        self.first = 0  # the container's first process, as it is called here
        self.over = False  # it has ended, as the end of its connection tells
        self.line: Optional[socket.socket] = None
        self.loop: Optional[Loop] = None
        if words.gate:
            reading, writing = os.pipe2(os.O_CLOEXEC)
            self.stdin: Any = open(writing, "wb", buffering=0)  # noqa: SIM115 - for as long as the launch
        else:
            reading, self.stdin = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC), None
        self.given = [reading, os.dup(words.stdout), os.dup(words.stderr)]
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            path = "/proc/self/fd/%d/%s" % (folder.fd, SOCKET)  # the folder's own may be too long for a socket
            self.listener.bind(path)
            os.chown(path, uid, gid)
            os.chmod(path, 0o600)
            self.listener.listen(1)
            self.listener.setblocking(False)
        except OSError:
            self.close()
            raise

    def answered(self, client_status: Callable[[], Optional[int]], within_s: float) -> Steps[None]:
        """Wait for the first process to call; Refused where the runtime's client ends without that, or none calls."""
        end = time.monotonic() + within_s
        while self.line is None:
            status = client_status()
            try:
                called, _ = self.listener.accept()
            except BlockingIOError:
                if status is not None:
                    raise Refusal("exited", "its container was not started: status %d" % status) from None
                if time.monotonic() >= end:
                    raise Refusal("unready", "its container did not start within %g s" % within_s) from None
                yield LOOK_S
                continue
            form = struct.Struct("3i")
            pid, uid, _ = form.unpack(called.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, form.size))
            if uid in (0, self.uid) and pid > 0:
                called.setblocking(False)
                self.line, self.first = called, pid
            else:
                called.close()
        self.unlisten()

    def told(self, within_s: float) -> Steps[int]:
        """Send the launch, wait until the first process has started it, and return its process.

        Raise Refused where it did not.
        """
        line = self.connected()
        join_groups(self.first)
        message: Wanted = {
            "argv": self.words.argv,
            "env": self.words.env,
            "umask": 0o022,
            "affinity": sorted(os.sched_getaffinity(0)),
            "nice": os.getpriority(os.PRIO_PROCESS, 0),
            "limits": {str(number): resource.getrlimit(number) for number in INHERITED},
        }
        line.sendmsg([json.dumps(message).encode()], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", self.given))])
        self.close_given()
        end = time.monotonic() + within_s
        about: Optional[JsonObject] = None
        while about is None and not self.over and time.monotonic() < end:
            about = self.hear()
            yield 0.0 if about else LOOK_S
        if about is None:
            raise Refusal("exited", "its container ended, or said nothing, before the launch was started")
        if about.get("error"):
            raise Refusal("exited", "cannot be started in its container: %s" % about["error"])
        for name in NAMESPACES:
            if about.get(name) != os.readlink("/proc/self/ns/" + name):
                refusal = (
                    "its container is not in this host's %s namespace: the runtime's daemon belongs to another host"
                )
                raise Refusal("exited", refusal % name)
        return next(iter(descendants(process_table(), self.first)), self.first)

    def connected(self) -> socket.socket:
        if self.line is None:
            raise Refusal("exited", "its container has not called")
        return self.line

    def hear(self) -> Optional[JsonObject]:
        """Return the next message, None if there is none; note the end of the connection."""
        if self.line is None:
            return None
        try:
            message = self.line.recv(MESSAGE_BYTES)
        except BlockingIOError:
            return None
        except OSError:
            message = b""
        if not message:
            self.over = True
            self.unwatch()
            return None
        try:
            found = json.loads(message.decode())
        except ValueError:
            return None
        return found if isinstance(found, dict) else None

    def watch(self, loop: Loop, heard: Callable[[], None]) -> None:
        """Call `heard` from now on when the first process says something, or has ended."""
        self.loop = loop
        loop.selector.register(self.connected(), selectors.EVENT_READ, heard)

    def unwatch(self) -> None:
        if self.loop is not None and self.line is not None:
            self.loop.selector.unregister(self.line)
            self.loop = None

    def unlisten(self) -> None:
        self.listener.close()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(SOCKET, dir_fd=self.folder.fd)

    def close_given(self) -> None:
        while self.given:
            os.close(self.given.pop())

    def close(self) -> None:
        """Close the socket and the connection; the container, should it still be there, ends with that."""
        self.unwatch()
        self.unlisten()
        self.close_given()
        self.folder.close()
        if self.line is not None:
            self.line.close()
        if self.stdin is not None:
            self.stdin.close()


def join_groups(pid: int) -> None:
    """Move a container's first process into this agent's control groups, as far as the agent may.

    In groups of its runtime all containers together would have the weight of one, and get less of a busy processor
    than ranks without containers.
    """
    with open("/proc/self/cgroup") as file:
        lines = [line.rstrip("\n").split(":", 2) for line in file]
    for _, controllers, path in lines:
        for place in (controllers.replace("name=", ""),) if controllers else ("", "unified"):
            name = os.path.normpath("/sys/fs/cgroup/%s/%s/cgroup.procs" % (place, path))
            with contextlib.suppress(OSError):
                fd = os.open(name, os.O_WRONLY | os.O_CLOEXEC)
                try:
                    os.write(fd, b"%d\n" % pid)
                finally:
                    os.close(fd)
