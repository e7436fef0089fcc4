"""DeepSpeed's pipeline: which layers a stage has, which rank is where, and what they send each other."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Protocol

from orchestrator.parts.protocols import Problem
from orchestrator.parts.topology import Topology
from workloads.common import between
from workloads.common.between import Pairs
from workloads.common.placement import ranks
from workloads.common.trainings import modelled
from workloads.common.trainings.modelled import Modelled
from workloads.models import catalog
from workloads.models.catalog import EmulatedLayer

if TYPE_CHECKING:
    from workloads.rank.deepspeed.pipeline import StagePlan  # which needs torch

ELEMENT_BYTES = {"fp32": 4, "bf16": 2, "fp16": 2}


class Piped(Modelled, Protocol):
    """A configuration of a pipeline."""

    @property
    def hosts(self) -> list[str] | None: ...

    @property
    def zero_stage(self) -> int: ...

    @property
    def pipeline_stages(self) -> int: ...

    @property
    def microbatches(self) -> int: ...

    @property
    def activation(self) -> float | None: ...

    @property
    def precision(self) -> str: ...


def problems(config: Piped, topology: Topology) -> list[Problem]:
    """Where the pipeline cannot be what was asked for; the placement must be without problems."""
    if config.pipeline_stages == 1:
        return []
    found = []
    world = len(ranks(config.hosts, topology))
    if world % config.pipeline_stages:
        message = f"{world} ranks cannot be divided among {config.pipeline_stages} stages"
        found.append(Problem(at=("pipeline_stages",), message=message, accepted="a divisor of the number of ranks"))
    if config.zero_stage > 1:
        message = (
            "a pipeline keeps gradients and parameters of several microbatches: DeepSpeed has it with ZeRO-1 alone"
        )
        found.append(Problem(at=("zero_stage",), message=message, accepted="0 or 1 beside pipeline_stages"))
    whole = sum(1 for layer in _layers(config, topology) if layer.sizes)
    if config.pipeline_stages > whole:
        message = f"{whole} layers with parameters cannot be divided among {config.pipeline_stages} stages"
        found.append(Problem(at=("pipeline_stages",), message=message, accepted=f"at most {whole}"))
    if config.activation is None and catalog.load(config.model).transformer is None:
        message = f"nobody has told what stages of {config.model} pass on"
        found.append(Problem(at=("activation",), message=message, accepted="a size, such as 10mb"))
    return found


def _layers(config: Piped, topology: Topology) -> list[EmulatedLayer]:
    return [
        EmulatedLayer(forward_s, backward_s, tuple(sizes))
        for forward_s, backward_s, sizes in modelled.layers(config, topology)
    ]


def partition(sizes: list[int], stages: int) -> list[slice]:
    """Consecutive parts, none of size nothing, of which the largest is as small as can be.

    It is what DeepSpeed's `partition_method: parameters` aims at.
    """
    count = len(sizes)
    # best[k][n]: the largest of k parts of the first n, and where the last of them begins
    best: list[dict[int, tuple[int, int]]] = [{0: (0, 0)}]
    for _ in range(stages):
        row: dict[int, tuple[int, int]] = {}
        for end in range(1, count + 1):
            ways = [
                (max(best[-1][begin][0], part), begin)
                for begin in range(end)
                if begin in best[-1] and (part := sum(sizes[begin:end]))
            ]
            if ways:
                row[end] = min(ways)
        best.append(row)
    parts, end = [], count
    for row in reversed(best[1:]):
        begin = row[end][1]
        parts.append(slice(begin, end))
        end = begin
    return parts[::-1]


def divided(config: Piped, topology: Topology) -> list[list[EmulatedLayer]]:
    """The layers of each stage."""
    layers = _layers(config, topology)
    return [layers[part] for part in partition([sum(layer.sizes) for layer in layers], config.pipeline_stages)]


def activation(config: Piped, topology: Topology) -> int:
    """Elements, scaled, that a stage passes on of a microbatch."""
    each = ELEMENT_BYTES[config.precision]
    size = config.activation
    if size is None:
        shape = catalog.load(config.model).transformer
        if shape is None:
            raise AssertionError("a configuration without problems has an activation")
        _, hidden, sequence, _ = shape
        size = modelled.batch(config) / config.microbatches * sequence * hidden * each
    return max(1, round(size / each / topology.scale))


def plans(config: Piped, topology: Topology) -> list[StagePlan]:
    """What a rank program is given of the stages."""
    return [
        {
            "forward_s": sum(layer.forward_s for layer in layers) / config.microbatches,
            "backward_s": sum(layer.backward_s for layer in layers) / config.microbatches,
            "sizes": [size for layer in layers for size in layer.sizes],
        }
        for layers in divided(config, topology)
    ]


def traffic(config: Piped, topology: Topology) -> tuple[Pairs, int, str]:
    """Who sends how much to whom in an iteration, the parameters of the whole model, and how that was counted."""
    world = len(ranks(config.hosts, topology))
    element_bytes = ELEMENT_BYTES[config.precision]
    replicas = world // config.pipeline_stages
    message = config.microbatches * activation(config, topology) * element_bytes
    found: list[Pairs] = []
    total = 0
    for number, layers in enumerate(divided(config, topology)):
        held = sum(size for layer in layers for size in layer.sizes)
        total += held
        # ZeRO-1 gathers the parameters, padded to twice the number of replicas, where each has updated its share.
        gathered = -(-held // (2 * replicas)) * 2 * replicas if config.zero_stage else 0
        members = range(number * replicas, (number + 1) * replicas)
        share = (replicas - 1) / replicas * element_bytes
        found += [
            between.ring_of(members, 2 * share * held),
            between.turned(between.ring_of(members, share * gathered)),
        ]
    for line in (range(replica, world, replicas) for replica in range(replicas)):
        for before, after in pairwise(line):
            found.append({(before, after): message, (after, before): message})
    passes = f"{config.microbatches} microbatches forward and backward between {config.pipeline_stages} stages"
    reduced = "all-reduce" + (" and all-gather" if config.zero_stage else "")
    return between.summed(found), total, f"{passes}, {reduced} over {replicas} replicas, {element_bytes} bytes each"
