"""Rows 43 and 44: the controller, or the agent of a leaf, is killed while a condition of a fabric's link stands."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from functools import partial
from typing import Any

from tests.faults import checks
from tests.faults.checks import LINE
from tests.faults.matrix import row
from tests.faults.running import Controller
from tests.faults.scene import Scene
from tests.helpers.orch_runs import ring

UPLINK = "leaf1-spine2"
# Each condition of a link, with the change of leaf1 by which it is known to stand.
CONDITIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "rate": ("rate of leaf1:p-spine2", {"rate": {"link": UPLINK, "rate": "4gbit"}}),
    "loss": ("loss at leaf1:p-spine2", {"loss": {"link": UPLINK, "share": "0.1%"}}),
    "delay": ("delay at leaf1:p-spine2", {"delay": {"link": UPLINK, "time": "1ms"}}),
    "ecn": ("marks at leaf1:p-spine2", {"ecn": {"link": UPLINK, "sojourn": "1ms"}}),
    "link": ("link leaf1:p-spine2", {"link": {"name": UPLINK, "down": "0s", "up": "100s"}}),
}


def changed(scene: Scene, name: str) -> Controller:
    """A run on a fabric whose window is measured and whose condition stands."""
    change, condition = CONDITIONS[name]
    run = scene.measuring(
        scene.path(
            testbed={"local": {"fabric": {"leaves": 2, "spines": 2, "hosts": 2}, "link": "25gbit", "scale": 100}},
            workload=ring(0.04, hosts=["h1", "h3"]),
            conditions=[condition],
            traffic=None,
        )
    )
    run.until_told(event="changed", name=change)
    return run


def controller_killed(scene: Scene, *, name: str) -> None:
    run = changed(scene, name)
    run.process.kill()
    run.process.wait()
    scene.ours_are_gone()
    _, told = scene.command("ls", "--results", run.results, name="ls")
    scene.held(LINE, checks.line(told, r"lost \(window\)", begins=f".*{run.id}"))
    run.must_be_recoverable(iterations=4)


def agent_killed(scene: Scene, *, name: str) -> None:
    run = changed(scene, name)
    os.kill(run.agent("qdisc.leaf1"), signal.SIGKILL)
    run.must_end(1, told="leaf1: its agent is gone", within_s=90)
    run.must_be_home("failed", iterations=4)


BREAKS: tuple[tuple[int, str, Callable[..., None]], ...] = (
    (43, "the controller is killed, where a link of a fabric has the condition", controller_killed),
    (44, "the agent of a leaf is killed, where its link has the condition", agent_killed),
)
for number, what, broken in BREAKS:
    for kind in CONDITIONS:
        in_ci = (number, kind) == (43, "ecn")
        row(number, f"{what} {kind}", variant=kind, about_s=25, ci=in_ci)(partial(broken, name=kind))
