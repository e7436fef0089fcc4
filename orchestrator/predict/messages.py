"""List the messages that a rank sends in an iteration, by kind (Li, table 3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.parts.theory import Pipelined, Replicated
from orchestrator.predict.predicting import Subject
from workloads.models.formulation import ring_factor


@dataclass(frozen=True, slots=True, kw_only=True)
class Messages:
    """The messages of one kind in an iteration of a rank, in bytes at full size.

    `size` is that of the largest one. `volume` counts each all-reduced or sent message once, as the paper does: of
    sends and receives, which are both in `count`, the sends alone. `sent` is what leaves the rank: 2 (n - 1) / n times
    an all-reduced message.
    """

    kind: str
    count: int
    size: float
    volume: float
    sent: float


def of_rank(subject: Subject, rank: int) -> list[Messages]:
    """Return the messages of a rank, by kind; a kind that it does not have is left out."""
    scale = subject.topology.scale
    if isinstance(subject.work, Replicated):
        sizes = [bucket.size * scale for bucket in subject.work.buckets]
        sent = ring_factor(subject.work.ranks) * sum(sizes)
        return [Messages(kind="data", count=len(sizes), size=max(sizes), volume=sum(sizes), sent=sent)]
    found = _of_parts(subject.work, rank, scale)
    return [one for one in found if one.count]


def _of_parts(work: Pipelined, rank: int, scale: int) -> list[Messages]:
    number = work.stage_of[rank]
    own = work.stages[number]
    activation = work.activation * scale
    reduced = work.microbatches * (own.forward_all_reduces + own.backward_all_reduces)
    sends = work.microbatches * ((number > 0) + (number < len(work.stages) - 1))
    moved = sends * activation
    return [
        _all_reduced("tensor", work.tensor_groups, rank, count=reduced, size=activation),
        Messages(kind="pipeline", count=2 * sends, size=activation, volume=moved, sent=moved),
        _all_reduced("data", work.data_groups, rank, count=1, size=own.gradients * scale),
        _all_reduced("embedding", work.ends, rank, count=1, size=work.embedding * scale),
    ]


def _all_reduced(kind: str, groups: Sequence[Sequence[int]], rank: int, *, count: int, size: float) -> Messages:
    """Return the all-reduces in the group of a rank; none where it is alone."""
    members = next((group for group in groups if rank in group), ())
    if len(members) < 2:
        return Messages(kind=kind, count=0, size=size, volume=0.0, sent=0.0)
    volume = count * size
    return Messages(kind=kind, count=count, size=size, volume=volume, sent=ring_factor(len(members)) * volume)
