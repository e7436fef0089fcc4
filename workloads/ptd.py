"""A GPT trained tensor-, pipeline- and data-parallel on torch.distributed, with emulated compute and real messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import pairwise
from typing import Annotated

from pydantic import Field

from orchestrator.core.units import Duration
from orchestrator.parts.launch import Launch, Requirement
from orchestrator.parts.protocols import Problem
from orchestrator.parts.rows import Columns, LaunchOutput
from orchestrator.parts.theory import Theory
from orchestrator.parts.topology import Job, Topology
from orchestrator.parts.work import Pipelined, StageWork
from workloads.common import between, footprints, gpt_parallel, torch_ranks
from workloads.common.between import Pairs
from workloads.common.gpt_parallel import ORDERS, GptConfig
from workloads.common.modelled import BYTES_PER_PARAMETER
from workloads.common.placement import placement_problems
from workloads.models import gpt
from workloads.models.catalog import FORWARD_SHARE
from workloads.models.gpt import Stage
from workloads.rank.torch import parallel
from workloads.rank.torch.parallel import DIMENSIONS, REPLICA, STAGE, TENSOR
from workloads.rank.torch.ptd import Settings, StagePlan
from workloads.readers.iteration_logs import read_training

NAME = "ptd"

_ELEMENT_BYTES = {"fp32": 4, "fp16": 2, "bf16": 2}
_RECOMPUTED_SHARE = 1 / 4  # of an iteration's FLOPs, each of forward pass and recomputation; the backward pass has half


class Config(GptConfig):
    """A GPT on p x t x d ranks: p pipeline stages, each split over t ranks, all of it d times."""

    compute_time: Annotated[Duration, Field(gt=0)]
    """Time for which a rank computes in an iteration, in the mean over stages, on the accelerator that is modelled.
    Measured: train one stage (layers / pipeline blocks) on one such accelerator, without communication, and take
    `microbatches` times the time of a microbatch's forward and backward pass. Estimated, by Li's equation 9: with N
    parameters, sequences of s tokens, an accelerator of F FLOP/s of which a share u is used, 6 m
    N b s / (p t u F), and 8 instead of 6 with `recompute`. Stages share it by their FLOPs."""

    recompute: bool = False
    """Whether the forward pass is done again before the backward pass, instead of keeping activations: two all-reduces
    more a block, and a quarter of the compute time each for forward pass and recomputation."""


def problems(config: Config, topology: Topology) -> list[Problem]:
    found = placement_problems(config.hosts, topology)
    shape = gpt.shape_of(config.model)
    world = len(config.hosts if config.hosts is not None else topology.hosts)
    needed = config.pipeline * config.tensor * config.data
    if world != needed:
        found.append(
            Problem(
                at=("hosts",),
                message=f"{config.pipeline} x {config.tensor} x {config.data} (pipeline, tensor, data) are {needed} "
                f"ranks, and hosts has {world}",
                accepted=f"{needed} hosts; a host named more than once has more than one rank",
            )
        )
    if config.pipeline > shape.layers:
        found.append(
            Problem(
                at=("pipeline",),
                message=f"{shape.layers} blocks cannot be divided among {config.pipeline} stages",
                accepted=f"at most {shape.layers}",
            )
        )
    if shape.hidden % config.tensor:
        found.append(
            Problem(
                at=("tensor",),
                message=f"a hidden size of {shape.hidden} cannot be divided by {config.tensor}",
                accepted=f"a divisor of {shape.hidden}",
            )
        )
    return found + _mapping_problems(config) + _backend_problems(config)


def _mapping_problems(config: Config) -> list[Problem]:
    mapping = config.mapping
    if isinstance(mapping, str):
        return []
    sizes = gpt_parallel.sizes(config)
    if isinstance(mapping[0], str):
        if set(mapping) == set(DIMENSIONS):
            return []
        message, accepted = "each dimension orders ranks once", "pipeline, tensor and data in any order"
    else:
        wanted = Counter(parallel.places(sizes, ORDERS["default"]))
        if Counter(mapping) == wanted:
            return []
        message = f"{len(mapping)} places are not those of {sizes[0]} x {sizes[1]} x {sizes[2]}, each once"
        accepted = f"{wanted.total()} different [stage, tensor, replica], the first below {sizes[0]}, and so on"
    return [Problem(at=("mapping",), message=message, accepted=accepted)]


def _backend_problems(config: Config) -> list[Problem]:
    if config.backend != "nccl":
        return torch_ranks.transport_problems(config, "gloo")
    message = "a stage's messages in both directions are told apart by tags, which NCCL does not have"
    return [Problem(at=("backend",), message=message, accepted="gloo")]


def launches(config: Config, job: Job, topology: Topology, seed: int) -> list[Launch]:
    """A launch for each rank; training and rendezvous flows stand on that of rank 0."""
    sizes = gpt_parallel.messages(config, topology.scale)
    settled = config.model_copy(update={"backend": "gloo"})
    settings: Settings = {
        **torch_ranks.settings(settled, job, seed=seed),
        "places": gpt_parallel.placed(config),
        "stages": [_plan(config, stage) for stage in gpt_parallel.stages(config)],
        "batch": config.batch,
        "microbatches": config.microbatches,
        "recompute": config.recompute,
        "precision": config.precision,
        "activation": sizes.activation,
        "gradients": sizes.gradients,
        "embedding": sizes.embedding,
    }
    held = max(sizes.gradients) * BYTES_PER_PARAMETER
    return torch_ranks.launches(
        settled, job, topology, program="torch.ptd", settings=settings,
        footprint=footprints.emulated(held, compute_s=config.compute_time, ranks=len(job.ranks)),
    )  # fmt: skip


def _plan(config: Config, stage: Stage) -> StagePlan:
    """A stage's times for one microbatch, in seconds: forward of half a block each, of the projection on words.

    `backward` says how many times longer a backward pass takes.
    """
    share = _RECOMPUTED_SHARE if config.recompute else FORWARD_SHARE
    total = sum(one.flops for one in gpt_parallel.stages(config))
    second = config.compute_time * config.pipeline / config.microbatches * share / total
    return {
        "blocks": stage.blocks,
        "attention_s": stage.attention_flops * second,
        "feed_forward_s": stage.feed_forward_flops * second,
        "head_s": stage.head_flops * second,
        "backward": 2.0,
    }


def requirements(config: Config, job: Job, topology: Topology) -> list[Requirement]:  # noqa: ARG001
    return torch_ranks.requirements(job, topology, needed_by=NAME)


def traffic(config: Config, scale: int) -> dict[str, Pairs]:
    """Who sends how much to whom in an iteration, by what it is for, on the same host or not.

    Tensor: Li, eq. 2, rings over b s h elements. Pipeline: eq. 3, with the inner stages' two neighbours. Data: eq. 4,
    with each stage's own share of the parameters. Embedding: the sum of the table's gradients over first and last
    stage, 96 MB in Li's table 3.
    """
    where, sizes, bytes_each = (
        gpt_parallel.placed(config),
        gpt_parallel.messages(config, scale),
        _ELEMENT_BYTES[config.precision],
    )
    stages = gpt_parallel.stages(config)
    activation = config.microbatches * sizes.activation * bytes_each
    tensor = [
        between.ring_of(members, _ring(members) * activation * stages[where[members[0]][STAGE]].all_reduces(
            recompute=config.recompute
        ))
        for members in parallel.groups(where, TENSOR)
    ]  # fmt: skip
    pipeline = [
        {(before, after): activation, (after, before): activation}
        for line in parallel.groups(where, STAGE)
        for before, after in pairwise(line)
    ]
    data = [
        between.ring_of(members, _ring(members) * sizes.gradients[where[members[0]][STAGE]] * bytes_each)
        for members in parallel.groups(where, REPLICA)
    ]
    table = [between.ring_of(pair, sizes.embedding * bytes_each) for pair in parallel.ends(where)]
    return {
        "tensor": between.summed(tensor),
        "pipeline": between.summed(pipeline),
        "data": between.summed(data),
        "embedding": between.summed(table),
    }


def _ring(members: list[int]) -> float:
    """What each member of a ring sends of an all-reduced message, as a multiple of it."""
    return 2 * (len(members) - 1) / len(members)


def theory(config: Config, job: Job, topology: Topology) -> Theory:
    """Bytes between hosts; what ranks of one host tell each other does not cross the network."""
    sizes = gpt_parallel.messages(config, topology.scale)
    pairs = between.summed(traffic(config, topology.scale).values())
    source = (
        f"tensor, pipeline and data parallel with (p, t, d) = {gpt_parallel.sizes(config)} (Li, eq. 2-4), "
        f"{config.precision}, embedding table over first and last stage, mapping between hosts counted"
    )
    return between.theory(job, pairs, parameters=sum(sizes.gradients) * config.tensor, source=source)


def work(config: Config, job: Job, topology: Topology) -> Pipelined:  # noqa: ARG001 - a work of any placement
    """What the ranks do in an iteration, stage by stage."""
    where, sizes, bytes_each = (
        gpt_parallel.placed(config),
        gpt_parallel.messages(config, topology.scale),
        _ELEMENT_BYTES[config.precision],
    )
    stages = gpt_parallel.stages(config)
    return Pipelined(
        microbatches=config.microbatches,
        activation=sizes.activation * bytes_each,
        embedding=sizes.embedding * bytes_each,
        stages=tuple(
            _stage_work(config, stage, gradients=elements * bytes_each)
            for stage, elements in zip(stages, sizes.gradients, strict=True)
        ),
        stage_of=tuple(place[STAGE] for place in where),
        tensor_groups=parallel.groups(where, TENSOR),
        lines=parallel.groups(where, STAGE),
        data_groups=parallel.groups(where, REPLICA),
        ends=parallel.ends(where),
    )


def _stage_work(config: Config, stage: Stage, *, gradients: int) -> StageWork:
    """A micro-batch in this stage, as `rank/torch/ptd.py` goes through it: half a block, then an all-reduce."""
    plan = _plan(config, stage)
    halves = 2 * stage.blocks
    blocks_s = stage.blocks * (plan["attention_s"] + plan["feed_forward_s"])
    again = config.recompute
    return StageWork(
        forward_s=blocks_s + plan["head_s"],
        forward_pieces=halves + stage.last,
        forward_all_reduces=halves + stage.first,
        backward_s=blocks_s * again + (blocks_s + plan["head_s"]) * plan["backward"],
        backward_pieces=halves * (1 + again) + stage.last,
        backward_all_reduces=halves * (1 + again) + stage.last,
        gradients=gradients,
    )


def read(output: LaunchOutput) -> Mapping[str, Columns]:
    return read_training(output)
