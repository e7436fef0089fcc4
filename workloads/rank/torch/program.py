"""Run a rank on torch.distributed: it builds, meets the others, waits for its gate and iterates without end.

It needs what `torch.distributed` calls env:// (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT). It prints
`ready` once it is connected to all others, waits for the line `go` on standard input, and writes a line an iteration
to `iterations.jsonl` in its working folder. SIGTERM ends it.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Generic, Literal, TypedDict, TypeVar

from .. import lifecycle
from ..lifecycle import Step, end_on_signal, fail, first_line, iterate, peer_lost
from ..logs import IterationLog, Trace

if TYPE_CHECKING:
    import torch
    import torch.distributed as dist


Precision = Literal["fp32", "fp16", "bf16"]


class TorchSettings(TypedDict):
    """Settings of every such program, to which each adds its own. Times in seconds."""

    backend: Literal["gloo", "nccl"]
    device: Literal["cpu", "cuda"]
    seed: int
    trace: bool  # whether spans are recorded
    rendezvous_s: float  # for all ranks to meet
    collective_s: float  # for a collective, before it counts as failed


Given = TypeVar("Given", bound=TorchSettings)


@dataclass
class Rank(Generic[Given]):
    """This process's rank, device and settings."""

    number: int
    world: int
    device: torch.device
    config: Given
    trace: Trace
    checksum: bool  # whether the sum of all parameters is logged after each iteration

    def checksum_of(self, module: torch.nn.Module) -> dict[str, float]:
        """Return the sum of all parameters for the log, if it was requested."""
        if not self.checksum:
            return {}
        return {"checksum": sum(float(weight.double().sum()) for weight in module.parameters())}


def precision_of(name: Precision) -> torch.dtype:
    """Return the element type of this name."""
    import torch

    return {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}[name]


def gradient_of(parameter: torch.nn.Parameter) -> torch.Tensor:
    """Return the gradient of a parameter after its backward pass."""
    if parameter.grad is None:
        raise AssertionError("the backward pass gives each parameter a gradient")
    return parameter.grad


def size_of(tensor: torch.Tensor) -> int:
    """Return the bytes of a tensor's elements."""
    return tensor.numel() * tensor.element_size()


def members_of(group: dist.ProcessGroup | None, world: int) -> list[int]:
    """Return the ranks of a process group, for its spans; none of one that has all ranks."""
    import torch.distributed as dist

    if group is None:
        return []
    members = dist.get_process_group_ranks(group)
    return members if len(members) < world else []


def connect(config: TorchSettings, *, rank: int, world: int, device: torch.device) -> None:
    """Meet the other ranks; fail with one line when that does not work within `rendezvous_s`."""
    import torch.distributed as dist
    from torch._C._distributed_c10d import TCPStore

    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    listener = listening(address, port) if rank == 0 else None
    try:
        store = TCPStore(
            address,
            port,
            world,
            rank == 0,
            timeout=timedelta(seconds=config["rendezvous_s"]),
            wait_for_workers=True,
            # The store owns the descriptor from here on, and closes it.
            master_listen_fd=None if listener is None else listener.detach(),
        )
        dist.init_process_group(
            config["backend"],
            store=store,
            rank=rank,
            world_size=world,
            timeout=timedelta(seconds=config["collective_s"]),
            device_id=device if config["backend"] == "nccl" else None,
        )
    except RuntimeError as error:
        fail(f"could not meet the other ranks at {address}:{port}: {first_line(error)}")


def listening(address: str, port: int) -> socket.socket:
    """Return the socket of rank 0's store, which has no passwords, and by itself would listen on every address."""
    try:
        family, *_ = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server((address, port), family=family)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            fail(f"port {port} is in use by another program; the ranks need it to meet at {address}")
        fail(f"could not listen for the other ranks at {address}:{port}: {error.strerror}")


# What is to be done once all ranks are connected: it gives the step.
Join = Callable[[], Step]


def run(build: Callable[[Rank[Given]], Join]) -> None:
    """Run a rank: `build` makes what needs no peer, and the function that it returns is called once connected."""
    checksum = lifecycle.checksum_requested()
    config: Given = lifecycle.load_settings()
    log = IterationLog(Path("iterations.jsonl"))
    trace = Trace(Path("trace.jsonl"), wanted=config["trace"])

    def flush() -> None:
        log.close()
        trace.close()

    end_on_signal(flush)
    number, world, local = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
    try:
        import torch
        import torch.distributed

        device = torch.device(f"cuda:{local}" if config["device"] == "cuda" else "cpu")
        if device.type == "cuda":
            torch.cuda.set_device(device)
        join = build(Rank(number, world, device, config, trace, checksum))
    except (ImportError, RuntimeError, OSError) as error:
        fail(f"could not build the model: {first_line(error)}")
    connect(config, rank=number, world=world, device=device)
    try:
        iterate(join(), log, ended=trace.close_iteration)
    except RuntimeError as error:
        peer_lost(error)
