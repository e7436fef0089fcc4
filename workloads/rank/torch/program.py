"""The life of a rank on torch.distributed: it builds, meets the others, waits for its gate and iterates for good.

It needs what `torch.distributed` calls env:// (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT). It prints
`ready` once it is connected to all others, waits for the line `go` on standard input, and writes a line an iteration
to `iterations.jsonl` in its working folder. SIGTERM ends it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from ..base import rank_settings
from ..base.iteration_log import IterationLog
from ..base.lifecycle import end_on_signal, fail, first_line, peer_lost
from ..base.span_trace import Trace
from ..base.stepping import Step, iterate
from .context import Given, Rank
from .rendezvous import connect

# What is to be done once all ranks are connected: it gives the step.
Join = Callable[[], Step]


def run(build: Callable[[Rank[Given]], Join]) -> None:
    """Be a rank: `build` makes what takes no peer, and what it gives is called once they are connected."""
    checksum = rank_settings.checksum_requested()
    config: Given = rank_settings.load()
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
