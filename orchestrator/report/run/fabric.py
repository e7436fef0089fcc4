"""A fabric in the report: a drawing with each link's share of its rate, tables of links, elephants and paths."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from matplotlib.collections import LineCollection

from orchestrator.parts.rows import Row
from orchestrator.parts.topology import Fabric
from orchestrator.report.runs import Run
from orchestrator.report.style import GRID, INK, SERIES, figure
from orchestrator.report.tables import Number, Table, rate, share, size, table

_BUSY, _FULL = 0.5, 0.8  # shares of a link's rate from which its line has another colour
_FLOW = ("src", "src_port", "dst", "dst_port", "protocol", "node", "spine", "to_leaf")
_MOST_PATHS = 40  # flows in the table, the largest ones

Point = tuple[float, float]


def drawn(run: Run) -> tuple[Any, str] | None:
    """Draw the fabric of a run's first window with the share that each link carried; None of a run without one."""
    fabric = run.manifest.topology.fabric
    rows = run.rows("fabric_links")
    if fabric is None or not rows:
        return None
    window = rows[0]["window_name"]
    used: dict[str, float] = defaultdict(float)
    for row in rows:
        if row["window_name"] == window:
            used[row["link"]] = max(used[row["link"]], row["used"])
    places, ends = _places(run, fabric)
    drawing, (panel,) = figure(height_in=3.6)
    panel.set_axis_off()
    known = [name for name in ends if name in used]
    panel.add_collection(
        LineCollection(
            [[places[end] for end in ends[name]] for name in ends],
            linewidths=[0.8 + 4 * min(1.0, used.get(name, 0.0)) for name in ends],
            colors=[_color(used[name]) if name in used else GRID for name in ends],
            zorder=1,
        )
    )
    for name in known:
        (x, y), (to_x, to_y) = (places[end] for end in ends[name])
        panel.text(x + 0.3 * (to_x - x), y + 0.3 * (to_y - y), f"{used[name]:.0%}", fontsize=7, color=INK, **_BOXED)
    for name, (x, y) in places.items():
        panel.text(x, y, name, fontsize=8, color=INK, **_BOXED)
    panel.set(xlim=(-0.03, 1.03), ylim=(-0.15, 2.15))
    place = f" in window {window}" if len(run.windows) > 1 else ""
    return drawing, (
        f"Share of its rate that each link carried{place}, in the direction that carried more; "
        f"a line is thick, and of another colour from {_BUSY:.0%} and {_FULL:.0%} on, where it carried much."
    )


_BOXED: dict[str, Any] = {
    "ha": "center",
    "va": "center",
    "zorder": 2,
    "bbox": {"facecolor": "#ffffff", "edgecolor": "none", "pad": 1.0},
}


def _color(used: float) -> str:
    return SERIES[1] if used >= _FULL else SERIES[4] if used >= _BUSY else SERIES[0]


def _places(run: Run, fabric: Fabric) -> tuple[dict[str, Point], dict[str, tuple[str, str]]]:
    """Return where each node stands, and the nodes that each link connects, by its name."""
    topology = run.manifest.topology
    hosts = [host.name for leaf in fabric.leaves for host in topology.hosts if topology.link(host.name).switch == leaf]
    places = {
        name: ((place + 0.5) / len(row), float(height))
        for height, row in enumerate((hosts, fabric.leaves, fabric.spines))
        for place, name in enumerate(row)
    }
    ends = {uplink.name: (uplink.leaf, uplink.spine) for uplink in fabric.uplinks}
    ends |= {f"{link.switch}-{link.host}": (link.host, link.switch) for link in topology.links}
    return places, ends


