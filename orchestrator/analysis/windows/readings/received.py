"""What a host received over time by the counters of its network device, where no capture says what arrived.

Counters know neither source nor kind: what they grew by is the cross traffic only at a host on which nothing trains,
and of several sources that send there it is the sum.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from orchestrator.analysis.traffic import throughput
from orchestrator.analysis.traffic.throughput import Bins
from orchestrator.analysis.windows.judging.load_gates import Load
from orchestrator.analysis.windows.readings.portcounts import BYTES, PACKETS
from orchestrator.parts.topology import Topology
from orchestrator.store.manifests import window_records
from orchestrator.store.manifests.records import Job
from orchestrator.store.manifests.window_records import Window

BIN_NS = 50_000_000
QUIET = 0.01  # of a load: less than that in a bin is what a host receives anyway
SEEN_BY = "by the counters of its network device"
Sent = Mapping[tuple[str, str], Mapping[str, float]]


def bins(counters: throughput.Kept, topology: Topology, node: str, rail: int, span_ns: tuple[int, int]) -> Bins | None:
    """Layer-2 bytes that a host's device received in bins over a span; None where its samples do not cover it.

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


def loads(
    counters: throughput.Kept,
    topology: Topology,
    window: Window,
    asked: Sequence[window_records.Load],
    *,
    jobs: Sequence[Job],
    sent: Sent,
) -> tuple[Load, ...]:
    """What arrived of the loads that a window asks for at one host's rail, all of them together where they are several.

    By their senders' own logs (`sent`), where one source has them, each sender's part is known.
    """
    dst, rail, span = asked[0].dst, asked[0].rail, window.span_ns
    arrived, why = bins(counters, topology, dst, rail, span), ""
    if any(dst in job.nodes for job in jobs):
        arrived, why = None, f"ranks on {dst} receive too, which the counters of its device do not tell apart"
    elif arrived is None:
        why = f"nor are there counters of its device over the window: add `nic` to `collect` for {dst}"
    if arrived is None:
        return tuple(_load([one], one.requested_bps, math.nan, math.nan, unseen=why) for one in asked)
    total = arrived.within(*span) * 8e9 / max(1, span[1] - span[0])
    wanted = sum(one.requested_bps for one in asked)
    gap = _busy(arrived, wanted).longest_gap_s(*span)
    by_sender = sent.get((asked[0].source, topology.node(dst).addresses[rail]), {})
    everyone = sum(by_sender.values())
    if len(asked) > 1 and len({one.source for one in asked}) == 1 and everyone > 0:
        shares = [by_sender.get(topology.node(one.src).addresses[rail], 0.0) / everyone for one in asked]
        return tuple(
            _load([one], one.requested_bps, total * share, gap) for one, share in zip(asked, shares, strict=True)
        )
    return (_load(asked, wanted, total, gap),)


def _load(
    asked: Sequence[window_records.Load], requested: float, achieved: float, gap: float, *, unseen: str = ""
) -> Load:
    sources, hosts = (dict.fromkeys(names) for names in ([one.source for one in asked], [one.src for one in asked]))
    return Load(
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
    """Only the bins in which more arrived than comes without any load."""
    least = QUIET * wanted_bps * arrived.width_ns / 8e9
    keep = arrived.amount > least
    return Bins(arrived.start_ns[keep], arrived.amount[keep], arrived.width_ns)
