"""What a command prints, and the iterations that its lines tell of."""

from __future__ import annotations

import json
import math
import re
import time
from collections import deque
from pathlib import Path
from typing import Any, Dict, Optional, Protocol, TypedDict

from ..base.iteration_log import IterationLog

LONGEST_LINE = 1 << 20  # bytes; of a longer one the rest is another line
SHOWN_LINES = 3
ODD_LINES = "odd-lines.txt"  # those of iterations that tell no number
MOST_ODD = 1000
_TOGETHER = 1024  # lines that one stream may be ahead of the other


class RuleSettings(TypedDict):
    """What makes a line an iteration's: one of the two, the other is None."""

    pattern: Optional[str]
    json: Optional[Dict[str, str]]  # quantity -> path


class Rule:
    """What makes a line an iteration's: a regular expression with named groups, or paths into a JSON object."""

    def __init__(self, rule: RuleSettings) -> None:
        self._pattern = re.compile(rule["pattern"]) if rule["pattern"] is not None else None
        self._paths: dict[str, str] = rule["json"] or {}
        self._odd_lines: list[str] = []
        self.text = repr(rule["pattern"]) if self._pattern else f"JSON with {', '.join(self._paths.values())}"

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
            self.odd(line)
            return None

    def odd(self, line: str) -> None:
        """Note a line that is an iteration's and tells no number, or none that can be; the first thousand are kept."""
        if len(self._odd_lines) < MOST_ODD:
            self._odd_lines.append(line[:200])
            with Path(ODD_LINES).open("a", encoding="utf-8", errors="replace") as file:
                file.write(line[:200] + "\n")

    @property
    def unmatched(self) -> str:
        """That no line told of an iteration, and why that may be."""
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


_ABSENT = object()


def _number(value: Any) -> float:
    """A number of JSON, or one that is spelled as a text; TypeError, ValueError or OverflowError of anything else."""
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
        self._alone: dict[str, deque[str]] = {}  # by stream, its last lines that the other has not brought, too

    @property
    def unmatched(self) -> str:
        return self._rule.unmatched

    def take(self, lines: list[str], stream: str, /) -> None:
        """Lines of one stream; one that programs log on both of theirs counts once."""
        for line in lines:
            fields = self._rule.fields(line)
            if fields is not None and not self._twice(line, stream):
                self._ended(fields, line)

    def _twice(self, line: str, stream: str) -> bool:
        """Whether the other stream has brought that line already."""
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
    """What is told the lines of a command, and finds iterations in them."""

    @property
    def matched(self) -> int:
        """Lines that told of one."""

    @property
    def count(self) -> int:
        """Iterations that have ended."""

    @property
    def unmatched(self) -> str:
        """That no line told of any."""

    def take(self, lines: list[str], stream: str, /) -> None:
        """Lines as they come; `stream` is "stdout", "stderr" or "file"."""
