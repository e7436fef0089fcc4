"""Time collective operations: one step is one pass over all operations and message sizes.

A message is counted as nccl-tests counts it: what a rank contributes to an all-reduce, a broadcast and an all-to-all,
what all ranks together contribute to an all-gather, and what a rank brings to a reduce-scatter.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypedDict

from .lifecycle import Step
from .logs import IterationLog, Trace

Operation = Callable[[], object]


class PassSettings(TypedDict):
    """Operations and message sizes of a pass; a rank's link in bit/s."""

    operations: Sequence[str]
    sizes: Sequence[int]  # of messages in bytes
    repeats: int  # of an operation back to back
    link_bps: Sequence[float]  # of each rank
    busiest: float | None  # messages that the busiest link carries in an uneven all-to-all, one way


def floats_of(size: int, world: int) -> int:
    """Return the floats of each rank's part of a message of `size` bytes, rounded up to whole floats."""
    return max(1, -(-size // (4 * world)))


def passes(
    operation: Callable[[str, int], tuple[Operation, int]],
    config: PassSettings,
    trace: Trace,
    *,
    number: int,
    world: int,
    finished: Callable[[], None],
    group: Sequence[int] = (),
) -> Step:
    """Make the messages, and return a step that passes over all of them once.

    `operation` returns a function that carries out one operation of a size, and its message in bytes; `finished`
    waits until all operations have been done. `group` are the `world` ranks where these are not all of the job.
    """
    log = IterationLog(Path("collectives.jsonl"))
    planned = [(name, *operation(name, size)) for name in config["operations"] for size in config["sizes"]]
    repeats = config["repeats"]

    def step(iteration: int) -> dict[str, float]:
        begin_ns = time.monotonic_ns()
        moved = 0
        for name, once, size in planned:
            finished()
            start_ns = time.monotonic_ns()
            for _ in range(repeats):
                once()
            finished()
            end_ns = time.monotonic_ns()
            moved += size * repeats
            record = {
                "iteration": iteration,
                "operation": name,
                "bytes": size,
                "repeats": repeats,
                "seconds": (end_ns - start_ns) / repeats / 1e9,
                "world": world,
                "link_bps": config["link_bps"][number],
            }
            if name == "all-to-all" and config["busiest"] is not None:
                record["busiest"] = config["busiest"]
            log.write(record)
            what = f"{repeats} x {size} bytes"
            trace.communicated(name, start_ns, size=size * repeats, what=what, group=group)
        spent_s = (time.monotonic_ns() - begin_ns) / 1e9
        return {"forward_s": 0.0, "backward_s": 0.0, "wait_s": spent_s, "loss": 0.0, "samples": len(planned) * repeats}

    return step
