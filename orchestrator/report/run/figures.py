"""The figures of a report, each drawn from runs and none drawn when its data was not collected."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from orchestrator.analysis.traffic import throughput
from orchestrator.core.units import span_text
from orchestrator.report.run import accuracy, collectives, routing, schedules
from orchestrator.report.runs import Run
from orchestrator.report.style import GRID, INK, LINES, SERIES, SOFT, figure, from_zero, legend, look, save
from orchestrator.report.traffic import trafficfigures

_MOST_HOSTS = 8
MOST_VIEWED = 3  # runs whose traffic is drawn: seven figures each
_MOST_POINTS = 1500
_STEPS = 150
_KINDS = {"training": "training", "cross": "cross traffic"}
_WAYS = {"out": "sent", "in": "received"}

Draw = Callable[[Sequence[Run]], "tuple[Any, str] | None"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A figure in the page: what it shows, how to read it, and its SVG."""

    name: str
    title: str
    caption: str
    svg: str


def draw_all(runs: Sequence[Run], folder: Path) -> list[Picture]:
    """Every figure that the runs have data for, also written to `folder` as NAME.svg and NAME.pdf."""
    plain: list[tuple[str, str, Draw]] = [
        ("iterations", "Iteration time", _iterations),
        ("cdf", "Distribution of the iteration time", _cdf),
        ("loads", "Cross traffic: requested and received", _loads),
        ("injection", "Rates of generated cross traffic", schedules.injection),
        ("bytes", "Training bytes an iteration", _bytes),
        ("accuracy", "What accuracy costs", accuracy.drawn),
        ("held-out", "Accuracy on held-out images", accuracy.held_out),
        ("collectives", "Collective operations: effective utilization of the link, and time", collectives.utilization),
    ]
    pictures: list[Picture] = []
    with look():
        for name, title, draw in plain:
            pictures += _made(name, title, draw(runs), folder)
        for number, run in enumerate(runs, start=1):
            suffix = f"-{number}" if len(runs) > 1 else ""
            of_run = f", {run.name}" if len(runs) > 1 else ""
            pictures += _made(f"schedule{suffix}", f"Schedule and capture{of_run}", schedules.beside(run), folder)
            pictures += _made(f"routing{suffix}", f"Tokens to experts{of_run}", routing.routing(run), folder)
            for name, title, drawing, caption in _views(run) if number <= MOST_VIEWED else ():
                pictures += _made(f"{name}{suffix}", f"{title}{of_run}", (drawing, caption), folder)
            pictures += _made(f"throughput{suffix}", f"Throughput of every host{of_run}", _throughput(run), folder)
            pictures += _made(f"queue{suffix}", f"Queue at the contended port{of_run}", _queue(run), folder)
            pictures += _made(f"tcp{suffix}", f"Round-trip time and congestion window{of_run}", _tcp(run), folder)
    return pictures


def _views(run: Run) -> Iterator[trafficfigures.Drawn]:
    """Figures of the traffic of the first window with cross traffic beside a training, else of the first one."""
    names = sorted(run.views, key=lambda name: not run.views[name].shares)
    if names:
        place = f"Window {names[0]}" if len(run.views) > 1 else ""
        yield from trafficfigures.draw(run.views[names[0]], whole=run.traffic, scale=run.scale, place=place)


def _made(name: str, title: str, drawn: tuple[Any, str] | None, folder: Path) -> Iterator[Picture]:
    if drawn is not None:
        yield Picture(name=name, title=title, caption=drawn[1], svg=save(drawn[0], folder / name))


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
        panel.plot(*_thinned(at, job.seconds), color=color, linestyle=style, label=label, linewidth=1.1,
                   marker="." if len(at) <= 60 else "", markersize=5)  # fmt: skip
    shown = next((run for run in runs if run.windows), runs[0])
    for window in shown.windows:
        begin, end = ((at_ns - shown.origin_ns) / 1e9 for at_ns in window.span_ns)
        panel.axvspan(begin, end, color=GRID, alpha=0.45, linewidth=0, zorder=0)
        panel.axvline(begin, color=SOFT, linewidth=0.8)
        panel.annotate(
            window.name, (begin, 0.0), xycoords=("data", "axes fraction"), xytext=(4, 4),
            textcoords="offset points", fontsize=8, color=SOFT,
        )  # fmt: skip
    panel.set(xlabel="time since the first window began (s)", ylabel="iteration time (s)")
    from_zero(panel)
    legend(panel)
    return drawing, (
        "Each iteration at its start, mean over ranks. Shaded: the measured windows"
        + (f" of {shown.name}." if len(runs) > 1 else ".")
    )


