"""Run a rank of a PyTorch DistributedDataParallel training until it is told to end."""

from __future__ import annotations

import time
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Literal, Optional

from ..compute import computing, training
from ..lifecycle import Step, timed
from .program import Join, Rank, TorchSettings, run

if TYPE_CHECKING:
    import torch

    from ..compute.computing import Compute
    from ..logs import Trace

Hook = Any  # a communication hook of DDP: (state, bucket) -> future of the reduced bucket


class DdpSettings(TorchSettings, training.ModelSettings):
    """Settings of DDP's reduction."""

    bucket_mib: float  # least size of a bucket
    first_bucket_mib: Optional[float]  # of the first one, where it is another
    compression: Literal["none", "fp16", "bf16", "powersgd"]
    powersgd_rank: int
    accumulate: int  # passes of an iteration


def traced(hook: Hook, trace: Trace, *, element_bytes: int) -> Hook:
    """Return a hook that does what `hook` does and records when each bucket's communication begins and ends."""

    # DDP refuses annotations that are not the types themselves, and torch is not imported yet where this is read.
    def record(state, bucket):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN202
        begin_ns = time.monotonic_ns()
        what, size = f"bucket {bucket.index()}", bucket.buffer().numel() * element_bytes

        def ended(future: torch.futures.Future[torch.Tensor]) -> torch.Tensor:
            trace.communicated("all-reduce", begin_ns, size=size, what=what)
            value = future.value()
            return value[0] if isinstance(value, list) else value

        return hook(state, bucket).then(ended)

    return record


def register_hook(model: torch.nn.parallel.DistributedDataParallel, rank: Rank[DdpSettings]) -> None:
    """Have DDP reduce its buckets as configured: compressed or not, recorded or not."""
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    hooks = {
        "none": (default_hooks.allreduce_hook, 4),
        "fp16": (default_hooks.fp16_compress_hook, 2),
        "bf16": (default_hooks.bf16_compress_hook, 2),
    }
    if rank.config["compression"] == "powersgd":
        from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as power_sgd

        state = power_sgd.PowerSGDState(
            None, matrix_approximation_rank=rank.config["powersgd_rank"], start_powerSGD_iter=2
        )
        model.register_comm_hook(state, traced(power_sgd.powerSGD_hook, rank.trace, element_bytes=4))
        return
    hook, element_bytes = hooks[rank.config["compression"]]
    if rank.config["compression"] != "none" or rank.config["trace"]:
        model.register_comm_hook(None, traced(hook, rank.trace, element_bytes=element_bytes))


def bucket_sizes(config: DdpSettings) -> dict[str, Any]:
    """Return DDP's argument of bucket sizes: one for all buckets, or the first one's and that of all others."""
    first = config["first_bucket_mib"]
    if first is None:
        return {"bucket_cap_mb": config["bucket_mib"]}
    return {"bucket_cap_mb_list": [first, config["bucket_mib"]]}


def prepare(work: Compute, rank: Rank[DdpSettings]) -> Step:
    """Wrap the model, and return the step of one iteration."""
    from torch.nn.parallel import DistributedDataParallel

    config, trace = rank.config, rank.trace
    model = DistributedDataParallel(
        work.module, device_ids=[rank.device] if rank.device.type == "cuda" else None, **bucket_sizes(config)
    )
    register_hook(model, rank)
    optimizer = training.torch_optimizer(config, model.parameters())
    passes = config["accumulate"]

    def step(_iteration: int) -> dict[str, float]:
        begin_ns = time.monotonic_ns()
        optimizer.zero_grad()
        forward_s = backward_s = wait_s = 0.0
        for number in range(passes):
            part_ns = time.monotonic_ns()
            last = number == passes - 1
            with nullcontext() if last else model.no_sync():
                loss = work.loss(model)
                forward_ns = time.monotonic_ns()
                (loss / passes if passes > 1 else loss).backward()
            waited_s = work.waited_s()
            backward_ns = time.monotonic_ns()
            trace.computed("forward", part_ns, forward_ns)
            trace.computed("backward", forward_ns, backward_ns - int(waited_s * 1e9))
            spent = timed(part_ns, forward_ns, backward_ns, wait_s=waited_s)
            forward_s += spent["forward_s"]
            backward_s += spent["backward_s"]
            wait_s += spent["wait_s"]
        optimizer.step()
        value = loss.item()
        end_ns = time.monotonic_ns()
        trace.computed("step", backward_ns, end_ns)
        return {
            "forward_s": round(forward_s, 9),
            "backward_s": round(backward_s, 9),
            "wait_s": round(wait_s, 9),
            "step_s": round((end_ns - begin_ns) * 1e-9 - forward_s - backward_s - wait_s, 9),
            "loss": value,
            "samples": config["batch"] * passes,
            **work.end_iteration(),
            **rank.checksum_of(work.module),
        }

    return work.evaluated(step)


def build(rank: Rank[DdpSettings]) -> Join:
    work = computing.build(rank.config, rank=rank.number, world=rank.world, device=rank.device)
    return lambda: prepare(work, rank)


def main() -> None:
    run(build)
