"""The cost of accuracy in the report: what a training was worth against the bytes that it had sent, and over time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from orchestrator.analysis.traffic import throughput
from orchestrator.analysis.traffic.throughput import Bins
from orchestrator.analysis.windows import costs, learning
from orchestrator.analysis.windows.costs import Cost
from orchestrator.analysis.windows.learning import Learning, Reached
from orchestrator.report.runs import Run
from orchestrator.report.style import LINES, SERIES, SOFT, figure, legend


def of_run(run: Run) -> dict[str, Cost]:
    """The cost of every job of a run that tells its accuracy."""
    found = {}
    for job in run.manifest.jobs:
        cost = costs.cost(run.table("iterations"), job.name, _sent(run, job.name, job.nodes))
        if cost is not None:
            found[job.name] = cost
    return found


def learned(run: Run) -> dict[str, Learning]:
    """What every job of a run had learned after each epoch, where it looked at held-out images."""
    found = {}
    for job in run.manifest.jobs:
        sent = _sent(run, job.name, job.nodes)
        one = learning.learning(run.table("accuracy"), run.table("iterations"), job.name, sent)
        if one is not None:
            found[job.name] = one
    return found


def _sent(run: Run, job: str, nodes: Sequence[str]) -> list[Bins]:
    """TCP payload that each host of a job sent for it."""
    devices = {host.name: host.device or None for host in run.hosts}
    return [
        throughput.bins(
            run.table("packets"),
            {"node": node, "port": devices.get(node), "direction": "out", "kind": "training", "name": job},
            column="payload_bytes",
        )
        for node in dict.fromkeys(nodes)
    ]


def drawn(runs: Sequence[Run]) -> tuple[Any, str] | None:
    """Accuracy, and loss, against bytes sent by all hosts, a line for each run and job (Zerwas, figure 8)."""
    lines = [
        (run.name if len(of) == 1 else f"{run.name}, {job}", run.scale, cost)
        for run in runs
        for of in [of_run(run)]
        for job, cost in of.items()
    ]
    if not lines:
        return None
    drawing, (above, below) = figure(2, height_in=3.6)
    for number, (name, scale, cost) in enumerate(lines):
        look = {"color": SERIES[number % len(SERIES)], "linestyle": LINES[number // len(SERIES) % len(LINES)]}
        above.plot(cost.sent_bytes * scale / 1e6, cost.accuracy * 100, label=name, linewidth=1.1, **look)
        if cost.loss is not None:
            below.plot(cost.sent_bytes * scale / 1e6, cost.loss, linewidth=1.1, **look)
    for level in costs.LEVELS:
        above.axhline(level * 100, color=SOFT, linewidth=0.8, linestyle="--")
    above.set(ylabel="accuracy (%)", ylim=(0, 100))
    below.set(xlabel="payload sent by all hosts (MB)", ylabel="loss")
    legend(above)
    reached = [
        f"{name} reached {level:.0%} after {spent * scale / 1e6:,.0f} MB"
        for name, scale, cost in lines
        for level in costs.LEVELS
        if (spent := cost.until(level)) is not None
    ]
    told = f" {'; '.join(reached)}." if reached else " No run reached 60 %."
    return drawing, (
        f"On the samples of each step before it is taken, means over ranks and the last {costs.SMOOTHED} iterations. "
        f"TCP payload of the training without retransmissions, since the run began.{told}"
    )


def held_out(runs: Sequence[Run]) -> tuple[Any, str] | None:
    """Accuracy on held-out images against bytes sent by all hosts, and over time, a line for each run and job."""
    return lines_of(
        [
            (run.name if len(of) == 1 else f"{run.name}, {job}", run.scale, one)
            for run in runs
            for of in [learned(run)]
            for job, one in of.items()
        ]
    )


def lines_of(named: Sequence[tuple[str, int, Learning]]) -> tuple[Any, str] | None:
    """The same of lines with their names and the scale that bytes are multiplied back by; None without any."""
    if not named:
        return None
    drawing, (against, over) = figure(2, height_in=4.4)
    for number, (name, scale, one) in enumerate(named):
        look = {"color": SERIES[number % len(SERIES)], "linestyle": LINES[number // len(SERIES) % len(LINES)]}
        style = {**look, "linewidth": 1.1, "marker": ".", "markersize": 5}
        against.plot(one.sent_bytes * scale / 1e6, one.accuracy * 100, label=name, **style)
        over.plot(one.seconds, one.accuracy * 100, **style)
    for panel in (against, over):
        for level in costs.LEVELS:
            panel.axhline(level * 100, color=SOFT, linewidth=0.8, linestyle="--")
        panel.set(ylabel="accuracy (%)", ylim=(0, 100), xlim=(0, None))
    against.set(xlabel="payload sent by all hosts (MB)")
    over.set(xlabel="training time (s)")
    legend(against)
    reached = [
        f"{name} reached {level:.0%} after {_after(taken, scale)}"
        for name, scale, one in named
        for level in costs.LEVELS
        if (taken := one.reached(level)) is not None
    ]
    told = f" {'; '.join(reached)}." if reached else f" No run reached {costs.LEVELS[0]:.0%}."
    return drawing, (
        "On held-out images after each epoch, each looked at by one rank. Time without evaluations, mean over ranks. "
        f"TCP payload of the training without retransmissions, since the run began.{told}"
    )


def _after(taken: Reached, scale: int) -> str:
    sent = "" if math.isnan(taken.sent_bytes) else f" and {taken.sent_bytes * scale / 1e6:,.0f} MB"
    return f"{taken.epochs} epochs, {taken.seconds:,.1f} s{sent}"
