"""Rows 9 and 10: the terminal that a run is on, and what reads its output."""

from __future__ import annotations

import os
import signal
import subprocess

from tests.faults import checks
from tests.faults.checks import LINE
from tests.faults.interrupts import MEASURED
from tests.faults.matrix import INVENTORY, LOCAL, row
from tests.faults.running import Controller
from tests.faults.scene import Scene

CTRL_C = b"\x03"


def recorded(run: Controller, what: str) -> None:
    """Where nobody could read what was told, the manifest says it."""
    run.scene.held(LINE, checks.line(run.manifest()["error"], what, begins=""))


@row(9, "Ctrl-C on a terminal, to the whole process group; hosts behind a ProxyCommand", on=(INVENTORY,))
def interrupted_on_a_terminal(scene: Scene) -> None:
    with scene.on_a_terminal() as (run, terminal):
        run.until("window", iterations=4)
        os.write(terminal.master, CTRL_C)
        run.must_end(130, told="stopped by SIGINT", within_s=60)
    run.must_be_home("interrupted", iterations=6)


@row(10, "the terminal is closed", variant="closed", on=(LOCAL, INVENTORY), ci=True)
def terminal_closed(scene: Scene) -> None:
    with scene.on_a_terminal() as (run, terminal):
        run.until("window", iterations=4)
        terminal.close()
        run.must_end_untold(130, within_s=60)
    recorded(run, "stopped by SIGHUP")
    run.must_be_home("interrupted", iterations=6)


@row(10, "Ctrl-C ends what reads the output, too (`tee`)", variant="tee", on=(LOCAL, INVENTORY), ci=True)
def reader_gone(scene: Scene) -> None:
    tee = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    try:
        run = scene.run(stdout=tee.stdin, stderr=tee.stdin)
        tee.stdin.close()  # type: ignore[union-attr]
        run.until("window", iterations=4)
        tee.terminate()
        tee.wait()
        run.process.send_signal(signal.SIGINT)
        run.must_end_untold(130, within_s=60)
    finally:
        tee.kill()
    recorded(run, "stopped by SIGINT")
    run.must_be_home("interrupted", iterations=6)


@row(10, "the log of a run is on a full disk", variant="log", about_s=15, ci=True)
def log_full(scene: Scene) -> None:
    with open("/dev/full", "w") as full:  # noqa: PTH123 - a device
        run = scene.run(scene.path(**MEASURED), stdout=full, stderr=full)
        run.must_end_untold(0, 3, within_s=90)
    run.scene.held(LINE, checks.line(run.manifest()["outcome"], "completed", begins=""))
    run.must_be_home("completed", iterations=20)
