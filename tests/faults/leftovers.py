"""Rows 22, 23, 37 and 40: what dead runs left on hosts, and changes that cannot be taken back."""

from __future__ import annotations

import json
from collections.abc import Collection
from functools import partial

from tests.faults import checks
from tests.faults.breaking import by_hand, die_together, journal
from tests.faults.checks import LINE, STATUS
from tests.faults.matrix import INVENTORY, row
from tests.faults.running import Controller
from tests.faults.scene import Scene

SLEEPS, FAILS = "exec sleep 3600", "echo the tool is broken >&2; exit 7"


def dead_run(scene: Scene) -> Controller:
    """A run whose controller and agents were killed at once: its changes stand, and its journals lie there."""
    run = scene.measuring()
    die_together(run)
    return run


def cleaned(scene: Scene, *, begins: str = "h1: undid rate", statuses: Collection[int] = (0,)) -> None:
    status, said = scene.command("clean", scene.inventory(), name="clean")
    scene.held(STATUS, checks.status(status, statuses, seconds=0, within_s=120))
    scene.held(LINE, checks.line(said, "", begins=begins))


@row(22, "garbage in a dead run's journal", on=(INVENTORY,), about_s=20)
def garbage_in_journal(scene: Scene) -> None:
    run = dead_run(scene)
    path = journal(run, "h1")
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:1], b"\xff\0garbage\n", b"[1]\n", *lines[1:]]))
    cleaned(scene, statuses=(0, 1))  # what could be read is taken back; the rest is told
    run.must_be_recoverable(iterations=6)


@row(23, "a change was taken back by hand before `orch clean`", on=(INVENTORY,), about_s=20)
def taken_back_by_hand(scene: Scene) -> None:
    run = dead_run(scene)
    by_hand(run, "h1")
    cleaned(scene, begins="h1: rate of .* is no longer in force")
    run.must_be_recoverable(iterations=6)


def undo_impossible(scene: Scene, script: str) -> None:
    run = scene.measuring()
    with scene.rack.replaced("h1", "tc", script):
        run.interrupt()
        run.must_end(1, 130, told="stopped by SIGINT", within_s=180)
        scene.held(LINE, checks.line(run.said(), "h1: .*rate", begins="  also: putting back conditions: "))
    scene.clean()
    run.must_be_safe("interrupted", iterations=6)


row(37, "an undo fails at the end", variant="fails", on=(INVENTORY,), about_s=30)(
    partial(undo_impossible, script=FAILS)
)
row(37, "an undo hangs at the end", variant="hangs", on=(INVENTORY,), about_s=90)(
    partial(undo_impossible, script=SLEEPS)
)


@row(40, "the journal is of an older agent", variant="journal", on=(INVENTORY,), about_s=20)
def older_journal(scene: Scene) -> None:
    """It told nothing of doubts."""
    run = dead_run(scene)
    path = journal(run, "h1")
    entries = [json.loads(line) for line in path.read_text().splitlines()]
    older = [{key: entry[key] for key in ("id", "undo")} for entry in entries if "undo" in entry]
    path.write_text("".join(json.dumps(entry) + "\n" for entry in older))
    cleaned(scene)
    run.must_be_recoverable(iterations=6)


@row(40, "the manifest is of a newer version", variant="manifest", on=(INVENTORY,), about_s=20)
def newer_manifest(scene: Scene) -> None:
    """It is left alone, and told; the version that wrote it can recover the run."""
    run = dead_run(scene)
    (path,) = run.results.glob("*/*/manifest.json")
    own = path.read_text()
    path.write_text(json.dumps({**json.loads(own), "format": 99}))
    status, told = scene.command("recover", "--results", run.results, name="refused")
    scene.held(STATUS, checks.status(status, {1}, seconds=0, within_s=60))
    scene.held(LINE, checks.line(told, "format", begins=run.id))
    path.write_text(own)
    run.must_be_recoverable(iterations=6)
