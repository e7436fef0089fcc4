"""Run a worker of a KungFu training on PyTorch until it is ended: `kungfu-run` starts it.

On CPUs KungFu's package for PyTorch has neither a broadcast nor what its SynchronousSGDOptimizer waits with (at commit
b1e1768). So all workers begin with the same weights, and gradients are reduced here one after the other by the
operation that this optimizer calls, which adds them up over workers.
It reads `config.json` in its working folder and adds a JSON line an iteration to `steps.jsonl` there.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from .. import lifecycle


def main() -> None:
    config: lifecycle.TrainingSettings = lifecycle.load_settings()
    try:
        import torch
        from kungfu.python import current_cluster_size, current_rank
        from kungfu.torch.ops import inplace_all_reduce_op

        from ..compute.emulated_torch import EmulatedModel
        from ..compute.training import LEARNING_RATE, clock_of, sharpen_timer
    except ImportError as error:
        sys.exit(f"KungFu did not start: {error}")
    torch.set_num_threads(config["threads"])
    sharpen_timer()
    rank = current_rank()
    model = EmulatedModel(
        config["layers"], seed=config["seed"] + rank, device=torch.device("cpu"), clock=clock_of(config, rank)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE / current_cluster_size())
    with Path("steps.jsonl").open("w", buffering=1) as log:
        while True:
            begin = time.monotonic()
            optimizer.zero_grad()
            loss = model()
            forward = time.monotonic()
            loss.backward()
            backward = time.monotonic()
            for weight in model.parameters():
                inplace_all_reduce_op(weight.grad)
            optimizer.step()
            end = time.monotonic()
            line = {
                "seconds": end - begin,
                "forward_s": forward - begin,
                "backward_s": backward - forward,
                "wait_s": end - backward,
                "loss": loss.detach().item(),
                **model.clock.end_iteration(),
            }
            log.write(json.dumps(line) + "\n")
