"""One rank of a benchmark of collective operations: an iteration is one pass over all operations and message sizes."""

from __future__ import annotations

from ..base import passes as benchmark
from ..base.passes import Operation, floats_of, passes
from ..base.stepping import Step
from .context import Rank
from .context import Settings as TorchSettings
from .program import Join, run


class Settings(TorchSettings, benchmark.Settings):
    """What is passed over, on torch.distributed."""


def operation(name: str, size: int, rank: Rank[Settings]) -> tuple[Operation, int]:
    """What carries out the operation once, and its message in bytes."""
    import torch
    import torch.distributed as dist

    part = floats_of(size, rank.world)
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


def build(rank: Rank[Settings]) -> Join:
    return lambda: prepare(rank)


def prepare(rank: Rank[Settings]) -> Step:
    """Make the messages; what is given passes over all of them once."""

    def finished() -> None:
        """Return when the device has done what was asked of it; a CPU's operations have ended when they return."""
        import torch

        if rank.device.type == "cuda":
            torch.cuda.synchronize()

    return passes(
        lambda name, size: operation(name, size, rank), rank.config, rank.trace, number=rank.number, world=rank.world,
        finished=finished,
    )  # fmt: skip


def main() -> None:
    import warnings

    # torch renames these functions while the versions in use have only the old names.
    warnings.filterwarnings("ignore", category=FutureWarning)
    run(build)
