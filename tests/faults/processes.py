"""Rows 1 to 6: ranks, agents and controllers that die or stand still."""

from __future__ import annotations

import os
import signal
from contextlib import suppress

from tests.faults import checks
from tests.faults.breaking import kill
from tests.faults.checks import LINE
from tests.faults.matrix import INVENTORY, LOCAL, row
from tests.faults.scene import Scene

BOTH = (LOCAL, INVENTORY)


@row(1, "a rank is killed", on=BOTH)
def rank_killed(scene: Scene) -> None:
    run = scene.measuring()
    os.kill(run.launched("training-rank1"), signal.SIGKILL)
    run.must_end(1, told="h2: training-rank1 ended with status -9 before it was asked to", within_s=60)
    run.must_be_home("failed", iterations=6)


@row(2, "a rank is stopped (SIGSTOP)", on=BOTH, about_s=15, ci=True)
def rank_stopped(scene: Scene) -> None:
    run = scene.measuring()
    os.kill(run.launch("training-rank1"), signal.SIGSTOP)
    run.must_end(1, told="no iteration of job training has ended for 4s", within_s=60)
    run.must_be_home("failed", iterations=6)


@row(3, "an agent is killed, where conditions are", on=BOTH, ci=True)
def agent_killed(scene: Scene) -> None:
    run = scene.measuring()
    os.kill(run.agent("training-rank0"), signal.SIGKILL)
    run.must_end(1, told="h1: its agent is gone", within_s=90)
    run.must_be_home("failed", iterations=6)


@row(4, "two agents are killed, and the sshd of one is gone", on=(INVENTORY,), about_s=40)
def agents_and_sshd_killed(scene: Scene) -> None:
    run = scene.measuring()
    kill({run.agent("training-rank0"), run.agent("training-rank1")})
    with scene.rack.refusing_logins("h2"):
        run.must_end(1, told="h2 still has files of the run", begins=r"  - h2 still has ", within_s=120)
    run.must_be_recoverable(iterations=6)


@row(5, "the agent of a traffic source's host is stopped (SIGSTOP)", on=(INVENTORY,), about_s=60)
def agent_stopped(scene: Scene) -> None:
    run = scene.measuring()
    agent = run.agent("tcpdump.h3")
    os.kill(agent, signal.SIGSTOP)
    run.must_end(1, told="h3: nothing was heard of it", within_s=120)
    with suppress(ProcessLookupError):  # the one that came after it has ended it
        os.kill(agent, signal.SIGCONT)
    run.must_be_home("failed", iterations=6)


@row(6, "the controller is killed", on=BOTH, ci=True)
def controller_killed(scene: Scene) -> None:
    run = scene.measuring()
    run.process.kill()
    run.process.wait()
    scene.ours_are_gone()
    _, told = scene.command("ls", "--results", run.results, name="ls")
    scene.held(LINE, checks.line(told, r"lost \(window\)", begins=f".*{run.id}"))
    run.must_be_recoverable(iterations=6)
