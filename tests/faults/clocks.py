"""Row 34: a clock is set while a run goes on."""

from __future__ import annotations

import struct
import subprocess
import sys
from pathlib import Path

from tests.faults.matrix import INVENTORY, LOCAL, row
from tests.faults.scene import Scene

SOURCE = Path(__file__).with_name("shifted_clock.c")
HOUR_S = 3600


class Clock:
    """The wall clock of what is started with its environment."""

    def __init__(self, folder: Path) -> None:
        self._told = folder / "clock"
        self._told.write_bytes(struct.pack("q", 0))
        library = folder / "shifted_clock.so"
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, SOURCE], check=True, timeout=60)
        self.environment = {"LD_PRELOAD": str(library), "SHIFTED_CLOCK": str(self._told)}

    def set(self, by_s: int) -> None:
        """Have it go by so many seconds more or less than the machine's."""
        with self._told.open("r+b") as file:
            file.write(struct.pack("q", by_s))


@row(34, "the controller's clock is set back by an hour", variant="controller", on=(LOCAL, INVENTORY), about_s=15)
def controller_clock(scene: Scene) -> None:
    clock = Clock(scene.folder)
    run = scene.measuring(env={**scene.environment, **clock.environment})
    clock.set(-HOUR_S)
    run.must_end(1, told="clock", within_s=60)
    run.must_be_home("failed", iterations=6)


@row(34, "the clock of rank 0's host is set ahead by an hour", variant="host", on=(INVENTORY,), about_s=15)
def host_clock(scene: Scene) -> None:
    clock = Clock(scene.folder)
    words = " ".join(f"{name}={value}" for name, value in clock.environment.items())
    inventory = scene.rack.inventory()
    inventory["hosts"]["h1"]["python"] = str(
        scene.program("python", f'#!/bin/sh\nexec env {words} {sys.executable} "$@"\n')
    )
    run = scene.measuring(scene.path(testbed={"inventory": inventory}))
    clock.set(HOUR_S)
    run.must_end(1, told="h1: .*clock", within_s=60)
    run.must_be_home("failed", iterations=6)
