"""The figures of a report, each drawn from runs and none drawn when its data was not collected."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from orchestrator.report.run import accuracy, collectives, over_runs, over_time, rank_terms, routing, schedules
from orchestrator.report.runs import Run, multiplied_back
from orchestrator.report.style import (
    GRID,
    INK,
    LINES,
    SERIES,
    SOFT,
    Saved,
    figure,
    from_zero,
    legend,
    look,
    save,
    thinned,
)
from orchestrator.report.traffic import trafficfigures

Draw = Callable[[Sequence[Run]], "tuple[Any, str] | None"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A figure in the page: what it shows, how to read it, and what `style.save` made of it."""

    name: str
    title: str
    caption: str
    saved: Saved

    @property
    def svg(self) -> str:
        """The drawing as an element of the page."""
        return self.saved.svg


def draw_all(runs: Sequence[Run], folder: Path) -> list[Picture]:
    """Every figure that the runs have data for, also written to `folder` as NAME.svg and NAME.pdf.

    First those of all runs together, the one that says most of them at the front. Of several runs there are no others:
    traffic, queues and sockets are drawn of a run by itself.
    """
    pictures: list[Picture] = []
    with look():
        for name, (title, drawn) in OF_RUNS.items():
            pictures += _made(name, title, drawn(runs), folder)
        for run in runs if len(runs) == 1 else ():
            pictures += _made("schedule", "Schedule and capture", schedules.beside(run), folder)
            pictures += _made("routing", "Tokens to experts", routing.routing(run), folder)
            pictures += _made("terms", "Where iterations went", rank_terms.by_rank(run), folder)
            for name, title, drawing, caption in _views(run):
                pictures += _made(name, title, (drawing, caption), folder)
            pictures += _made("throughput", "Throughput of every host", over_time.throughput_of_hosts(run), folder)
            pictures += _made("queue", "Queue at the contended port", over_time.queue(run), folder)
            pictures += _made("tcp", "Round-trip time and congestion window", over_time.round_trips(run), folder)
    return pictures


def _views(run: Run) -> Iterator[trafficfigures.Drawn]:
    """Figures of the traffic of the first window with cross traffic beside a training, else of the first one."""
    names = sorted(run.views, key=lambda name: not run.views[name].shares)
    if names:
        place = f"Window {names[0]}" if len(run.views) > 1 else ""
        yield from trafficfigures.draw(run.views[names[0]], whole=run.traffic, scale=run.scale, place=place)


def _made(name: str, title: str, drawn: tuple[Any, str] | None, folder: Path) -> Iterator[Picture]:
    if drawn is not None:
        yield Picture(name=name, title=title, caption=drawn[1], saved=save(drawn[0], folder / name))


