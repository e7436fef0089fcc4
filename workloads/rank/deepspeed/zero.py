"""Run a rank of a DeepSpeed training with ZeRO until it is told to end."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from ..compute.training import EmulatedSettings
from ..torch.program import Join, Rank, run
from . import engine
from .engine import engine_of, settings, start, watch

if TYPE_CHECKING:
    import torch

    from ..compute.emulated_torch import EmulatedCompute
    from ..lifecycle import Step


class ZeroSettings(engine.DeepSpeedSettings, EmulatedSettings):
    """Settings of ZeRO; sizes in elements."""

    overlap_comm: bool
    bucket_elements: int
    prefetch_elements: int


def zero_settings(config: ZeroSettings) -> dict[str, object]:
    """Return DeepSpeed's own configuration; it counts buckets in elements."""
    return {
        "stage": config["zero_stage"],
        "overlap_comm": config["overlap_comm"],
        "reduce_bucket_size": config["bucket_elements"],
        "allgather_bucket_size": config["bucket_elements"],
        "stage3_prefetch_bucket_size": config["prefetch_elements"],
        # Else parameters below a size stay where they were gathered, and so do those that are needed again soon.
        "stage3_param_persistence_threshold": 0,
        "stage3_max_reuse_distance": 0,
    }


def prepare(work: EmulatedCompute, rank: Rank[ZeroSettings]) -> Step:
    """Wrap the model, and return the step of one iteration."""
    config, trace = rank.config, rank.trace
    start(rank)
    trained = engine_of(work.module, {**settings(config), "zero_optimization": zero_settings(config)})
    log = watch(rank)
    passes = config["microbatches"]

    def step(iteration: int) -> dict[str, float]:
        forward_s = backward_s = wait_s = 0.0
        for _ in range(passes):
            begin_ns = time.monotonic_ns()
            loss = work.loss(trained)
            forward_ns = time.monotonic_ns()
            trained.backward(loss)
            waited_s = work.waited_s()
            backward_ns = time.monotonic_ns()
            trained.step()  # of which only the last one of the iteration does anything
            trace.computed("forward", begin_ns, forward_ns)
            trace.computed("backward", forward_ns, backward_ns - int(waited_s * 1e9))
            forward_s += (forward_ns - begin_ns) * 1e-9
            backward_s += (backward_ns - forward_ns) * 1e-9 - waited_s
            wait_s += waited_s
        fields = {
            "forward_s": round(forward_s, 9),
            "backward_s": round(backward_s, 9),
            "wait_s": round(wait_s, 9),
            "loss": loss.detach().item(),
            "samples": config["batch"],
            **work.end_iteration(),
            **({"checksum": held(work.module, config["zero_stage"])} if rank.checksum else {}),
        }
        if log is not None:
            log.close_iteration(iteration)
        return fields

    return step


def held(model: torch.nn.Module, zero_stage: int) -> float:
    """Return the sum of all parameters; in stage 3 of this rank's shards, without a parameter's padding."""
    import torch.distributed as dist

    if zero_stage < 3:
        return sum(float(weight.double().sum()) for weight in model.parameters())
    total = 0.0
    weight: Any  # DeepSpeed has put more into it
    for weight in model.parameters():
        shard = weight.ds_tensor
        own = min(max(weight.ds_numel - dist.get_rank() * shard.numel(), 0), shard.numel())
        total += float(shard[:own].double().sum())
    return total


def build(rank: Rank[ZeroSettings]) -> Join:
    import deepspeed  # noqa: F401  # slow, and before the others are met a rank may take its time

    from ..compute.emulated_torch import EmulatedCompute

    work = EmulatedCompute(rank.config, rank=rank.number, device=rank.device)
    return lambda: prepare(work, rank)


def main() -> None:
    run(build)
