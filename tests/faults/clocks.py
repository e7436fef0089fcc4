"""Row 34: a clock is set while a run goes on (libfaketime)."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.faults.matrix import INVENTORY, LOCAL, row
from tests.faults.scene import Scene

LIBRARIES = ("/usr/lib/*/faketime/libfaketimeMT.so.1", "/usr/lib64/faketime/libfaketimeMT.so.1")


def faking(told: Path) -> dict[str, str]:
    """The environment of a program whose wall clock is what a file says."""
    found = [str(path) for pattern in LIBRARIES for path in Path("/").glob(pattern.lstrip("/"))]
    assert found, "libfaketime is not installed"
    told.write_text("+0\n")
    return {
        "LD_PRELOAD": found[0], "FAKETIME_TIMESTAMP_FILE": str(told), "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1", "DONT_FAKE_MONOTONIC": "1",
    }  # fmt: skip


@row(34, "the controller's clock is set back by an hour", variant="controller", on=(LOCAL, INVENTORY), about_s=15)
def controller_clock(scene: Scene) -> None:
    told = scene.folder / "clock"
    run = scene.measuring(env={**scene.environment, **faking(told)})
    told.write_text("-3600\n")
    run.must_end(1, told="clock", within_s=60)
    run.must_be_home("failed", iterations=6)


@row(34, "the clock of rank 0's host is set ahead by an hour", variant="host", on=(INVENTORY,), about_s=15)
def host_clock(scene: Scene) -> None:
    told = scene.folder / "clock"
    python = scene.folder / "python"
    words = " ".join(f"{name}={value}" for name, value in faking(told).items())
    python.write_text(f'#!/bin/sh\nexec env {words} {sys.executable} "$@"\n')
    python.chmod(0o755)
    inventory = scene.rack.inventory()
    inventory["hosts"]["h1"]["python"] = str(python)
    run = scene.measuring(scene.path(testbed={"inventory": inventory}, validity={"clock": "1s"}))
    told.write_text("+3600\n")
    run.must_end(1, told="h1: .*clock", within_s=60)
    run.must_be_home("failed", iterations=6)
