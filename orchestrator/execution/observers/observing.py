"""Tell of runs while they go on, to whoever shows it: metrics, or nobody."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from orchestrator.store.manifests.summaries import Summary


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSample:
    """Counters of a host and its data-plane devices together, as they stand: they only ever grow."""

    node: str
    wall_ns: int  # by the node's clock
    received_bytes: int
    sent_bytes: int
    received_dropped: int  # packets
    sent_dropped: int
    queue_dropped: int  # packets that the device's queueing discipline dropped
    retransmits: int  # TCP segments
    queue_bytes: int  # that wait in the device's queueing discipline: these do not only grow
    busy_ticks: int  # of all its processors
    total_ticks: int  # likewise, idle ones too; 0 where it does not say

    def since(self, before: HostSample, *, scale: int) -> HostGrowth | None:
        """Return what happened since an earlier sample, rates multiplied by the scale; None where no time passed."""
        if self.wall_ns <= before.wall_ns:
            return None
        per_s = 8e9 * scale / (self.wall_ns - before.wall_ns)
        ticks = self.total_ticks - before.total_ticks
        return HostGrowth(
            received_bps=(self.received_bytes - before.received_bytes) * per_s,
            sent_bps=(self.sent_bytes - before.sent_bytes) * per_s,
            # A counter that was set back (a device that came anew) is no growth.
            received_dropped=max(0, self.received_dropped - before.received_dropped),
            sent_dropped=max(0, self.sent_dropped - before.sent_dropped),
            queue_dropped=max(0, self.queue_dropped - before.queue_dropped),
            retransmits=max(0, self.retransmits - before.retransmits),
            busy=min(1.0, max(0.0, (self.busy_ticks - before.busy_ticks) / ticks)) if ticks > 0 else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class HostGrowth:
    """What happened at a host between two samples: rates in bit/s, packets and segments, share of processor time."""

    received_bps: float
    sent_bps: float
    received_dropped: int
    sent_dropped: int
    queue_dropped: int
    retransmits: int
    busy: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedIteration:
    """An iteration of a rank, as it logged it: by the controller's clock, dilated time divided back.

    `passes_s` are its forward and backward pass, `wait_s` what it then waited for communication; None where it does not
    log that.
    """

    number: int
    start_ns: int
    end_ns: int
    passes_s: float | None = None
    wait_s: float | None = None

    @property
    def seconds(self) -> float:
        return (self.end_ns - self.start_ns) / 1e9


class Observer:
    """Is told what happens, and takes no notice; who wants to overrides what matters to it.

    Everything is told in the run's main thread; rates are in bit/s as on the wire, `scale` multiplies them back.
    """

    @property
    def samples_hosts(self) -> bool:
        """Whether `hosts` is wanted now, at the price of asking every host."""
        return False

    def run_began(self, manifest: Summary) -> None:
        """Note that a run begins, and what is known of it then."""

    def run_ended(self, manifest: Summary) -> None:
        """Note that a run is sealed, whether it went well or not."""

    def phase(self, name: str) -> None:
        """Note that a phase begins; the one before is over."""

    def window(self, name: str, *, number: int, of: int, wanted: int | None) -> None:
        """Note that the `number`-th window begins, with its warm-up; iterations that are `wanted`, if it says so."""

    def measured(self, counts: Mapping[str, int], *, left_s: float | None) -> None:
        """Note how many iterations of each job count so far in the window, and the seconds until it ends, if known."""

    def iteration(self, logged: LoggedIteration, *, job: str, rank: int) -> None:
        """Note that a rank has ended an iteration."""

    def failure(self, *, node: str, what: str) -> None:
        """Note that a process of the run failed."""

    def loads(self, *, requested: Mapping[str, float], received: Mapping[str, float], scale: int) -> None:
        """Cross traffic that hosts are to receive, and all that they do receive, over the last second or so."""

    def hosts(self, samples: Mapping[str, HostSample], *, scale: int) -> None:
        """Counters of every host."""


class Several(Observer):
    """Tells several observers what one is told."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self._observers = observers

    @property
    def samples_hosts(self) -> bool:
        return any(one.samples_hosts for one in self._observers)

    def run_began(self, manifest: Summary) -> None:
        for one in self._observers:
            one.run_began(manifest)

    def run_ended(self, manifest: Summary) -> None:
        for one in self._observers:
            one.run_ended(manifest)

    def phase(self, name: str) -> None:
        for one in self._observers:
            one.phase(name)

    def window(self, name: str, *, number: int, of: int, wanted: int | None) -> None:
        for one in self._observers:
            one.window(name, number=number, of=of, wanted=wanted)

    def measured(self, counts: Mapping[str, int], *, left_s: float | None) -> None:
        for one in self._observers:
            one.measured(counts, left_s=left_s)

    def iteration(self, logged: LoggedIteration, *, job: str, rank: int) -> None:
        for one in self._observers:
            one.iteration(logged, job=job, rank=rank)

    def failure(self, *, node: str, what: str) -> None:
        for one in self._observers:
            one.failure(node=node, what=what)

    def loads(self, *, requested: Mapping[str, float], received: Mapping[str, float], scale: int) -> None:
        for one in self._observers:
            one.loads(requested=requested, received=received, scale=scale)

    def hosts(self, samples: Mapping[str, HostSample], *, scale: int) -> None:
        for one in self._observers:
            one.hosts(samples, scale=scale)
