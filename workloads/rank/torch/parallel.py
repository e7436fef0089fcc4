"""Process groups and schedule (1F1B) of a training that is split by pipeline stage, tensor and data."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import product

STAGE, TENSOR, REPLICA = range(3)
DIMENSIONS = ("pipeline", "tensor", "data")

Place = tuple[int, int, int]  # pipeline stage, part of each tensor, replica of the model: each from 0


def places(sizes: Sequence[int], order: Sequence[str]) -> list[Place]:
    """Return the place of each rank, by the `sizes` of three dimensions and their order, the fastest-changing first."""
    axes = [DIMENSIONS.index(name) for name in reversed(order)]
    found = []
    for numbers in product(*(range(sizes[axis]) for axis in axes)):
        place = dict(zip(axes, numbers, strict=True))
        found.append((place[STAGE], place[TENSOR], place[REPLICA]))
    return found


def groups(where: Sequence[Place], dimension: int) -> list[list[int]]:
    """Return the groups of ranks that differ in this dimension alone, in its order; together they are all ranks."""
    found: defaultdict[tuple[int, ...], list[int]] = defaultdict(list)
    for rank in sorted(range(len(where)), key=lambda rank: where[rank][dimension]):
        place = where[rank]
        found[place[:dimension] + place[dimension + 1 :]].append(rank)
    return [found[key] for key in sorted(found)]


def ends(where: Sequence[Place]) -> list[list[int]]:
    """Return pairs of ranks that hold the same part of the embedding table: one of the first stage, one of the last."""
    return [[line[0], line[-1]] for line in groups(where, STAGE) if len(line) > 1]


def one_forward_one_backward(stage: int, stages: int, microbatches: int) -> list[tuple[str, int]]:
    """Return the passes of a stage in an iteration (forward or backward, microbatch): PipeDream's 1F1B with a flush.

    As many forward passes as there are stages behind it, then one of each in turn, then the backward passes that are
    left: a stage never holds the activations of more microbatches than there are stages from it on.
    """
    ahead = min(stages - 1 - stage, microbatches)
    steps = [("forward", number) for number in range(ahead)]
    for number in range(microbatches - ahead):
        steps += [("forward", ahead + number), ("backward", number)]
    return steps + [("backward", number) for number in range(microbatches - ahead, microbatches)]
