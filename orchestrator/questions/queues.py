"""The link that training and cross traffic share: its queue beside each load, the flows on it, and what is sent."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from orchestrator.analysis.stats.iterations import series
from orchestrator.analysis.traffic import bottleneck, throughput
from orchestrator.analysis.traffic import traffic as flows_of
from orchestrator.analysis.traffic.sharedlink import shared_link
from orchestrator.analysis.traffic.throughput import CachedTable
from orchestrator.analysis.traffic.traffic import Traffic
from orchestrator.questions.curves import GBIT, MB, capacity_bps, loaded_points, repetition, windows_near
from orchestrator.questions.registry import source
from orchestrator.questions.rows import REPETITION, RUN, Measured, Row, Rows, by_run
from orchestrator.report.run import schedules
from orchestrator.report.runs import Run
from orchestrator.store.tabular import tables

RATES_NS = 10_000_000
CROSS_NS = 1_000_000  # of the bins of `cross_packets`
STEPS = 120  # of two iterations
SMOOTH = 3
FEWEST_ITERATIONS = 3
SHOWN_NS = 100_000_000


@source
def queues(measured: Measured) -> Rows:
    """Return the fullest queue of each point, where training and cross traffic meet: a row a point and repetition.

    Columns: those that tell curves apart (as of `curves`), `requested_gbps`, `load_gbps`, `used_pct` (share of the link
    that left the queue), `idle_gbps`, `waiting_ms` (mean backlog as time on the link) and `drops_per_s`.
    """
    counters: dict[str, CachedTable] = {}

    def values(point: Any, window: Any) -> Row | None:
        path = window.entry.path
        if window.entry.run not in counters:
            counters[window.entry.run] = CachedTable(tables.read(path / "tables", "counters", where=_of_queues()))
        found = shared_link(
            counters[window.entry.run], window.manifest.topology, span_ns=window.record.span_ns, scale=point.scale
        )
        if found is None:
            return None
        capacity = capacity_bps(point)
        return {
            "load_gbps": float(window.record.achieved_bps or 0.0) * point.scale / GBIT,
            "used_pct": 100 * found.sent_bps / capacity,
            "idle_gbps": max(0.0, capacity - found.sent_bps) / GBIT,
            "waiting_ms": found.waiting_s * 1e3,
            "drops_per_s": found.drops_per_s,
        }

    rows: Rows = []
    for point, columns in loaded_points(measured):
        keys = {**columns, "requested_gbps": round(point.windows[0].record.requested_bps * point.scale / GBIT, 6)}
        known = [(one.entry.run, found) for one in point.windows if (found := values(point, one)) is not None]
        rows += by_run(point, known, keys)
    return rows


def _of_queues() -> Any:
    import pyarrow.compute as pc

    return pc.match_substring_regex(pc.field("counter"), r"^qdisc\.")


@source
def link_flows(measured: Measured, *, traffic: list[str], loads_gbps: list[float], near_gbps: float) -> Rows:
    """Return mean rates of the three flows at a bottleneck (Salamy, figure 3-9): a row a repetition.

    `flow` 1 is training on a link of its own, 2 training on the shared link, 3 the cross traffic on it. `gbps` is the
    mean over the window, `sending_gbps` that of steps of 10 ms in which anything is sent. Of each curve of these kinds
    of traffic the point nearest to each load is taken, where it is within `near_gbps`; `at_gbps` is that load.
    """
    rows: Rows = []
    for run, part, log, keys in _captured(measured, traffic, loads_gbps, near_gbps):
        shares = bottleneck.three(part)
        width = max(1, round(RATES_NS / part.width_ns)) * part.width_ns
        for number, share in enumerate(shares if len(shares) == 3 else (), 1):
            found = bottleneck.rates(part, share.flows, width_ns=width, cycle_s=float(log.seconds.mean()))
            rates = {"gbps": found.mean.value, "sending_gbps": found.sending}
            rows.append({**keys, "flow": number, **{name: one * run.scale / GBIT for name, one in rates.items()}})
    return rows


@source
def link_rates(measured: Measured, *, traffic: list[str], loads_gbps: list[float], near_gbps: float) -> Rows:
    """Return the rates of the three flows of `link_flows` over two iterations in the middle of a window, to draw them.

    `time_ms` and `gbps` (layer 2, at full size), a moving average over three of 120 steps; of the first repetition.
    """
    rows: Rows = []
    for run, part, log, keys in _captured(measured, traffic, loads_gbps, near_gbps):
        if keys[REPETITION] != 1:
            continue
        two = _two_iterations(part, log)
        span_ns = two.end_ns - two.begin_ns
        width = max(1, span_ns // STEPS // two.width_ns) * two.width_ns
        for share in bottleneck.three(two):
            rate = _smoothed(two, share.flows, width) * 8 * run.scale / width
            label = share.label.partition(":")[0]
            rows += [
                {**keys, "flow": label, "time_ms": (place + 0.5) * width / 1e6, "gbps": float(one)}
                for place, one in enumerate(rate)
            ]
    return rows


@source
def link_pairs(measured: Measured, *, traffic: list[str], loads_gbps: list[float], near_gbps: float) -> Rows:
    """Return what hosts sent each other in two iterations (`mb`, at full size), acknowledgements left out."""
    rows: Rows = []
    for run, part, log, keys in _captured(measured, traffic, loads_gbps, near_gbps):
        two = _two_iterations(part, log)
        sent = _matrix(two)
        rows += [
            {**keys, "src": two.hosts[src], "dst": two.hosts[dst], "mb": float(sent[src, dst]) * run.scale / MB}
            for src, dst in np.ndindex(*sent.shape)
            if sent[src, dst] >= 0.01 * sent.sum()
        ]
    return rows


def _captured(
    measured: Measured, kinds: list[str], loads_gbps: list[float], near_gbps: float
) -> Iterator[tuple[Run, Traffic, Any, Row]]:
    """Yield captured windows near these loads with their run, traffic, iterations and columns."""
    for point, window, columns in windows_near(measured, traffic=kinds, loads_gbps=loads_gbps, near_gbps=near_gbps):
        run = Run(window.entry.path)
        job = point.job.name
        span = window.record.iterations[job]
        log = series(run.table("iterations"), job).within(span.first, span.last)
        if run.traffic is None or len(log.iteration) < FEWEST_ITERATIONS:
            continue
        load = float(window.record.achieved_bps or 0.0) * point.scale / GBIT
        keys = {**columns, "load_gbps": load, RUN: window.entry.run, REPETITION: repetition(point, window)}
        yield run, flows_of.within(run.traffic, *window.record.span_ns), log, keys


def _two_iterations(part: Traffic, log: Any) -> Traffic:
    middle = len(log.iteration) // 2
    return flows_of.within(part, int(log.start_ns[middle - 1]), int(log.end_ns[middle]))


def _smoothed(two: Traffic, flows: Any, width: int) -> Any:
    return flows_of.moving_average(flows_of.series(two, flows, width_ns=width), SMOOTH)


def _matrix(two: Traffic) -> Any:
    return flows_of.matrix(two, np.ones(len(two), bool))


@source
def sent_rates(measured: Measured, *, traffic: list[str], loads_gbps: list[float], near_gbps: float) -> Rows:
    """Return how often generated traffic left at which rate, in steps of a millisecond: a row a class of 1 Gbit/s.

    `gbps` is the middle of the class, `share` that of all steps; layer 2, captured where it is sent, at full size.
    """
    rows: Rows = []
    for point, window, columns in windows_near(measured, traffic=traffic, loads_gbps=loads_gbps, near_gbps=near_gbps):
        for name, _, rate in schedules.sent_rates(Run(window.entry.path)):
            if name != window.record.name or not len(rate):
                continue
            count = np.bincount(np.floor(rate).astype(int))
            keys = {**columns, RUN: window.entry.run, REPETITION: repetition(point, window)}
            rows += [{**keys, "gbps": place + 0.5, "share": float(one) / len(rate)} for place, one in enumerate(count)]
    return rows


@source
def traces(measured: Measured, *, traffic: list[str], loads_gbps: list[float], near_gbps: float) -> Rows:
    """Return a tenth of a second of generated flows and of what was captured of them, to draw both.

    `what` is planned (a flow: `time_ms` of its start and `mb`) or sent (`gbps` in a millisecond); at full size, of the
    first repetition. Of traffic with bursts it begins with one.
    """
    rows: Rows = []
    for point, window, columns in windows_near(measured, traffic=traffic, loads_gbps=loads_gbps, near_gbps=near_gbps):
        if repetition(point, window) != 1:
            continue
        run = Run(window.entry.path)
        keys = {**columns, RUN: run.id, REPETITION: 1}
        for begin, flows, sent in schedules.sample(run, window.record.name, SHOWN_NS):
            rows += [
                {**keys, "what": "planned", "time_ms": at, "mb": size, "gbps": None}
                for at, size in zip(flows[0].tolist(), flows[1].tolist(), strict=True)
            ]
            at, rate = sent.rate(begin, begin + SHOWN_NS, CROSS_NS)
            rows += [
                {**keys, "what": "sent", "time_ms": float(x) * 1e3, "mb": None, "gbps": float(y) * run.scale / GBIT}
                for x, y in zip(at, rate, strict=True)
            ]
    return rows


@source
def burst_heights(measured: Measured) -> Rows:
    """Return rates in bursts over the mean rate, as requested, sent, and received: a row a point and repetition.

    A burst cannot be higher than the link: `most` is the link's rate over the mean.
    """
    rows: Rows = []
    for point, columns in loaded_points(measured):
        keys = {**columns, "requested_gbps": round(point.windows[0].record.requested_bps * point.scale / GBIT, 6)}
        known = [(one.entry.run, found) for one in point.windows for found in _heights(point, one)]
        rows += by_run(point, known, keys)
    return rows


def _heights(point: Any, window: Any) -> Iterator[Row]:
    plans = tables.read(window.entry.path / "tables", "schedules").to_pylist()
    for plan in plans:
        loads = [load for load in window.record.loads if load.source == plan["source"]]
        if plan["window_name"] != window.record.name or not plan["burst_period_s"] or not loads:
            continue
        found = {}
        for name, end, direction in (("sent", "src", "out"), ("received", "dst", "in")):
            bins = throughput.bins(
                tables.read(window.entry.path / "tables", "cross_packets"),
                {"node": getattr(loads[0], end), "direction": direction, "name": plan["source"]},
            )
            found[name] = throughput.burst_height(
                replace(bins, width_ns=CROSS_NS),
                zero_ns=plan["zero_ns"],
                width_ns=round(plan["burst_width_s"] * 1e9),
                period_ns=round(plan["burst_period_s"] * 1e9),
                span_ns=window.record.span_ns,
            )
        load = float(window.record.achieved_bps or 0.0) * point.scale
        most = capacity_bps(point) / load if load else None
        yield {"load_gbps": load / GBIT, "height": float(plan["burst_height"]), "most": most, **found}
