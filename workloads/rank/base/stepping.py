"""The life of a rank between its gate and its end: one step after the other, each a line in the iteration log."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from .iteration_log import IterationLog
from .lifecycle import report_ready, wait_for_go

# Does one iteration; gives what its line has beside instants: forward_s, backward_s, wait_s, loss, samples, and more.
Step = Callable[[int], dict[str, float]]


@dataclass(frozen=True)
class Evaluated:
    """A step, and what is done after it that does not count as its time, such as looking at held-out images."""

    step: Step
    afterwards: Callable[[int], None]

    def __call__(self, iteration: int) -> dict[str, float]:
        return self.step(iteration)


class Ended(Protocol):
    """Hears of each iteration that ended."""

    def __call__(self, iteration: int, *, start_ns: int, mono_start_ns: int) -> None:
        """Take its number, and its start by both clocks."""


def iterate(step: Step, log: IterationLog, *, ended: Ended | None = None) -> None:
    """Report ready, wait for the gate, iterate for good."""
    report_ready()
    wait_for_go()
    for iteration in itertools.count():
        start_ns, mono_start_ns = time.time_ns(), time.monotonic_ns()
        fields = step(iteration)
        mono_end_ns, end_ns = time.monotonic_ns(), time.time_ns()
        if isinstance(step, Evaluated):
            step.afterwards(iteration)
        log.write(
            {
                "iteration": iteration,
                "start_ns": start_ns,
                "end_ns": end_ns,
                "mono_start_ns": mono_start_ns,
                "mono_end_ns": mono_end_ns,
                **fields,
            }
        )
        if ended is not None:
            ended(iteration, start_ns=start_ns, mono_start_ns=mono_start_ns)


def timed(begin_ns: int, forward_ns: int, backward_ns: int, *, wait_s: float) -> dict[str, float]:
    """The parts of an iteration for its line; the backward pass with its waiting ended at `backward_ns`."""
    return {
        "forward_s": round((forward_ns - begin_ns) * 1e-9, 9),
        "backward_s": round((backward_ns - forward_ns) * 1e-9 - wait_s, 9),
        "wait_s": round(wait_s, 9),
    }
