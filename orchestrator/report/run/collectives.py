"""Collective operations in the report: time and bandwidth by message size, and utilisation of the link."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.ticker import LogLocator, NullFormatter

from orchestrator.parts.rows import Row
from orchestrator.report.runs import Run
from orchestrator.report.style import LINES, SERIES, figure, from_zero, legend


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationTiming:
    """An operation of one message size in one window, multiplied back to full size: bytes, seconds, bit/s.

    The time is the mean over ranks, as nccl-tests reports it; bandwidths follow from it.
    """

    window: str
    job: str
    operation: str
    bytes: int
    count: int
    seconds: float
    algorithm_bps: float
    bus_bps: float
    utilization: float  # of the slowest link that takes part


def operation_timings(run: Run) -> list[OperationTiming]:
    """Return the collective operations of a run's windows, by window, job, operation and size."""
    groups: dict[tuple[str, str, str, int], list[Row]] = defaultdict(list)
    for row in run.rows("collectives"):
        if row["window_name"]:
            groups[row["window_name"], row["job"], row["operation"], row["bytes"]].append(row)
    found = []
    for (window, job, operation, size), rows in sorted(groups.items()):
        weights = np.array([row["repeats"] for row in rows], float)
        seconds = float(np.average([row["seconds"] for row in rows], weights=weights))
        algorithm = size * 8 / seconds
        bus = algorithm * rows[0]["bus_bps"] / rows[0]["algorithm_bps"]
        ranks = len({row["rank"] for row in rows})
        found.append(
            OperationTiming(
                window=window,
                job=job,
                operation=operation,
                bytes=size * run.scale,
                count=int(weights.sum()) // ranks,
                seconds=seconds,
                algorithm_bps=algorithm * run.scale,
                bus_bps=bus * run.scale,
                utilization=bus / min(row["link_bps"] for row in rows),
            )
        )
    return found


def utilization(runs: Sequence[Run]) -> tuple[Any, str] | None:
    """Draw share of the link (Li, figure 7) and time by message size, a line a run, window and operation."""
    lines: dict[str, list[OperationTiming]] = defaultdict(list)
    for run in runs:
        several = len({one.window for one in operation_timings(run)}) > 1
        for one in operation_timings(run):
            label = [run.name] * (len(runs) > 1) + [one.window] * several + [one.operation]
            lines[", ".join(label)].append(one)
    if not lines:
        return None
    drawing, (above, below) = figure(2, height_in=4.2)
    for number, (name, points) in enumerate(lines.items()):
        look = {
            "marker": "o",
            "markersize": 4,
            "color": SERIES[number % len(SERIES)],
            "linestyle": LINES[number // len(SERIES) % len(LINES)],
        }
        sizes = [one.bytes / 1e6 for one in points]
        above.plot(sizes, [one.utilization * 100 for one in points], label=name, **look)
        below.plot(sizes, [one.seconds * 1e3 for one in points], **look)
    above.set(ylabel="share of the link (%)")
    from_zero(above)
    below.set(xscale="log", yscale="log", xlabel="message (MB)", ylabel="time (ms)")
    for axis in (below.xaxis, below.yaxis):  # too few powers of ten are in sight to be the only ticks
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter("{x:g}")
        axis.set_minor_formatter(NullFormatter())
    legend(above)
    only = f"Operation: {next(iter(lines))}. " if len(lines) == 1 else ""
    return drawing, (
        f"{only}Above: bus bandwidth, as nccl-tests defines it, over the rate of the slowest link: what the link "
        "carries of what the operation must move through it at least. Below: time of one operation, mean over ranks."
    )
