"""Run any training command, and write an iteration log from its output.

It reads `command.json` in its working folder, prints `ready`, waits for the line `go` on standard input, and only then
starts the command. What the command prints goes on to the stream that it printed it on; the lines of both are read,
each stream's by themselves, so that a line that comes in parts is not mixed with the other's. SIGTERM ends the command,
then this.
"""

from __future__ import annotations

import json
import math
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
from typing import IO, Any, BinaryIO, Dict, List, NoReturn, Optional, Protocol, TypedDict

from ..lifecycle import PEER_GRACE_S, report_ready, wait_for_go
from ..logs import IterationLog
from ..mpi.join import join

LONGEST_LINE = 1 << 20  # bytes; of a longer one the rest is another line
SHOWN_LINES = 3
ODD_LINES = "odd-lines.txt"  # those of iterations that tell no number
MOST_ODD = 1000
_TOGETHER = 1024  # lines that one stream may be ahead of the other
_ABSENT = object()
LOOK_EVERY_S = 0.01  # at a file: nothing tells when it grows
TURN_S = 0.1
FROM_ENV = re.compile(r"\{\{env:\w+\}\}|\{env:([A-Za-z_][A-Za-z0-9_]*)\}")
LAST_WORDS_S = 1.0  # of what the command leaves behind, which may print for ever


class RuleSettings(TypedDict):
    """The rule for lines of iterations: one of the two, the other is None."""

    pattern: Optional[str]
    json: Optional[Dict[str, str]]  # quantity -> path


class Rule:
    """The rule for lines of iterations: a regular expression with named groups, or paths into a JSON object."""

    def __init__(self, rule: RuleSettings) -> None:
        self._pattern = re.compile(rule["pattern"]) if rule["pattern"] is not None else None
        self._paths: dict[str, str] = rule["json"] or {}
        self._odd_lines: list[str] = []
        self.text = repr(rule["pattern"]) if self._pattern else f"JSON with {', '.join(self._paths.values())}"

    def fields(self, line: str) -> dict[str, float] | None:
        """Return the numbers of an iteration in a line; None where it is no iteration's."""
        if self._pattern is None:
            return self._of_json(line)
        match = self._pattern.search(line)
        if match is None:
            return None
        try:
            return {name: float(text) for name, text in match.groupdict().items() if text is not None}
        except ValueError:
            self.odd(line)
            return None

    def odd(self, line: str) -> None:
        """Note a line of an iteration without a number, or with an invalid one; the first thousand are kept."""
        if len(self._odd_lines) < MOST_ODD:
            self._odd_lines.append(line[:200])
            with Path(ODD_LINES).open("a", encoding="utf-8", errors="replace") as file:
                file.write(line[:200] + "\n")

    @property
    def unmatched(self) -> str:
        """The message that no line was an iteration's, with a likely reason."""
        if self._odd_lines:
            return f"{self.text} finds no number above 0 in the lines that it matches, such as {self._odd_lines[0]!r}"
        return f"no line matched {self.text}"

    def _of_json(self, line: str) -> dict[str, float] | None:
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            return None
        found = {name: _at(record, path.split(".")) for name, path in self._paths.items()}
        if _ABSENT in found.values():
            return None
        try:
            return {name: _number(value) for name, value in found.items()}
        except (TypeError, ValueError, OverflowError):
            self.odd(line)
            return None


def _number(value: Any) -> float:
    """Return a number of JSON, or one that is spelled as a text.

    TypeError, ValueError or OverflowError of anything else.
    """
    if isinstance(value, bool):
        raise TypeError(value)
    return float(value)


def _at(record: Any, path: list[str]) -> Any:
    for step in path:
        if isinstance(record, dict):
            record = record.get(step, _ABSENT)
        elif isinstance(record, list) and step.isdigit() and int(step) < len(record):
            record = record[int(step)]
        else:
            return _ABSENT
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
        """Return the bytes after the last line's end."""
        return self.take(b"\n")


