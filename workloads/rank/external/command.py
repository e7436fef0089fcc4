"""Runs a training command that knows nothing of us, and writes an iteration log from what it prints.

It reads `command.json` in its working folder, prints `ready`, waits for the line `go` on standard input, and only then
starts the command. What the command prints goes on to the stream that it printed it on; the lines of both are read,
each stream's by themselves, so that a line that comes in parts is not mixed with the other's. SIGTERM ends the command,
then this.
"""

from __future__ import annotations

import json
import os
import re
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from pathlib import Path
from typing import IO, BinaryIO, List, NoReturn, Optional, TypedDict

from ..base.iteration_log import IterationLog
from ..base.lifecycle import PEER_GRACE_S, report_ready, wait_for_go
from ..mpi.join import join
from .printed import SHOWN_LINES, Iterations, Lines, Reader, Rule, RuleSettings, Tail

LOOK_EVERY_S = 0.01  # at a file: nothing tells when it grows
TURN_S = 0.1
FROM_ENV = re.compile(r"\{\{env:\w+\}\}|\{env:([A-Za-z_][A-Za-z0-9_]*)\}")
LAST_WORDS_S = 1.0  # of what the command leaves behind, which may print for ever


def fail(reason: str) -> NoReturn:
    """End with status 1 and one line on standard error; unlike that of `lifecycle` not before the command has ended."""
    raise SystemExit(f"rank {os.environ.get('RANK', '?')}: {reason}")


def with_values(word: str) -> str:
    """A word of the command with the values of variables, `{env:NAME}`, that this process got and nobody wrote down."""
    return FROM_ENV.sub(lambda found: os.environ.get(found[1], found[0]) if found[1] else found[0][1:-1], word)


class CommandSettings(TypedDict):
    """A command, and how it is followed."""

    argv: List[str]
    cwd: Optional[str]  # None is the rank's own folder
    file: Optional[str]  # whose lines are read; None is what the command prints
    first_within_s: float  # from its start to the first line that tells of an iteration
    grace_s: float  # from SIGTERM to SIGKILL


class Settings(CommandSettings, RuleSettings):
    """What `command.json` has."""

    launcher: Optional[str]  # whose job this rank is of, and the seconds that it has to say so
    join_s: float
    reads: bool  # whether this rank's lines tell of iterations
    samples: Optional[int]  # of an iteration, where its line does not tell


class Stream:
    """What a command prints on one of its two streams: where it is read, where it goes on to, and its lines."""

    def __init__(self, name: str, source: IO[bytes], goes_to: BinaryIO) -> None:
        self.name = name
        self.source = source
        self.goes_to = goes_to
        self.lines = Lines()


