"""One rank of a training with PyTorch's FSDP2 that iterates until it is told to end."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import compute
from program import LEARNING_RATE, Join, Rank, main
from stepping import Step, timed

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch
    from compute import Compute


def units(module: torch.nn.Module, least_bytes: float) -> Iterator[list[torch.nn.Module]]:
    """Consecutive blocks of at least so many bytes together; what is left in the end is a unit too."""
    unit: list[torch.nn.Module] = []
    size = 0
    for block in module.blocks:
        unit.append(block)
        size += sum(weight.numel() * weight.element_size() for weight in block.parameters())
        if size >= least_bytes:
            yield unit
            unit, size = [], 0
    if size:
        yield unit


def prepare(work: Compute, rank: Rank) -> Step:
    """Shard the model; what is given does one iteration."""
    import torch
    import torch.distributed as dist
    from torch.distributed.fsdp import fully_shard

    config, trace = rank.config, rank.trace
    mesh = dist.init_device_mesh(rank.device.type, (rank.world,))
    for unit in units(work.module, config["unit_bytes"]):
        fully_shard(unit, mesh=mesh, reshard_after_forward=config["reshard"])
    model = fully_shard(work.module, mesh=mesh, reshard_after_forward=config["reshard"])
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)

    def step(_iteration: int) -> dict[str, Any]:
        begin_ns = time.monotonic_ns()
        optimizer.zero_grad()
        loss = work.loss(model)
        forward_ns = time.monotonic_ns()
        loss.backward()
        wait_s = work.waited_s()
        backward_ns = time.monotonic_ns()
        optimizer.step()
        trace.computed("forward", begin_ns, forward_ns)
        trace.computed("backward", forward_ns, backward_ns - int(wait_s * 1e9))
        trace.computed("step", backward_ns, time.monotonic_ns())
        fields = {
            **timed(begin_ns, forward_ns, backward_ns, wait_s=wait_s),
            "loss": loss.item(),
            "samples": config["batch"],
        }
        if rank.checksum:  # of its shard: the sum over ranks is that of the model
            shards = (weight.detach().to_local() for weight in model.parameters())
            fields["checksum"] = sum(float(shard.double().sum()) for shard in shards)
        return fields

    return step


def build(rank: Rank) -> Join:
    work = compute.build(rank.config, rank=rank.number, world=rank.world, device=rank.device)
    return lambda: prepare(work, rank)


if __name__ == "__main__":
    main(__doc__ or "", build)
