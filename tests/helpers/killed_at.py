"""Kills a process at one of the steps that it makes on the file system, so that what survives can be looked at."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable

from tests.helpers.machine import PATIENCE_S

_STEPS = frozenset({"open", "os.link", "os.rename", "os.remove", "os.mkdir", "os.truncate", "os.rmdir"})


def killed_at(step: int, work: Callable[[], object]) -> bool:
    """Do this in a process that is killed at its step of this number, from 1; False where it made fewer and ended."""
    process = multiprocessing.get_context("fork").Process(target=_die_at, args=(step, work))
    process.start()
    process.join(PATIENCE_S)
    assert process.exitcode in (0, -signal.SIGKILL), process.exitcode
    return process.exitcode != 0


def _die_at(step: int, work: Callable[[], object]) -> None:
    left = step

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal left
        if event in _STEPS and (event != "open" or _writes(arguments)):
            left -= 1
            if not left:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)
    work()


def _writes(arguments: tuple[object, ...]) -> bool:
    flags = arguments[2] if len(arguments) > 2 else 0
    return isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR) != 0
