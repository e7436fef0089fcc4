"""What the hosts that are to receive cross traffic do receive, by the counters of their network devices."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from orchestrator.core import fanout
from orchestrator.core.deadline import Deadline
from orchestrator.core.errors import OrchError
from orchestrator.execution.session import Session
from orchestrator.parts.protocols import Demand

STEADY_OVER_S = 1.0
READ_S = 10.0
_Sample = tuple[int, int, int]  # instant in nanoseconds of the host's clock, bytes, packets


class Receivers:
    """The NIC counters of where cross traffic is to arrive, by the name of each end: a host, or a rail of it."""

    def __init__(self, session: Session, demands: Sequence[Demand]) -> None:
        self._session = session
        self.wanted: dict[str, float] = {}
        self._topology = topology = session.testbed.topology
        for demand in demands:
            self.wanted[demand.end] = self.wanted.get(demand.end, 0.0) + demand.rate / topology.scale
        self._ends = {demand.end: (demand.dst, topology.node(demand.dst).rails[demand.rail]) for demand in demands}
        self.over_s = max([STEADY_OVER_S, *(demand.over_s for demand in demands)])
        self._samples: dict[str, deque[_Sample]] = {end: deque() for end in self.wanted}

    def sample(self) -> None:
        """Read every receiver's counters once, all at the same time."""
        taken = fanout.each(self.wanted, self._read, deadline=Deadline.after(READ_S), what="reading counters")
        for end, sample in taken.items():
            samples = self._samples[end]
            samples.append(sample)
            while samples[-1][0] - samples[0][0] > (self.over_s + STEADY_OVER_S / 2) * 1e9 and len(samples) > 2:
                samples.popleft()

    def rates(self) -> dict[str, float | None]:
        """Bits a second over about the last `over_s` seconds, scaled; None before they have passed."""
        rates: dict[str, float | None] = {}
        for end, samples in self._samples.items():
            span_ns = samples[-1][0] - samples[0][0] if samples else 0
            rates[end] = None
            if span_ns >= self.over_s * 1e9:
                counted, packets = (samples[-1][figure] - samples[0][figure] for figure in (1, 2))
                rates[end] = self._topology.on_wire(counted, packets) * 8e9 / span_ns
        return rates

    def _read(self, end: str) -> _Sample:
        host, rail = self._ends[end]
        folder = f"/sys/class/net/{rail.device}/statistics"
        paths = [f"{folder}/{counter}" for counter in ("rx_bytes", "rx_packets")]
        reading = self._session.clients[host].read(paths, Deadline.after(READ_S))
        counted, packets = (reading.texts[path] for path in paths)
        if counted is None or packets is None:
            raise OrchError(f"{folder} cannot be read", node=host)
        return reading.wall_ns, int(counted), int(packets)