def links(runs: Sequence[Run]) -> Table:
    """Return a row for each direction of each link between switches in each window."""
    heads = ["run", "window", "link", "sent by", "rate", Number("used"), Number("waiting"), Number("dropped")]
    heads.append(Number("large flows"))
    rows = []
    for run in runs:
        fabric = run.manifest.topology.fabric
        between = {uplink.name for uplink in fabric.uplinks} if fabric else set()
        for row in run.rows("fabric_links"):
            if row["link"] in between:
                flows = "" if row["flows"] is None else str(row["flows"])
                waited = "" if math.isnan(row["waiting_s"]) else f"{row['waiting_s'] * 1e3:.2f} ms"
                place = [run.name if len(runs) > 1 else "", row["window_name"], row["link"], row["node"]]
                rows.append([*place, rate(row["rate_bps"]), share(row["used"]), waited, f"{row['drops']:.0f}", flows])
    caption = "Between leaves and spines, by the queue of the port that sends. Links of hosts are in `fabric_links`."
    return table("Links of the fabric", heads, rows, caption=caption)


def collisions(runs: Sequence[Run]) -> Table:
    """Return a row for each leaf in each window: how long large flows shared an uplink while another was idle."""
    heads = ["run", "window", "leaf", Number("of the time"), Number("samples"), Number("pairs of flows")]
    rows = [
        [
            *(run.name if len(runs) > 1 else "", row["window_name"], row["leaf"], share(row["share"])),
            *(f"{row['collided']} of {row['samples']}", str(row["pairs"])),
        ]
        for run in runs
        for row in run.rows("collisions")
    ]
    caption = "Two or more flows of 10 % of an uplink's rate each leave by one uplink, while another carries less."
    return table("Collisions of large flows", heads, rows, caption=caption)


def paths(run: Run) -> Table:
    """Return the largest flows of a run's measured windows, with the links that they took."""
    totals: dict[tuple[str, tuple[Any, ...]], list[Row]] = defaultdict(list)
    for row in run.rows("paths"):
        within = (window.name for window in run.windows if window.start_ns <= row["begin_ns"] < window.end_ns)
        if name := next(within, ""):
            flow = tuple(row[column] for column in _FLOW)
            totals[name, flow].append(row)
    largest = sorted(totals.items(), key=lambda item: -sum(row["bytes"] for row in item[1]))[:_MOST_PATHS]
    hosts = {address: host.name for host in run.hosts for address in host.addresses}
    rows = []
    for (window, (src, src_port, dst, dst_port, protocol, leaf, spine, to_leaf)), seen in largest:
        begin = (min(row["begin_ns"] for row in seen) - run.origin_ns) / 1e9
        end = (max(row["end_ns"] for row in seen) - run.origin_ns) / 1e9
        amount = sum(row["bytes"] for row in seen) * run.scale
        way = f"{leaf}-{spine}, {to_leaf}-{spine}"
        ends = f"{hosts.get(src, src)}:{src_port} to {hosts.get(dst, dst)}:{dst_port} {_PROTOCOLS.get(protocol, '')}"
        rows.append([window, ends.strip(), way, size(amount), f"{begin:.1f} to {end:.1f} s"])
    caption = "The largest flows between leaves; all of them are in `paths`. Bytes are before the uplink's queue."
    return table("Paths of flows", ["window", "flow", "links", Number("bytes"), "seen"], rows, caption=caption)


_PROTOCOLS = {6: "(TCP)", 17: "(UDP)"}


def events(runs: Sequence[Run]) -> Table:
    """Return a row for what conditions did within windows."""
    rows = []
    for run in runs:
        origins = {window.name: window.start_ns for window in run.windows}
        for event in run.manifest.events:
            origin = origins.get(event.window, run.origin_ns)
            at = [
                "did not come to pass" if ns is None else f"{(ns - origin) / 1e9:.2f} s"
                for ns in (event.began_ns, event.ended_ns)
            ]
            rows.append([run.name if len(runs) > 1 else "", event.window, event.event, *at])
    caption = "Instants from the window's beginning, once the change was in force."
    return table("Events", ["run", "window", "event", "from", "to"], rows, caption=caption)
