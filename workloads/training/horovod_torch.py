"""One rank of a Horovod training on PyTorch that iterates until it is told to end.

It needs Horovod's environment (HOROVOD_RANK and what goes with it, or mpirun). It prints `ready` once it is connected
to all others, waits for the line `go` on standard input, and writes a line an iteration to `iterations.jsonl` in its
working folder. SIGTERM ends it.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from iteration_log import IterationLog
from lifecycle import end_on_signal, fail, first_line, peer_lost
from stepping import Step, iterate, timed

LEARNING_RATE = 0.01


def build(config: dict[str, Any], *, checksum: bool) -> Step:
    """Meet the other ranks, and wrap the optimizer."""
    import horovod.torch as hvd
    import torch
    from emulated import EmulatedModel, sharpen_timer

    hvd.init()
    torch.set_num_threads(config["threads"])
    sharpen_timer()
    model = EmulatedModel(config["layers"], seed=config["seed"] + hvd.rank(), device=torch.device("cpu"))
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
        wait_s = (waited_ns - model.pace.last_gradient_ns) * 1e-9
        fields = timed(begin_ns, forward_ns, waited_ns, wait_s=wait_s)
        fields |= {"loss": loss.detach().item(), "samples": config["batch"]}
        if checksum:
            fields["checksum"] = sum(float(weight.detach().double().sum()) for weight in model.parameters())
        return fields

    return step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checksum", action="store_true", help="log the sum of all parameters after each iteration")
    arguments = parser.parse_args()
    log = IterationLog(Path("iterations.jsonl"))
    end_on_signal(log.close)
    config = json.loads(Path("config.json").read_text())
    try:
        step = build(config, checksum=arguments.checksum)
    except (ImportError, RuntimeError, ValueError) as error:
        fail(f"Horovod did not start: {first_line(error)}")
    try:
        iterate(step, log)
    except RuntimeError as error:
        peer_lost(error)


if __name__ == "__main__":
    main()
