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
from collections import deque
from pathlib import Path
from typing import Any, NoReturn, Protocol

from ..base.iteration_log import IterationLog
from ..base.lifecycle import PEER_GRACE_S, report_ready, wait_for_go

LONGEST_LINE = 1 << 20  # bytes; of a longer one the rest is another line
LOOK_EVERY_S = 0.01  # at a file: nothing tells when it grows
TURN_S = 0.1
SHOWN_LINES = 3


def fail(reason: str) -> NoReturn:
    """End with status 1 and one line on standard error; unlike that of `lifecycle` not before the command has ended."""
    raise SystemExit(f"rank {os.environ.get('RANK', '?')}: {reason}")


class Rule:
    """What makes a line an iteration's: a regular expression with named groups, or paths into a JSON object."""

    def __init__(self, told: dict[str, Any]) -> None:
        self._pattern = re.compile(told["pattern"]) if told["pattern"] is not None else None
        self._paths: dict[str, str] = told["json"] or {}
        self.text = repr(told["pattern"]) if self._pattern else f"JSON with {', '.join(self._paths.values())}"

    def fields(self, line: str) -> dict[str, float] | None:
        """The numbers that the line tells of an iteration; None where it tells of none."""
        if self._pattern is None:
            return self._of_json(line)
        match = self._pattern.search(line)
        if match is None:
            return None
        try:
            return {name: float(text) for name, text in match.groupdict().items() if text is not None}
        except ValueError:
            return None

    def _of_json(self, line: str) -> dict[str, float] | None:
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            return None
        found = {name: _at(record, path.split(".")) for name, path in self._paths.items()}
        whole = all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in found.values())
        return {name: float(value) for name, value in found.items()} if whole else None


def _at(record: Any, path: list[str]) -> Any:
    for step in path:
        if isinstance(record, dict):
            record = record.get(step)
        elif isinstance(record, list) and step.isdigit() and int(step) < len(record):
            record = record[int(step)]
        else:
            return None
    return record


class Lines:
    """Cuts bytes into lines; a carriage return, as progress bars use it, ends one too."""

    def __init__(self) -> None:
        self._rest = b""

    def take(self, data: bytes) -> list[str]:
        *whole, self._rest = re.split(rb"[\r\n]+", self._rest + data)
        if len(self._rest) > LONGEST_LINE:
            whole.append(self._rest)
            self._rest = b""
        return [line.decode("utf-8", "replace") for line in whole if line]

    def last(self) -> list[str]:
        """What came after the last line's end."""
        return self.take(b"\n")


class Tail:
    """What is added to a file from now on, which may not be there yet, be cut, or be replaced by another."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._inode, self._offset = self._state()

    def _state(self) -> tuple[int, int]:
        try:
            status = self._path.stat()
        except OSError:
            return 0, 0
        return status.st_ino, status.st_size

    def read(self) -> bytes:
        inode, size = self._state()
        if inode != self._inode or size < self._offset:
            self._inode, self._offset = inode, 0
        if size == self._offset:
            return b""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read(size - self._offset)
        except OSError:  # it was taken away meanwhile
            return b""
        self._offset += len(data)
        return data


class Iterations:
    """Turns lines into the log; without a time of their own, iterations lie between one line and the next."""

    def __init__(self, rule: Rule, log: IterationLog, samples: int | None) -> None:
        self._rule = rule
        self._log = log
        self._samples = samples
        self._before: tuple[int, int] | None = None
        self._start_ns = 0
        self.matched = self.count = 0
        self.seen: deque[str] = deque(maxlen=SHOWN_LINES)

    def take(self, lines: list[str]) -> None:
        for line in lines:
            self.seen.append(line[:200])
            fields = self._rule.fields(line)
            if fields is not None:
                self.matched += 1
                self._ended(fields)

    def _ended(self, fields: dict[str, float]) -> None:
        mono_ns, wall_ns = time.monotonic_ns(), time.time_ns()
        before, self._before = self._before, (mono_ns, wall_ns)
        seconds = fields.pop("seconds", None)
        if "milliseconds" in fields:
            seconds = fields.pop("milliseconds") * 1e-3
        if seconds is not None:
            if not 0 <= seconds < 1e6:
                return
            before = mono_ns - round(seconds * 1e9), wall_ns - round(seconds * 1e9)
        if before is None:
            return
        # Lines that were held back come together: their iterations still began one after the other.
        self._start_ns = max(self._start_ns, before[1])
        record: dict[str, Any] = {
            "iteration": self.count,
            "start_ns": self._start_ns,
            "end_ns": wall_ns,
            "mono_start_ns": before[0],
            "mono_end_ns": mono_ns,
            **fields,
        }
        samples = fields.get("samples", self._samples)
        if samples is not None:
            record["samples"] = round(samples)
        self._log.write(record)
        self.count += 1

    def nothing_matched(self, why: str) -> str:
        shown = " | ".join(self.seen) or "it printed nothing"
        return f"{why}, and no line matched {self._rule.text}; the last lines: {shown}"


class Reader(Protocol):
    """What is told the lines of a command, and finds iterations in them."""

    @property
    def matched(self) -> int:
        """Lines that told of one."""

    @property
    def count(self) -> int:
        """Iterations that have ended."""

    def take(self, lines: list[str]) -> None: ...

    def nothing_matched(self, why: str) -> str:
        """What to fail with when no line told of any."""


class Command:
    """The command, and what reads its lines, if anything does."""

    def __init__(self, told: dict[str, Any], reader: Reader | None) -> None:
        self._told = told
        self._iterations = reader
        cwd = Path(told["cwd"] or ".")
        self._tail = Tail(cwd / told["file"]) if reader and told["file"] is not None else None
        self._out, theirs = os.pipe()
        try:
            self.process = subprocess.Popen(told["argv"], cwd=cwd, stdin=subprocess.DEVNULL, stdout=theirs)
        except OSError as error:
            fail(f"cannot start {told['argv'][0]}: {error.strerror} ({error.filename})")
        os.close(theirs)

    def follow(self) -> NoReturn:
        """Read until the command ends, which is a failure whatever its status: a run ends a training, not it itself."""
        first_by = time.monotonic() + self._told["first_within_s"]
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
                    fail(self._iterations.nothing_matched(f"{self._told['first_within_s']:g} s went by"))
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
                self.process.wait(self._told["grace_s"])
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


def carry_out(told: dict[str, Any], reader: Reader | None) -> NoReturn:
    """Start the command at the gate, and read what it prints until it or this process is to end."""
    report_ready()
    wait_for_go()
    command = Command(told, reader)
    try:
        command.follow()
    finally:
        command.stop()


def main() -> None:
    told = json.loads(Path("command.json").read_text())
    end_on_signal()
    log = IterationLog(Path("iterations.jsonl"))
    carry_out(told, Iterations(Rule(told), log, told["samples"]) if told["reads"] else None)
