"""Build the tables of a report, each of all its runs; a column that is empty for all of them is left out."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import datetime, timezone
from typing import Any

from orchestrator.analysis.stats.statistics import is_maximum
from orchestrator.analysis.windows.variation import ALL_RANKS
from orchestrator.core.opendata import JsonObject
from orchestrator.core.units import span_text
from orchestrator.parts.rows import Row
from orchestrator.parts.topology import Node
from orchestrator.report.run import over_runs
from orchestrator.report.run.collectives import operation_timings
from orchestrator.report.runs import Run
from orchestrator.report.tables import Cell, Number, Table, percent, rate, share, size, table
from orchestrator.store.manifests import stayed
from orchestrator.store.manifests.records import Clock, Offset, Window
from orchestrator.store.manifests.summaries import Git, Load, known

_WHICH = ("run", "window", "job")
_WINDOWS = """Iteration time in milliseconds. Small: 95 % intervals of the level within this run alone; they do not tell
where the level of another run would lie. Iterations follow one another, so intervals count effective ones:
independent iterations that would say as much. "unknown": too few of them for an interval, or no one level; the note
beside the iterations says which. Slow iterations that are rarer than 3 in all iterations may be missed altogether.
Drift: the change from the
window's first iteration to its last one, as a share of the mean. Period: from the begin of an iteration to that of
the next, of a job that was to keep one. Offset: from the begin of another job's iteration, of the nearest to what was
asked."""
_OVER_RUNS = """Medians of the iteration time in milliseconds: windows that were set alike and loaded alike, in all runs
of this page. The 95 % interval is of the level over runs. Runs differ by: the standard deviation of their medians.
Within runs: how much of its square the iterations of a run explain by themselves; the rest is what sets runs apart,
and more iterations do not lessen it."""
_VARIATION = "Times in milliseconds; of all ranks together, their mean. Variation: standard deviation over mean."
_VARIED = {  # what a column of shares is, in the order of the columns
    "straggler_share": """Straggler share: the time by which the passes of the slowest rank are longer than the rank's
own, over the iteration's; of all ranks together, that of the one that waits longest in each iteration.""",
    "overlapped": "Overlapped: the share of its time of communication in which the rank computed.",
    "efficiency": """Efficiency: that of scheduling (Hashemi et al., TicTac), 100 % when the shorter one of computing
and communicating overlaps with the other as a whole, 0 % when they follow one another, less when at times the rank
did neither.""",
}
_ORDERS = "Orders: how many different orders its communications began in."
_PROCESSORS = """Of the time of all processors of the node's kernel: used by the run's processes on this node, by work
that is not the run's, by interrupts, and taken by the hypervisor. Of the window: while some process of the machine
waited (the kernel's pressure stall information), while a control group's limit stopped processes, for how long the
process of a job that waited longest did so (its threads added up), and for how long of that because of work that was
not the run's."""
_SHARES = {
    "own_share": "run", "others_share": "others", "interrupt_share": "interrupts", "steal_share": "stolen",
    "pressure_share": "pressure", "throttled_share": "stopped by a limit", "wait_share": "waited",
    "others_wait_share": "kept by others",
}  # fmt: skip

_OFFLOADS = ("tcp-segmentation-offload", "generic-segmentation-offload", "generic-receive-offload")


def _which(runs: Sequence[Run], run: Run, row: Row) -> tuple[str, str, str]:
    """Return run, window and job of a row, empty where there is but one run or one job."""
    several_jobs = any(len(one.manifest.jobs) > 1 for one in runs)
    return run.name if len(runs) > 1 else "", row["window_name"], row["job"] if several_jobs else ""


def windows(runs: Sequence[Run]) -> Table:
    """Return a row a window and job: iteration times, loads and bytes."""
    rows = [[*_which(runs, run, row), *_window(run, row)] for run in runs for row in run.rows("training")]
    heads = [
        *_WHICH,
        "valid",
        Number("iterations"),
        Number("mean"),
        Number("median"),
        Number("p99"),
        Number("drift"),
        Number("period"),
        Number("offset"),
        "cross traffic received",
        Number("bytes sent an iteration"),
    ]
    return table("Windows", heads, rows, caption=_WINDOWS)


