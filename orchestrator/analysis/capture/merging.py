"""Makes one trace of those of several points: one number a host, and each conversation counted once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from orchestrator.analysis.capture import binning, trace
from orchestrator.analysis.capture.hostnames import HostNumbers
from orchestrator.analysis.capture.trace import Flows, QueuePairs, Trace

NEAR_NS = 10_000_000  # between two interfaces of a host that a packet passes


def merged(parts: Sequence[Trace]) -> Trace:
    """One trace of several: hosts are those of the same address, and a conversation seen at many points counts once."""
    if len(parts) == 1:
        return parts[0]
    hosts, interfaces = HostNumbers(), HostNumbers()
    maps = [np.array([hosts.number(name) for name in part.hosts] or [0], np.int64) for part in parts]
    wires = [np.array([interfaces.number(name) for name in part.interfaces] or [0], np.int64) for part in parts]
    width_ns = max((part.bins.width_ns for part in parts), default=1)
    moved, first_conversation, first_point = [], 0, 0
    for part, numbers, places in zip(parts, maps, wires, strict=True):
        moved.append(
            replace(
                part,
                flows=replace(
                    part.flows,
                    point=part.flows.point + first_point,
                    conversation=part.flows.conversation + first_conversation,
                    src=numbers[part.flows.src],
                    dst=numbers[part.flows.dst],
                    interface=places[part.flows.interface],
                    outer_src=_outer(numbers, part.flows.outer_src),
                    outer_dst=_outer(numbers, part.flows.outer_dst),
                ),
                queue_pairs=replace(
                    part.queue_pairs,
                    point=part.queue_pairs.point + first_point,
                    src=numbers[part.queue_pairs.src],
                    dst=numbers[part.queue_pairs.dst],
                    interface=places[part.queue_pairs.interface],
                ),
            )
        )
        first_conversation += int(part.flows.conversation.max(initial=-1)) + 1
        first_point += len(part.points)
    flows = trace.joined(Flows, [part.flows for part in moved])
    return Trace(
        points=tuple(point for part in parts for point in part.points),
        hosts=tuple(hosts.names),
        interfaces=tuple(interfaces.names),
        flows=replace(flows, counted=_counted(flows)),
        bins=binning.joined([(part.bins, len(part.flows)) for part in moved], width_ns=width_ns),
        queue_pairs=trace.joined(QueuePairs, [part.queue_pairs for part in moved], shared=("size_edges",)),
        notes=tuple(note for part in parts for note in part.notes),
    )


def _outer(numbers: trace.Ints, ends: trace.Ints) -> trace.Ints:
    return np.where(ends < 0, -1, numbers[ends])


def once(flows: Flows) -> trace.Mask:
    """True for the rows of the interface of a point that saw most packets of a flow; others may be of other times.

    What a tunnel carried on one interface and another interface saw without it is the same flow; what two networks of
    tunnels carried is not. A packet passes a host within NEAR_NS.
    """
    found = np.ones(len(flows), np.bool_)
    if len(np.unique(flows.interface)) < 2:
        return found
    ends = np.stack([flows.protocol, flows.src, flows.dst, flows.src_port, flows.dst_port])
    _, tuples = np.unique(ends, axis=1, return_inverse=True)
    order = np.argsort(tuples.ravel(), kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(tuples.ravel()[order])) + 1)
    for rows in groups:
        interfaces, place = np.unique(flows.interface[rows], return_inverse=True)
        if len(interfaces) > 1:
            packets = np.bincount(place.ravel(), flows.packets[rows])
            apart = [rows[place.ravel() == one] for one in np.argsort(-packets, kind="stable").tolist()]
            _leave_out(flows, apart, found)
    return found


def _leave_out(flows: Flows, interfaces: Sequence[trace.Ints], found: trace.Mask) -> None:
    """Clear of each interface's rows of a 5-tuple what one before it saw."""
    known = interfaces[0]
    for rows in interfaces[1:]:
        for tunnel in np.unique(flows.tunnel[rows]).tolist():
            mine = rows[flows.tunnel[rows] == tunnel]
            same = known if tunnel == 0 else known[np.isin(flows.tunnel[known], (0, tunnel))]
            found[mine] = ~_at_the_time(flows, mine, same)
        known = np.concatenate((known, rows[found[rows]]))


def _at_the_time(flows: Flows, rows: trace.Ints, others: trace.Ints) -> trace.Mask:
    """Which rows share an instant with one of the others; short ones also where they are near to one."""
    if not len(others):
        return np.zeros(len(rows), np.bool_)
    others = others[np.argsort(flows.first_ns[others], kind="stable")]
    begins, ends = flows.first_ns[others], np.maximum.accumulate(flows.last_ns[others])
    first, last = flows.first_ns[rows], flows.last_ns[rows]
    near = np.where(last - first <= NEAR_NS, NEAR_NS, 0)
    place = np.searchsorted(begins, last + near, side="right")
    return np.asarray((place > 0) & (ends[np.maximum(place - 1, 0)] >= first - near))


def _counted(flows: Flows) -> trace.Mask:
    """True for the rows of the point that saw most packets of a 5-tuple, the first such point where several did.

    Of a 5-tuple that no point saw outside of a tunnel, each network of tunnels is another.
    """
    if not len(flows):
        return np.zeros(0, np.bool_)
    turned = (flows.src > flows.dst) | ((flows.src == flows.dst) & (flows.src_port > flows.dst_port))
    ends = [
        np.where(turned, one, other)
        for one, other in (
            (flows.dst, flows.src),
            (flows.src, flows.dst),
            (flows.dst_port, flows.src_port),
            (flows.src_port, flows.dst_port),
        )
    ]
    _, bare = np.unique(np.stack([flows.protocol, *ends]), axis=1, return_inverse=True)
    plain = np.zeros(int(bare.max()) + 1, np.bool_)
    plain[bare.ravel()[flows.tunnel == 0]] = True
    network = np.where(plain[bare.ravel()], 0, flows.tunnel)
    _, tuples = np.unique(np.stack([bare.ravel(), network]), axis=1, return_inverse=True)
    points = int(flows.point.max()) + 1
    places = tuples.ravel() * points + flows.point
    packets = np.bincount(places, weights=flows.packets * flows.counted, minlength=(int(tuples.max()) + 1) * points)
    best = packets.reshape(-1, points).argmax(axis=1)
    return np.asarray(flows.counted & (best[tuples.ravel()] == flows.point))
