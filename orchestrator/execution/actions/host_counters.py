"""Read counters of hosts while a run goes on: of all hosts for who watches it live, and of receivers of cross traffic.

Results come from collectors.
"""

from __future__ import annotations

import itertools
import re
from collections import deque
from collections.abc import Sequence

from orchestrator.core import fanout
from orchestrator.core.deadline import Deadline
from orchestrator.core.errors import AgentError, OrchError
from orchestrator.execution.observers.observing import HostSample
from orchestrator.execution.session import Session
from orchestrator.parts.protocols import Demand
from orchestrator.remote.agent_client import AgentClient

READ_S = 5.0
RECEIVERS_READ_S = 10.0
STEADY_OVER_S = 1.0
_DEVICE = ("rx_bytes", "tx_bytes", "rx_dropped", "tx_dropped")
_SNMP, _STAT = "/proc/net/snmp", "/proc/stat"


def sample_hosts(session: Session) -> dict[str, HostSample]:
    """Return a sample of each host with data-plane devices, of all of these together; who cannot say is left out."""
    topology = session.testbed.topology
    devices = {host.name: host.devices for host in topology.hosts if host.devices}

    def ask(client: AgentClient) -> HostSample | None:
        mine = devices[client.node.name]
        paths = {name: [f"/sys/class/net/{device}/statistics/{name}" for device in mine] for name in _DEVICE}
        found = client.read([*itertools.chain(*paths.values()), _SNMP, _STAT], Deadline.after(READ_S))
        if any(found.texts[path] is None for path in itertools.chain(*paths.values())):
            return None
        received, sent, received_dropped, sent_dropped = (
            sum(int(found.texts[path] or 0) for path in paths[name]) for name in _DEVICE
        )
        queues = [_queue(client, device) for device in mine]
        busy, total = processor_ticks(found.texts[_STAT] or "")
        return HostSample(
            node=client.node.name,
            wall_ns=found.wall_ns,
            received_bytes=received,
            sent_bytes=sent,
            received_dropped=received_dropped,
            sent_dropped=sent_dropped,
            queue_dropped=sum(dropped for dropped, _ in queues),
            queue_bytes=sum(waiting for _, waiting in queues),
            busy_ticks=busy,
            total_ticks=total,
            retransmits=retransmits(found.texts[_SNMP] or ""),
        )

    answers = session.each(devices, ask, what="reading counters", seconds=READ_S)
    return {node: answer for node, answer in answers.items() if answer is not None}


def _queue(client: AgentClient, device: str) -> tuple[int, int]:
    try:
        done = client.run(
            ("tc", "-s", "qdisc", "show", "dev", device, "root"), Deadline.after(READ_S), privileged=False
        )
    except AgentError:
        return 0, 0  # it has no tc: there are no queues of ours on it
    return queue(done.stdout)


def queue(text: str) -> tuple[int, int]:
    """Return packets that the root queueing discipline dropped, and bytes that wait in it, as `tc -s qdisc` says.

    0 where it does not say.
    """
    dropped = re.search(r"dropped ([0-9]{1,18})", text)
    waiting = re.search(r"backlog ([0-9.]{1,18})([KM]?)b ", text)
    units = {"": 1, "K": 1 << 10, "M": 1 << 20}
    return int(dropped[1]) if dropped else 0, round(float(waiting[1]) * units[waiting[2]]) if waiting else 0


def processor_ticks(stat: str) -> tuple[int, int]:
    """Return ticks of all processors that were busy, and all of them, from the text of /proc/stat; 0 where it is none.

    Idle are `idle` and `iowait` (proc_stat(5)); guests' time is counted in that of users already.
    """
    words = stat.partition("\n")[0].split()
    if len(words) < 9 or words[0] != "cpu" or not all(word.isdecimal() for word in words[1:9]):
        return 0, 0
    ticks = [int(word) for word in words[1:9]]
    return sum(ticks) - ticks[3] - ticks[4], sum(ticks)


def retransmits(snmp: str) -> int:
    """TCP segments that were sent again, from the text of /proc/net/snmp; 0 where it does not say."""
    lines = [line.split() for line in snmp.splitlines() if line.startswith("Tcp:")]
    if len(lines) != 2 or "RetransSegs" not in lines[0]:
        return 0
    return int(lines[1][lines[0].index("RetransSegs")])


_Sample = tuple[int, int, int]  # instant in nanoseconds of the host's clock, bytes, packets


class Receivers:
    """The NIC counters of where cross traffic is to arrive, by the name of each end: a host, or a rail of it.

    Where time is dilated, rates are divided back: those of sizes on the wire over full-size seconds.
    """

    def __init__(self, session: Session, demands: Sequence[Demand]) -> None:
        self._session = session
        self.wanted: dict[str, float] = {}
        self._topology = topology = session.testbed.topology
        for demand in demands:
            self.wanted[demand.end] = self.wanted.get(demand.end, 0.0) + demand.rate / topology.scale
        self._ends = {demand.end: (demand.dst, topology.node(demand.dst).rails[demand.rail]) for demand in demands}
        self.over_s = max([STEADY_OVER_S, *(demand.over_s for demand in demands)]) * topology.dilation
        self._samples: dict[str, deque[_Sample]] = {end: deque() for end in self.wanted}
        self._first: dict[str, _Sample] = {}

    def sample(self) -> None:
        """Read every receiver's counters once, all at the same time."""
        taken = fanout.each(self.wanted, self._read, deadline=Deadline.after(RECEIVERS_READ_S), what="reading counters")
        for end, sample in taken.items():
            samples = self._samples[end]
            samples.append(sample)
            self._first.setdefault(end, sample)
            while samples[-1][0] - samples[0][0] > (self.over_s + STEADY_OVER_S / 2) * 1e9 and len(samples) > 2:
                samples.popleft()

    def rates(self) -> dict[str, float | None]:
        """Bits a second over about the last `over_s` seconds, scaled; None before they have passed."""
        rates: dict[str, float | None] = {}
        for end, samples in self._samples.items():
            rates[end] = None
            if samples and samples[-1][0] - samples[0][0] >= self.over_s * 1e9:
                rates[end] = self._between(samples[0], samples[-1])
        return rates

    def means(self) -> dict[str, float | None]:
        """Return the same over all that was sampled; None where that is less than `over_s` seconds."""
        spans = {end: (self._first[end], samples[-1]) for end, samples in self._samples.items() if samples}
        return {
            end: self._between(first, last) if last[0] - first[0] >= self.over_s * 1e9 else None
            for end, (first, last) in spans.items()
        }

    def _between(self, first: _Sample, last: _Sample) -> float:
        counted, packets = (last[figure] - first[figure] for figure in (1, 2))
        return self._topology.on_wire(counted, packets) * 8e9 / (last[0] - first[0]) * self._topology.dilation

    def _read(self, end: str) -> _Sample:
        host, rail = self._ends[end]
        folder = f"/sys/class/net/{rail.device}/statistics"
        paths = [f"{folder}/{counter}" for counter in ("rx_bytes", "rx_packets")]
        reading = self._session.clients[host].read(paths, Deadline.after(RECEIVERS_READ_S))
        counted, packets = (reading.texts[path] for path in paths)
        if counted is None or packets is None:
            raise OrchError(f"{folder} cannot be read", node=host)
        return reading.wall_ns, int(counted), int(packets)