def _window(run: Run, row: Row) -> Iterator[str]:
    window = next((window for window in run.windows if window.name == row["window_name"]), None)
    valid = window is not None and window.valid
    yield Cell("yes" if valid else "NO", look="good" if valid else "bad")
    left_out = "" if row["left_out"] is None else f"{row['left_out']} left out as warm-up"
    counted = f"effective {_effective(row['effective_iterations'])}; {row['ranks']} ranks"
    yield Cell(str(row["iterations"]), notes=(counted, left_out, row["interval_note"] or ""))
    yield _estimate(row, "mean")
    yield _estimate(row, "p50")
    p99 = _estimate(row, "p99")
    maximum = is_maximum(row["iterations"], 0.99)
    yield Cell(p99, notes=("this is the maximum",)) if maximum else p99
    yield _drift(row)
    yield _estimate(row, "period", empty="")
    yield _estimate(row, "offset", empty="")
    yield _total_load(window.loads if window else (), run.scale)
    yield _bytes(row, run.scale)


def _effective(count: float | None) -> str:
    return "unknown" if count is None or math.isnan(count) else f"{count:.0f}"


def _estimate(row: Row, key: str, *, empty: str = "none") -> Cell:
    """Return value and interval in milliseconds, to the digits that the interval bears out; `empty` where unknown."""
    value, low, high = (known(row[f"{key}{part}_s"]) * 1e3 for part in ("", "_low", "_high"))
    if math.isnan(value):
        return Cell(empty)
    width = high - low
    digits = 1 if math.isnan(width) or width <= 0 else max(0, min(3, 1 - math.floor(math.log10(width))))
    interval = "unknown" if math.isnan(width) else f"{low:.{digits}f} to {high:.{digits}f}"
    return Cell(f"{value:.{digits}f}", notes=(interval,))


def _drift(row: Row) -> Cell:
    """Return the drift of the iteration time over the window; empty for runs sealed before it was measured."""
    drift, low, high = (row[key] for key in ("drift", "drift_low", "drift_high"))
    if drift is None or math.isnan(drift):
        return Cell("unknown")
    return Cell(percent(drift), notes=(f"{percent(low)} to {percent(high)}",))


def _total_load(loads: Sequence[Load], scale: int) -> str:
    if not loads:
        return "none"
    requested = sum(load.requested_bps for load in loads) * scale
    achieved = sum(known(load.achieved_bps) for load in loads) * scale
    pairs = "" if len(loads) == 1 else f" ({len(loads)} pairs together)"
    return f"{rate(achieved) or 'not measured'} of {rate(requested)}{pairs}"


def _bytes(row: Row, scale: int) -> Cell:
    sent, theory = row["sent_bytes"], row["theory_bytes"]
    if math.isnan(sent) and math.isnan(theory):
        return Cell("")
    off = f" ({percent(sent / theory - 1)})" if theory and not math.isnan(sent / theory) else ""
    known = f"theory {size(theory * scale)}{off}" if not math.isnan(theory) else ""
    raw = f"raw {size(sent)}" if scale != 1 and not math.isnan(sent) else ""
    return Cell(size(sent * scale) or "not captured", notes=(raw, known))


def levels(found: Sequence[over_runs.LoadCurve]) -> Table:
    """Return the level of each point over runs."""
    heads = [
        "what",
        Number("load"),
        Number("runs"),
        Number("median"),
        Number("95 % interval over runs"),
        Number("runs differ by"),
        Number("of that, within runs"),
    ]
    return table("Levels over runs", heads, over_runs.rows(found), caption=_OVER_RUNS)


def variation(runs: Sequence[Run]) -> Table:
    """Return how much the iterations of each rank vary, in each window."""
    varied = [(run, row) for run in runs for row in run.rows("variation") if row["iterations"]]
    rows = [
        [
            *_which(runs, run, row),
            "all" if row["rank"] == ALL_RANKS else str(row["rank"]),
            *(f"{row[key] * 1e3:.4g}" for key in ("mean_s", "p50_s", "p95_s", "p99_s", "max_s")),
            share(row["cv"]),
            *(share(row[key]) for key in _VARIED),
            str(row["orders"] or ""),
        ]
        for run, row in varied
    ]
    times = [Number(name) for name in ("rank", "mean", "median", "p95", "p99", "longest", "variation")]
    heads = [*_WHICH, *times, *(Number(key.replace("_", " ")) for key in _VARIED), Number("orders")]
    caption = [_VARIATION, *(told for key, told in _VARIED.items() if any(share(row[key]) for _, row in varied))]
    caption += [_ORDERS] if any(row["orders"] for _, row in varied) else []
    return table("Variation of the iteration time", heads, rows, caption=" ".join(caption))


