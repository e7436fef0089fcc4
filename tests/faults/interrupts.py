"""Rows 7, 8, 11 and 42: Ctrl-C, in every stage of a run."""

from __future__ import annotations

import os
import signal
from functools import partial
from typing import Any

from tests.faults import checks
from tests.faults.checks import STATUS
from tests.faults.matrix import INVENTORY, LOCAL, row
from tests.faults.scene import Scene
from tests.helpers import orch_runs

MEASURED: dict[str, Any] = {"measure": {"warmup": 1, "iterations": 20, "at_most": "60s"}, "validity": {"clock": "1s"}}
BEFORE = ("open", "collectors", "ranks", "preflight")
CHANGING = ("conditions",)
AFTER = ("restore", "fetch", "reduce")


def interrupted_before(scene: Scene, stage: str) -> None:
    run = scene.run()
    run.until_told(event="phase", name=stage)
    run.interrupt()
    run.must_end(130, told="stopped by SIGINT", within_s=60)
    run.must_be_home("interrupted")


for _stage in BEFORE:
    row(7, f"Ctrl-C in stage {_stage}", variant=_stage, about_s=8, ci=True)(partial(interrupted_before, stage=_stage))
for _stage in CHANGING:
    row(8, f"Ctrl-C in stage {_stage}", variant=_stage, on=(INVENTORY,))(partial(interrupted_before, stage=_stage))


@row(7, "Ctrl-C in stage window", variant="window", on=(LOCAL, INVENTORY), ci=True)
def interrupted(scene: Scene) -> None:
    run = scene.measuring()
    run.interrupt()
    run.must_end(130, told="stopped by SIGINT", within_s=60)
    run.must_be_home("interrupted", iterations=6)


def interrupted_after(scene: Scene, stage: str) -> None:
    """What was measured stays measured."""
    run = scene.run(scene.path(**MEASURED))
    run.until_told(event="phase", name=stage)
    run.interrupt()
    run.must_be_completed(within_s=60)


for _stage in AFTER:
    row(8, f"Ctrl-C in stage {_stage}", variant=_stage, on=(INVENTORY,))(partial(interrupted_after, stage=_stage))


@row(11, "two Ctrl-C, the second while things are put back", on=(LOCAL, INVENTORY), ci=True)
def interrupted_twice(scene: Scene) -> None:
    run = scene.measuring()
    run.interrupt()
    run.until_told(event="error", stage="window")  # or the two would be one
    run.interrupt()
    run.must_end(130, told="stopped by SIGINT", within_s=60)
    run.must_be_home("interrupted", iterations=6)


@row(42, "two Ctrl-C while tables are made", on=(LOCAL,), about_s=15)
def reduction_ended(scene: Scene) -> None:
    """The run is sealed with what there is, and `orch reduce` makes the tables."""
    run = scene.run(scene.path(**MEASURED))
    run.until_told(event="phase", name="reduce")
    stopped = orch_runs.child_of(run.process.pid, "orchestrator.analysis.reduction")
    os.kill(stopped, signal.SIGSTOP)
    run.interrupt()
    orch_runs.wait_for(lambda: "Ctrl-C ends that" in run.said(), 60.0, "what a second Ctrl-C does")
    run.interrupt()
    run.must_end(130, told="Ctrl-C ended that", within_s=60)
    run.must_be_home("interrupted")
    status, _ = scene.command("reduce", run.id, "--results", run.results, name="reduce")
    scene.held(STATUS, checks.status(status, {0}, seconds=0, within_s=60))
    run.must_be_home("completed", iterations=20)
