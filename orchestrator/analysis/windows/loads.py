"""Measure the cross traffic that arrived in a window, and its course, by captures or the receiver's counters."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from orchestrator.analysis.traffic import throughput
from orchestrator.analysis.traffic.throughput import Bins
from orchestrator.analysis.windows.device_counters import BYTES, PACKETS
from orchestrator.analysis.windows.generated_flows import Schedule
from orchestrator.parts.protocols import end_name
from orchestrator.parts.topology import Rail, Topology
from orchestrator.store.manifests import records
from orchestrator.store.manifests.records import Job, Manifest, Window
from orchestrator.validity.window import ArrivedLoad, LoadCourse

BIN_NS = 50_000_000
QUIET = 0.01  # of a load: less than that in a bin is what a host receives anyway
SEEN_BY = "by the counters of its network device"
Sent = Mapping[tuple[str, str], Mapping[str, float]]

PIECE_S = 0.5  # the shortest piece: what is late by a round trip or two is nothing of it
PIECE_ITERATIONS = 4  # a training and its cross traffic share a queue: within an iteration the load comes and goes
PIECE_FLOWS = 4  # of the largest: a flow is planned at one instant, and arrives for as long as it takes


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrivals:
    """The tables of a run that tell what arrived; `partial` says whether a node's capture at a device is not whole.

    `capture_flows` is a pyarrow Table.
    """

    manifest: Manifest
    packets: throughput.Kept
    capture_flows: object
    counters: throughput.Kept
    partial: Callable[[str, str | None], bool]

    def loads(self, window: Window, sent: Sent) -> tuple[ArrivedLoad, ...]:
        """Return every load of a window; several that only counters have seen at one rail of a host are one."""
        by_end: dict[tuple[str, int], list[records.Load]] = {}
        for load in window.loads:
            by_end.setdefault((load.dst, load.rail), []).append(load)
        found: list[ArrivedLoad] = []
        for (dst, rail), asked in by_end.items():
            if self.captured(dst, rail):
                found += (self._captured(window, load, sent) for load in asked)
            else:
                found += counted_loads(
                    self.counters, self.manifest.topology, window, asked, jobs=self.manifest.jobs, sent=sent
                )
        return tuple(found)

    def captured(self, dst: str, rail: int) -> bool:
        """Return whether there is a whole capture at a rail of a host."""
        port = self._rail(dst, rail).device or None
        return throughput.captured(self.packets, node=dst, port=port) and not self.partial(dst, port)

    def course(self, window: Window, source: str, dst: str, rail: int) -> Bins | None:
        """Return what arrived of a source at a rail over time; None where it cannot be told from other traffic."""
        if self.captured(dst, rail):
            return throughput.bins(self.packets, self._match(source, dst, rail))
        alone = {load.source for load in window.loads if (load.dst, load.rail) == (dst, rail)} == {source}
        if not alone or any(dst in job.nodes for job in self.manifest.jobs):
            return None
        return counted_bins(self.counters, self.manifest.topology, dst, rail, window.span_ns)

    def _rail(self, node: str, rail: int) -> Rail:
        return self.manifest.topology.node(node).rails[rail]

    def _captured(self, window: Window, load: records.Load, sent: Sent) -> ArrivedLoad:
        begin, end = window.span_ns
        source, there = load.source, self._rail(load.dst, load.rail)
        achieved = throughput.achieved_bps(
            self.packets,
            self.capture_flows,
            source=source,
            dst=load.dst,
            port=there.device or None,
            src_address=self._rail(load.src, load.rail).address,
            begin_ns=begin,
            end_ns=end,
            sent=sent.get((source, there.address)),
        )
        arrived = throughput.bins(self.packets, self._match(source, load.dst, load.rail))
        return ArrivedLoad(
            source=source,
            src=load.src,
            dst=load.dst,
            rail=load.rail,
            requested_bps=load.requested_bps,
            achieved_bps=achieved,
            longest_gap_s=arrived.longest_gap_s(begin, end),
        )

    def _match(self, source: str, dst: str, rail: int) -> Mapping[str, str | None]:
        port = self._rail(dst, rail).device or None
        return {"node": dst, "port": port, "direction": "in", "kind": "cross", "name": source}


def counted_bins(
    counters: throughput.Kept, topology: Topology, node: str, rail: int, span_ns: tuple[int, int]
) -> Bins | None:
    """Return layer-2 bytes that a host's device received in bins over a span; None where samples do not cover it.

    A device that joins frames counts fewer bytes than were on the wire (`on_wire`), the same share in every bin.
    """
    port = topology.node(node).devices[rail]

    def grown(counter: str) -> float:
        return throughput.counter_growth(counters, node=node, port=port, counter=counter, span_ns=span_ns)

    counted, packets = grown(BYTES["in"]), grown(PACKETS["in"])
    if math.isnan(counted) or math.isnan(packets):
        return None
    at, value = throughput.samples(counters, node=node, port=port, counter=BYTES["in"])
    begin, end = span_ns
    edges = np.arange(begin // BIN_NS * BIN_NS, end + BIN_NS, BIN_NS)
    total = np.interp((edges - begin).astype(np.float64), (at - begin).astype(np.float64), value)
    joined = topology.on_wire(counted, packets) / counted if counted > 0 else 1.0
    return Bins(edges[:-1], np.diff(total) * joined, BIN_NS)


def counted_loads(
    counters: throughput.Kept,
    topology: Topology,
    window: Window,
    asked: Sequence[records.Load],
    *,
    jobs: Sequence[Job],
    sent: Sent,
) -> tuple[ArrivedLoad, ...]:
    """Return what arrived of a window's loads at one host's rail by counters, together where they are several.

    Counters know neither source nor kind: what they grew by is the cross traffic only at a host on which nothing
    trains, and of several sources that send there it is the sum. By their senders' own logs (`sent`), where one source
    has them, each sender's part is known.
    """
    dst, rail, span = asked[0].dst, asked[0].rail, window.span_ns
    arrived, why = counted_bins(counters, topology, dst, rail, span), ""
    if any(dst in job.nodes for job in jobs):
        arrived, why = None, f"ranks on {dst} receive too, which the counters of its device do not tell apart"
    elif arrived is None:
        why = f"nor are there counters of its device over the window: add `nic` to `collect` for {dst}"
    if arrived is None:
        return tuple(_counted_load([one], one.requested_bps, math.nan, math.nan, unseen=why) for one in asked)
    total = arrived.within(*span) * 8e9 / max(1, span[1] - span[0])
    wanted = sum(one.requested_bps for one in asked)
    gap = _busy(arrived, wanted).longest_gap_s(*span)
    by_sender = sent.get((asked[0].source, topology.node(dst).addresses[rail]), {})
    everyone = sum(by_sender.values())
    if len(asked) > 1 and len({one.source for one in asked}) == 1 and everyone > 0:
        shares = [by_sender.get(topology.node(one.src).addresses[rail], 0.0) / everyone for one in asked]
        return tuple(
            _counted_load([one], one.requested_bps, total * share, gap)
            for one, share in zip(asked, shares, strict=True)
        )
    return (_counted_load(asked, wanted, total, gap),)


def _counted_load(
    asked: Sequence[records.Load], requested: float, achieved: float, gap: float, *, unseen: str = ""
) -> ArrivedLoad:
    sources, hosts = (dict.fromkeys(names) for names in ([one.source for one in asked], [one.src for one in asked]))
    return ArrivedLoad(
        source=" and ".join(sources),
        src=" and ".join(hosts),
        dst=asked[0].dst,
        rail=asked[0].rail,
        requested_bps=requested,
        achieved_bps=achieved,
        longest_gap_s=gap,
        seen_by="" if unseen else SEEN_BY,
        unseen=unseen,
    )


def _busy(arrived: Bins, wanted_bps: float) -> Bins:
    """Return only the bins in which more arrived than comes without any load."""
    least = QUIET * wanted_bps * arrived.width_ns / 8e9
    keep = arrived.amount > least
    return Bins(arrived.start_ns[keep], arrived.amount[keep], arrived.width_ns)


def course(
    source: str,
    dst: str,
    arrived: throughput.Bins,
    span_ns: tuple[int, int],
    *,
    iteration_s: float,
    schedule: Schedule | None = None,
) -> LoadCourse:
    """Compare what arrived with the schedule, or with a constant load where there is none."""
    begin, end = span_ns
    length = (end - begin) / 1e9
    planned = _planned(schedule, begin, end)
    piece = max(PIECE_S, PIECE_ITERATIONS * iteration_s, PIECE_FLOWS * _longest_s(planned, length))
    count = int(length / piece) if piece > 0 else 0
    edges = np.linspace(begin, end, count + 1).astype(np.int64) if count else np.array([begin])
    came = np.array([arrived.within(int(low), int(high)) for low, high in pairwise(edges)])
    if count < 2 or came.sum() == 0:
        nothing = math.nan
        return LoadCourse(
            source=source, dst=dst, piece_s=piece, pieces=count, off=nothing, scheduled=nothing, arrived=nothing
        )
    due = np.ones(count) if planned is None else np.histogram(planned.start_ns, edges, weights=planned.wire_bytes)[0]
    one, other = came / came.mean(), due / due.mean()
    return LoadCourse(
        source=source,
        dst=dst,
        piece_s=length / count,
        pieces=count,
        off=float(np.sqrt(np.mean((one - other) ** 2))),
        scheduled=float(np.std(other)),
        arrived=float(np.std(one)),
    )


def _planned(schedule: Schedule | None, begin: int, end: int) -> Schedule | None:
    """Return the flows that were planned in a span; None where there are none."""
    if schedule is None:
        return None
    inside = (schedule.start_ns >= begin) & (schedule.start_ns < end)
    if not inside.any():
        return None
    return Schedule(start_ns=schedule.start_ns[inside], wire_bytes=schedule.wire_bytes[inside])


def _longest_s(planned: Schedule | None, length_s: float) -> float:
    """Return for how long the largest flow makes the whole load, in seconds."""
    return 0.0 if planned is None else float(planned.wire_bytes.max() / planned.wire_bytes.sum()) * length_s


def courses(
    arrivals: Arrivals, window: Window, *, schedules: Mapping[tuple[str, str], Schedule], iteration_s: float
) -> tuple[LoadCourse, ...]:
    """Return the course of every source at every receiver of a window where it can be told from other traffic.

    `schedules` are by source and receiver's address; `iteration_s` is the mean time of the slowest job.
    """
    found = []
    for source, dst, rail in dict.fromkeys((load.source, load.dst, load.rail) for load in window.loads):
        bins = arrivals.course(window, source, dst, rail)
        if bins is None:
            continue  # the gate of its load says so
        schedule = schedules.get((source, arrivals.manifest.topology.node(dst).addresses[rail]))
        name = end_name(dst, rail)
        found.append(course(source, name, bins, window.span_ns, iteration_s=iteration_s, schedule=schedule))
    return tuple(found)