def loads(runs: Sequence[Run]) -> Table:
    """Return requested and received cross traffic, pair by pair."""
    rows = [
        [
            run.name if len(runs) > 1 else "",
            window.name,
            load.source,
            f"{load.src} → {load.dst}",
            _full_size(load.requested_bps, run.scale),
            _full_size(known(load.achieved_bps), run.scale),
            percent(known(load.achieved_bps) / load.requested_bps - 1) if load.requested_bps else "",
        ]
        for run in runs
        for window in run.windows
        for load in window.loads
    ]
    heads = ["run", "window", "source", "from, to", Number("requested"), Number("received"), Number("difference")]
    caption = "Layer 2 without frame check sequence, as captured at the receiving host."
    return table("Requested and received loads", heads, rows, caption=caption)


def _full_size(bps: float, scale: int) -> Cell:
    known = not math.isnan(bps)
    return Cell(rate(bps * scale) or "not measured", notes=(f"raw {rate(bps)}",) if scale != 1 and known else ())


def collectives(runs: Sequence[Run]) -> Table:
    """Return collective operations by message size."""
    rows = [
        [
            run.name if len(runs) > 1 else "",
            one.window,
            one.operation,
            size(one.bytes),
            str(one.count),
            span_text(one.seconds),
            rate(one.algorithm_bps),
            rate(one.bus_bps),
            f"{one.utilization:.1%}",
        ]
        for run in runs
        for one in operation_timings(run)
    ]
    heads = [
        "run",
        "window",
        "operation",
        Number("message"),
        Number("operations"),
        Number("time"),
        Number("algorithm bandwidth"),
        Number("bus bandwidth"),
        Number("utilization"),
    ]
    caption = """Means over ranks and repeats; bandwidths as nccl-tests defines them, utilization is bus bandwidth over
the slowest link's rate."""
    return table("Collective operations", heads, rows, caption=caption)


def captures(runs: Sequence[Run]) -> Table:
    """Return what each capture recorded and lost."""
    rows = [
        [
            run.name if len(runs) > 1 else "",
            f"{row['node']}:{row['port']}",
            f"{row['captured']:,}",
            Cell(f"{row['dropped']:,}", look="bad" if row["dropped"] > 0 else ""),
            f"{row['dropped'] / max(1, row['captured'] + row['dropped']):.3%}",
            str(row["files"]),
            size(row["bytes"]),
        ]
        for run in runs
        for row in run.rows("captures")
    ]
    heads = [
        "run",
        "port",
        Number("packets captured"),
        Number("dropped"),
        Number("share"),
        Number("files"),
        Number("size"),
    ]
    return table("Packet captures", heads, rows)


def gates(run: Run) -> Table:
    """Return every gate of a run's windows, those that failed first."""
    looks = {True: ("passed", "good"), False: ("FAILED", "bad"), None: ("not judged", "open")}
    judged = [(window, gate) for window in run.windows for gate in window.gates]
    judged.sort(key=lambda one: one[1].passed is not False)
    rows = [
        [
            window.name,
            gate.name,
            Cell(
                looks[gate.passed][0] + ("" if gate.required or gate.passed is not False else " (noted)"),
                look=looks[gate.passed][1],
            ),
            gate.message,
        ]
        for window, gate in judged
    ]
    failed = sum(gate.passed is False for _, gate in judged)
    return table(f"Validity gates, {failed} failed", ["window", "gate", "verdict", "what was found"], rows)


def processors(run: Run) -> Table:
    """Return how processors served each node in each window."""
    rows = [[window.name, *row] for window in run.windows for row in _processors(window)]
    heads = ["window", "node", Number("processors"), *(Number(name) for name in _SHARES.values())]
    return table("Processors", heads, rows, caption=_PROCESSORS)


def _processors(window: Window) -> Iterator[list[str]]:
    """Return shares in per cent, a dash for what was not counted."""
    for row in window.processors:
        values = [getattr(row, key) for key in _SHARES]
        shares = ["-" if value is None else f"{value:.1%}" for value in values]
        yield [row.host, "-" if row.count is None else f"{row.count:.0f}", *shares]


def nodes(run: Run) -> Table:
    """Return a row a node of what was in force there: versions, offloads, congestion control, clock."""
    heads = ["node", "data plane", "kernel", "congestion control", "offloads", "clock against the controller's"]
    keys = ("name", "address", "kernel", "congestion", "offloads", "clock")
    return table("Nodes", heads, [[node[key] for key in keys] for node in node_facts(run)])


