"""Which gradients PyTorch DDP reduces together, and when they are there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from orchestrator.parts.work import Bucket
from workloads.rank.lifecycle import LayerPlan

_ELEMENT_BYTES = 4  # DDP counts a bucket as it lies in memory, before any compression


def buckets(layers: Sequence[LayerPlan], *, cap: float, first: float | None, element_bytes: int) -> tuple[Bucket, ...]:
    """DDP's buckets from its second iteration on, when they are made in the order in which gradients come.

    A bucket is closed by the first tensor with which it has `cap` bytes or more (`first` for the first bucket, where
    that is another size); `element_bytes` is what an element travels as (torch's `compute_bucket_assignment_by_size`).
    """
    found = []
    held, limit = 0, cap if first is None else first
    ready_s = 0.0
    for ready_s, size in _gradients(layers):
        held += size
        if held * _ELEMENT_BYTES >= int(limit):
            found.append(Bucket(size=held * element_bytes, ready_s=ready_s))
            held, limit = 0, cap
    if held:
        found.append(Bucket(size=held * element_bytes, ready_s=ready_s))
    return tuple(found)


def _gradients(layers: Sequence[LayerPlan]) -> Iterator[tuple[float, int]]:
    """Each gradient's instant in the backward pass, in seconds, and its elements, the last layer's first."""
    ready_s = 0.0
    for _, backward_s, sizes in reversed(layers):
        ready_s += backward_s
        for size in sizes:
            yield ready_s, size
