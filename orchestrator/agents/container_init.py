"""PID 1 of a host that is a container: starts processes on request, reaps them, and ends when its owner does.

The image's own Python runs it, with two arguments: a folder of the owner's, and the host's name. In the folder lie the
FIFO `owner`, whose writing end the owner alone holds, and the file `NAME.said`, which takes what goes wrong here.

It is asked at the abstract socket `orch-host` (SOCK_SEQPACKET) of the host's network namespace, by one message
{"command": line for the shell, or null for a shell} that brings standard input, output and error along; when what was
started has ended it answers with the exit status, negative for a signal. It has the image's environment, and its
capabilities and cgroup, since it is a child of this process.
"""

import array
import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
from typing import Dict, List, Tuple

ADDRESS = "\0orch-host"
MESSAGE_BYTES = 1 << 20
ASK_S = 10.0

Started = Dict[int, Tuple["subprocess.Popen[bytes]", socket.socket]]  # the waiting connection, by PID


def owned(folder: str) -> int:
    """Open the reading end of the owner's FIFO; it ends at once where there is no owner any more."""
    owner = os.open("%s/owner" % folder, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with contextlib.suppress(BlockingIOError):
        if not os.read(owner, 1):
            sys.exit("its owner has gone")
    return owner


def woken() -> int:
    """Return a descriptor that can be read when a child has ended, or when this process is asked to end."""
    reading, writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    return reading


def start(listener: socket.socket, started: Started) -> None:
    """Take one request and start what it asks for."""
    waiting, _ = listener.accept()
    waiting.settimeout(ASK_S)
    message, ancillary, _, _ = waiting.recvmsg(MESSAGE_BYTES, socket.CMSG_SPACE(12), socket.MSG_CMSG_CLOEXEC)
    given = array.array("i")
    for _, _, payload in ancillary:
        given.frombytes(payload)
    try:
        if len(given) != 3:
            waiting.close()
            return
        command = json.loads(message.decode())["command"]
        child = subprocess.Popen(
            shell() if command is None else ["/bin/sh", "-c", command],
            stdin=given[0],
            stdout=given[1],
            stderr=given[2],
            start_new_session=True,
            cwd="/",
        )
        started[child.pid] = (child, waiting)
    except OSError as error:
        os.write(given[2], ("%s\n" % error).encode())
        waiting.send(b"127")
        waiting.close()
    finally:
        for descriptor in given:
            os.close(descriptor)


def shell() -> List[str]:
    return ["/bin/bash" if os.access("/bin/bash", os.X_OK) else "/bin/sh", "-l"]


def reap(started: Started) -> None:
    """Reap every child that has ended, and send its status to whoever waits for it."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        if pid in started:
            child, waiting = started.pop(pid)
            child.returncode = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
            with waiting, contextlib.suppress(OSError):  # the client may have gone
                waiting.send(b"%d" % child.returncode)


def main() -> None:
    folder, name = sys.argv[1:]
    said = os.open("%s/%s.said" % (folder, name), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    os.dup2(said, 2)
    if sys.version_info < (3, 8):
        sys.exit("its Python is %d.%d, and agents need 3.8 or later" % sys.version_info[:2])
    owner = owned(folder)
    ended = woken()
    os.environ.update(USER="root", LOGNAME="root")
    started = {}  # type: Started
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(ADDRESS)
        listener.listen(128)
        poll = select.poll()
        for descriptor in (owner, ended, listener.fileno()):
            poll.register(descriptor, select.POLLIN)
        while True:
            ready = [descriptor for descriptor, _ in poll.poll()]
            if owner in ready:
                return
            if listener.fileno() in ready:
                with contextlib.suppress(OSError, ValueError, KeyError):  # the client has gone, or is not of ours
                    start(listener, started)
            with contextlib.suppress(BlockingIOError):
                os.read(ended, 4096)
            reap(started)


if __name__ == "__main__":
    main()
