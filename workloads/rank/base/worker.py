"""The life of a rank whose framework meets the other ranks by itself: it builds, waits for its gate, iterates for good.

It prints `ready` once it is connected to all others, waits for the line `go` on standard input, and writes a line an
iteration to `iterations.jsonl` in its working folder. SIGTERM ends it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol, TypeVar

from . import rank_settings
from .iteration_log import IterationLog
from .lifecycle import end_on_signal, fail, first_line, peer_lost
from .scratch import own_scratch
from .span_trace import Trace
from .stepping import Step, iterate

LEARNING_RATE = 0.01

Given_contra = TypeVar("Given_contra", contravariant=True)


class Build(Protocol[Given_contra]):
    """Makes what does one iteration."""

    def __call__(self, config: Given_contra, *, checksum: bool) -> Step:
        """`checksum` is whether the step gives the sum of all parameters."""
        ...


def run(build: Build[Given_contra], *, framework: str, trace: Trace | None = None) -> None:
    """Be a rank; `framework` is what people are told did not start. Of its errors a RuntimeError is a peer's loss.

    A `trace` that the steps add spans to is written down after each iteration.
    """
    checksum = rank_settings.checksum_requested()
    log = IterationLog(Path("iterations.jsonl"))
    tidy = own_scratch()

    def flush() -> None:
        log.close()
        if trace is not None:
            trace.close()
        tidy()

    end_on_signal(flush)
    config: Given_contra = rank_settings.load()
    try:
        step = build(config, checksum=checksum)
    except (ImportError, RuntimeError, ValueError) as error:
        fail(f"{framework} did not start: {first_line(error)}")
    try:
        iterate(step, log, ended=None if trace is None else trace.close_iteration)
    except RuntimeError as error:
        peer_lost(error)
