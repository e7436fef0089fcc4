"""Measure the cross traffic that arrived in a window, and its course, by captures or the receiver's counters."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cross_traffic.schedule_files import BurstShape
from orchestrator.analysis.traffic import throughput
from orchestrator.analysis.traffic.throughput import Bins
from orchestrator.analysis.windows import courses
from orchestrator.analysis.windows.courses import FINE_NS, Bursts, End
from orchestrator.analysis.windows.device_counters import BYTES, PACKETS
from orchestrator.analysis.windows.generated_flows import Schedule
from orchestrator.parts.protocols import end_name
from orchestrator.parts.topology import Rail, Topology
from orchestrator.store.manifests import summaries
from orchestrator.store.manifests.records import Manifest, Window
from orchestrator.store.manifests.summaries import Job
from orchestrator.validity.window import ArrivedLoad, LoadCourse

BIN_NS = 50_000_000
QUIET = 0.01  # of a load: less than that in a bin is what a host receives anyway
SEEN_BY = "by the counters of its network device"
Sent = Mapping[tuple[str, str], Mapping[str, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrivals:
    """The tables of a run that tell what arrived; `partial` says whether a node's capture at a device is not whole.

    `capture_flows` is a pyarrow Table, `cross_packets` gives the one of bins of a millisecond.
    """

    manifest: Manifest
    packets: throughput.CachedTable
    capture_flows: object
    counters: throughput.CachedTable
    cross_packets: Callable[[], throughput.CachedTable]
    partial: Callable[[str, str | None], bool]

    def loads(self, window: Window, sent: Sent) -> tuple[ArrivedLoad, ...]:
        """Return every load of a window; several that only counters have seen at one rail of a host are one."""
        by_end: dict[tuple[str, int], list[summaries.Load]] = {}
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

    def ends(self, window: Window, source: str, dst: str, rail: int) -> tuple[list[End], bool]:
        """Return the links that a source's load crosses, the receiver's first, and whether captures saw all of them.

        Those that carry nothing else need none: without a capture only ranks on the host say that a link may be shared.
        """
        senders = [one.src for one in window.loads if (one.source, one.dst, one.rail) == (source, dst, rail)]
        shared = {node for job in self.manifest.jobs for node in job.nodes}
        seen = {host: self.captured(host, rail) for host in (dst, *senders)}
        whole = all(seen[host] or host not in shared for host in seen)
        found = []
        for host, direction in ((dst, "in"), *((host, "out") for host in senders)):
            if seen[dst] and seen[host]:
                match = {**self._match(source, host, rail), "direction": direction}
                total = {**match, "kind": None, "name": None}
                carries = self.manifest.topology.carries_bps(host, rail) / self.manifest.topology.scale
                found.append(End(carries, throughput.bins(self.packets, total), throughput.bins(self.packets, match)))
        return (found if len(found) in (0, 1 + len(senders)) else found[:1]), whole

    def fine(self, source: str, dst: str, rail: int) -> Bins | None:
        """Return what arrived of a source at a rail in bins of a millisecond; None where that was not captured."""
        if not self.captured(dst, rail):
            return None
        found = throughput.bins(self.cross_packets(), self._match(source, dst, rail))
        return Bins(found.start_ns, found.amount, FINE_NS) if len(found.start_ns) else None

    def _rail(self, node: str, rail: int) -> Rail:
        return self.manifest.topology.node(node).rails[rail]

    def _captured(self, window: Window, load: summaries.Load, sent: Sent) -> ArrivedLoad:
        begin, end = window.span_ns
        source, there = load.source, self._rail(load.dst, load.rail)
        counted = whole_periods(window.span_ns, [load])
        achieved = throughput.achieved_bps(
            self.packets,
            self.capture_flows,
            source=source,
            dst=load.dst,
            port=there.device or None,
            src_address=self._rail(load.src, load.rail).address,
            begin_ns=counted[0],
            end_ns=counted[1],
            sent=sent.get((source, there.address)),
        )
        arrived = throughput.bins(self.packets, self._match(source, load.dst, load.rail))
        return ArrivedLoad(
            source=source,
            src=load.src,
            dst=load.dst,
            rail=load.rail,
            period_s=load.period_s,
            pause_s=load.pause_s,
            requested_bps=load.requested_bps,
            achieved_bps=achieved,
            longest_gap_s=arrived.longest_gap_s(begin, end),
        )

    def _match(self, source: str, dst: str, rail: int) -> Mapping[str, str | None]:
        port = self._rail(dst, rail).device or None
        return {"node": dst, "port": port, "direction": "in", "kind": "cross", "name": source}


def whole_periods(span_ns: tuple[int, int], loads: Sequence[summaries.Load]) -> tuple[int, int]:
    """Return the part of a span, from its beginning, in which the longest period of some loads fits whole times.

    The mean of a load over whole periods is what is asked, whenever the first one begins. It is empty where none fits,
    and the whole span where the loads have no period.
    """
    begin, end = span_ns
    period_ns = round(max(load.period_s for load in loads) * 1e9)
    return (begin, begin + (end - begin) // period_ns * period_ns) if period_ns else span_ns


def counted_bins(
    counters: throughput.CachedTable, topology: Topology, node: str, rail: int, span_ns: tuple[int, int]
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
    counters: throughput.CachedTable,
    topology: Topology,
    window: Window,
    asked: Sequence[summaries.Load],
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
    begin, end = whole_periods(span, asked)
    total = arrived.within(begin, end) * 8e9 / (end - begin) if end > begin else math.nan
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
    asked: Sequence[summaries.Load], requested: float, achieved: float, gap: float, *, unseen: str = ""
) -> ArrivedLoad:
    sources, hosts = (dict.fromkeys(names) for names in ([one.source for one in asked], [one.src for one in asked]))
    return ArrivedLoad(
        source=" and ".join(sources),
        src=" and ".join(hosts),
        dst=asked[0].dst,
        rail=asked[0].rail,
        period_s=max(one.period_s for one in asked),
        pause_s=max(one.pause_s for one in asked),
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


def held_courses(
    arrivals: Arrivals,
    window: Window,
    *,
    schedules: Mapping[tuple[str, str], Schedule],
    bursts: Mapping[tuple[str, str], tuple[BurstShape, int]],
    iteration_s: float,
) -> tuple[LoadCourse, ...]:
    """Return the course of every source at every receiver of a window where it can be told from other traffic.

    `schedules` are by source and receiver's address, `bursts` likewise, with when they began;
    `iteration_s` is the mean time of the slowest job, for which it may fill a link that no capture saw.
    """
    found = []
    for source, dst, rail in dict.fromkeys((load.source, load.dst, load.rail) for load in window.loads):
        bins = arrivals.course(window, source, dst, rail)
        if bins is None:
            continue  # the gate of its load says so
        ends, whole = arrivals.ends(window, source, dst, rail)
        at = source, arrivals.manifest.topology.node(dst).addresses[rail]
        shape = bursts.get(at)
        found.append(
            courses.course(
                source,
                end_name(dst, rail),
                bins,
                window.span_ns,
                schedule=schedules.get(at),
                ends=ends,
                unseen_s=0.0 if whole else iteration_s,
                bursts=Bursts(*shape, arrivals.fine(source, dst, rail)) if shape else None,
            )
        )
    return tuple(found)
