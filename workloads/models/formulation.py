"""Li et al., "Understanding Communication Characteristics of Distributed Training" (APNet 2024), equations 1 to 11.

The paper's notation (its table 4): a GPT of `l` blocks of hidden size `h` on sequences of `s` tokens, with `V` words, N
parameters in all; (p, t, d) pipeline stages, tensor ranks and replicas; `m` micro-batches of `b` samples an iteration.
Activations, parameters and gradients have 16 bits. `c` is the effective bandwidth of a kind of traffic in bytes a
second, F the peak of an accelerator in FLOP/s, `mu` the share of it that is used. Times are in seconds, of rank 0.

The equations are the paper's, with its simplifications: parameters and blocks divide evenly among stages, and nothing
overlaps. `orchestrator.predict` evaluates what our ranks do instead, stage by stage, from the same inputs.
"""

from __future__ import annotations

from dataclasses import dataclass

ELEMENT_BYTES = 2  # 16 bits
ALL_REDUCES = 6  # of a block and micro-batch, with recomputation; 4 without
FLOPS = 8  # of a parameter and token, with recomputation; 6 without


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """(p, t, d), micro-batches `m` of an iteration, and samples `b` of each."""

    p: int
    t: int
    d: int
    m: int
    b: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """The five terms of equation 1 in seconds."""

    compute_s: float
    tensor_s: float
    pipeline_s: float
    data_s: float
    bubble_s: float

    @property
    def iteration_s(self) -> float:
        """Equation 1."""
        return self.compute_s + self.tensor_s + self.pipeline_s + self.data_s + self.bubble_s


def message_bytes(*, b: int, s: int, h: int) -> int:
    """Return 2 b s h, the bytes of a tensor-parallel all-reduce or of a send between stages (section 5.1)."""
    return ELEMENT_BYTES * b * s * h


def ring_factor(ranks: int) -> float:
    """Return 2 (n - 1) / n, what each rank of a ring all-reduce sends, as a multiple of the message."""
    return 2 * (ranks - 1) / ranks


def tensor_s(split: Split, *, layers: int, message: float, c: float, all_reduces: int = ALL_REDUCES) -> float:
    """Return equation 2: all-reduces of activations over tensor ranks, of all micro-batches."""
    return split.m * (layers / split.p) * all_reduces * message * ring_factor(split.t) / c


def pipeline_s(split: Split, *, message: float, c: float) -> float:
    """Return equation 3: one send and one receive of a micro-batch at rank 0; nothing with a single stage."""
    return 0.0 if split.p == 1 else split.m * 2 * message / c


def data_s(split: Split, *, parameters: float, c: float) -> float:
    """Return equation 4: the all-reduce of a rank's share of the gradients over replicas."""
    return ELEMENT_BYTES * parameters / (split.p * split.t) * ring_factor(split.d) / c


def bubble_s(split: Split, *, compute_s: float, tensor_s: float, pipeline_s: float) -> float:
    """Return equation 5, from the times of all micro-batches: p - 1 micro-batches' worth of them."""
    return (split.p - 1) * (compute_s + tensor_s + pipeline_s) / split.m


def bubble_share(split: Split) -> float:
    """Return equation 7: the bubble's share of an iteration without its all-reduce of gradients."""
    return (split.p - 1) / (split.p - 1 + split.m)


def compute_flops(split: Split, *, parameters: float, s: int, per_token: int = FLOPS) -> float:
    """Return equation 8: FLOPs of a micro-batch on one rank."""
    return per_token * parameters / (split.p * split.t) * split.b * s


def compute_s(split: Split, *, parameters: float, s: int, f: float, mu: float, per_token: int = FLOPS) -> float:
    """Return equation 9: time of computing in an iteration."""
    return split.m * compute_flops(split, parameters=parameters, s=s, per_token=per_token) / (mu * f)


def parameters(*, layers: int, h: int, s: int, vocabulary: int) -> float:
    """Return equation 10: N, parameters of a GPT."""
    return 12 * layers * h**2 * (1 + 13 / (12 * h) + (vocabulary + s) / (12 * layers * h))


def iteration_flops(*, b: int, s: int, layers: int, h: int, vocabulary: int) -> float:
    """Return equation 11: P, FLOPs of an iteration over `b` samples, with recomputation."""
    return 96 * b * s * layers * h**2 * (1 + s / (6 * h) + vocabulary / (16 * layers * h))


def iteration(
    split: Split,
    *,
    layers: int,
    message: float,
    parameters: float,
    compute_s: float,
    c_tensor: float,
    c_pipeline: float,
    c_data: float,
    all_reduces: int = ALL_REDUCES,
) -> Times:
    """Return the terms of an iteration (equations 1 and 6), from the time of its computing on one rank.

    A dimension of one rank has no traffic, whatever its bandwidth.
    """
    tensor = tensor_s(split, layers=layers, message=message, c=c_tensor, all_reduces=all_reduces)
    pipeline = pipeline_s(split, message=message, c=c_pipeline)
    return Times(
        compute_s=compute_s,
        tensor_s=tensor,
        pipeline_s=pipeline,
        data_s=data_s(split, parameters=parameters, c=c_data),
        bubble_s=bubble_s(split, compute_s=compute_s, tensor_s=tensor, pipeline_s=pipeline),
    )
