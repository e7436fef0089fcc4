"""What captures saw at each port over a window, and what the port's own counters grew by over the same time.

A counter is known at the instants of its samples, and a capture in bins. So both are taken between two samples around
the window, at instants when as little as possible was on its way: nothing has to be guessed then of a training that is
silent between its bursts, and of one that is not the two bins at the ends are little of the whole.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import replace

import numpy as np

from orchestrator.analysis.traffic import throughput, trust
from orchestrator.analysis.windows.judging.portbytes import PortBytes

BYTES = {"in": "rx_bytes", "out": "tx_bytes"}
PACKETS = {"in": "rx_packets", "out": "tx_packets"}
# Written with every sample, while a counter that stands still is kept at its turning points alone.
CLOCK = "sampler.nic.late_s"
NEEDED = (*BYTES.values(), *PACKETS.values(), CLOCK)
AROUND_S = 1.0  # of the window, in which a quiet sample is looked for


def ports(
    packets: throughput.Kept,
    counters: throughput.Kept,
    planned: Iterable[trust.Planned],
    span_ns: tuple[int, int],
    *,
    counting: Collection[str] = (),
) -> tuple[PortBytes, ...]:
    """Both directions of every port that was to be captured; `packets` and `counters` are the run's tables.

    `counting` are the nodes whose devices' counters were to be sampled.
    """
    found = (_port(packets, counters, one, direction, span_ns) for one in planned for direction in BYTES)
    return tuple(replace(one, counting=one.node in counting) for one in found)


def _port(
    packets: throughput.Kept, counters: throughput.Kept, one: trust.Planned, direction: str, window_ns: tuple[int, int]
) -> PortBytes:
    node, port = one.node, one.port

    def captured(column: str) -> throughput.Bins:
        return throughput.bins(packets, {"node": node, "port": port, "direction": direction}, column=column)

    def counted(counter: str) -> float:
        return throughput.counter_growth(counters, node=node, port=port, counter=counter, span_ns=span)

    wire = captured("wire_bytes")
    at, _ = throughput.samples(counters, node=node, port="", counter=CLOCK)
    begin, end = window_ns
    around = int(AROUND_S * 1e9)
    before, after = at[(at >= begin - around) & (at <= begin)], at[(at >= end) & (at <= end + around)]
    span = (_quietest(wire, before[::-1], begin), _quietest(wire, after, end))
    return PortBytes(
        node=node,
        port=port,
        direction=direction,
        counted=counted(BYTES[direction]),
        edges=sum(float(_at(wire, np.array([instant]))[0]) for instant in span),
        captured=captured("captured_bytes").within(*span) if one.state == "complete" else math.nan,
        packets=captured("packets").within(*span),
        frames=captured("frames").within(*span),
        wire=wire.within(*span),
        counted_packets=counted(PACKETS[direction]),
    )


def _quietest(bins: throughput.Bins, instants: throughput.Ints, otherwise: int) -> int:
    """Of instants, the nearest first, that at which the least was on its way; `otherwise` when there is none."""
    return int(instants[np.argmin(_at(bins, instants))]) if len(instants) else otherwise


def _at(bins: throughput.Bins, instants: throughput.Ints) -> throughput.Floats:
    """What the bins around each instant carried: it may lie on either side of a sample that was read at their edge."""
    total = np.zeros(len(instants))
    if not len(bins.start_ns):
        return total
    for away in (-1, 0, 1):
        wanted = instants // bins.width_ns * bins.width_ns + away * bins.width_ns
        place = np.searchsorted(bins.start_ns, wanted).clip(max=len(bins.start_ns) - 1)
        total += np.where(bins.start_ns[place] == wanted, bins.amount[place], 0.0)
    return total