class Tail:
    """Reads bytes appended to a file from now on, which may not exist yet, or be truncated or replaced."""

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
        self._alone: dict[str, deque[str]] = {}  # by stream, its last lines that the other has not brought, too

    @property
    def unmatched(self) -> str:
        return self._rule.unmatched

    def take(self, lines: list[str], stream: str, /) -> None:
        """Add lines of one stream; a line that a program logs on both streams counts once."""
        for line in lines:
            fields = self._rule.fields(line)
            if fields is not None and not self._twice(line, stream):
                self._ended(fields, line)

    def _twice(self, line: str, stream: str) -> bool:
        """Return whether the other stream has brought that line already."""
        for name, others in self._alone.items():
            if name != stream and line in others:
                others.remove(line)
                return True
        self._alone.setdefault(stream, deque(maxlen=_TOGETHER)).append(line)
        return False

    def _ended(self, fields: dict[str, float], line: str) -> None:
        mono_ns, wall_ns = time.monotonic_ns(), time.time_ns()
        before, self._before = self._before, (mono_ns, wall_ns)
        seconds = fields.pop("seconds", None)
        if "milliseconds" in fields:
            seconds = fields.pop("milliseconds") * 1e-3
        if seconds is not None:
            if not 0 < seconds < 1e6:  # as of a time that is rounded to nothing
                self._rule.odd(line)
                return
            before = mono_ns - round(seconds * 1e9), wall_ns - round(seconds * 1e9)
        samples = fields.get("samples", self._samples)
        if samples is not None and not math.isfinite(samples):
            self._rule.odd(line)
            return
        self.matched += 1
        if before is None:
            return
        # Lines that were held back come together: their iterations still began one after the other.
        self._start_ns = max(self._start_ns, before[1])
        record: dict[str, float] = {
            "iteration": self.count,
            "start_ns": self._start_ns,
            "end_ns": wall_ns,
            "mono_start_ns": before[0],
            "mono_end_ns": mono_ns,
            **fields,
        }
        if samples is not None:
            record["samples"] = round(samples)
        self._log.write(record)
        self.count += 1


class Reader(Protocol):
    """A reader of a command's lines that finds iterations in them."""

    @property
    def matched(self) -> int:
        """The number of lines that were an iteration's."""

    @property
    def count(self) -> int:
        """The number of iterations that have ended."""

    @property
    def unmatched(self) -> str:
        """The message that no line was an iteration's."""

    def take(self, lines: list[str], stream: str, /) -> None:
        """Add lines as they come; `stream` is "stdout", "stderr" or "file"."""


def fail(reason: str) -> NoReturn:
    """End with status 1 and one line on standard error; unlike `lifecycle.fail` only once the command has ended."""
    raise SystemExit(f"rank {os.environ.get('RANK', '?')}: {reason}")


def with_values(word: str) -> str:
    """Return a word of the command with the values of `{env:NAME}`, from this process's environment."""
    return FROM_ENV.sub(lambda found: os.environ.get(found[1], found[0]) if found[1] else found[0][1:-1], word)


class CommandSettings(TypedDict):
    """A command, and the settings for reading its output."""

    argv: List[str]
    cwd: Optional[str]  # None is the rank's own folder
    file: Optional[str]  # the file whose lines are read; None for the command's output
    first_within_s: float  # from its start to the first line that tells of an iteration
    grace_s: float  # from SIGTERM to SIGKILL


class LoggedCommandSettings(CommandSettings, RuleSettings):
    """The content of `command.json`."""

    launcher: Optional[str]  # whose job this rank is of, and the seconds that it has to say so
    join_s: float
    reads: bool  # whether this rank's lines tell of iterations
    samples: Optional[int]  # of an iteration, where its line does not tell


class Stream:
    """One of a command's two output streams: its pipe, the stream to which it is copied, and its lines."""

    def __init__(self, name: str, source: IO[bytes], goes_to: BinaryIO) -> None:
        self.name = name
        self.source = source
        self.goes_to = goes_to
        self.lines = Lines()


class Command:
    """The command, and the reader of its lines, if there is one."""

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
        """Read until the command ends, which is a failure whatever its status: the run ends a training, not itself."""
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
        """Return whether there is unread output."""
        return bool(self._selector.get_map() and self._selector.select(0))

    def _pass_on(self, within_s: float) -> None:
        """Wait some seconds at most for output, then read and copy it."""
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
        if status > 0:  # perhaps since a peer went away, whose message tells the cause
            threading.Event().wait(PEER_GRACE_S)
            fail(f"the command ended with status {status}")
        ended = "the command came to its end"
        if self._iterations and not self._iterations.matched:
            self._nothing_matched(self._iterations, ended)
        done = f" after {self._iterations.count} iterations" if self._iterations else ""
        threading.Event().wait(PEER_GRACE_S)
        fail(f"{ended}{done}, before the run did: let it train longer, or measure fewer iterations")

    def stop(self) -> None:
        """Ask the command to end, and kill it when its grace is over.

        Its last output is copied, but counts no iteration.
        """
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
    """Have the first SIGTERM or SIGINT end the main thread with status 0; later ones change nothing.

    No signal is blocked, as `lifecycle` would: the command would inherit that.
    """

    def end(*_: object) -> NoReturn:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        raise SystemExit(0)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)


def carry_out(settings: CommandSettings, reader: Reader | None) -> NoReturn:
    """Start the command at the gate, and read its output until it or this process is to end."""
    report_ready()
    wait_for_go()
    command = Command(settings, reader)
    try:
        command.follow()
    finally:
        command.stop()


def main() -> None:
    settings: LoggedCommandSettings = json.loads(Path("command.json").read_text())
    end_on_signal()
    log = IterationLog(Path("iterations.jsonl"))
    if settings["launcher"] is not None:
        join(settings["join_s"], settings["launcher"])
    carry_out(settings, Iterations(Rule(settings), log, settings["samples"]) if settings["reads"] else None)
