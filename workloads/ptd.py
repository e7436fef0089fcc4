"""A GPT trained tensor-, pipeline- and data-parallel on torch.distributed, with emulated compute and real messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Literal

from pydantic import Field

from orchestrator.core.fields import Duration
from orchestrator.parts.launch import Launch, Requirement
from orchestrator.parts.protocols import Problem
from orchestrator.parts.rows import Columns, LaunchOutput
from orchestrator.parts.taskgraph import TaskGraph
from orchestrator.parts.theory import Pipelined, StageWork, Theory
from orchestrator.parts.topology import Job, Topology
from workloads.common import footprints, jitter, pipelined_tasks, rank_traffic, torch_ranks
from workloads.common.jitter import JitteredConfig
from workloads.common.placement import placement_problems
from workloads.common.rank_traffic import Pairs
from workloads.common.torch_ranks import TorchConfig
from workloads.common.trained_model import BYTES_PER_PARAMETER
from workloads.models import gpt
from workloads.models.catalog import FORWARD_SHARE
from workloads.models.gpt import GptName, Shape, Stage
from workloads.rank.torch import parallel
from workloads.rank.torch.parallel import DIMENSIONS, REPLICA, STAGE, TENSOR, Place
from workloads.rank.torch.ptd import PtdSettings, StagePlan
from workloads.readers.iteration_logs import read_training

NAME = "ptd"

Dimension = Literal["pipeline", "tensor", "data"]
Order = tuple[Dimension, Dimension, Dimension]

# Li, figures 3 and 12: which ranks come next to each other, and so share a host first.
_ORDERS: Mapping[str, Order] = {"default": ("tensor", "data", "pipeline"), "customized": ("tensor", "pipeline", "data")}
_ELEMENT_BYTES = {"fp32": 4, "fp16": 2, "bf16": 2}
_RECOMPUTED_SHARE = 1 / 4  # of an iteration's FLOPs, each of forward pass and recomputation; the backward pass has half


class Config(JitteredConfig, TorchConfig):
    """A GPT on p x t x d ranks: p pipeline stages, each split over t ranks, all of it d times."""

    model: GptName | Shape
    """The GPT: one of the catalog, or `{layers, hidden, sequence, vocabulary}`."""

    pipeline: int = Field(default=1, ge=1)
    """Pipeline stages: p. They pass activations of one microbatch on, and their gradients back, in 1F1B order."""

    tensor: int = Field(default=1, ge=1)
    """Ranks over which each block's products are split: t. They all-reduce each block's activations twice a pass."""

    data: int = Field(default=1, ge=1)
    """Replicas of the model: d. They all-reduce all gradients once, when the last backward pass has ended."""

    mapping: (
        Literal["default", "customized"] | Order | Annotated[tuple[tuple[int, int, int], ...], Field(min_length=1)]
    ) = "default"
    """Which part of the model each rank has. Ranks fill `hosts` in order. `default` (DeepSpeed's): neighbours differ in
    tensor, then data, then pipeline, so that stages are far apart; `customized`: in tensor, then pipeline, then data.
    Or the three dimensions in an order of choice, or [stage, tensor, replica] of each rank, all counted from 0."""

    batch: int = Field(default=32, ge=1)
    """Samples of a microbatch: b."""

    microbatches: int = Field(default=8, ge=1)
    """Microbatches of each replica in an iteration: m."""

    compute_time: Annotated[Duration, Field(gt=0)]
    """Time for which a rank computes in an iteration, in the mean over stages, on the accelerator that is modelled.
    Measured: train one stage (layers / pipeline blocks) on one such accelerator, without communication, and take
    `microbatches` times the time of a microbatch's forward and backward pass. Estimated, by Li's equation 9: with N
    parameters, sequences of s tokens, an accelerator of F FLOP/s of which a share u is used, 6 m
    N b s / (p t u F), and 8 instead of 6 with `recompute`. Stages share it by their FLOPs."""

    recompute: bool = False
    """Whether the forward pass is done again before the backward pass, instead of keeping activations: two all-reduces
    more a block, and a quarter of the compute time each for forward pass and recomputation."""

    precision: Literal["fp32", "fp16", "bf16"] = "fp16"
    """What activations and gradients travel as."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Messages:
    """Sizes of messages in elements, scaled: an activation, and of each stage's rank all gradients and the table's."""

    activation: int
    gradients: tuple[int, ...]
    embedding: int


def problems(config: Config, topology: Topology) -> list[Problem]:
    found = [*placement_problems(config.hosts, topology), *jitter.problems(config, emulated=True)]
    shape = gpt.shape_of(config.model)
    world = len(config.hosts if config.hosts is not None else topology.placed)
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
    sizes = _sizes(config)
    if isinstance(mapping[0], str):
        if set(mapping) == set(DIMENSIONS):
            return []
        message, accepted = "each dimension orders ranks once", "pipeline, tensor and data in any order"
    else:
        wanted = Counter(parallel.places(sizes, _ORDERS["default"]))
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


def _sizes(config: Config) -> tuple[int, int, int]:
    return config.pipeline, config.tensor, config.data


def placed(config: Config) -> list[Place]:
    """Return the stage, part of each tensor and replica of each rank."""
    mapping = config.mapping
    if isinstance(mapping, str):
        return parallel.places(_sizes(config), _ORDERS[mapping])
    if isinstance(mapping[0], str):
        return parallel.places(_sizes(config), [str(name) for name in mapping])
    return [(int(stage), int(tensor), int(replica)) for stage, tensor, replica in mapping]


def _stages(config: Config) -> list[Stage]:
    return gpt.stages(gpt.shape_of(config.model), pipeline=config.pipeline, tensor=config.tensor)


def messages(config: Config, scale: int) -> Messages:
    """Return the sizes of messages at this scale; none becomes zero."""
    shape = gpt.shape_of(config.model)
    stages = _stages(config)

    def scaled(count: int) -> int:
        return max(1, round(count / scale))

    return Messages(
        activation=scaled(config.batch * shape.sequence * shape.hidden),
        gradients=tuple(scaled(stage.parameters) for stage in stages),
        embedding=scaled(stages[0].embedding),
    )


def launches(config: Config, job: Job, topology: Topology, seed: int) -> list[Launch]:
    """Return a launch for each rank; training and rendezvous flows stand on that of rank 0."""
    sizes = messages(config, topology.scale)
    settled = config.model_copy(update={"backend": "gloo"})
    settings: PtdSettings = {
        **torch_ranks.settings(settled, job, seed=seed),
        **jitter.settings(config, seed=seed),
        "places": placed(config),
        "stages": [_plan(config, stage) for stage in _stages(config)],
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
        settled,
        job,
        topology,
        program="torch.ptd",
        settings=settings,
        footprint=footprints.emulated(held, compute_s=config.compute_time, ranks=len(job.ranks)),
    )


def _plan(config: Config, stage: Stage) -> StagePlan:
    """Return a stage's times for one microbatch, in seconds: forward of half a block each, of the projection on words.

    `backward` says how many times longer a backward pass takes.
    """
    share = _RECOMPUTED_SHARE if config.recompute else FORWARD_SHARE
    total = sum(one.flops for one in _stages(config))
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
    """Return the bytes between ranks in an iteration, by purpose, on the same host or not.

    Tensor: Li, eq. 2, rings over b s h elements. Pipeline: eq. 3, with the inner stages' two neighbours. Data: eq. 4,
    with each stage's own share of the parameters. Embedding: the sum of the table's gradients over first and last
    stage, 96 MB in Li's table 3.
    """
    where, sizes, bytes_each = placed(config), messages(config, scale), _ELEMENT_BYTES[config.precision]
    stages = _stages(config)
    activation = config.microbatches * sizes.activation * bytes_each
    tensor = [
        rank_traffic.ring_of(
            members,
            _ring(members) * activation * stages[where[members[0]][STAGE]].all_reduces(recompute=config.recompute),
        )
        for members in parallel.groups(where, TENSOR)
    ]
    pipeline = [
        {(before, after): activation, (after, before): activation}
        for line in parallel.groups(where, STAGE)
        for before, after in pairwise(line)
    ]
    data = [
        rank_traffic.ring_of(members, _ring(members) * sizes.gradients[where[members[0]][STAGE]] * bytes_each)
        for members in parallel.groups(where, REPLICA)
    ]
    table = [rank_traffic.ring_of(pair, sizes.embedding * bytes_each) for pair in parallel.ends(where)]
    return {
        "tensor": rank_traffic.summed(tensor),
        "pipeline": rank_traffic.summed(pipeline),
        "data": rank_traffic.summed(data),
        "embedding": rank_traffic.summed(table),
    }


def _ring(members: list[int]) -> float:
    """Return what each member of a ring sends of an all-reduced message, as a multiple of it."""
    return 2 * (len(members) - 1) / len(members)


def theory(config: Config, job: Job, topology: Topology) -> Theory:
    """Return the bytes between hosts; messages between ranks of one host do not cross the network."""
    sizes = messages(config, topology.scale)
    pairs = rank_traffic.summed(traffic(config, topology.scale).values())
    source = (
        f"tensor, pipeline and data parallel with (p, t, d) = {_sizes(config)} (Li, eq. 2-4), "
        f"{config.precision}, embedding table over first and last stage, mapping between hosts counted"
    )
    return rank_traffic.theory(job, pairs, parameters=sum(sizes.gradients) * config.tensor, source=source)


def work(config: Config, job: Job, topology: Topology) -> Pipelined | str:  # noqa: ARG001 - a work of any placement
    """Return the work of the ranks in an iteration, stage by stage, or why it cannot be predicted."""
    return pipelined(config, topology) if config.jitter is None else jitter.UNPREDICTED


def tasks(config: Config, job: Job, topology: Topology) -> TaskGraph | str:  # noqa: ARG001
    """Return an iteration as tasks: 1F1B with a flush, and reductions where the model is split."""
    if topology.rails > 1:
        return "what each group of ptd sends over which of several rails is not known; accepted: one rail"
    return pipelined_tasks.pipelined(pipelined(config, topology))


def pipelined(config: Config, topology: Topology) -> Pipelined:
    """Return the work of ranks whose computing has no jitter."""
    sizes, bytes_each = messages(config, topology.scale), _ELEMENT_BYTES[config.precision]
    stages = [
        _stage_work(stage, _plan(config, stage), recompute=config.recompute, gradients=elements * bytes_each)
        for stage, elements in zip(_stages(config), sizes.gradients, strict=True)
    ]
    return _pipelined(
        placed(config),
        stages,
        microbatches=config.microbatches,
        activation=sizes.activation * bytes_each,
        embedding=sizes.embedding * bytes_each,
    )


def _pipelined(
    where: Sequence[Place], stages: Sequence[StageWork], *, microbatches: int, activation: int, embedding: int
) -> Pipelined:
    """Return the work of ranks in these places; sizes in bytes, scaled."""
    return Pipelined(
        microbatches=microbatches,
        activation=activation,
        embedding=embedding,
        stages=tuple(stages),
        stage_of=tuple(place[STAGE] for place in where),
        tensor_groups=parallel.groups(where, TENSOR),
        lines=parallel.groups(where, STAGE),
        data_groups=parallel.groups(where, REPLICA),
        ends=parallel.ends(where),
    )


def _stage_work(stage: Stage, plan: StagePlan, *, recompute: bool, gradients: int) -> StageWork:
    """Return the work of a micro-batch in a stage, as in `rank/torch/ptd.py`: half a block, then an all-reduce."""
    halves = 2 * stage.blocks
    blocks_s = stage.blocks * (plan["attention_s"] + plan["feed_forward_s"])
    return StageWork(
        forward_s=blocks_s + plan["head_s"],
        forward_pieces=halves + stage.last,
        forward_all_reduces=halves + stage.first,
        backward_s=blocks_s * recompute + (blocks_s + plan["head_s"]) * plan["backward"],
        backward_pieces=halves * (1 + recompute) + stage.last,
        backward_all_reduces=halves * (1 + recompute) + stage.last,
        gradients=gradients,
    )


def read(output: LaunchOutput) -> Mapping[str, Columns]:
    return read_training(output)
