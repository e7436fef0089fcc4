"""Carries out several cases at a time, each in a process of its own."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Generator, Sequence
from multiprocessing import connection
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import FrameType
from typing import NoReturn

from tests.faults.carrying import NOT_CARRIED_OUT, Result, carry_out
from tests.faults.matrix import cases
from tests.faults.record import seed_of

SPAWN = multiprocessing.get_context("spawn")


def folder_of(logs: Path, name: str, number: int) -> Path:
    """Where a repetition of a case keeps its logs."""
    return logs / f"{name.replace('/', '-')}.{number}"


def carried_out(todo: Sequence[tuple[str, int]], jobs: int, logs: Path) -> Generator[Result, None, None]:
    """Carry out repetitions of cases by name, so many at a time; each result as it comes.

    What a case makes on this machine is named by its process, so that cases do not meet.
    """
    waiting = list(reversed(todo))
    running: dict[Connection, tuple[BaseProcess, str, int]] = {}
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                name, number = waiting.pop()
                near, far = SPAWN.Pipe(duplex=False)
                process = SPAWN.Process(target=_carry_out, args=(far, name, number, logs), name=name)
                process.start()
                far.close()
                running[near] = process, name, number
            ready = connection.wait(list(running))
            for near in [one for one in running if one in ready]:
                yield _result(near, *running.pop(near))
    finally:
        left = [process for process, _, _ in running.values()]
        for process in left:
            process.terminate()
        for process in left:
            process.join()  # until it has put away what it made


def _result(near: Connection, process: BaseProcess, name: str, number: int) -> Result:
    try:
        result: Result = near.recv()
    except EOFError:
        process.join()
        return Result(name, number, 0.0, {NOT_CARRIED_OUT: [f"its process ended with status {process.exitcode}"]})
    process.join()
    return result


def _carry_out(far: Connection, name: str, number: int, logs: Path) -> None:
    os.setsid()  # Ctrl-C on the terminal is for who started this, who then ends it
    interruptible()
    (case,) = (case for case in cases() if case.name == name)
    far.send(carry_out(case, folder_of(logs, name, number), number=number, seed=seed_of(name, number)))


def interruptible() -> None:
    """End by Ctrl-C and SIGTERM as a program of Python does; a shell starts what is in the background deaf to one."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, _terminated)


def _terminated(number: int, _frame: FrameType | None) -> NoReturn:
    sys.exit(128 + number)
