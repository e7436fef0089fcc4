"""What arrived of the cross traffic of a window: by captures, else by the counters of the receiver's device."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from orchestrator.analysis.traffic import throughput
from orchestrator.analysis.traffic.throughput import Bins
from orchestrator.analysis.windows.judging.load_gates import Load
from orchestrator.analysis.windows.readings import received
from orchestrator.analysis.windows.readings.received import Sent
from orchestrator.parts.topology import Rail
from orchestrator.store.manifests import window_records
from orchestrator.store.manifests.records import Manifest
from orchestrator.store.manifests.window_records import Window


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrivals:
    """The tables of a run that say so; `partial` tells of a node and its device whether a capture there is not whole.

    `capture_flows` is a pyarrow Table.
    """

    manifest: Manifest
    packets: throughput.Kept
    capture_flows: object
    counters: throughput.Kept
    partial: Callable[[str, str | None], bool]

    def loads(self, window: Window, sent: Sent) -> tuple[Load, ...]:
        """Every load of a window; several that only counters have seen at one rail of a host are one."""
        by_end: dict[tuple[str, int], list[window_records.Load]] = {}
        for load in window.loads:
            by_end.setdefault((load.dst, load.rail), []).append(load)
        found: list[Load] = []
        for (dst, rail), asked in by_end.items():
            if self.captured(dst, rail):
                found += (self._captured(window, load, sent) for load in asked)
            else:
                found += received.loads(
                    self.counters, self.manifest.topology, window, asked, jobs=self.manifest.jobs, sent=sent
                )
        return tuple(found)

    def captured(self, dst: str, rail: int) -> bool:
        """Whether there is a whole capture at a rail of a host."""
        port = self._rail(dst, rail).device or None
        return throughput.captured(self.packets, node=dst, port=port) and not self.partial(dst, port)

    def course(self, window: Window, source: str, dst: str, rail: int) -> Bins | None:
        """What a source had arrive at a rail over time; None where nothing tells it from what else arrived there."""
        if self.captured(dst, rail):
            return throughput.bins(self.packets, self._match(source, dst, rail))
        alone = {load.source for load in window.loads if (load.dst, load.rail) == (dst, rail)} == {source}
        if not alone or any(dst in job.nodes for job in self.manifest.jobs):
            return None
        return received.bins(self.counters, self.manifest.topology, dst, rail, window.span_ns)

    def _rail(self, node: str, rail: int) -> Rail:
        return self.manifest.topology.node(node).rails[rail]

    def _captured(self, window: Window, load: window_records.Load, sent: Sent) -> Load:
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
        return Load(
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