def _thinned(x: Any, y: Any) -> tuple[Any, Any]:
    """At most _MOST_POINTS points: of each stretch its lowest and its highest one, so that no spike is lost."""
    if len(x) <= _MOST_POINTS:
        return x, y
    edges = np.linspace(0, len(x), _MOST_POINTS // 2 + 1).astype(int)
    stretches = list(itertools.pairwise(edges.tolist()))
    keep = {begin + int(pick(y[begin:end])) for begin, end in stretches for pick in (np.argmin, np.argmax)}
    return x[sorted(keep)], y[sorted(keep)]


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
        panel.step(*_thinned(x, y), where="post", color=color, linestyle=style, label=name)
    panel.set(xlabel="iteration time (s)", ylabel="share of iterations", ylim=(0, 1.0))
    if len(curves) <= 12:
        legend(panel, columns=3)
    return drawing, "Share of the iterations of a window that took at most so long."


def _loads(runs: Sequence[Run]) -> tuple[Any, str] | None:
    points = [
        (number, row["requested_bps"] * run.scale / 1e9, row["achieved_bps"] * run.scale / 1e9)
        for number, run in enumerate(runs)
        for row in run.rows("loads")
        if not math.isnan(row["achieved_bps"])
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
                *zip(*mine, strict=True), marker="osD^v<>"[number % 7], linestyle="", markersize=5.5,
                color=SERIES[number % len(SERIES)], label=run.name, markeredgecolor=INK, markeredgewidth=0.4,
            )  # fmt: skip
    panel.set(xlim=(0, most), ylim=(0, most), xlabel="requested (Gbit/s)", ylabel="received (Gbit/s)")
    panel.set_aspect("equal", adjustable="box", anchor="W")
    panel.legend(loc="upper left", bbox_to_anchor=(1.03, 1.0))
    return drawing, "One point a window and pair of hosts; layer 2, as captured where it is received" + _back(runs)


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
    sent = [0.0 if math.isnan(row[3]) else row[3] for row in rows]
    panel.barh(at, sent, height=0.55, color=SERIES[0], label="measured")
    theory = [row[4] for row in rows]
    panel.plot(
        theory, at, linestyle="", marker="|", markersize=19, markeredgewidth=2.2, color=SERIES[1], label="theory"
    )
    for place, row in enumerate(rows):
        if row[3] > 0 and row[4] > 0:
            beyond = max(row[3], row[4])
            panel.annotate(f"{row[3] / row[4] - 1:+.1%}", (beyond, place), xytext=(7, 0), textcoords="offset points",
                           va="center", fontsize=8.5)  # fmt: skip
    several_jobs = len({row[2] for row in rows}) > 1
    panel.set_yticks(at, [f"{row[0].name}, {row[1]}" + (f", {row[2]}" if several_jobs else "") for row in rows])
    panel.invert_yaxis()
    panel.grid(visible=False, axis="y")
    panel.margins(x=0.14)
    panel.set(xlabel="TCP payload sent by a rank in an iteration (MB)", xlim=(0, None))
    legend(panel)
    return drawing, "Without retransmissions, mean over ranks, against what the job should send by theory" + _back(runs)


def _throughput(run: Run) -> tuple[Any, str] | None:
    packets = run.table("packets")
    hosts = [host for host in run.hosts if throughput.captured(packets, node=host.name, port=host.device or None)]
    if not hosts or run.end_ns <= run.origin_ns:
        return None
    shown = hosts[:_MOST_HOSTS]
    drawing, panels = figure(len(shown), height_in=0.8 + 1.05 * len(shown))
    width = throughput.bin_width(packets)
    step = max(1, (run.end_ns - run.origin_ns) // _STEPS // width) * width
    for panel, host in zip(panels, shown, strict=True):
        for kind, color in (("training", SERIES[0]), ("cross", SERIES[1])):
            for direction, style in (("out", "-"), ("in", "--")):
                match = {"node": host.name, "port": host.device or None, "direction": direction, "kind": kind}
                at, rate = throughput.bins(packets, match).rate(run.origin_ns, run.end_ns, step)
                if rate.any():
                    label = f"{_KINDS[kind]}, {_WAYS[direction]}"
                    panel.plot(at, rate * run.scale / 1e9, color=color, linestyle=style, label=label, linewidth=1.1)
        panel.set_title(host.name, pad=3, loc="right")
    panels[-1].set_xlabel("time since the first window began (s)")
    top = max(panel.get_ylim()[1] for panel in panels)
    for panel in panels:
        panel.set(ylim=(0, top), xlim=(0, (run.end_ns - run.origin_ns) / 1e9))
    drawing.supylabel("Gbit/s", fontsize=9)
    legend(*panels)
    left_out = f" {len(hosts) - len(shown)} more hosts are not drawn." if len(hosts) > len(shown) else ""
    return drawing, f"Layer 2, in steps of {span_text(step / 1e9)}{_back([run])}{left_out}"


def _queue(run: Run) -> tuple[Any, str] | None:
    mine = run.counters(r"^qdisc\..*\.(drops|backlog_bytes)$")
    if not mine.num_rows:
        return None
    keys = mine.group_by(["node", "port", "counter"]).aggregate([("value", "max"), ("value", "min")]).to_pylist()
    queues = {(key["node"], key["port"], key["counter"].rpartition(".")[0]) for key in keys}

    def trouble(queue: tuple[str, str, str]) -> tuple[float, float]:
        amounts = {key["counter"].rpartition(".")[2]: (key["value_max"], key["value_min"]) for key in keys
                   if (key["node"], key["port"], key["counter"].rpartition(".")[0]) == queue}  # fmt: skip
        drops, backlog = amounts.get("drops", (0, 0)), amounts.get("backlog_bytes", (0, 0))
        return (drops[0] or 0) - (drops[1] or 0), backlog[0] or 0

    node, port, name = max(sorted(queues), key=trouble)
    drawing, (above, below) = figure(2, height_in=3.0)
    for panel, what, label in (
        (above, "backlog_bytes", "backlog (kB)"),
        (below, "drops", "packets dropped"),
    ):
        at, value = throughput.samples(mine, node=node, port=port, counter=f"{name}.{what}")
        if len(at):
            scaled = value / 1e3 if what == "backlog_bytes" else value - value[0]
            x, y = _thinned((at - run.origin_ns) / 1e9, scaled)
            panel.plot(x, y, color=SERIES[0 if panel is above else 1], linewidth=1.0)
        panel.set(ylabel=label)
        panel.set_ylim(bottom=0)
    below.set_xlabel("time since the first window began (s)")
    below.set_xlim(0, max((run.end_ns - run.origin_ns) / 1e9, 1e-3))
    kind = name.removeprefix("qdisc.")
    return drawing, (
        f"Queueing discipline {kind} of {node}:{port}, the one that dropped most (else the fullest one); as it was, "
        "not multiplied back. Drops are counted from the first sample."
    )


def _tcp(run: Run) -> tuple[Any, str] | None:
    table = run.table("sockets")
    if not table.num_rows or run.end_ns <= run.origin_ns:
        return None
    at = table["time_ns"].to_numpy() - run.origin_ns
    # A step shorter than the sampling would show one node after the other.
    step = max((run.end_ns - run.origin_ns) // _STEPS, _interval_ns(table), 1)
    place = at // step
    inside = (place >= 0) & (at < run.end_ns - run.origin_ns)
    if not inside.any():
        return None
    drawing, panels = figure(2, height_in=3.0)
    columns = (("rtt_s", 1e3, "RTT (ms)"), ("cwnd_segments", 1.0, "window (segments)"))
    for panel, (column, factor, label) in zip(panels, columns, strict=True):
        value = table[column].to_numpy(zero_copy_only=False).astype(np.float64)[inside] * factor
        steps, groups = _grouped(place[inside], value)
        x = (steps + 0.5) * step / 1e9
        for q, color, style, name in ((50, SERIES[0], "-", "median"), (95, SERIES[1], "--", "95th percentile")):
            panel.plot(x, [np.nanpercentile(g, q) if len(g) else np.nan for g in groups], color=color, linestyle=style,
                       label=name, linewidth=1.1)  # fmt: skip
        panel.set(ylabel=label)
        panel.set_ylim(bottom=0)
        panel.set_xlim(0, (run.end_ns - run.origin_ns) / 1e9)
    panels[-1].set_xlabel("time since the first window began (s)")
    legend(panels[0])
    used = ", ".join(sorted({name for name in table["congestion"].unique().to_pylist() if name})) or "not recorded"
    return (
        drawing,
        f"Over all sampled TCP connections of the data plane; congestion control: {used}. Not multiplied back.",
    )


def _interval_ns(sockets: Any) -> int:
    """The typical time between two samples of one node."""
    import pyarrow.compute as pc

    mine = sockets.filter(pc.equal(sockets["node"], sockets["node"][0]))
    times = np.unique(mine["time_ns"].to_numpy())
    return int(np.median(np.diff(times))) if len(times) > 1 else 0


def _grouped(place: Any, value: Any) -> tuple[Any, list[Any]]:
    order = np.argsort(place, kind="stable")
    steps, starts = np.unique(place[order], return_index=True)
    return steps, [part[~np.isnan(part)] for part in np.split(value[order], starts[1:])]


def _back(runs: Sequence[Run]) -> str:
    scales = sorted({run.scale for run in runs})
    return "." if scales == [1] else f"; multiplied back by the scale ({', '.join(map(str, scales))})."