def provenance(run: Run) -> list[tuple[str, str]]:
    """Return the run's provenance: id, times, commit, links."""
    manifest = run.manifest
    topology, began, ended = manifest.topology, manifest.began_ns, manifest.ended_ns
    links = sorted({link.rate for link in topology.links if link.rate})
    rows = [
        ("run", run.id),
        ("began", _time(began) if began else ""),
        ("took", f"{(ended - began) / 1e9:.1f} s" if began and ended else ""),
        ("of which", ", ".join(f"{name} {took:.1f} s" for name, took in manifest.phases.items() if took >= 0.05)),
        ("command line", shlex.join(manifest.argv)),
        ("salt (for --seed)", manifest.salt or "none: an older run, whose random numbers were those of any day"),
        ("repetition", _or_unknown(manifest.repetition)),
        ("git", _git(manifest.git)),
        ("versions", ", ".join(f"{key} {value}" for key, value in manifest.versions.items())),
        ("testbed", f"{topology.kind}, {len(run.hosts)} hosts, MTU {topology.mtu}"),
        (
            "links",
            ", ".join(rate(link) for link in links)
            + (f", divided by {wire}" if (wire := topology.wire_scale) != 1 else ""),
        ),
        ("dilation of time", str(topology.dilation) if topology.dilation != 1 else ""),
    ]
    rows.append(("captures that stay", "; ".join(stayed.where(manifest))))
    for job in manifest.jobs:
        ranks = ", ".join(f"{rank.rank} on {rank.node}" for rank in job.ranks)
        what = [text for text in (job.workload, job.model) if text]
        if job.compute:
            what.append(f"compute: {job.compute}")
        rows.append((f"job {job.name}", f"{', '.join(what)}; ranks {ranks}"))
        if job.theory is not None:
            rows.append((f"theory for {job.name}", job.theory.source))
    return [(key, value) for key, value in rows if value]


def _or_unknown(value: int | None) -> str:
    return "?" if value is None else str(value)


def _git(git: Git | None) -> str:
    known = {} if git is None else asdict(git)
    return ", ".join(f"{key} {value}" for key, value in known.items() if value is not None)


def node_facts(run: Run) -> list[dict[str, str]]:
    """Return the facts of each node: name, addresses, kernel, congestion control, offloads, clock."""
    found = []
    for node in run.manifest.topology.nodes:
        facts = run.facts(node.name)
        clock = run.manifest.clocks.get(node.name, Clock())
        found.append(
            {
                "name": node.name if node.kind in ("host", node.name) else f"{node.name} ({node.kind})",
                "address": ", ".join(f"{rail.address} {rail.device}".strip() for rail in node.rails),
                "kernel": _kernel(facts.get("/proc/version")),
                "congestion": _congestion(facts, node),
                "offloads": _offloads(facts.get("offloads")),
                "clock": ", ".join(
                    f"{when} {offset.offset_ns / 1e3:+.0f} ± {offset.uncertainty_ns / 1e3:.0f} µs"
                    + _synchronised(offset)
                    for when, offset in (("before", clock.before), ("after", clock.after))
                    if offset is not None
                ),
            }
        )
    return found


def _congestion(facts: JsonObject, node: Node) -> str:
    """Return the congestion control of connections to other hosts: the data plane's route's, else the node's own."""
    networks = {str(rail.network) for rail in node.rails[:1] if rail.address}
    found = [facts.get("routes"), facts.get("routes6")]  # the second have no source, but their network
    for route in (route for routes in found if isinstance(routes, list) for route in routes):
        if not isinstance(route, dict) or "gateway" in route:
            continue
        if route.get("prefsrc", "") in node.addresses or route.get("dst") in networks:
            for metrics in route.get("metrics") or []:
                if isinstance(metrics, dict) and metrics.get("congestion"):
                    return str(metrics["congestion"])
    return str(facts.get("/proc/sys/net/ipv4/tcp_congestion_control") or "")


def _synchronised(clock: Offset) -> str:
    """Return the clock's synchronisation as the node itself reports it."""
    known = (("chrony", clock.chrony_ns), ("PTP", clock.ptp_ns))
    offsets = [f"{name} ± {off_ns / 1e3:.3g} µs" for name, off_ns in known if off_ns is not None]
    return f" ({', '.join(offsets)})" if offsets else ""


def _kernel(version: Any) -> str:
    match = re.match(r"Linux version (\S+)", str(version or ""))
    return match.group(1) if match else ""


def _offloads(text: Any) -> str:
    states = dict(re.findall(r"^([a-z0-9-]+): (on|off)", str(text or ""), flags=re.MULTILINE))
    return ", ".join(
        f"{''.join(word[0] for word in name.split('-'))} {states[name]}" for name in _OFFLOADS if name in states
    )


def _time(ns: float) -> str:
    return f"{datetime.fromtimestamp(ns / 1e9, tz=timezone.utc):%Y-%m-%d %H:%M:%S} UTC"
