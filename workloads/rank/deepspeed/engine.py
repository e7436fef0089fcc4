"""What DeepSpeed's rank programs share: how it is started, watched and told what to do."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ..torch.context import LEARNING_RATE, Precision, Rank
from ..torch.context import Settings as TorchSettings
from .recording import CommunicationLog, span_operations

if TYPE_CHECKING:
    import torch


class Settings(TorchSettings):
    """What DeepSpeed is told, whatever it trains."""

    zero_stage: int
    microbatches: int
    precision: Precision
    batch: int  # samples of an iteration
    log: bool  # whether DeepSpeed's communication logger counts and times each operation


Given = TypeVar("Given", bound=Settings)


def start(rank: Rank[Given]) -> None:
    """Put DeepSpeed's communication on the process group that there is."""
    import deepspeed
    import deepspeed.ops
    from deepspeed.utils import logger

    logger.setLevel(logging.ERROR)
    # Without a list of what it could compile it compiles nothing: its shared-memory operations take a minute, in a
    # cache outside of this folder, whose lock a killed rank leaves behind for all later ones to wait for.
    deepspeed.ops.__compatible_ops__ = {}
    deepspeed.init_distributed(dist_backend=rank.config["backend"], auto_mpi_discovery=False, verbose=False)


def watch(rank: Rank[Given]) -> CommunicationLog | None:
    """From now on record what DeepSpeed communicates; gives its log if that is wanted."""
    if rank.config["trace"]:
        span_operations(rank.trace)
    return CommunicationLog(Path("communication.jsonl")) if rank.config["log"] else None


def settings(config: Settings) -> dict[str, object]:
    """What DeepSpeed is told whatever it trains."""
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
    """The model as DeepSpeed trains it, with plain gradient descent."""
    import deepspeed
    import torch

    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    return deepspeed.initialize(model=model, optimizer=optimizer, config=config)[0]
