"""What a rank's own logging costs: iteration time with spans against none, and the time of writing its lines."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.bench.figure import Figure, Settings
from tests.bench.paired import compared

GOAL = 1.01
SOURCES = Path(__file__).parents[2]
ITERATION_S = 0.16  # of the quickstart's training
SPANS = 20  # of an iteration of it: passes, buckets and their waits

WRITE = f"""
import sys, time
from pathlib import Path
from workloads.rank.logs import IterationLog
from workloads.rank.logs import Trace
log, trace = IterationLog(Path("iterations.jsonl")), Trace(Path("trace.jsonl"), wanted=True)
record = dict(iteration=1, start_ns=time.time_ns(), mono_start_ns=time.monotonic_ns(), end_ns=time.time_ns(),
              seconds=0.160123456, forward_s=0.05, backward_s=0.1, wait_s=0.01, loss=1.23456, samples=64)
for count in (100, 2000):
    began = time.perf_counter()
    for i in range(count):
        for span in range({SPANS}):
            trace.communicated("all-reduce", time.monotonic_ns(), size=25_000_000, what="bucket 3")
        log.write(record)
        trace.close_iteration(i, start_ns=time.time_ns(), mono_start_ns=time.monotonic_ns())
    taken = (time.perf_counter() - began) / count
print(taken)
"""


def measure(settings: Settings) -> Iterator[Figure]:
    """The lines of an iteration, then pairs of runs; the iteration log itself is always on, since it is the result."""
    taken = []
    for _ in range(settings.times(5, 2)):
        done = subprocess.run(
            [sys.executable, "-c", WRITE],
            cwd=settings.scratch,
            env={"PYTHONPATH": str(SOURCES)},
            text=True,
            capture_output=True,
            check=True,
        )
        taken.append(float(done.stdout) * 1e6)
    yield Figure(
        what=f"lines and {SPANS} spans of an iteration",
        unit="us",
        values=tuple(taken),
        against="goal",
        reference=((GOAL - 1) * ITERATION_S * 1e6,),
        note=f"of an iteration of {ITERATION_S:g} s",
    )
    ddp = {"model": "resnet50", "batch": 64, "compute": "emulated"}
    yield from compared(
        settings,
        name="logs",
        one=("spans", {"workload": {"ddp": {**ddp, "trace": True}}}),
        other=("no spans", {"workload": {"ddp": {**ddp, "trace": False}}}),
        goal=GOAL,
    )
