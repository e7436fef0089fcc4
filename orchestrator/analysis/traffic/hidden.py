"""Compute how much of what each rank sends leaves its host while it computes (overlapped communication), and could."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from orchestrator.analysis.traffic.traffic import TRAINING, Traffic
from orchestrator.core import intervals

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hidden:
    """A rank's payload in a stretch of traffic, in bytes: all that its host sent, and of it while the rank computed."""

    rank: int
    sent: float
    computing: float

    @property
    def share(self) -> float:
        """The part that left while the rank computed; NaN where it sent nothing."""
        return self.computing / self.sent if self.sent else float("nan")


def hidden(traffic: Traffic, iterations: Any, *, job: str, hosts: Mapping[int, str]) -> tuple[Hidden, ...]:
    """Return the bytes that each rank of a job sent, in all and while it computed, by rank.

    `iterations` is a run's table (a pyarrow Table), `hosts` the host of each rank. A bin of the capture counts by the
    part of its width that lies within a forward or backward pass. Ranks that share a host are left out: a capture does
    not say which of them sent.
    """
    import pyarrow.compute as pc

    logs = iterations.filter(pc.equal(iterations["job"], job))
    crowded = {host for host, ranks in Counter(hosts.values()).items() if ranks > 1}
    found = []
    for rank, host in sorted(hosts.items()):
        if host in traffic.hosts and host not in crowded:
            flows = traffic.of(TRAINING) & (traffic.name == job) & (traffic.src == traffic.hosts.index(host))
            picked = flows[traffic.bin_flow]
            begin, payload = traffic.bin_ns[picked], traffic.bin_payload[picked]
            share = _inside(begin, traffic.width_ns, _passes(logs.filter(pc.equal(logs["rank"], rank))))
            found.append(Hidden(rank=rank, sent=float(payload.sum()), computing=float((payload * share).sum())))
    return tuple(found)


def _passes(logs: Any) -> Ints:
    """Return the spans in which a rank computed, in nanoseconds, disjoint and in order; shape (n, 2)."""
    begin = logs["start_ns"].to_numpy().astype(np.int64)
    passes = sum(logs[name].to_numpy(zero_copy_only=False) for name in ("forward_s", "backward_s"))
    end = begin + np.nan_to_num(passes * 1e9).astype(np.int64)
    spans = intervals.merged(zip(begin.tolist(), end.tolist(), strict=True))
    return np.array(spans, np.int64).reshape(-1, 2)


def _inside(begin: Ints, width: int, spans: Ints) -> npt.NDArray[np.float64]:
    """Return the part of each bin that lies within disjoint spans."""
    edges = np.concatenate(([0], np.cumsum(spans[:, 1] - spans[:, 0])))

    def until(at: Ints) -> Ints:  # nanoseconds of the spans that lie before an instant
        place = np.searchsorted(spans[:, 0], at, side="right")
        last = np.maximum(place - 1, 0)
        within = np.minimum(at, spans[last, 1]) - spans[last, 0]
        before: Ints = np.where(place > 0, edges[last] + within, 0)
        return before

    if not len(spans):
        return np.zeros(len(begin))
    share: npt.NDArray[np.float64] = (until(begin + width) - until(begin)) / width
    return share


def could_hide(
    layers: Sequence[tuple[float, float]], *, forward_s: float, backward_s: float, sending_s: float
) -> float:
    """Return the share of a training's bytes that could leave while it computes, within an iteration, by theory.

    `layers` has the work (such as FLOPs) and the size of each layer, in the order of the forward pass; the times are
    seconds of an iteration: its passes, and sending all gradients at the rate of the link. A layer's gradient is ready
    when the backward pass, last layer first, has done it; gradients leave in this order, each as soon as it is ready
    and the link is free, without latency and without waiting for others to be sent together. So the first layer's never
    leaves in time, and bytes that are ready late do not either. NaN without layers that have work and a size.
    """
    work, size = (sum(values) for values in zip(*layers, strict=True)) if layers else (0.0, 0.0)
    if not (work > 0 and size > 0 and sending_s > 0):
        return float("nan")
    end = ready = free = forward_s
    end += backward_s
    in_time = 0.0
    for own_work, own_size in reversed(layers):
        ready += backward_s * own_work / work
        begin, takes = max(ready, free), sending_s * own_size / size
        free = begin + takes
        in_time += min(max(end - begin, 0.0), takes)
    return in_time / sending_s
