"""What is fuzzed: a reader of bytes that others wrote, how its inputs are made, and what each of them may cost."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A reader under test.

    `make` draws an input; `read` takes it, in a folder of its own, and raises one of `ours` or nothing. Any other
    exception is a finding, as are a crash and more time or memory than an input may cost.
    """

    name: str
    make: Callable[[random.Random], bytes]
    read: Callable[[bytes, Path], None]
    ours: tuple[type[Exception], ...]
    share: int  # of the inputs of a whole campaign, beside the shares of the other targets
    seconds: float = 10.0  # of processor time
    warm: Callable[[], object] = lambda: None  # once, before processes are forked
    mib: int = 256  # by which an input may raise the peak of the process


def drawn(target: Target, seed: int, place: int) -> bytes:
    """The input at a place of a seed's sequence, which no input before it decides: any part can be tried alone."""
    return target.make(random.Random(f"{target.name}/{seed}/{place}"))  # noqa: S311 - to find mistakes
