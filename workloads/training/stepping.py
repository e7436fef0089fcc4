"""The life of a rank between its gate and its end: one step after the other, each a line in the iteration log."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable

from iteration_log import IterationLog
from lifecycle import report_ready, wait_for_go

# Does one iteration; gives what its line has beside its instants: forward_s, backward_s, wait_s, loss and samples.
Step = Callable[[], dict[str, float]]


def iterate(step: Step, log: IterationLog) -> None:
    """Report ready, wait for the gate, iterate for good."""
    report_ready()
    wait_for_go()
    for iteration in itertools.count():
        start_ns, mono_start_ns = time.time_ns(), time.monotonic_ns()
        fields = step()
        mono_end_ns, end_ns = time.monotonic_ns(), time.time_ns()
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


def timed(begin_ns: int, forward_ns: int, gradients_ns: int, waited_ns: int) -> dict[str, float]:
    """The parts of an iteration by the instants at which they ended: forward, last gradient, gradients exchanged."""
    return {
        "forward_s": round((forward_ns - begin_ns) * 1e-9, 9),
        "backward_s": round((gradients_ns - forward_ns) * 1e-9, 9),
        "wait_s": round((waited_ns - gradients_ns) * 1e-9, 9),
    }
