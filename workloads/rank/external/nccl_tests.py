"""Run a program of NVIDIA's nccl-tests as a rank of an MPI job, and log the results of each pass.

It reads `config.json` in its working folder and waits `join_s` to be told who it is in the MPI job, prints `ready`,
waits for the line `go` on standard input, and only then starts the program. SIGTERM ends that, then this.
"""

from __future__ import annotations

import math
import os
import re
import time
from pathlib import Path
from typing import List

from .. import lifecycle
from ..logs import IterationLog
from ..mpi.join import join
from .command import CommandSettings, carry_out, end_on_signal, fail

COLUMNS = range(11, 14)  # size, count, type, reduction and root as far as a version tells them, then the results
PLACES = (-8, -4)  # of the time with the result beside the message, and in its place; two bandwidths and wrong values

RANK = re.compile(r"#\s+Rank\s+\d+\s")


class NcclTestsSettings(CommandSettings):
    """A program of nccl-tests, with its operation and sizes."""

    join_s: float  # for mpirun to register this rank
    operation: str
    sizes: List[int]  # of messages in bytes, in order
    repeats: int  # of an operation in one go
    world: int
    link_bps: float  # of the slowest link in bit/s


def row_of(line: str) -> tuple[int, list[tuple[float, float]]] | None:
    """Return a line's size in bytes, and for both results the seconds of one operation and the number of wrong values.

    Return None where it is no line of results.
    """
    words = line.split()
    if line.startswith("#") or len(words) not in COLUMNS:
        return None
    try:
        results = [(float(words[place]) * 1e-6, _wrong(words[place + 3])) for place in PLACES]
        size = int(words[0])
    except ValueError:
        return None
    return (size, results) if all(math.isfinite(seconds) for seconds, _ in results) else None


def _wrong(word: str) -> float:
    """Return how many values of a result are wrong.

    Versions up to 2.11 print the largest error instead, which is below one.
    """
    wrong = 0.0 if word == "N/A" else float(word)
    return 0.0 if wrong < 1 else wrong


class Passes:
    """Turns rank 0's output into the logs of collectives and of iterations: an iteration is a pass over all sizes."""

    def __init__(self, settings: NcclTestsSettings) -> None:
        self._settings = settings
        self._iterations = IterationLog(Path("iterations.jsonl"))
        self._collectives = IterationLog(Path("collectives.jsonl"))
        self._before = 0, 0
        self._ranks = self._rows = 0

    @property
    def matched(self) -> int:
        return self._rows

    @property
    def count(self) -> int:
        """The number of passes that have ended."""
        return self._rows // len(self._settings["sizes"])

    @property
    def unmatched(self) -> str:
        return "nccl-tests told no result"

    def take(self, lines: list[str], _stream: str, /) -> None:
        for line in lines:
            if line.startswith("invalid option"):
                fail(f"this nccl-tests is too old, which has to go on until it is ended (-N 0): {line}")
            self._ranks += bool(RANK.match(line))
            row = row_of(line)
            if row is not None:
                self._measured(*row)
            elif self._rows == 0:  # what comes before the results: the first pass begins after the last such line
                self._before = time.monotonic_ns(), time.time_ns()

    def _measured(self, size: int, results: list[tuple[float, float]]) -> None:
        world, operation = self._settings["world"], self._settings["operation"]
        if self._ranks != world:
            fail(f"nccl-tests runs with {self._ranks} of {world} ranks: was it built with MPI=1, for this Open MPI?")
        expected = self._settings["sizes"][self._rows % len(self._settings["sizes"])]
        if size != expected:  # it goes on with other sizes than were asked for
            fail(f"nccl-tests measured {size} bytes where {expected} were due: do three as large fit each GPU?")
        iteration = self.count
        for seconds, wrong in results:
            if wrong:
                fail(f"nccl-tests found {wrong:g} wrong values after {operation} of {size} bytes")
            self._collectives.write(
                {
                    "iteration": iteration,
                    "operation": operation,
                    "bytes": size,
                    "repeats": self._settings["repeats"],
                    "seconds": seconds,
                    "world": world,
                    "link_bps": self._settings["link_bps"],
                }
            )
        self._rows += 1
        if self.count > iteration:
            self._passed(iteration)

    def _passed(self, iteration: int) -> None:
        before, self._before = self._before, (time.monotonic_ns(), time.time_ns())
        mono_ns, wall_ns = self._before
        self._iterations.write(
            {
                "iteration": iteration,
                "start_ns": before[1],
                "end_ns": wall_ns,
                "mono_start_ns": before[0],
                "mono_end_ns": mono_ns,
                "forward_s": 0.0,
                "backward_s": 0.0,
                "wait_s": (mono_ns - before[0]) / 1e9,
                "loss": 0.0,
                "samples": 2 * len(self._settings["sizes"]) * self._settings["repeats"],
            }
        )


def main() -> None:
    settings: NcclTestsSettings = lifecycle.load_settings()
    end_on_signal()
    passes = Passes(settings) if os.environ["RANK"] == "0" else None
    join(settings["join_s"])
    carry_out(settings, passes)