def _series(runs: Sequence[Run]) -> Iterator[tuple[Run, Any, str, str, str]]:
    """Run, job, label, colour and line style of every job of every run."""
    for number, run in enumerate(runs):
        for place, job in enumerate(run.jobs):
            label = run.name if len(run.jobs) == 1 else f"{run.name}, {job.job}"
            yield run, job, label, SERIES[number % len(SERIES)], LINES[(place + number // len(SERIES)) % len(LINES)]


def _iterations(runs: Sequence[Run]) -> tuple[Any, str] | None:
    drawn = list(_series(runs))
    if not drawn:
        return None
    drawing, (panel,) = figure(height_in=2.7)
    for run, job, label, color, style in drawn:
        at = (job.start_ns - run.origin_ns) / 1e9
        panel.plot(
            *thinned(at, job.seconds),
            color=color,
            linestyle=style,
            label=label,
            linewidth=1.1,
            marker="." if len(at) <= 60 else "",
            markersize=5,
        )
    shown = next((run for run in runs if run.windows), runs[0])
    for window in shown.windows:
        begin, end = ((at_ns - shown.origin_ns) / 1e9 for at_ns in window.span_ns)
        panel.axvspan(begin, end, color=GRID, alpha=0.45, linewidth=0, zorder=0)
        panel.axvline(begin, color=SOFT, linewidth=0.8)
        panel.annotate(
            window.name,
            (begin, 0.0),
            xycoords=("data", "axes fraction"),
            xytext=(4, 4),
            textcoords="offset points",
            fontsize=8,
            color=SOFT,
        )
    panel.set(xlabel="time since the first window began (s)", ylabel="iteration time (s)")
    from_zero(panel)
    legend(panel)
    return drawing, (
        "Each iteration at its start, mean over ranks. Shaded: the measured windows"
        + (f" of {shown.name}." if len(runs) > 1 else ".")
    )


def _cdf(runs: Sequence[Run]) -> tuple[Any, str] | None:
    curves = []
    for run, job, label, color, style in _series(runs):
        measured = [window for window in run.windows if job.job in window.iterations]
        for place, window in enumerate(measured):
            span = window.iterations[job.job]
            values = np.sort(job.within(span.first, span.last).seconds)
            if len(values):
                several = len(measured) > 1
                name = f"{label}, {window.name}" if several else label
                line = LINES[place % len(LINES)] if several else style
                curves.append(
                    (values, name, SERIES[place % len(SERIES)] if len(runs) == 1 and several else color, line)
                )
    if not curves:
        return None
    drawing, (panel,) = figure(height_in=2.8)
    for values, name, color, style in curves:
        share = np.arange(1, len(values) + 1) / len(values)
        x, y = np.concatenate((values[:1], values)), np.concatenate(([0.0], share))
        panel.step(*thinned(x, y), where="post", color=color, linestyle=style, label=name)
    panel.set(xlabel="iteration time (s)", ylabel="share of iterations", ylim=(0, 1.0))
    if len(curves) <= 12:
        legend(panel, columns=3)
    return drawing, "Share of the iterations of a window that took at most so long."


def _loads(runs: Sequence[Run]) -> tuple[Any, str] | None:
    points = [
        (number, load.requested_bps * run.scale / 1e9, load.achieved_bps * run.scale / 1e9)
        for number, run in enumerate(runs)
        for window in run.windows
        for load in window.loads
        if load.achieved_bps is not None
    ]
    if not points:
        return None
    drawing, (panel,) = figure(height_in=2.7)
    most = 1.08 * max(max(requested, received) for _, requested, received in points)
    panel.plot([0, most], [0, most], color=SOFT, linewidth=0.9, linestyle="--", label="as requested")
    for number, run in enumerate(runs):
        mine = [(requested, received) for owner, requested, received in points if owner == number]
        if mine:
            panel.plot(
                *zip(*mine, strict=True),
                marker="osD^v<>"[number % 7],
                linestyle="",
                markersize=5.5,
                color=SERIES[number % len(SERIES)],
                label=run.name,
                markeredgecolor=INK,
                markeredgewidth=0.4,
            )
    panel.set(xlim=(0, most), ylim=(0, most), xlabel="requested (Gbit/s)", ylabel="received (Gbit/s)")
    panel.set_aspect("equal", adjustable="box", anchor="W")
    panel.legend(loc="upper left", bbox_to_anchor=(1.03, 1.0))
    return drawing, "One point a window and pair of hosts; layer 2, as captured where it is received" + multiplied_back(
        runs
    )


def _bytes(runs: Sequence[Run]) -> tuple[Any, str] | None:
    rows = [
        (
            run,
            row["window_name"],
            row["job"],
            row["sent_bytes"] * run.scale / 1e6,
            row["theory_bytes"] * run.scale / 1e6,
        )
        for run in runs
        for row in run.rows("training")
        if not (math.isnan(row["sent_bytes"]) and math.isnan(row["theory_bytes"]))
    ]
    if not rows:
        return None
    drawing, (panel,) = figure(height_in=0.95 + 0.36 * len(rows))
    at = np.arange(len(rows))
    panel.barh(at, [row[3] for row in rows], height=0.55, color=SERIES[0], label="measured")
    theory = [row[4] for row in rows]
    panel.plot(
        theory, at, linestyle="", marker="|", markersize=19, markeredgewidth=2.2, color=SERIES[1], label="theory"
    )
    for place, row in enumerate(rows):
        if row[3] > 0 and row[4] > 0:
            beyond = max(row[3], row[4])
            panel.annotate(
                f"{row[3] / row[4] - 1:+.1%}",
                (beyond, place),
                xytext=(7, 0),
                textcoords="offset points",
                va="center",
                fontsize=8.5,
            )
    several_jobs = len({row[2] for row in rows}) > 1
    panel.set_yticks(at, [f"{row[0].name}, {row[1]}" + (f", {row[2]}" if several_jobs else "") for row in rows])
    panel.invert_yaxis()
    panel.grid(visible=False, axis="y")
    panel.margins(x=0.14)
    panel.set(xlabel="TCP payload sent by a rank in an iteration (MB)", xlim=(0, None))
    legend(panel)
    against = ", against what the job should send by theory" if not np.isnan(theory).all() else ""
    return drawing, f"Without retransmissions, mean over ranks{against}" + multiplied_back(runs)


def draw(runs: Sequence[Run], name: str) -> tuple[Any, str] | None:
    """One of `OF_RUNS` with its caption; None where the runs have no data for it."""
    with look():
        return OF_RUNS[name][1](runs)


OF_RUNS: Mapping[str, tuple[str, Draw]] = MappingProxyType(  # by name: its title, and what draws it
    {
        "over-load": ("Iteration time over load", lambda runs: over_runs.drawn(over_runs.curves(runs))),
        "iterations": ("Iteration time", _iterations),
        "cdf": ("Distribution of the iteration time", _cdf),
        "loads": ("Cross traffic: requested and received", _loads),
        "injection": ("Rates of generated cross traffic", schedules.injection),
        "bytes": ("Training bytes an iteration", _bytes),
        "accuracy": ("What accuracy costs", accuracy.drawn),
        "accuracy-volume": ("Accuracy on held-out images against volume", accuracy.over_volume),
        "accuracy-time": ("Accuracy on held-out images over time", accuracy.over_time),
        "collectives": ("Collective operations: effective utilization of the link, and time", collectives.utilization),
    }
)
