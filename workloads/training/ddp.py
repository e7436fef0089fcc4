"""One rank of a PyTorch DistributedDataParallel training that iterates until it is told to end.

It needs what `torch.distributed` calls env:// (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT). It prints
`ready` once it is connected to all others, waits for the line `go` on standard input, and writes a line an iteration
to `iterations.jsonl` in its working folder. SIGTERM ends it.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import time
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from iteration_log import IterationLog
from lifecycle import end_on_signal, fail, first_line, peer_lost, report_ready, wait_for_go

if TYPE_CHECKING:
    import torch

LEARNING_RATE = 0.01


class Compute(Protocol):
    """A model, and when its gradients are there."""

    module: torch.nn.Module

    def loss(self, model: torch.nn.Module) -> torch.Tensor:
        """The forward pass of `module`, through the wrapper `model`; it has ended when this returns."""

    def waited_s(self) -> float:
        """Seconds from the last gradient until now; call it as soon as the backward pass returns."""


class EmulatedCompute:
    """Layers that sleep for their share of the compute time."""

    def __init__(self, config: dict[str, Any], *, rank: int, device: torch.device) -> None:
        from emulated import EmulatedModel, sharpen_timer

        sharpen_timer()
        self.module = EmulatedModel(config["layers"], seed=config["seed"] + rank, device=device)

    def loss(self, model: torch.nn.Module) -> torch.Tensor:
        result: torch.Tensor = model()
        return result

    def waited_s(self) -> float:
        return (time.monotonic_ns() - self.module.pace.last_gradient_ns) * 1e-9


class RealCompute:
    """A torchvision model that classifies one batch of noise again and again."""

    def __init__(self, config: dict[str, Any], *, rank: int, device: torch.device) -> None:
        import torch
        from vision import build, synthetic_batch

        torch.manual_seed(config["seed"])
        self.module = build(config["model"]).to(device)
        self._images, self._labels = synthetic_batch(
            config["batch"], config["image"], seed=config["seed"] + rank, device=device
        )
        self._criterion = torch.nn.CrossEntropyLoss()
        self._last_gradient_ns = 0
        # A GPU runs behind the program: only an event in its own queue tells when a gradient was there.
        self._last_gradient = torch.cuda.Event(enable_timing=True) if device.type == "cuda" else None
        for parameter in self.module.parameters():
            parameter.register_hook(self._gradient_is_there)

    def _gradient_is_there(self, _gradient: torch.Tensor) -> None:
        if self._last_gradient is None:
            self._last_gradient_ns = time.monotonic_ns()
        else:
            self._last_gradient.record()

    def loss(self, model: torch.nn.Module) -> torch.Tensor:
        import torch

        result: torch.Tensor = self._criterion(model(self._images), self._labels)
        if self._last_gradient is not None:
            torch.cuda.synchronize()
        return result

    def waited_s(self) -> float:
        import torch

        if self._last_gradient is None:
            return (time.monotonic_ns() - self._last_gradient_ns) * 1e-9
        now = torch.cuda.Event(enable_timing=True)
        now.record()
        now.synchronize()
        return self._last_gradient.elapsed_time(now) * 1e-3


def connect(config: dict[str, Any], *, rank: int, world: int, device: torch.device) -> None:
    """Meet the other ranks; fail with one line when that does not work within `rendezvous_s`."""
    import torch.distributed as dist

    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    try:
        store = dist.TCPStore(
            address, port, world, rank == 0, timeout=timedelta(seconds=config["rendezvous_s"]), wait_for_workers=True
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
        if rank == 0 and "EADDRINUSE" in str(error):
            fail(f"port {port} is in use by another program; the ranks need it to meet at {address}")
        fail(f"could not meet the other ranks at {address}:{port}: {first_line(error)}")


def train(config: dict[str, Any], *, compute: Compute, device: torch.device, log: IterationLog, checksum: bool) -> None:
    """Wrap the model, report ready, wait for the gate, iterate for good."""
    import torch
    from torch.nn.parallel import DistributedDataParallel

    model = DistributedDataParallel(
        compute.module,
        device_ids=[device] if device.type == "cuda" else None,
        bucket_cap_mb=config["bucket_mib"],
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, fused=True)
    report_ready()
    wait_for_go()
    for iteration in itertools.count():
        start_ns, mono_start_ns = time.time_ns(), time.monotonic_ns()
        optimizer.zero_grad()
        loss = compute.loss(model)
        forward_ns = time.monotonic_ns()
        loss.backward()
        wait_s = compute.waited_s()
        backward_ns = time.monotonic_ns()
        optimizer.step()
        value = loss.item()
        mono_end_ns, end_ns = time.monotonic_ns(), time.time_ns()
        record = {
            "iteration": iteration,
            "start_ns": start_ns,
            "end_ns": end_ns,
            "mono_start_ns": mono_start_ns,
            "mono_end_ns": mono_end_ns,
            "forward_s": round((forward_ns - mono_start_ns) * 1e-9, 9),
            "backward_s": round((backward_ns - forward_ns) * 1e-9 - wait_s, 9),
            "wait_s": round(wait_s, 9),
            "step_s": round((mono_end_ns - backward_ns) * 1e-9, 9),
            "loss": value,
            "samples": config["batch"],
        }
        if checksum:
            record["checksum"] = sum(float(weight.double().sum()) for weight in compute.module.parameters())
        log.write(record)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, required=True, help="JSON file that says what to train")
    parser.add_argument("--checksum", action="store_true", help="log the sum of all parameters after each iteration")
    arguments = parser.parse_args()
    log = IterationLog(Path("iterations.jsonl"))
    end_on_signal(log.close)
    config = json.loads(arguments.config.read_text())
    rank, world, local = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
    try:
        import torch
        import torch.distributed

        device = torch.device(f"cuda:{local}" if config["device"] == "cuda" else "cpu")
        if device.type == "cuda":
            torch.cuda.set_device(device)
        kind = EmulatedCompute if config["compute"] == "emulated" else RealCompute
        compute = kind(config, rank=rank, device=device)
    except (ImportError, RuntimeError) as error:
        fail(f"could not build the model: {first_line(error)}")
    connect(config, rank=rank, world=world, device=device)
    try:
        train(config, compute=compute, device=device, log=log, checksum=arguments.checksum)
    except RuntimeError as error:
        peer_lost(error)


if __name__ == "__main__":
    main()
