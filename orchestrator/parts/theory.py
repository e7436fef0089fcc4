"""Model of a training's iteration, as plain data: bytes that its ranks send, and what they compute meanwhile.

Times are seconds of compute on the accelerator that is modelled; sizes are bytes of a message, scaled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

# Collective after collective takes the next rail; all rails carry as much; the first one carries all.
Spread = Literal["", "turns", "even", "first"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Theory:
    """What a rank sends in an iteration by the model of the paper named in `source`, in bytes, already scaled.

    `pairs`, where it is given, says which node sends how much of it to which: (from, to, bytes of all its ranks).
    `spread` says how that shares the rails of a host; empty where nothing is known of it.
    """

    bytes_per_iteration: float
    parameters: int  # moved, scaled
    source: str
    pairs: tuple[tuple[str, str, float], ...] = ()
    spread: Spread = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compute:
    """What a rank computes in an iteration, where no file says it: measured in a run, or estimated.

    `ready` says when gradients were there: points of (share of their bytes, share of the backward pass) on the way from
    (0, 0) to (1, 1), both growing. Empty where nothing tells, so that layers take the time that their FLOPs ask for.
    """

    forward_s: float
    backward_s: float  # of the pass whose gradients travel, until the last gradient
    step_s: float = 0.0  # what follows communication: the optimizer's step
    ready: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """Gradients that are all-reduced together, and when the backward pass has made the last of them."""

    size: int
    ready_s: float  # since the backward pass began


@dataclass(frozen=True, slots=True, kw_only=True)
class Replicated:
    """Data parallelism that overlaps: each bucket is all-reduced over all ranks while the backward pass goes on.

    `passes` forward and backward passes make an iteration; the last one's gradients travel.
    """

    ranks: int
    forward_s: float
    backward_s: float
    passes: int
    buckets: tuple[Bucket, ...]  # in the order in which they are ready


@dataclass(frozen=True, slots=True, kw_only=True)
class StageWork:
    """What a rank of one pipeline stage does: for a micro-batch, then once an iteration.

    `forward` and `backward` are the times of its pieces of compute; recomputation belongs to the backward pass.
    """

    forward_s: float
    forward_pieces: int
    forward_all_reduces: int  # of an activation over tensor ranks
    backward_s: float
    backward_pieces: int
    backward_all_reduces: int
    gradients: int  # bytes that its replicas all-reduce


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipelined:
    """A model split by pipeline stage, tensor and replica, in 1F1B order with a flush, without overlap.

    Groups hold ranks: those that all-reduce activations, lines of stages, those that all-reduce gradients, and first
    and last stages that all-reduce the embedding table.
    """

    microbatches: int
    activation: int  # bytes of a micro-batch's activation
    embedding: int  # bytes of the table's gradients
    stages: tuple[StageWork, ...]
    stage_of: tuple[int, ...]  # by rank
    tensor_groups: Sequence[Sequence[int]]
    lines: Sequence[Sequence[int]]
    data_groups: Sequence[Sequence[int]]
    ends: Sequence[Sequence[int]]


Work = Replicated | Pipelined
