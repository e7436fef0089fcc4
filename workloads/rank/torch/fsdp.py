"""Run a rank of a training with PyTorch's FSDP2 until it is told to end."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, cast

from ..compute.training import LEARNING_RATE, EmulatedSettings
from ..lifecycle import Step, timed
from .program import Join, Rank, TorchSettings, run, size_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import torch
    import torch.distributed as dist
    from torch.distributed.fsdp import FSDPModule

    from ..compute.emulated_torch import EmulatedCompute, EmulatedModel
    from ..logs import Trace


class FsdpSettings(TorchSettings, EmulatedSettings):
    """Settings of FSDP2's sharding."""

    unit_bytes: float  # least size of consecutive layers that are gathered at once
    reshard: bool  # whether what was gathered is freed after the forward pass


class Traced:
    """A collective for FSDP2 that does what FSDP2's own does, and records its times."""

    def __init__(self, name: str, collective: Callable[..., None], *, unit: int, trace: Trace) -> None:
        self._name, self._collective, self._trace = name, collective, trace
        self._what = f"unit {unit}"

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        import torch

        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(
        self, output_tensor: torch.Tensor, input_tensor: torch.Tensor, group: dist.ProcessGroup, **options: Any
    ) -> None:
        begin_ns = time.monotonic_ns()
        # It ends before it returns, asked to or not: FSDP2 takes that as well, and on gloo never asks otherwise.
        self._collective(output_tensor, input_tensor, group=group, **{**options, "async_op": False})
        whole = max(output_tensor, input_tensor, key=lambda tensor: tensor.numel())
        self._trace.communicated(self._name, begin_ns, size=size_of(whole), what=self._what)


def record(unit: FSDPModule, number: int, trace: Trace) -> None:
    """Record the all-gathers and reduce-scatters of a sharded unit."""
    import torch.distributed as dist

    # Torch 2.13 warns of the names that earlier ones know.
    gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
    scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
    unit.set_custom_all_gather(Traced("all-gather", gather, unit=number, trace=trace))  # type: ignore[arg-type]
    unit.set_custom_reduce_scatter(Traced("reduce-scatter", scatter, unit=number, trace=trace))  # type: ignore[arg-type]


def units(module: EmulatedModel, least_bytes: float) -> Iterator[list[torch.nn.Module]]:
    """Yield units of consecutive blocks, of at least so many bytes each; the remaining blocks are a unit too."""
    unit: list[torch.nn.Module] = []
    size = 0
    for block in module.blocks:
        unit.append(block)
        size += sum(size_of(weight) for weight in block.parameters())
        if size >= least_bytes:
            yield unit
            unit, size = [], 0
    if size:
        yield unit


def prepare(work: EmulatedCompute, rank: Rank[FsdpSettings]) -> Step:
    """Shard the model, and return the step of one iteration."""
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import FSDPModule, fully_shard
    from torch.distributed.tensor import DTensor

    config, trace = rank.config, rank.trace
    mesh = init_device_mesh(rank.device.type, (rank.world,))
    # A GPU runs behind the program, whose clock would tell only when it was given its work.
    tells = config["trace"] and rank.device.type == "cpu"
    for number, unit in enumerate(units(work.module, config["unit_bytes"])):
        fully_shard(unit, mesh=mesh, reshard_after_forward=config["reshard"])
        if tells:
            record(cast(FSDPModule, unit[0]), number, trace)
    model = work.module
    fully_shard(model, mesh=mesh, reshard_after_forward=config["reshard"])
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)

    def step(_iteration: int) -> dict[str, float]:
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
            **work.end_iteration(),
        }
        if rank.checksum:  # of its shard: the sum over ranks is that of the model
            shards = (cast(DTensor, weight.detach()).to_local() for weight in model.parameters())
            fields["checksum"] = sum(float(shard.double().sum()) for shard in shards)
        return fields

    return step


def build(rank: Rank[FsdpSettings]) -> Join:
    from ..compute.emulated_torch import EmulatedCompute

    work = EmulatedCompute(rank.config, rank=rank.number, device=rank.device)
    return lambda: prepare(work, rank)


def main() -> None:
    run(build)
