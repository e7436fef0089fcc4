"""Run a rank of a Horovod training on PyTorch; it needs Horovod's environment (HOROVOD_RANK and what goes with it).

Where `config.json` has a `join_s` mpirun tells it who it is, within so many seconds.
"""

from __future__ import annotations

import time
from typing import Literal

from ..compute import computing, training
from ..lifecycle import Step, TrainingSettings, run_rank, timed
from ..mpi.join import join


class HorovodTorchSettings(TrainingSettings, training.ModelSettings):
    """Settings of Horovod's reduction."""

    compression: Literal["none", "fp16"]
    join_s: float | None  # for mpirun to register this rank; None without MPI
    device: Literal["cpu", "cuda"]


def build(config: HorovodTorchSettings, *, checksum: bool) -> Step:
    """Meet the other ranks, wrap the optimizer, and return the step."""
    if config["join_s"] is not None:
        join(config["join_s"])
    import horovod.torch as hvd
    import torch

    hvd.init()
    torch.set_num_threads(config["threads"])
    device = torch.device("cpu")
    if config["device"] == "cuda":
        if not hvd.nccl_built():
            raise RuntimeError("this Horovod was built without HOROVOD_GPU_OPERATIONS=NCCL")
        device = torch.device("cuda", hvd.local_rank())
        torch.cuda.set_device(device)
    work = computing.build(config, rank=hvd.rank(), world=hvd.size(), device=device)
    model = work.module
    compression = hvd.Compression.fp16 if config["compression"] == "fp16" else hvd.Compression.none
    optimizer = hvd.DistributedOptimizer(
        training.torch_optimizer(config, model.parameters()),
        named_parameters=model.named_parameters(),
        compression=compression,
    )
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)

    def step(_iteration: int) -> dict[str, float]:
        begin_ns = time.monotonic_ns()
        optimizer.zero_grad()
        loss = work.loss(model)
        forward_ns = time.monotonic_ns()
        loss.backward()
        optimizer.synchronize()
        wait_s, waited_ns = work.waited_s(), time.monotonic_ns()
        with optimizer.skip_synchronize():
            optimizer.step()
        fields = timed(begin_ns, forward_ns, waited_ns, wait_s=wait_s)
        fields |= {"loss": loss.detach().item(), "samples": config["batch"], **work.end_iteration()}
        if checksum:
            fields["checksum"] = sum(float(weight.detach().double().sum()) for weight in model.parameters())
        return fields

    return work.evaluated(step)


def main() -> None:
    run_rank(build, framework="Horovod")
