"""Draw one slow iteration on one axis of time: what ranks did, what each host sent, and how full queues were."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow.compute as pc

from orchestrator.analysis.causes import ports as measured
from orchestrator.report.runs import Run, multiplied_back
from orchestrator.report.style import GRID, LINES, SERIES, SOFT, figure, from_zero, legend

_MOST_RANKS = 16
_PASSES = {"forward": SERIES[5], "backward": SERIES[0], "step": SERIES[2]}
_SMOOTH = 3  # steps of a millisecond that a rate is a mean over
_BESIDE = 0.05  # of the iteration's time that is drawn before and after it


def slow_iteration(run: Run) -> tuple[Any, str] | None:
    """Draw the slowest measured iteration of the first job that recorded spans; None where none did."""
    found = next(((job, window) for window in run.windows for job in window.iterations if _spans(run, job)), None)
    if found is None:
        return None
    job, window = found
    counted = window.iterations[job]
    series = next(one for one in run.jobs if one.job == job).within(counted.first, counted.last)
    if not len(series.iteration):
        return None
    place = int(np.argmax(series.seconds))
    number, begin, end = (int(values[place]) for values in (series.iteration, series.start_ns, series.end_ns))
    beside = int(_BESIDE * (end - begin))
    over = measured.axis(begin - beside, end + beside, np.zeros(0), np.zeros(0), begin)
    ports = [
        port
        for port in measured.ports(
            run.manifest.topology,
            job,
            captured=run.table("capture_flows"),
            packets=run.table("flow_packets"),
            counters=run.counter_rows(measured.QUEUES),
            over=over,
        )
        if port.host in run.manifest.job(job).nodes
    ][: 2 * _MOST_RANKS]
    sent = [(port.host, rate) for port in ports if port.direction == "out" and (rate := port.carried) is not None]
    queues = [(port, held) for port in ports if (held := port.backlog) is not None and held.max() > 0]
    panels = 1 + bool(sent) + bool(queues)
    drawing, axes = figure(panels, height_in=1.4 + 1.5 * panels)
    _draw_ranks(axes[0], run, job, number, begin)
    at = (np.arange(over.steps) + 0.5) * measured.STEP_NS / 1e6 - beside / 1e6
    unit = 8e9 / measured.STEP_NS * run.manifest.topology.wire_scale / 1e9
    if sent:
        for place, (host, rate) in enumerate(sent):
            axes[1].plot(at, np.convolve(rate, np.ones(_SMOOTH) / _SMOOTH, "same") * unit, label=host, **_look(place))
        axes[1].set_ylabel("sent (Gbit/s)")
        from_zero(axes[1])
        legend(axes[1], columns=8)
    if queues:
        fullest = sorted(queues, key=lambda one: -float(one[1].mean()))[: len(SERIES)]
        for place, (port, held) in enumerate(fullest):
            label = f"{port.host}, {'sending' if port.direction == 'out' else 'receiving'}"
            axes[-1].plot(at, held * 8e3 / port.rate_bps, label=label, **_look(place))
        axes[-1].set_ylabel("queue (ms)")
        from_zero(axes[-1])
        legend(axes[-1])
    axes[-1].set_xlabel(f"time since iteration {number} began (ms)")
    axes[-1].set_xlim(-beside / 1e6, (end - begin + beside) / 1e6)
    return drawing, (
        f"Iteration {number} of job {job}, the slowest one. Above: passes of each rank (bars) and its collectives "
        "(lines). Sent: layer 2, all traffic of a host, over 3 ms. Queue: backlog as time at the link's rate"
        f"{multiplied_back([run])}"
    )


def _look(place: int) -> dict[str, Any]:
    style = LINES[place // len(SERIES) % len(LINES)]
    return {"color": SERIES[place % len(SERIES)], "linestyle": style, "linewidth": 1.1}


def _spans(run: Run, job: str, number: int | None = None) -> list[dict[str, Any]]:
    """Return the spans of a job, or of one of its iterations, in order of time."""
    spans = run.table("spans")
    wanted = pc.equal(spans["job"], job)
    if number is None:
        rows: list[dict[str, Any]] = spans.filter(wanted).slice(0, 1).to_pylist()
        return rows
    return sorted(
        spans.filter(pc.and_(wanted, pc.equal(spans["iteration"], number))).to_pylist(), key=lambda row: row["start_ns"]
    )


def _draw_ranks(panel: Any, run: Run, job: str, number: int, begin_ns: int) -> None:
    """Draw a lane for each rank: its passes as bars, its collectives as lines below them."""
    ranks = sorted(run.manifest.job(job).ranks, key=lambda rank: rank.rank)[:_MOST_RANKS]
    lane = {rank.rank: place for place, rank in enumerate(ranks)}
    below: dict[int, int] = {}
    for row in _spans(run, job, number):
        if row["rank"] not in lane:
            continue
        at, width = (row["start_ns"] - begin_ns) / 1e6, (row["end_ns"] - row["start_ns"]) / 1e6
        if row["lane"] == "compute":
            color = _PASSES.get(row["span"], SOFT)
            panel.broken_barh([(at, width)], (lane[row["rank"]] - 0.35, 0.3), color=color, label=row["span"])
        else:
            place = below[row["rank"]] = below.get(row["rank"], -1) + 1
            height = lane[row["rank"]] + 0.05 + 0.09 * (place % 4)
            panel.plot([at, at + width], [height, height], color=SERIES[1], linewidth=1.2, label="collectives")
    panel.set_yticks(list(lane.values()), [f"rank {rank.rank}, {rank.node}" for rank in ranks])
    panel.set_ylim(len(lane) - 0.4, -0.6)
    panel.grid(axis="y", color=GRID, alpha=0)
    legend(panel)
