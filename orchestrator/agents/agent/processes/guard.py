"""Ends a program that the kernel would let outlive its agent.

A program whose file has capabilities loses the wish to be killed with its parent, and nobody may look at its
environment, so that no sweep would know it. A guard stands between: it has a pipe from the agent, ends the program at
the pipe's end, and takes over the program's end as its own.
"""

from __future__ import annotations

import os
import select
import signal
import struct
from typing import NoReturn, Optional

FILE_CAPABILITIES = "security.capability"
AT_START = 1  # flag of a file's capabilities: they are in effect from the first instruction
ASKED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
PATIENCE_S = 2.0  # after each of the signals


def capabilities(program: str) -> int:
    """The capabilities that a program has by its file, whoever starts it."""
    try:
        flags, low, _, high, _ = struct.unpack_from("<5I", os.getxattr(program, FILE_CAPABILITIES))
    except (OSError, struct.error):
        return 0
    return low | high << 32 if flags & AT_START else 0


def stand_guard(pipe: int) -> None:
    """In a child of the agent that has not become a program yet: a guard stays, and its child goes on."""
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
    """Wait for the program's end, and bring it about when the pipe ends; its wait status.

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
    """End as the program did."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.WEXITSTATUS(status))
