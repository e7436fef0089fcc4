"""Samples a source of counters at absolute deadlines and appends the rows to CSV files until it is told to end.

Run as `python -I -S -B sampler.py SOURCE ARGUMENT...`, where SOURCE is a module beside this file. Its function
`open_streams(arguments)` gives streams, each an object with

    name      stem of its CSV file in the working directory
    every_s   seconds between its samples
    columns   names of what stands in a row
    rows()    the rows of one sample, each as long as `columns`; an empty text is a value that could not be read

Columns of one name are told apart by a number ("drops", "drops#2"), and what would break a line of CSV is replaced.
Each row is written after `time_ns` (this machine's clock, nanoseconds since the epoch) and `late_ns` (how far
behind its deadline the sample was taken). "sampling" on standard output says that every stream has given its first
sample. SIGTERM or SIGINT takes a last sample, writes everything and ends with 0. A stream that raises OSError is left
out and named on standard error; when none is left, or a file cannot be written, the exit status is 1. A sample that
cannot be made sense of (any other exception) is left out, and that is said once.
"""

# ruff: noqa: PTH100, PTH120 - importing pathlib would take as long as starting the interpreter

from __future__ import annotations

import os
import signal
import sys
import time

MYPY = False
if MYPY:
    from typing import Any

ENDING = (signal.SIGTERM, signal.SIGINT)
FLUSH_EVERY_S = 0.5


class WriteError(Exception):
    """Writing a file of samples failed."""


def plain(text: str) -> str:
    """Return a text as a cell or a column's name: printable, and without what separates cells."""
    return "".join(one if one.isprintable() else "_" for one in text).replace(",", ";").replace('"', "'")


def distinct(names: list[str]) -> list[str]:
    """Return unique names: the second of one name gets "#2" behind it, and so on."""
    taken: dict[str, int] = {}
    found: list[str] = []
    there = set(names)
    for name in names:
        taken[name] = taken.get(name, 0) + 1
        new = name if taken[name] == 1 else "%s#%d" % (name, taken[name])
        while new != name and new in there:
            taken[name] += 1
            new = "%s#%d" % (name, taken[name])
        found.append(new)
    return found


class Recorder:
    """One stream and its file; rows wait in memory until `flush`."""

    def __init__(self, stream: Any, now: float) -> None:
        self.stream = stream
        self.due = now
        self.path = stream.name + ".csv"
        self.columns = ["time_ns", "late_ns", *distinct([plain(name) for name in stream.columns])]
        self.pending: list[str] = [",".join(self.columns)]
        self.odd = False  # whether it was said that a sample is left out
        try:
            self.fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise WriteError("cannot write %s: %s" % (self.path, error.strerror)) from error

    def sample(self, now: float) -> None:
        """Take a sample and set the next deadline; those that were missed are skipped."""
        late = max(0.0, now - self.due)
        stamp = "%d,%d," % (time.time_ns(), late * 1e9)
        self.due += self.stream.every_s * (1 + late // self.stream.every_s)
        try:
            rows = self.stream.rows()
        except OSError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a kernel or a driver says that its reader does not expect
            if not self.odd:
                self.odd = True
                say(
                    "%s: a sample is left out, and others like it: %s %s"
                    % (self.stream.name, type(error).__name__, error)
                )
            return
        for row in rows:
            line = stamp + ",".join(map(str, row))
            if line.count(",") != len(self.columns) - 1 or not line.isprintable():
                line = stamp + ",".join(plain(str(cell)) for cell in row)
            self.pending.append(line)

    def flush(self) -> None:
        data = "".join(line + "\n" for line in self.pending).encode()
        self.pending.clear()
        try:
            while data:
                data = data[os.write(self.fd, data) :]
        except OSError as error:
            raise WriteError("cannot write %s: %s" % (self.path, error.strerror)) from error


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def sample(recorders: list[Recorder], now: float) -> list[Recorder]:
    """Sample each of these; return those that failed."""
    failed = []
    for recorder in recorders:
        try:
            recorder.sample(now)
        except OSError as error:
            say("%s: no more samples: %s" % (recorder.stream.name, error))
            failed.append(recorder)
    return failed


def run(recorders: list[Recorder]) -> int:
    """Sample and write until told to end; return the exit status."""
    flush_due = time.monotonic() + FLUSH_EVERY_S
    announced = False
    while recorders:
        wait = min(recorder.due for recorder in recorders) - time.monotonic()
        received = signal.sigtimedwait(ENDING, max(0.0, wait))
        now = time.monotonic()
        failed = sample([r for r in recorders if received is not None or r.due <= now], now)
        if received is not None or failed or not announced or now >= flush_due:
            for recorder in recorders:
                recorder.flush()
            flush_due = now + FLUSH_EVERY_S
        recorders = [r for r in recorders if r not in failed]
        if received is not None and recorders:
            return 0
        if not announced and recorders:
            print("sampling", flush=True)
            announced = True
    say("nothing left to sample")
    return 1


def main(argv: list[str]) -> int:
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # -I leaves it out
    source: Any = __import__(argv[1])
    try:
        streams = source.open_streams(argv[2:])
    except OSError as error:
        say("%s: %s" % (argv[1], error))
        return 1
    try:
        return run([Recorder(stream, time.monotonic()) for stream in streams])
    except WriteError as error:
        say(str(error))
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv))
