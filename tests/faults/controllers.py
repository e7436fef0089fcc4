"""Rows 32, 33 and 39: two controllers, and commands beside a run."""

from __future__ import annotations

import sys

from tests.faults import checks
from tests.faults.checks import DATA, LINE, STATUS
from tests.faults.interrupts import MEASURED
from tests.faults.matrix import INVENTORY, LOCAL, row
from tests.faults.scene import Scene
from tests.helpers.broken_python import BROKEN_PYTHON

HELD = "taken by|held by"


@row(32, "another controller wants the hosts while a run measures", on=(LOCAL, INVENTORY), about_s=15, ci=True)
def second_controller(scene: Scene) -> None:
    first = scene.measuring()
    second = scene.run(None, "--wait", "0s", name="second")
    second.must_end(1, told=HELD, within_s=60)
    second.must_have_left_nothing()
    first.interrupt()
    first.must_end(130, told="stopped by SIGINT", within_s=60)
    first.must_be_home("interrupted", iterations=6)


@row(32, "two controllers want the hosts at the same instant", variant="instant", on=(LOCAL, INVENTORY), about_s=20)
def same_instant(scene: Scene) -> None:
    """One of them measures, or each has seen the other; nobody measures beside somebody."""
    path = scene.path(**MEASURED)
    both = [scene.run(path, "--wait", "0s", name=name) for name in ("first", "second")]
    ended = [run.process.wait(120) for run in both]
    refused = [run for run, status in zip(both, ended, strict=True) if status == 1]
    measured = [run for run in both if run not in refused]
    scene.held(STATUS, None if refused and len(measured) <= 1 else f"they ended with {ended}")
    for run in refused:
        scene.held(LINE, checks.line(run.said(), HELD))
        run.must_have_left_nothing()
    for run in measured:
        run.must_be_completed(within_s=1)


@row(33, "`orch clean --data` beside a run", variant="clean", on=(INVENTORY,), about_s=15)
def clean_beside(scene: Scene) -> None:
    run = scene.measuring(scene.path(measure={"warmup": 1, "iterations": 200, "at_most": "60s"}))
    status, told = scene.command("clean", scene.inventory(), "--data", name="clean")
    scene.held(STATUS, checks.status(status, {0}, seconds=0, within_s=60))
    scene.held(LINE, checks.line(told, f"left run {run.id} alone", begins="h2: "))
    run.must_be_completed(within_s=120, iterations=200)


@row(33, "`orch prepare` beside a run", variant="prepare", on=(INVENTORY,), about_s=15)
def prepare_beside(scene: Scene) -> None:
    run = scene.measuring(scene.path(measure={"warmup": 1, "iterations": 200, "at_most": "60s"}))
    somewhere = ("--folder", scene.folder / "frameworks", "--python", scene.program("python", BROKEN_PYTHON))
    status, told = scene.command("prepare", scene.inventory(), "--only", "torch", *somewhere, name="prepare")
    scene.held(STATUS, checks.status(status, {1}, seconds=0, within_s=60))
    scene.held(LINE, checks.line(told, HELD, begins="h1: failed: "))
    run.must_be_completed(within_s=120, iterations=200)


@row(39, "a run is recovered by another controller than began it", on=(INVENTORY,), about_s=20)
def recovered_elsewhere(scene: Scene) -> None:
    """In other UTS and PID namespaces, as where results lie on a shared disk: only --force says that it is over."""
    run = scene.measuring()
    run.process.kill()
    run.process.wait()
    scene.ours_are_gone()
    named = ["--testbed", str(scene.inventory())]
    orch = [sys.executable, "-m", "orchestrator.cli.main", "recover", "--results", str(run.results), *named, run.id]
    away = ["unshare", "--uts", "--pid", "--fork", "--mount-proc", "sh", "-c", 'hostname elsewhere; exec "$@"', "-"]
    refused = scene.start(argv=[*away, *orch], name="refused")
    scene.held(STATUS, checks.status(refused.wait(60), {1}, seconds=0, within_s=60))
    scene.held(LINE, checks.line(scene.said("refused"), "needs no recovery"))
    scene.held(LINE, checks.line(scene.said("refused"), "--force", begins="  remedy: "))
    sealed = scene.start(argv=[*away, *orch, "--force"], name="forced")
    scene.held(STATUS, checks.status(sealed.wait(120), {0}, seconds=0, within_s=120))
    scene.held(DATA, checks.data(run.results, "lost", iterations=6))
