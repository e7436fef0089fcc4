"""Runs a training command that knows nothing of us, and writes an iteration log from what it prints.

It reads `command.json` in its working folder, prints `ready`, waits for the line `go` on standard input, and only then
starts the command. What the command prints goes on to standard output. SIGTERM ends the command, then this.
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
from pathlib import Path
from typing import List, NoReturn, Optional, TypedDict

from ..base.iteration_log import IterationLog
from ..base.lifecycle import PEER_GRACE_S, report_ready, wait_for_go
from ..mpi.join import join
from .printed import Iterations, Lines, Reader, Rule, RuleSettings, Tail

LOOK_EVERY_S = 0.01  # at a file: nothing tells when it grows
TURN_S = 0.1
FROM_ENV = re.compile(r"\{\{env:\w+\}\}|\{env:([A-Za-z_][A-Za-z0-9_]*)\}")


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
    file: Optional[str]  # whose lines are read; None is standard output
    first_within_s: float  # from its start to the first line that tells of an iteration
    grace_s: float  # from SIGTERM to SIGKILL


class Settings(CommandSettings, RuleSettings):
    """What `command.json` has."""

    launcher: Optional[str]  # whose job this rank is of, and the seconds that it has to say so
    join_s: float
    reads: bool  # whether this rank's lines tell of iterations
    samples: Optional[int]  # of an iteration, where its line does not tell


class Command:
    """The command, and what reads its lines, if anything does."""

    def __init__(self, settings: CommandSettings, reader: Reader | None) -> None:
        self._settings = settings
        self._iterations = reader
        cwd = Path(settings["cwd"] or ".")
        self._tail = Tail(cwd / settings["file"]) if reader and settings["file"] is not None else None
        self._out, theirs = os.pipe()
        try:
            argv = [with_values(word) for word in settings["argv"]]
            self.process = subprocess.Popen(argv, cwd=cwd, stdin=subprocess.DEVNULL, stdout=theirs)
        except OSError as error:
            fail(f"cannot start {settings['argv'][0]}: {error.strerror} ({error.filename})")
        os.close(theirs)

    def follow(self) -> NoReturn:
        """Read until the command ends, which is a failure whatever its status: a run ends a training, not it itself."""
        first_by = time.monotonic() + self._settings["first_within_s"]
        printed, filed, open_ = Lines(), Lines(), True
        with selectors.DefaultSelector() as selector:
            selector.register(self._out, selectors.EVENT_READ)
            while self.process.poll() is None or (open_ and selector.select(0)):
                if open_ and selector.select(LOOK_EVERY_S if self._tail else TURN_S):
                    data = os.read(self._out, 1 << 16)
                    self._printed(printed.take(data), data)
                    if not data:
                        open_ = False
                        selector.unregister(self._out)
                elif not open_:
                    threading.Event().wait(LOOK_EVERY_S)
                self._filed(filed)
                if self._iterations and not self._iterations.matched and time.monotonic() > first_by:
                    fail(self._iterations.nothing_matched(f"{self._settings['first_within_s']:g} s went by"))
        self._printed(printed.last(), b"")
        self._filed(filed)
        self._over(self.process.wait())

    def _printed(self, lines: list[str], data: bytes) -> None:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        if self._iterations and self._tail is None:
            self._iterations.take(lines)

    def _filed(self, lines: Lines) -> None:
        if self._iterations and self._tail is not None:
            self._iterations.take(lines.take(self._tail.read()))

    def _over(self, status: int) -> NoReturn:
        if status < 0:
            fail(f"the command was ended by signal {-status}")
        if status > 0:  # perhaps since a peer went away, whose own reason is the better one
            threading.Event().wait(PEER_GRACE_S)
            fail(f"the command ended with status {status}")
        ended = "the command came to its end"
        if self._iterations and not self._iterations.matched:
            fail(self._iterations.nothing_matched(ended))
        done = f" after {self._iterations.count} iterations" if self._iterations else ""
        threading.Event().wait(PEER_GRACE_S)
        fail(f"{ended}{done}, before the run did: let it train longer, or measure fewer iterations")

    def stop(self) -> None:
        """Ask it to end, and kill it when its grace is over."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(self._settings["grace_s"])
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


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
