"""Carries out cases, one after the other, and says of each what held."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.core import lock
from orchestrator.core.errors import OrchError
from tests.faults import places
from tests.faults.matrix import LOCAL, SUDO, Case
from tests.faults.places import Local, Place
from tests.faults.scene import Scene

NOT_CARRIED_OUT = "not carried out"


@dataclass(frozen=True)
class Result:
    """How a case went: what did not hold, by check."""

    case: str
    number: int  # of its repetitions
    seconds: float
    failures: dict[str, list[str]] = field(default_factory=dict)

    @property
    def held(self) -> bool:
        return not self.failures


@contextlib.contextmanager
def _place(case: Case, folder: Path) -> Iterator[Place]:
    if case.place == LOCAL:
        yield Local()
        return
    if case.place == SUDO:
        with places.users(folder) as users:
            yield users
        return
    environment = {**os.environ, lock.OTHER_TESTBED: f"of-rack-{os.getpid()}"}
    with places.hosts(folder, count=case.hosts, env=environment) as hosts:
        yield hosts


def carry_out(case: Case, folder: Path, *, number: int, seed: int) -> Result:
    """Carry out a case in a folder of its own, which stays where it did not hold."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    began = time.monotonic()
    failures: dict[str, list[str]] = {}
    try:
        with _place(case, folder) as place:
            scene = Scene(folder, place, name=case.name, seed=seed)
            try:
                case.carry_out(scene)
                scene.finish()
            finally:
                failures.update(scene.failures)
                scene.abandon()
    except (AssertionError, OrchError, OSError, LookupError, ValueError, subprocess.SubprocessError) as error:
        failures.setdefault(NOT_CARRIED_OUT, []).append(f"{type(error).__name__}: {error}")
    if not failures:
        shutil.rmtree(folder)
    return Result(case.name, number, round(time.monotonic() - began, 1), failures)
