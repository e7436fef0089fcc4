"""Figures of what captures, queues and sockets of a run's hosts say over its windows."""

from __future__ import annotations

from typing import Any

import numpy as np

from orchestrator.analysis.traffic import throughput
from orchestrator.core.units import span_text
from orchestrator.report.runs import Run, multiplied_back
from orchestrator.report.style import SERIES, figure, legend, thinned

_MOST_HOSTS = 8
_STEPS = 150
_KINDS = {"training": "training", "cross": "cross traffic"}
_WAYS = {"out": "sent", "in": "received"}


def throughput_of_hosts(run: Run) -> tuple[Any, str] | None:
    """What each host sent and received by each rail, of training and of cross traffic; drawing and caption."""
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
    """Backlog and drops of the queue that dropped most, or else was the fullest one."""
    mine = run.counters(r"^qdisc\..*\.(drops|backlog_bytes)$")
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
    """Round-trip time and congestion window of the sockets that were sampled."""
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
    """The typical time between two samples of one node."""
    import pyarrow.compute as pc

    mine = sockets.filter(pc.equal(sockets["node"], sockets["node"][0]))
    times = np.unique(mine["time_ns"].to_numpy())
    return int(np.median(np.diff(times))) if len(times) > 1 else 0


def _grouped(place: Any, value: Any) -> tuple[Any, list[Any]]:
    order = np.argsort(place, kind="stable")
    steps, starts = np.unique(place[order], return_index=True)
    return steps, [part[~np.isnan(part)] for part in np.split(value[order], starts[1:])]
