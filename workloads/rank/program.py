"""The life of a rank on torch.distributed: it builds, meets the others, waits for its gate and iterates for good.

It needs what `torch.distributed` calls env:// (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT). It prints
`ready` once it is connected to all others, waits for the line `go` on standard input, and writes a line an iteration
to `iterations.jsonl` in its working folder. SIGTERM ends it.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from trace import Trace
from typing import TYPE_CHECKING, Any

from iteration_log import IterationLog
from lifecycle import end_on_signal, fail, first_line, peer_lost
from rendezvous import connect
from stepping import Step, iterate

if TYPE_CHECKING:
    import torch

LEARNING_RATE = 0.01


@dataclass
class Rank:
    """Who this process is, and what it was told."""

    number: int
    world: int
    device: torch.device
    config: dict[str, Any]
    trace: Trace
    checksum: bool  # whether the sum of all parameters is logged after each iteration

    def checksum_of(self, module: torch.nn.Module) -> dict[str, float]:
        """The sum of all parameters for the log, if it was asked for."""
        if not self.checksum:
            return {}
        return {"checksum": sum(float(weight.double().sum()) for weight in module.parameters())}


# What is to be done once all ranks are connected: it gives the step.
Join = Callable[[], Step]


def main(description: str, build: Callable[[Rank], Join]) -> None:
    """Run a rank: `build` makes what takes no peer, and what it gives is called once they are connected."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, required=True, help="JSON file that says what to train")
    parser.add_argument("--checksum", action="store_true", help="log the sum of all parameters after each iteration")
    arguments = parser.parse_args()
    config = json.loads(arguments.config.read_text())
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
        rank = Rank(number, world, device, config, trace, arguments.checksum)
        join = build(rank)
    except (ImportError, RuntimeError, OSError) as error:
        fail(f"could not build the model: {first_line(error)}")
    connect(config, rank=number, world=world, device=device)
    try:
        iterate(join(), log, ended=trace.close_iteration)
    except RuntimeError as error:
        peer_lost(error)
