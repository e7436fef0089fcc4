"""Makes one trace of those of several points: one number a host, and each conversation counted once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from orchestrator.analysis.capture import binning, trace
from orchestrator.analysis.capture.hostnames import HostNumbers
from orchestrator.analysis.capture.trace import Flows, QueuePairs, Trace


def merged(parts: Sequence[Trace]) -> Trace:
    """One trace of several: hosts are those of the same address, and a conversation seen at many points counts once."""
    if len(parts) == 1:
        return parts[0]
    hosts = HostNumbers()
    maps = [np.array([hosts.number(name) for name in part.hosts] or [0], np.int64) for part in parts]
    width_ns = max((part.bins.width_ns for part in parts), default=1)
    moved, first_conversation, first_point = [], 0, 0
    for part, numbers in zip(parts, maps, strict=True):
        moved.append(
            replace(
                part,
                flows=replace(
                    part.flows,
                    point=part.flows.point + first_point,
                    conversation=part.flows.conversation + first_conversation,
                    src=numbers[part.flows.src],
                    dst=numbers[part.flows.dst],
                ),
                queue_pairs=replace(
                    part.queue_pairs,
                    point=part.queue_pairs.point + first_point,
                    src=numbers[part.queue_pairs.src],
                    dst=numbers[part.queue_pairs.dst],
                ),
            )
        )
        first_conversation += int(part.flows.conversation.max(initial=-1)) + 1
        first_point += len(part.points)
    flows = trace.joined(Flows, [part.flows for part in moved])
    return Trace(
        points=tuple(point for part in parts for point in part.points),
        hosts=tuple(hosts.names),
        flows=replace(flows, counted=_counted(flows)),
        bins=binning.joined([(part.bins, len(part.flows)) for part in moved], width_ns=width_ns),
        queue_pairs=trace.joined(QueuePairs, [part.queue_pairs for part in moved], shared=("size_edges",)),
        notes=tuple(note for part in parts for note in part.notes),
    )


def _counted(flows: Flows) -> trace.Mask:
    """True for the rows of the point that saw most packets of a 5-tuple, the first such point where several did."""
    if not len(flows):
        return np.zeros(0, np.bool_)
    turned = (flows.src > flows.dst) | ((flows.src == flows.dst) & (flows.src_port > flows.dst_port))
    ends = [
        np.where(turned, one, other)
        for one, other in (
            (flows.dst, flows.src), (flows.src, flows.dst), (flows.dst_port, flows.src_port),
            (flows.src_port, flows.dst_port),
        )
    ]  # fmt: skip
    _, tuples = np.unique(np.stack([flows.protocol, *ends]), axis=1, return_inverse=True)
    points = int(flows.point.max()) + 1
    places = tuples.ravel() * points + flows.point
    packets = np.bincount(places, weights=flows.packets, minlength=(int(tuples.max()) + 1) * points)
    best = packets.reshape(-1, points).argmax(axis=1)
    return np.asarray(best[tuples.ravel()] == flows.point)
