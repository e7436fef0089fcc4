"""What the hosts that are to receive cross traffic do receive, by the counters of their network devices."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from orchestrator.core import fanout
from orchestrator.core.deadline import Deadline
from orchestrator.core.errors import OrchError
from orchestrator.parts.protocols import Demand
from orchestrator.parts.topology import on_wire
from orchestrator.run.session import Session

STEADY_OVER_S = 1.0
READ_S = 10.0
_Sample = tuple[int, int, int]  # instant in nanoseconds of the host's clock, bytes, packets


class Receivers:
    """The NIC counters of the hosts that are to receive cross traffic."""

    def __init__(self, session: Session, demands: Sequence[Demand]) -> None:
        self._session = session
        self.wanted: dict[str, float] = {}
        topology = session.testbed.topology
        for demand in demands:
            self.wanted[demand.dst] = self.wanted.get(demand.dst, 0.0) + demand.rate / topology.scale
        self.over_s = max([STEADY_OVER_S, *(demand.over_s for demand in demands)])
        self._mtu = topology.mtu
        self._samples: dict[str, deque[_Sample]] = {host: deque() for host in self.wanted}

    def sample(self) -> None:
        """Read every receiver's counters once, all at the same time."""
        taken = fanout.each(self.wanted, self._read, deadline=Deadline.after(READ_S), what="reading counters")
        for host, sample in taken.items():
            samples = self._samples[host]
            samples.append(sample)
            while samples[-1][0] - samples[0][0] > (self.over_s + STEADY_OVER_S / 2) * 1e9 and len(samples) > 2:
                samples.popleft()

    def rates(self) -> dict[str, float | None]:
        """Bits a second over about the last `over_s` seconds, scaled; None before they have passed."""
        rates: dict[str, float | None] = {}
        for host, samples in self._samples.items():
            span_ns = samples[-1][0] - samples[0][0] if samples else 0
            rates[host] = None
            if span_ns >= self.over_s * 1e9:
                counted, packets = (samples[-1][figure] - samples[0][figure] for figure in (1, 2))
                rates[host] = on_wire(counted, packets, self._mtu) * 8e9 / span_ns
        return rates

    def _read(self, host: str) -> _Sample:
        folder = f"/sys/class/net/{self._session.testbed.topology.node(host).device}/statistics"
        paths = [f"{folder}/{counter}" for counter in ("rx_bytes", "rx_packets")]
        reading = self._session.clients[host].read(paths, Deadline.after(READ_S))
        counted, packets = (reading.texts[path] for path in paths)
        if counted is None or packets is None:
            raise OrchError(f"{folder} cannot be read", node=host)
        return reading.wall_ns, int(counted), int(packets)