class Command:
    """The command, and what reads its lines, if anything does."""

    def __init__(self, settings: CommandSettings, reader: Reader | None) -> None:
        self._settings = settings
        self._iterations = reader
        cwd = Path(settings["cwd"] or ".")
        self._tail = Tail(cwd / settings["file"]) if reader and settings["file"] is not None else None
        try:
            argv = [with_values(word) for word in settings["argv"]]
            self.process = subprocess.Popen(
                argv, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
        except OSError as error:
            fail(f"cannot start {settings['argv'][0]}: {error.strerror} ({error.filename})")
        self._streams = [
            Stream(name, source, goes_to.buffer)
            for name, source, goes_to in (
                ("stdout", self.process.stdout, sys.stdout),
                ("stderr", self.process.stderr, sys.stderr),
            )
            if source is not None
        ]
        self._selector = selectors.DefaultSelector()
        for stream in self._streams:
            self._selector.register(stream.source, selectors.EVENT_READ, stream)
        self._last: deque[str] = deque(maxlen=SHOWN_LINES)

    def follow(self) -> NoReturn:
        """Read until the command ends, which is a failure whatever its status: a run ends a training, not it itself."""
        first_by = time.monotonic() + self._settings["first_within_s"]
        filed = Lines()
        while self.process.poll() is None or self._more():
            self._pass_on(LOOK_EVERY_S if self._tail else TURN_S)
            self._filed(filed)
            if self._iterations and not self._iterations.matched and time.monotonic() > first_by:
                self._nothing_matched(self._iterations, f"{self._settings['first_within_s']:g} s went by")
        for stream in self._streams:
            self._take(stream.lines.last(), stream.name)
        self._filed(filed)
        self._over(self.process.wait())

    def _more(self) -> bool:
        """Whether anything was printed that has not been read."""
        return bool(self._selector.get_map() and self._selector.select(0))

    def _pass_on(self, within_s: float) -> None:
        """Read what is printed in some seconds, at the first of it."""
        if not self._selector.get_map():
            threading.Event().wait(min(within_s, LOOK_EVERY_S))
            return
        for key, _ in self._selector.select(within_s):
            stream: Stream = key.data
            data = os.read(key.fd, 1 << 16)
            stream.goes_to.write(data)
            stream.goes_to.flush()
            self._take(stream.lines.take(data), stream.name)
            if not data:
                self._selector.unregister(key.fd)

    def _take(self, lines: list[str], stream: str) -> None:
        self._last += (line[:200] for line in lines)
        if self._iterations and self._tail is None:
            self._iterations.take(lines, stream)

    def _filed(self, lines: Lines) -> None:
        if self._iterations and self._tail is not None:
            found = lines.take(self._tail.read())
            self._last += (line[:200] for line in found)
            self._iterations.take(found, "file")

    def _nothing_matched(self, iterations: Reader, why: str) -> NoReturn:
        shown = " | ".join(self._last) or "it printed nothing, neither on standard output nor on standard error"
        fail(f"{why}, and {iterations.unmatched}; the last lines: {shown}")

    def _over(self, status: int) -> NoReturn:
        if status < 0:
            fail(f"the command was ended by signal {-status}")
        if status > 0:  # perhaps since a peer went away, whose own reason is the better one
            threading.Event().wait(PEER_GRACE_S)
            fail(f"the command ended with status {status}")
        ended = "the command came to its end"
        if self._iterations and not self._iterations.matched:
            self._nothing_matched(self._iterations, ended)
        done = f" after {self._iterations.count} iterations" if self._iterations else ""
        threading.Event().wait(PEER_GRACE_S)
        fail(f"{ended}{done}, before the run did: let it train longer, or measure fewer iterations")

    def stop(self) -> None:
        """Ask it to end, and kill it when its grace is over; its last words are kept, and tell of no iteration."""
        self._iterations = None
        if self.process.poll() is None:
            self.process.terminate()
            until = time.monotonic() + self._settings["grace_s"]
            while self.process.poll() is None and time.monotonic() < until:
                self._pass_on(LOOK_EVERY_S)
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()
        until = time.monotonic() + LAST_WORDS_S
        while self._more() and time.monotonic() < until:
            self._pass_on(0)


def end_on_signal() -> None:
    """From now on the first SIGTERM or SIGINT ends the main thread with status 0; more of them change nothing.

    No signal is blocked, as `lifecycle` would: the command would inherit that.
    """

    def end(*_: object) -> NoReturn:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        raise SystemExit(0)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)


def carry_out(settings: CommandSettings, reader: Reader | None) -> NoReturn:
    """Start the command at the gate, and read what it prints until it or this process is to end."""
    report_ready()
    wait_for_go()
    command = Command(settings, reader)
    try:
        command.follow()
    finally:
        command.stop()


def main() -> None:
    settings: Settings = json.loads(Path("command.json").read_text())
    end_on_signal()
    log = IterationLog(Path("iterations.jsonl"))
    if settings["launcher"] is not None:
        join(settings["join_s"], settings["launcher"])
    carry_out(settings, Iterations(Rule(settings), log, settings["samples"]) if settings["reads"] else None)
