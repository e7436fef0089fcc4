"""The cost of accuracy in the report: what a training was worth against the bytes that it had sent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from orchestrator.analysis.traffic import throughput
from orchestrator.analysis.windows import costs
from orchestrator.analysis.windows.costs import Cost
from orchestrator.report.runs import Run
from orchestrator.report.style import LINES, SERIES, SOFT, figure, legend


def of_run(run: Run) -> dict[str, Cost]:
    """The cost of every job of a run that tells its accuracy."""
    found = {}
    for job in run.manifest.jobs:
        nodes = dict.fromkeys(job.nodes)
        devices = {host.name: host.device or None for host in run.hosts}
        sent = [
            throughput.bins(
                run.table("packets"),
                {"node": node, "port": devices.get(node), "direction": "out", "kind": "training", "name": job.name},
                column="payload_bytes",
            )
            for node in nodes
        ]
        cost = costs.cost(run.table("iterations"), job.name, sent)
        if cost is not None:
            found[job.name] = cost
    return found


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
