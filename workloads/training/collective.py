"""One rank of a benchmark of collective operations: an iteration is one pass over all operations and message sizes."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from iteration_log import IterationLog
from program import Join, Rank, main
from stepping import Step

if TYPE_CHECKING:
    import torch

Operation = Callable[[], object]


def operation(name: str, size: int, rank: Rank) -> tuple[Operation, int]:
    """What carries out the operation once, and its message in bytes: rounded up to whole floats for each rank.

    The message is counted as nccl-tests counts it: what a rank contributes to an all-reduce, a broadcast and an
    all-to-all, what all ranks together contribute to an all-gather, and what a rank brings to a reduce-scatter.
    """
    import torch
    import torch.distributed as dist

    part = max(1, -(-size // (4 * rank.world)))  # floats
    whole = torch.ones(part * rank.world, device=rank.device)
    share = torch.ones(part, device=rank.device)
    result = torch.empty_like(whole)
    done: dict[str, Operation] = {
        "all-reduce": lambda: dist.all_reduce(whole),
        "all-gather": lambda: dist.all_gather_into_tensor(result, share),
        "reduce-scatter": lambda: dist.reduce_scatter_tensor(share, whole),
        "all-to-all": lambda: dist.all_to_all_single(result, whole),
        "broadcast": lambda: dist.broadcast(whole, 0),
    }
    return done[name], 4 * part * rank.world


def finished(device: torch.device) -> None:
    """Return when the device has done what was asked of it; a CPU's operations have ended when they return."""
    import torch

    if device.type == "cuda":
        torch.cuda.synchronize()


def build(rank: Rank) -> Join:
    return lambda: prepare(rank)


def prepare(rank: Rank) -> Step:
    """Make the messages; what is given passes over all of them once."""
    config, trace = rank.config, rank.trace
    log = IterationLog(Path("collectives.jsonl"))
    planned = [(name, *operation(name, size, rank)) for name in config["operations"] for size in config["sizes"]]
    repeats = config["repeats"]

    def step(iteration: int) -> dict[str, Any]:
        begin_ns = time.monotonic_ns()
        moved = 0
        for name, once, size in planned:
            finished(rank.device)
            start_ns = time.monotonic_ns()
            for _ in range(repeats):
                once()
            finished(rank.device)
            end_ns = time.monotonic_ns()
            moved += size * repeats
            log.write(
                {
                    "iteration": iteration, "operation": name, "bytes": size, "repeats": repeats,
                    "seconds": (end_ns - start_ns) / repeats / 1e9, "world": rank.world,
                    "link_bps": config["link_bps"][rank.number],
                }
            )  # fmt: skip
            trace.communicated(name, start_ns, size=size * repeats, what=f"{repeats} x {size} bytes")
        spent_s = (time.monotonic_ns() - begin_ns) / 1e9
        return {"forward_s": 0.0, "backward_s": 0.0, "wait_s": spent_s, "loss": 0.0, "samples": len(planned) * repeats}

    return step


if __name__ == "__main__":
    import warnings

    # torch renames these functions while the versions in use have only the old names.
    warnings.filterwarnings("ignore", category=FutureWarning)
    main(__doc__ or "", build)
