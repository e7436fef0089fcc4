"""One rank of a Horovod training on PyTorch; it needs Horovod's environment (HOROVOD_RANK and what goes with it).

Where `config.json` has a `join_s` mpirun tells it who it is, within so many seconds.
"""

from __future__ import annotations

import time
from typing import Literal

from ..base.rank_settings import TrainingSettings
from ..base.stepping import Step, timed
from ..base.worker import LEARNING_RATE, run
from ..mpi.join import join


class Settings(TrainingSettings):
    """How Horovod reduces."""

    compression: Literal["none", "fp16"]
    join_s: float | None  # for mpirun to register this rank; None without MPI
    device: Literal["cpu", "cuda"]


def build(config: Settings, *, checksum: bool) -> Step:
    """Meet the other ranks, and wrap the optimizer."""
    if config["join_s"] is not None:
        join(config["join_s"])
    import horovod.torch as hvd
    import torch

    from ..compute.compute_clock import sharpen_timer
    from ..compute.emulated_torch import EmulatedModel

    hvd.init()
    torch.set_num_threads(config["threads"])
    sharpen_timer()
    device = torch.device("cpu")
    if config["device"] == "cuda":
        if not hvd.nccl_built():
            raise RuntimeError("this Horovod was built without HOROVOD_GPU_OPERATIONS=NCCL")
        device = torch.device("cuda", hvd.local_rank())
        torch.cuda.set_device(device)
    model = EmulatedModel(config["layers"], seed=config["seed"] + hvd.rank(), device=device)
    compression = hvd.Compression.fp16 if config["compression"] == "fp16" else hvd.Compression.none
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=LEARNING_RATE),
        named_parameters=model.named_parameters(),
        compression=compression,
    )
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)

    def step(_iteration: int) -> dict[str, float]:
        begin_ns = time.monotonic_ns()
        optimizer.zero_grad()
        loss = model()
        forward_ns = time.monotonic_ns()
        loss.backward()
        optimizer.synchronize()
        waited_ns = time.monotonic_ns()
        with optimizer.skip_synchronize():
            optimizer.step()
        wait_s = (waited_ns - model.clock.last_gradient_ns) * 1e-9
        fields = timed(begin_ns, forward_ns, waited_ns, wait_s=wait_s)
        fields |= {"loss": loss.detach().item(), "samples": config["batch"]}
        if checksum:
            fields["checksum"] = sum(float(weight.detach().double().sum()) for weight in model.parameters())
        return fields

    return step


def main() -> None:
    run(build, framework="Horovod")
