"""Runs short commands to their end, with a time limit, and returns their output."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time
from typing import Any, List, NamedTuple, Optional, Sequence

from .children import KILL_S, Children, hit
from .proc import descendants, process_table
from .steps import Failure, Refusal, Steps

OUTPUT_LIMIT = 1 << 20  # of each stream of a command
COMMAND_S = 10.0


class Completed(NamedTuple):
    """The answer to `run_command`: how it ended (a negative status is a signal's number), and what it printed."""

    status: int
    stdout: str
    stderr: str
    timed_out: bool = False


class AllCompleted(NamedTuple):
    """The answer to `run_commands`; null for one that could not start, or took too long."""

    done: Sequence[Optional[Completed]]


def argvs(value: Any) -> List[List[str]]:
    """Return commands after checking their form; they may be checked long before they are started."""
    if not isinstance(value, list) or not all(
        isinstance(argv, list) and argv and all(map(is_word, argv)) for argv in value
    ):
        raise ValueError("not a list of argument lists: %.200r" % (value,))
    return value


def is_word(value: Any) -> bool:
    """Return whether the kernel takes this as an argument of a command."""
    if not isinstance(value, str) or "\0" in value:
        return False
    try:
        os.fsencode(value)
    except UnicodeEncodeError:
        return False
    return True


class Feed:
    """Feeds a command its standard input from memory, as it reads; no file is needed."""

    def __init__(self, selector: selectors.BaseSelector, data: bytes) -> None:
        self.selector = selector
        self.data = memoryview(data)
        self.end, fd = os.pipe()  # the command's end, and ours
        self.stream = open(fd, "wb", buffering=0)  # noqa: SIM115 - closed once all is given, or nobody takes it
        os.set_blocking(fd, False)
        selector.register(self.stream, selectors.EVENT_WRITE, self.give)

    def give(self) -> None:
        try:
            self.data = self.data[os.write(self.stream.fileno(), self.data[: 1 << 16]) :]
        except BlockingIOError:
            return
        except OSError:  # the command takes no more
            self.data = self.data[:0]
        if not self.data:
            self.close()

    def close(self) -> None:
        if not self.stream.closed:
            self.selector.unregister(self.stream)
            self.stream.close()


class Drain:
    """Reads what a command prints, and drops what is beyond the limit."""

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
        """Return the text so far, with what still lies in the pipe; a grandchild that holds it open does not matter."""
        before = -1
        while not self.stream.closed and before != len(self.data):
            before = len(self.data)
            self.take()
        self.close()
        return bytes(self.data).decode(errors="replace")


class Commands:
    """Runs commands as children of the agent while its loop goes on."""

    def __init__(self, children: Children, selector: selectors.BaseSelector) -> None:
        self.children = children
        self.selector = selector

    def run(
        self, argv: List[str], timeout_s: float, stdin: bytes = b"", *, privileged: bool = True
    ) -> Steps[Completed]:
        """Run a command to its end and return its status and output.

        After `timeout_s` it is killed with all its children. One that even then does not end, since the kernel holds it
        (state D), is left to the kernel and told.
        """
        env = self.children.environment("", {"LC_ALL": "C.UTF-8"}, privileged=privileged)
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        feed = Feed(self.selector, stdin) if stdin else None
        end = feed.end if feed else os.open(os.devnull, os.O_RDONLY)
        try:
            child = self.children.spawn(argv, None, privileged=privileged, env=env, stdin=end, **pipes)
        finally:
            os.close(end)  # without a process nothing reads the input, which ends it
        drains = [Drain(self.selector, child.popen.stdout), Drain(self.selector, child.popen.stderr)]
        until = time.monotonic() + timeout_s
        late = False
        while child.status is None:
            if time.monotonic() >= until:
                if late:
                    break
                late, until = True, until + KILL_S
                hit([child.pid, *descendants(process_table(), child.pid)], signal.SIGKILL)
            yield max(0.0, until - time.monotonic())
        if feed:
            feed.close()
        stdout, stderr = (drain.finish() for drain in drains)
        if child.status is None:
            message = "process %d was killed and has not ended: the kernel holds it, for a device or file system"
            raise Refusal("stuck", message % child.pid, argv=argv, tail=stdout + stderr)
        return Completed(child.status, stdout, stderr, late)

    def run_until_failure(self, lines: List[List[str]]) -> Steps[Optional[Failure]]:
        """Run commands one after the other; return what went wrong with the first that failed, or None."""
        for argv in lines:
            try:
                done = yield from self.run(argv, COMMAND_S)
            except (OSError, Refusal, subprocess.SubprocessError) as error:
                return Failure(argv, None, str(error))
            if done.status or done.timed_out:
                return Failure(argv, done.status, done.stdout + done.stderr)
        return None

    def run_command(
        self, *, argv: List[str], timeout_s: float, payload: bytes = b"", privileged: bool = True
    ) -> Steps[Completed]:
        done = yield from self.run(argv, timeout_s, payload, privileged=privileged)
        if done.timed_out:
            raise Refusal("timeout", "ran longer than %g s" % timeout_s, argv=argv, tail=done.stdout + done.stderr)
        return done

    def run_commands(self, *, lines: List[List[str]], each_s: float, timeout_s: float) -> Steps[AllCompleted]:
        """Run commands one after the other, all within a time; null for one that cannot start or does not end."""
        until = time.monotonic() + timeout_s
        found: List[Optional[Completed]] = []
        for argv in argvs(lines):
            done = None
            with contextlib.suppress(OSError, Refusal, subprocess.SubprocessError):
                if time.monotonic() < until:
                    done = yield from self.run(argv, min(each_s, until - time.monotonic()))
            found.append(None if done is None or done.timed_out else done)
        return AllCompleted(found)
