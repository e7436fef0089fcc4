"""Draw the figures of a report, each where its data was collected."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from orchestrator.analysis.traffic import throughput
from orchestrator.core.errors import ConfigError, StoreError
from orchestrator.core.units import span_text
from orchestrator.experiment import loading
from orchestrator.parts.terms import NAMES, Terms
from orchestrator.predict import measured_runs
from orchestrator.report import traffic_section
from orchestrator.report.run import accuracy, collectives, fabric, over_runs, schedules, slow_iteration
from orchestrator.report.runs import Run, multiplied_back
from orchestrator.report.style import (
    GRID,
    INK,
    LINES,
    SERIES,
    SOFT,
    Picture,
    figure,
    from_zero,
    legend,
    look,
    save,
    thinned,
)

Draw = Callable[[Sequence[Run]], "tuple[Any, str] | None"]

_MOST_HOSTS = 8
_STEPS = 150
_KINDS = {"training": "training", "cross": "cross traffic"}
_WAYS = {"out": "sent", "in": "received"}

Floats = npt.NDArray[np.float64]

_SPLIT = "ptd"  # the workload whose ranks record where their time went


def draw_all(runs: Sequence[Run], folder: Path) -> list[Picture]:
    """Return every figure that the runs have data for, also written to `folder` as NAME.svg and NAME.pdf.

    First those of all runs together, the one that says most of them at the front. Of several runs there are no others:
    traffic, queues and sockets are drawn of a run by itself.
    """
    pictures: list[Picture] = []
    with look():
        for name, (title, drawn) in OF_RUNS.items():
            pictures += _made(name, title, drawn(runs), folder)
        for run in runs if len(runs) == 1 else ():
            pictures += _made("slow-iteration", "A slow iteration", slow_iteration.slow_iteration(run), folder)
            pictures += _made("fabric", "Fabric", fabric.drawn(run), folder)
            pictures += _made("schedule", "Schedule and capture", schedules.beside(run), folder)
            pictures += _made("routing", "Tokens to experts", routing(run), folder)
            pictures += _made("terms", "Where iterations went", terms_by_rank(run), folder)
            for name, title, drawing, caption in _views(run):
                pictures += _made(name, title, (drawing, caption), folder)
            pictures += _made("throughput", "Throughput of every host", throughput_of_hosts(run), folder)
            pictures += _made("queue", "Queue at the contended port", queue(run), folder)
            pictures += _made("tcp", "Round-trip time and congestion window", round_trips(run), folder)
    return pictures


def _views(run: Run) -> Iterator[traffic_section.Drawn]:
    """Draw the traffic of the first window with cross traffic beside a training, else of the first one."""
    names = sorted(run.views, key=lambda name: not run.views[name].shares)
    if names:
        place = f"Window {names[0]}" if len(run.views) > 1 else ""
        yield from traffic_section.figures(run.views[names[0]], whole=run.traffic, scale=run.scale, place=place)


def _made(name: str, title: str, drawn: tuple[Any, str] | None, folder: Path) -> Iterator[Picture]:
    if drawn is not None:
        yield Picture(name=name, title=title, caption=drawn[1], saved=save(drawn[0], folder / name))


def _series(runs: Sequence[Run]) -> Iterator[tuple[Run, Any, str, str, str]]:
    """Return run, job, label, colour and line style of every job of every run."""
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


def throughput_of_hosts(run: Run) -> tuple[Any, str] | None:
    """Draw what each host sent and received by each rail, of training and of cross traffic; with a caption."""
    packets = run.table("packets")
    ends = [
        (host, device or None)
        for host in run.hosts
        for device in host.devices or ("",)
        if throughput.captured(packets, node=host.name, port=device or None)
    ]
    if not ends or run.end_ns <= run.origin_ns:
        return None
    shown = ends[:_MOST_HOSTS]
    drawing, panels = figure(len(shown), height_in=0.8 + 1.05 * len(shown))
    width = throughput.bin_width(packets)
    step = max(1, (run.end_ns - run.origin_ns) // _STEPS // width) * width
    for panel, (host, device) in zip(panels, shown, strict=True):
        for kind, color in (("training", SERIES[0]), ("cross", SERIES[1])):
            for direction, style in (("out", "-"), ("in", "--")):
                match = {"node": host.name, "port": device, "direction": direction, "kind": kind}
                at, rate = throughput.bins(packets, match).rate(run.origin_ns, run.end_ns, step)
                if rate.any():
                    label = f"{_KINDS[kind]}, {_WAYS[direction]}"
                    panel.plot(at, rate * run.scale / 1e9, color=color, linestyle=style, label=label, linewidth=1.1)
        title = f"{host.name} {device}" if len(host.devices) > 1 else host.name
        panel.set_title(title, pad=3, loc="right")
    panels[-1].set_xlabel("time since the first window began (s)")
    top = max(panel.get_ylim()[1] for panel in panels)
    for panel in panels:
        panel.set(ylim=(0, top), xlim=(0, (run.end_ns - run.origin_ns) / 1e9))
    drawing.supylabel("Gbit/s", fontsize=9)
    legend(*panels)
    left_out = f" {len(ends) - len(shown)} more devices of hosts are not drawn." if len(ends) > len(shown) else ""
    return drawing, f"Layer 2, in steps of {span_text(step / 1e9)}{multiplied_back([run])}{left_out}"


def queue(run: Run) -> tuple[Any, str] | None:
    """Draw backlog and drops of the queue that dropped most, or else was the fullest one."""
    mine = run.counter_rows(r"^qdisc\..*\.(drops|backlog_bytes)$")
    if not mine.num_rows:
        return None
    keys = mine.group_by(["node", "port", "counter"]).aggregate([("value", "max"), ("value", "min")]).to_pylist()
    queues = {(key["node"], key["port"], key["counter"].rpartition(".")[0]) for key in keys}

    def trouble(queue: tuple[str, str, str]) -> tuple[float, float]:
        amounts = {
            key["counter"].rpartition(".")[2]: (key["value_max"], key["value_min"])
            for key in keys
            if (key["node"], key["port"], key["counter"].rpartition(".")[0]) == queue
        }
        drops, backlog = amounts.get("drops", (0, 0)), amounts.get("backlog_bytes", (0, 0))
        return (drops[0] or 0) - (drops[1] or 0), backlog[0] or 0

    node, port, name = max(sorted(queues), key=trouble)
    drawing, (above, below) = figure(2, height_in=3.0)
    for panel, what, label in ((above, "backlog_bytes", "backlog (kB)"), (below, "drops", "packets dropped")):
        at, value = throughput.samples(mine, node=node, port=port, counter=f"{name}.{what}")
        if len(at):
            scaled = value / 1e3 if what == "backlog_bytes" else value - value[0]
            x, y = thinned((at - run.origin_ns) / 1e9, scaled)
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


def round_trips(run: Run) -> tuple[Any, str] | None:
    """Draw round-trip time and congestion window of the sockets that were sampled."""
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
            panel.plot(
                x,
                [np.nanpercentile(g, q) if len(g) else np.nan for g in groups],
                color=color,
                linestyle=style,
                label=name,
                linewidth=1.1,
            )
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
    """Return the typical time between two samples of one node."""
    import pyarrow.compute as pc

    mine = sockets.filter(pc.equal(sockets["node"], sockets["node"][0]))
    times = np.unique(mine["time_ns"].to_numpy())
    return int(np.median(np.diff(times))) if len(times) > 1 else 0


def _grouped(place: Any, value: Any) -> tuple[Any, list[Any]]:
    order = np.argsort(place, kind="stable")
    steps, starts = np.unique(place[order], return_index=True)
    return steps, [part[~np.isnan(part)] for part in np.split(value[order], starts[1:])]


def terms_by_rank(run: Run) -> tuple[Any, str] | None:
    """Draw a bar for each rank of the first job of `ptd` that recorded what it did; None where there is none."""
    if not any(job.workload == _SPLIT for job in run.manifest.jobs):
        return None
    try:
        experiment = loading.sealed(run.path)
    except (ConfigError, StoreError):
        return None
    found = measured_runs.recorded(run.path, experiment)
    if not any(terms.exposed_s for terms in found.values()):
        return None
    ranks = sorted(found)
    drawing, (panel,) = figure(height_in=2.6)
    stacked(panel, np.array(ranks, float), [found[rank] for rank in ranks], width=0.7)
    panel.set(xlabel="rank", ylabel="iteration (ms)")
    panel.set_xticks(ranks)
    legend(panel, columns=7)
    return drawing, (
        "Medians over iterations. A receive counts as pipeline traffic from when its sender had begun, and before as "
        "part of the bubble; `orch predict` on the experiment shows what a model says of rank 0."
    )


def stacked(panel: Any, places: Floats, terms: Sequence[Terms], *, width: float, labelled: bool = True) -> None:
    """Draw bars of terms, in ms, at these places; terms that none of them has are left out."""
    below = np.zeros(len(places))
    for number, name in enumerate(NAMES):
        values = np.array([getattr(one, name) for one in terms]) * 1e3
        if values.any():
            color = SERIES[number] if number < len(SERIES) else SOFT
            label = name.removesuffix("_s") if labelled else None
            panel.bar(places, values, width, bottom=below, color=color, label=label)
            below += values


def routing(run: Run) -> tuple[Any, str] | None:
    """Draw tokens to each rank's experts, and the nonuniform factor of each iteration (Li, figure 5).

    Those of the first job that recorded them.
    """
    rows = run.rows("routing")
    if not rows:
        return None
    job = min(row["job"] for row in rows)
    tokens: dict[int, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    factor: dict[int, int] = {}
    heard: dict[int, set[int]] = defaultdict(set)
    for row in rows:
        if row["job"] == job:
            tokens[row["peer"]][row["iteration"]] += row["tokens"]
            factor[row["iteration"]] = row["nonuniform_bytes"]
            heard[row["iteration"]].add(row["rank"])
    # A sender that did not log an iteration, at the run's end, is no sign that experts got less.
    whole = [iteration for iteration in sorted(heard) if len(heard[iteration]) == len(tokens)]
    if not whole:
        return None
    drawing, (above, below) = figure(2, height_in=3.8)
    total = np.array([sum(counts[iteration] for counts in tokens.values()) for iteration in whole], float)
    for number, (rank, counts) in enumerate(sorted(tokens.items())):
        share = np.array([counts[iteration] for iteration in whole]) / np.maximum(total, 1) * 100
        above.plot(
            whole,
            share,
            color=SERIES[number % len(SERIES)],
            linewidth=1.1,
            label=f"experts of rank {rank}",
            linestyle=LINES[number // len(SERIES) % len(LINES)],
        )
    above.set(ylabel="share of tokens (%)")
    from_zero(above)
    below.plot(whole, [factor[iteration] * run.scale / 1e6 for iteration in whole], color=SERIES[0], linewidth=1.1)
    below.set(xlabel="iteration", ylabel="nonuniform factor (MB)")
    from_zero(below)
    legend(above)
    back = "" if run.scale == 1 else f", multiplied back by the scale ({run.scale})"
    return drawing, (
        f"Job {job}. Above: copies of tokens that all ranks sent to each rank's experts. Below: the highest less the "
        f"lowest volume that one rank sent another for experts in the iteration{back}; even gates would make it 0."
    )


def draw(runs: Sequence[Run], name: str) -> tuple[Any, str] | None:
    """Draw one of `OF_RUNS` with its caption; None where the runs have no data for it."""
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
