"""Traffic of collective operations: bytes between ranks, rounds, and factors of bus bandwidth."""

from __future__ import annotations

import math

from workloads.common import mpi_ranks, rank_traffic
from workloads.common.rank_traffic import Pairs
from workloads.common.skew import Shares


def bus_factor(operation: str, world: int) -> float:
    """Return bus bandwidth over algorithm bandwidth, as nccl-tests' PERFORMANCE.md defines it.

    It is the share of the message that the busiest link must carry at least, so that a bus bandwidth can be compared
    with the link's rate for any operation and number of ranks.
    """
    if operation == "all-reduce":
        return 2 * (world - 1) / world
    return 1.0 if operation in ("broadcast", "send-receive") else (world - 1) / world


def members(ranks: int, groups: int) -> list[list[int]]:
    """Return the ranks of each group."""
    size = ranks // groups
    return [list(range(first, first + size)) for first in range(0, ranks, size)]


def exchanged(
    operation: str,
    ranks: int,
    size: float,
    *,
    groups: int,
    backend: str,
    algorithm: mpi_ranks.Algorithm | None = None,
    parts: Shares | None = None,
) -> tuple[Pairs, int]:
    """Return the bytes between ranks in one operation of all groups, and its number of consecutive rounds.

    `parts` are those of an uneven all-to-all, in messages, of each rank of a group to each one.
    """
    own = ranks // groups
    if parts is not None and operation == "all-to-all":
        within: Pairs = {(a, b): size * parts[a][b] for a in range(own) for b in range(own) if a != b and parts[a][b]}
    else:
        within = sent_in(operation, own, size, backend=backend, algorithm=algorithm)
    pairs = {(group[src], group[dst]): sent for group in members(ranks, groups) for (src, dst), sent in within.items()}
    return pairs, rounds(operation, own, backend=backend)


def rounds(operation: str, world: int, *, backend: str) -> int:
    """Return how many consecutive messages an operation takes: twice around a ring, once, along a tree, or none."""
    if operation == "all-reduce" or (operation == "reduce-scatter" and backend == "gloo"):
        return 2 * (world - 1)
    if operation == "broadcast":
        return math.ceil(math.log2(world))
    return 1 if operation in ("send-receive", "all-to-all") else world - 1


def sent_in(
    operation: str, world: int, size: float, *, backend: str, algorithm: mpi_ranks.Algorithm | None = None
) -> Pairs:
    """Return the bytes between ranks in one operation: rings, a mesh, a star and a binomial tree rooted at rank 0.

    In a gather `size` is what a rank contributes, in a scatter all that the root gives away.

    Gloo's reduce-scatter is an all-reduce of which each rank keeps its share: it sends twice what it would have to.
    MPI's all-reduce goes by the `algorithm`, and its rings turn the other way.
    """
    if operation == "all-to-all":
        return {(a, b): size / world for a in range(world) for b in range(world) if a != b}
    if operation == "send-receive":
        return rank_traffic.turned(rank_traffic.ring(world, size))
    if operation in ("broadcast", "reduce", "gather", "scatter", "barrier"):
        return _rooted(operation, world, size)
    if operation == "reduce-scatter" and backend == "gloo":
        operation = "all-reduce"
    if backend == "mpi" and operation == "all-reduce":
        return mpi_ranks.all_reduce(algorithm or "ring", world, size)
    ring = rank_traffic.ring(world, bus_factor(operation, world) * size)
    return rank_traffic.turned(ring) if backend == "mpi" or operation == "all-gather" else ring


def _rooted(operation: str, world: int, size: float) -> Pairs:
    """Return the bytes between ranks in an operation in which rank 0 has a part of its own; a barrier has none."""
    others = range(1, world)
    if operation == "broadcast":
        return {(rank - (1 << (rank.bit_length() - 1)), rank): size for rank in others}
    if operation == "gather":
        return {(rank, 0): size for rank in others}
    if operation == "scatter":
        return {(0, rank): size / world for rank in others}
    if operation == "barrier":
        return {}
    # Gloo's reduce is the first half of its all-reduce, and then each part goes to the root.
    parts = {(rank, 0): size / world for rank in others}
    return rank_traffic.summed((rank_traffic.ring(world, (world - 1) / world * size), parts))
