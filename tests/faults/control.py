"""Rows 12 to 15: the controller, or the network between it and its hosts, is away for a while, or slow."""

from __future__ import annotations

import os
import signal
from contextlib import ExitStack

from tests.faults.interrupts import MEASURED
from tests.faults.matrix import INVENTORY, row
from tests.faults.scene import Scene
from tests.helpers.orch_runs import wait_for

SILENCE_S = 120  # after which an agent that hears nothing puts everything down by itself
TCP_S = 150  # for sshd to learn by TCP, which tries again every two minutes at most, that its connection is gone


@row(12, "the controller is stopped for 150 s (SIGSTOP), and goes on", on=(INVENTORY,), about_s=190)
def controller_stopped(scene: Scene) -> None:
    run = scene.measuring()
    os.kill(run.process.pid, signal.SIGSTOP)
    scene.rest(150)
    os.kill(run.process.pid, signal.SIGCONT)
    run.must_end(1, told="orch was stopped for", within_s=120)
    run.must_be_safe("failed", iterations=6)


@row(13, "the control network of a host is cut for 180 s", on=(INVENTORY,), about_s=210)
def control_cut(scene: Scene) -> None:
    run = scene.measuring()
    with scene.rack.cut("h2"):
        run.must_end(1, told="h2: nothing was heard of it", within_s=90)
        wait_for(lambda: not run.processes_on("h2"), SILENCE_S + 60, "the end of what runs on h2")
    run.must_be_safe("failed", iterations=6)
    wait_for(lambda: not scene.rack.below("h2") - scene.running, TCP_S, "the end of sshd's lost session on h2")


@row(14, "the control network of a host is cut, and heals after 90 s", on=(INVENTORY,), about_s=120)
def control_healed(scene: Scene) -> None:
    run = scene.measuring()
    with scene.rack.cut("h2"):
        scene.rest(90)
    run.must_end(1, told="h2: nothing was heard of it", within_s=90)
    run.must_be_safe("failed", iterations=6)


@row(15, "the control network carries 2 Mbit/s", variant="slow", on=(INVENTORY,), about_s=60)
def control_slow(scene: Scene) -> None:
    with ExitStack() as slowed:
        for host in scene.rack.names:
            slowed.enter_context(scene.rack.slowed(host, "2mbit"))
        run = scene.run(scene.path(**MEASURED))
        run.must_be_completed(within_s=240)


@row(15, "the control network loses 5 % of all packets", variant="loss", on=(INVENTORY,), about_s=40)
def control_lossy(scene: Scene) -> None:
    drop = "numgen random mod 100 < 5 drop"
    with ExitStack() as lossy:
        for host in scene.rack.names:
            lossy.enter_context(scene.rack.filtering(host, f"tcp dport 22 {drop}", f"tcp sport 22 {drop}"))
        run = scene.run(scene.path(**MEASURED))
        run.must_be_completed(within_s=240)
