"""Tell of runs while they go on, to whoever shows it: metrics, or nobody."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from orchestrator.store.manifests.records import Summary


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


class Observer:
    """Is told what happens, and takes no notice; who wants to overrides what matters to it.

    Everything is told in the run's main thread; rates are in bit/s as on the wire, `scale` multiplies them back.
    """

    samples_hosts = False  # whether `hosts` is wanted once a second, at the price of asking every host

    def run_began(self, manifest: Summary) -> None:
        """Note that a run begins, and what is known of it then."""

    def run_ended(self, manifest: Summary) -> None:
        """Note that a run is sealed, whether it went well or not."""

    def phase(self, name: str) -> None:
        """Note that a phase begins; the one before is over."""

    def iteration(self, *, job: str, rank: int, seconds: float) -> None:
        """Note that a rank has ended an iteration."""

    def failure(self, *, node: str, what: str) -> None:
        """Note that a process of the run failed."""

    def loads(self, *, requested: Mapping[str, float], received: Mapping[str, float], scale: int) -> None:
        """Cross traffic that hosts are to receive, and all that they do receive, over the last second or so."""

    def hosts(self, samples: Mapping[str, HostSample], *, scale: int) -> None:
        """Counters of every host."""
