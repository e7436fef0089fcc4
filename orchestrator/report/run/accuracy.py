"""Draw the cost of accuracy in the report: accuracy and loss against bytes sent, and over time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from orchestrator.analysis.traffic import throughput
from orchestrator.analysis.traffic.throughput import Bins, Floats
from orchestrator.analysis.windows import time_to_accuracy
from orchestrator.analysis.windows.time_to_accuracy import Cost, Learning, Reached
from orchestrator.report.runs import Run
from orchestrator.report.style import LINES, SERIES, SOFT, figure, legend

Named = tuple[str, int, Learning]  # its name, the scale that bytes are multiplied back by, and what it learned


def of_run(run: Run) -> dict[str, Cost]:
    """Return the cost of every job of a run that tells its accuracy."""
    found = {}
    for job in run.manifest.jobs:
        cost = time_to_accuracy.cost(run.table("iterations"), job.name, _sent(run, job.name, job.nodes))
        if cost is not None:
            found[job.name] = cost
    return found


def learned(run: Run) -> dict[str, Learning]:
    """Return the accuracy of every job of a run after each epoch, where it was tested on held-out images."""
    found = {}
    for job in run.manifest.jobs:
        sent = _sent(run, job.name, job.nodes)
        one = time_to_accuracy.learning(run.table("accuracy"), run.table("iterations"), job.name, sent)
        if one is not None:
            found[job.name] = one
    return found


def _sent(run: Run, job: str, nodes: Sequence[str]) -> list[Bins]:
    """Return the TCP payload that each host of a job sent for it, by each rail."""
    devices: dict[str, tuple[str | None, ...]] = {host.name: host.devices or (None,) for host in run.hosts}
    return [
        throughput.bins(
            run.table("packets"),
            {"node": node, "port": device, "direction": "out", "kind": "training", "name": job},
            column="payload_bytes",
        )
        for node in dict.fromkeys(nodes)
        for device in devices.get(node, (None,))
    ]


def drawn(runs: Sequence[Run]) -> tuple[Any, str] | None:
    """Draw accuracy, and loss, against bytes sent by all hosts, a line for each run and job (Zerwas, figure 8)."""
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
    for level in time_to_accuracy.LEVELS:
        above.axhline(level * 100, color=SOFT, linewidth=0.8, linestyle="--")
    above.set(ylabel="accuracy (%)", ylim=(0, 100))
    below.set(xlabel="payload sent by all hosts (MB)", ylabel="loss")
    legend(above)
    reached = [
        f"{name} reached {level:.0%} after {spent * scale / 1e6:,.0f} MB"
        for name, scale, cost in lines
        for level in time_to_accuracy.LEVELS
        if (spent := cost.until(level)) is not None
    ]
    targets = f" {'; '.join(reached)}." if reached else " No run reached 60 %."
    return drawing, (
        f"On the samples of each step before it is taken, means over ranks and the last {time_to_accuracy.SMOOTHED} "
        f"iterations. TCP payload of the training without retransmissions, since the run began.{targets}"
    )


def over_volume(runs: Sequence[Run]) -> tuple[Any, str] | None:
    """Draw accuracy on held-out images against bytes sent by all hosts, a line for each run and job."""
    return volume_lines(_named(runs))


def over_time(runs: Sequence[Run]) -> tuple[Any, str] | None:
    """Draw accuracy on held-out images over the training time, a line for each run and job."""
    return time_lines(_named(runs))


def _named(runs: Sequence[Run]) -> list[Named]:
    return [
        (run.name if len(of) == 1 else f"{run.name}, {job}", run.scale, one)
        for run in runs
        for of in [learned(run)]
        for job, one in of.items()
    ]


def both(named: Sequence[Named]) -> Iterator[tuple[str, str, Any, str]]:
    """Yield both drawings: name, title, drawing and caption of each that has data."""
    for name, title, drawn in (
        ("accuracy-volume", "Accuracy on held-out images against volume", volume_lines(named)),
        ("accuracy-time", "Accuracy on held-out images over time", time_lines(named)),
    ):
        if drawn is not None:
            yield name, title, *drawn


def volume_lines(named: Sequence[Named]) -> tuple[Any, str] | None:
    """Draw accuracy against volume; None where nothing was captured."""
    drawn = [
        (name, one.sent_bytes * scale / 1e6, one) for name, scale, one in named if not np.isnan(one.sent_bytes).all()
    ]
    scales = {name: scale for name, scale, _ in named}

    def took(name: str, taken: Reached) -> str:
        return f"{taken.epochs:.1f} epochs and {taken.sent_bytes * scales[name] / 1e6:,.0f} MB"

    caption = "TCP payload of the training without retransmissions, since the run began."
    return _lines(drawn, "payload sent by all hosts (MB)", caption, took)


def time_lines(named: Sequence[Named]) -> tuple[Any, str] | None:
    """Draw accuracy over time."""

    def took(_name: str, taken: Reached) -> str:
        return f"{taken.seconds:,.1f} s"

    drawn = [(name, one.seconds, one) for name, _, one in named]
    return _lines(drawn, "training time (s)", "Time without evaluations, mean over ranks.", took)


def _lines(
    drawn: Sequence[tuple[str, Floats, Learning]], label: str, caption: str, took: Callable[[str, Reached], str]
) -> tuple[Any, str] | None:
    if not drawn:
        return None
    drawing, (panel,) = figure(height_in=2.7)
    for number, (name, at, one) in enumerate(drawn):
        look = {"color": SERIES[number % len(SERIES)], "linestyle": LINES[number // len(SERIES) % len(LINES)]}
        panel.plot(at, one.accuracy * 100, label=name, linewidth=1.1, marker=".", markersize=5, **look)
    for level in time_to_accuracy.LEVELS:
        panel.axhline(level * 100, color=SOFT, linewidth=0.8, linestyle="--")
    panel.set(xlabel=label, ylabel="accuracy (%)", ylim=(0, 100), xlim=(0, None))
    legend(panel)
    reached = [
        f"{name} reached {level:.0%} after {took(name, taken)}"
        for name, _, one in drawn
        for level in time_to_accuracy.LEVELS
        if (taken := one.reached(level)) is not None
    ]
    levels = f" {'; '.join(reached)}." if reached else f" None reached {time_to_accuracy.LEVELS[0]:.0%}."
    return drawing, f"On held-out images after each epoch, each looked at by one rank. {caption}{levels}"
