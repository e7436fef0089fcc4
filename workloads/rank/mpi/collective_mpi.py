"""Run a rank of a benchmark of collective operations on MPI: an iteration is one pass over all operations and sizes.

It reads `config.json` in its working folder and waits `join_s` to be told who it is in the MPI job. It prints `ready`
once it is connected to all others, waits for the line `go` on standard input, and iterates for good. SIGTERM ends it.
"""

from __future__ import annotations

from pathlib import Path

from .. import collective_passes as benchmark
from .. import lifecycle
from ..collective_passes import Operation, floats_of, passes
from ..lifecycle import Step, end_on_signal, fail, first_line, iterate, peer_lost
from ..logs import IterationLog, Trace
from .join import join


class MpiCollectiveSettings(benchmark.PassSettings):
    """Settings of the passes, for ranks of an MPI job."""

    trace: bool
    join_s: float  # for mpirun to register this rank


def build(config: MpiCollectiveSettings, trace: Trace) -> Step:
    """Meet the other ranks, make the messages, and return the step."""
    import mpi4py

    mpi4py.rc.threads = False  # one thread alone sends, and none has to lock out others
    import numpy as np
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    world.Barrier()  # until all are there

    def operation(name: str, size: int) -> tuple[Operation, int]:
        part = floats_of(size, world.size)
        whole, share = np.ones(part * world.size, np.float32), np.ones(part, np.float32)
        result = np.empty_like(whole)
        done: dict[str, Operation] = {
            "all-reduce": lambda: world.Allreduce(MPI.IN_PLACE, whole),
            "all-gather": lambda: world.Allgather(share, result),
            "reduce-scatter": lambda: world.Reduce_scatter(whole, share),
            "all-to-all": lambda: world.Alltoall(whole, result),
            "broadcast": lambda: world.Bcast(whole, 0),
        }
        return done[name], whole.nbytes

    return passes(operation, config, trace, number=world.rank, world=world.size, finished=lambda: None)


def main() -> None:
    config: MpiCollectiveSettings = lifecycle.load_settings()
    log = IterationLog(Path("iterations.jsonl"))
    trace = Trace(Path("trace.jsonl"), wanted=config["trace"])

    def flush() -> None:
        log.close()
        trace.close()

    end_on_signal(flush)
    join(config["join_s"])
    try:
        step = build(config, trace)
    except (ImportError, RuntimeError) as error:
        fail(f"MPI did not start: {first_line(error)}")
    try:
        iterate(step, log, ended=trace.close_iteration)
    except RuntimeError as error:
        peer_lost(error)
