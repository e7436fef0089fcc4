"""One worker of a KungFu training on PyTorch that iterates until it is ended: `kungfu-run` starts it.

It reads `config.json` in its working folder and adds a JSON line an iteration to `steps.jsonl` there.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from ..base import rank_settings

LEARNING_RATE = 0.01


def main() -> None:
    config: rank_settings.TrainingSettings = rank_settings.load()
    try:
        import kungfu.torch as kf
        import torch
        from kungfu.python import current_rank
        from kungfu.torch.optimizers import SynchronousSGDOptimizer

        from ..compute.compute_clock import sharpen_timer
        from ..compute.emulated_torch import EmulatedModel
    except ImportError as error:
        sys.exit(f"KungFu did not start: {error}")
    torch.set_num_threads(config["threads"])
    sharpen_timer()
    model = EmulatedModel(config["layers"], seed=config["seed"] + current_rank(), device=torch.device("cpu"))
    kf.broadcast_parameters(model.state_dict())
    optimizer = SynchronousSGDOptimizer(
        torch.optim.SGD(model.parameters(), lr=LEARNING_RATE), named_parameters=model.named_parameters()
    )
    with Path("steps.jsonl").open("w", buffering=1) as log:
        while True:
            begin = time.monotonic()
            optimizer.zero_grad()
            loss = model()
            forward = time.monotonic()
            loss.backward()
            backward = time.monotonic()
            optimizer.step()
            end = time.monotonic()
            line = {
                "seconds": end - begin,
                "forward_s": forward - begin,
                "backward_s": backward - forward,
                "wait_s": end - backward,
                "loss": loss.detach().item(),
            }
            log.write(json.dumps(line) + "\n")
