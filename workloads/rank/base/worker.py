"""The life of a rank whose framework meets the other ranks by itself: it builds, waits for its gate, iterates for good.

It prints `ready` once it is connected to all others, waits for the line `go` on standard input, and writes a line an
iteration to `iterations.jsonl` in its working folder. SIGTERM ends it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import rank_settings
from .iteration_log import IterationLog
from .lifecycle import end_on_signal, fail, first_line, peer_lost
from .scratch import own_scratch
from .stepping import Step, iterate

LEARNING_RATE = 0.01

# From the configuration, and whether the sum of all parameters is wanted in the log, to what does one iteration.
Build = Callable[..., Step]


def run(build: Build, *, framework: str) -> None:
    """Be a rank; `framework` is what people are told did not start. Of its errors a RuntimeError is a peer's loss."""
    checksum = rank_settings.checksum_requested()
    log = IterationLog(Path("iterations.jsonl"))
    tidy = own_scratch()

    def flush() -> None:
        log.close()
        tidy()

    end_on_signal(flush)
    config: dict[str, Any] = rank_settings.load()
    try:
        step = build(config, checksum=checksum)
    except (ImportError, RuntimeError, ValueError) as error:
        fail(f"{framework} did not start: {first_line(error)}")
    try:
        iterate(step, log)
    except RuntimeError as error:
        peer_lost(error)
