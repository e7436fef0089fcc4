"""Start DeepSpeed, configure it, and record its communication: its own log, and spans."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ..compute.training import LEARNING_RATE
from ..logs import IterationLog, Trace
from ..torch.program import Precision, Rank, TorchSettings

if TYPE_CHECKING:
    import torch

# What the backend is asked to do -> how a span calls it, and which of the call's tensors is the whole message.
_OPERATIONS = {
    "all_reduce": ("all-reduce", "tensor"),
    "reduce": ("reduce", "tensor"),
    "broadcast": ("broadcast", "tensor"),
    "all_gather_into_tensor": ("all-gather", "output_tensor"),
    "reduce_scatter_tensor": ("reduce-scatter", "input_tensor"),
    "send": ("send", "tensor"),
    "recv": ("receive", "tensor"),
}
_PLACES = {"tensor": 0, "output_tensor": 0, "input_tensor": 1}


def span_operations(trace: Trace) -> None:
    """Record every operation of DeepSpeed's backend from its call to its end, asynchronous ones too."""
    from deepspeed.comm import comm

    for name, (span, message) in _OPERATIONS.items():
        setattr(comm.cdb, name, _spanned(getattr(comm.cdb, name), trace, span=span, message=message))


def _spanned(operation: Callable[..., Any], trace: Trace, *, span: str, message: str) -> Callable[..., Any]:
    def record(*given: Any, **named: Any) -> Any:
        tensor = named[message] if message in named else given[_PLACES[message]]
        size = tensor.numel() * tensor.element_size()
        peer = -1
        if span in ("send", "receive"):
            peer = named.get("dst", named.get("src", given[1] if len(given) > 1 else -1))
        begin_ns = time.monotonic_ns()
        result = operation(*given, **named)
        if hasattr(result, "get_future"):
            result.get_future().add_done_callback(lambda _done: trace.communicated(span, begin_ns, size=size))
        else:
            trace.communicated(span, begin_ns, size=size, peer=peer)
        return result

    return record


class CommunicationLog:
    """DeepSpeed's communication logger, emptied into `communication.jsonl` after each iteration."""

    def __init__(self, path: Path) -> None:
        from deepspeed.comm import comm

        self._log = IterationLog(path)
        self._logger = comm.comms_logger
        append = self._logger.append

        def append_one(raw_name: str, record_name: str, latency: float, msg_size: int) -> None:
            append(raw_name, record_name, latency, msg_size)
            # DeepSpeed never sets its timer of a kind of operation back: each latency would be the sum of all so far.
            comm.timers(record_name).reset()

        self._logger.append = append_one
        self._logger.reset_data()  # what it has by now came before the first iteration

    def close_iteration(self, iteration: int) -> None:
        """Write, for each operation and message size, the count and the means of what DeepSpeed logged: s and bit/s."""
        found = [
            [name, size, count, sum(latencies) / count * 1e-3, sum(algorithm) / count * 1e9, sum(bus) / count * 1e9]
            for name, sizes in self._logger.get_raw_data().items()
            for size, (count, latencies, algorithm, bus) in sizes.items()
        ]
        self._logger.reset_data()
        self._log.write({"iteration": iteration, "operations": found})


class DeepSpeedSettings(TorchSettings):
    """Settings of DeepSpeed for any training."""

    zero_stage: int
    microbatches: int
    precision: Precision
    batch: int  # samples of an iteration
    log: bool  # whether DeepSpeed's communication logger counts and times each operation


Given = TypeVar("Given", bound=DeepSpeedSettings)


def start(rank: Rank[Given]) -> None:
    """Initialize DeepSpeed's communication on the existing process group."""
    import deepspeed
    import deepspeed.ops
    from deepspeed.utils import logger

    logger.setLevel(logging.ERROR)
    # Without a list of what it could compile it compiles nothing: its shared-memory operations take a minute, in a
    # cache outside of this folder, whose lock a killed rank leaves behind for all later ones to wait for.
    deepspeed.ops.__compatible_ops__ = {}
    deepspeed.init_distributed(dist_backend=rank.config["backend"], auto_mpi_discovery=False, verbose=False)


def watch(rank: Rank[Given]) -> CommunicationLog | None:
    """Record DeepSpeed's communication from now on; return its log if that is requested."""
    if rank.config["trace"]:
        span_operations(rank.trace)
    return CommunicationLog(Path("communication.jsonl")) if rank.config["log"] else None


def settings(config: DeepSpeedSettings) -> dict[str, object]:
    """Return DeepSpeed's configuration for any training."""
    precision = config["precision"]
    return {
        "train_micro_batch_size_per_gpu": 1,  # it only counts with it: what a batch costs is in the layers' times
        "gradient_accumulation_steps": config["microbatches"],
        "zero_allow_untested_optimizer": True,
        "steps_per_print": None,
        "comms_logger": {"enabled": config["log"], "verbose": False, "prof_all": True},
        **({} if precision == "fp32" else {precision: {"enabled": True}}),
    }


def engine_of(model: torch.nn.Module, config: dict[str, object]) -> Any:
    """Return the model in DeepSpeed's engine, with plain gradient descent."""
    import deepspeed
    import torch

    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    return deepspeed.initialize(model=model, optimizer=optimizer, config=config)[0]
