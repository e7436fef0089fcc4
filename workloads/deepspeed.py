"""DeepSpeed with emulated compute: ZeRO stages 0 to 3, and pipeline stages with data parallelism over the rest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from orchestrator.core.fields import Duration, Size
from orchestrator.parts.launch import Launch, Requirement
from orchestrator.parts.protocols import Problem
from orchestrator.parts.rows import Columns, LaunchOutput
from orchestrator.parts.taskgraph import TaskGraph
from orchestrator.parts.theory import Pipelined, StageWork, Theory
from orchestrator.parts.topology import Job, Topology
from workloads.common import (
    collective_tasks,
    environments,
    jitter,
    pipelined_tasks,
    rank_traffic,
    replicated_tasks,
    sharded_tasks,
    torch_ranks,
    trained_model,
)
from workloads.common.collective_tasks import Done, Ready
from workloads.common.jitter import JitteredConfig
from workloads.common.placement import placement_problems, ranks
from workloads.common.rank_traffic import Pairs
from workloads.common.replicated_tasks import buckets
from workloads.common.torch_ranks import TorchConfig
from workloads.common.trained_model import ModelName
from workloads.models import catalog
from workloads.models.catalog import EmulatedLayer
from workloads.readers.communication import read_communication
from workloads.readers.iteration_logs import read_training

if TYPE_CHECKING:
    from workloads.rank.deepspeed import engine, pipeline, zero  # of which some need torch
    from workloads.rank.deepspeed.pipeline import StagePlan

NAME = "deepspeed"

ELEMENT_BYTES = {"fp32": 4, "bf16": 2, "fp16": 2}


class Config(JitteredConfig, TorchConfig):
    """A training with DeepSpeed: ZeRO on all ranks, or a pipeline of which each stage is replicated.

    Layers sleep to absolute instants: what DeepSpeed communicates within a pass counts as hidden behind computing until
    there is nothing left to hide it behind. On a CPU it would hide nothing by itself, since each operation but the
    gathers of stage 3 blocks its program.
    """

    model: ModelName
    """The model that is trained; its layers, sizes and calibrated time are in `workloads/models`."""

    classes: int | None = Field(default=None, ge=1)
    """How many classes a model of images tells apart: outputs of its last layer. Default: ImageNet's 1000."""

    batch: int | None = Field(default=None, ge=1)
    """Samples per replica and iteration. Default: the batch that the model's compute time was calibrated with."""

    compute_time: Duration | None = None
    """Time of the forward and the backward pass of one iteration on the accelerator that is modelled, over all stages
    of a pipeline. Default: the model's calibrated time, times batch over the batch it was calibrated with."""

    zero_stage: Literal[0, 1, 2, 3] = 1
    """What ZeRO divides among ranks: nothing (0), the optimizer's state (1), gradients as well (2), and parameters
    (3)."""

    bucket: Annotated[Size, Field(gt=0)] = 2e9
    """Gradients of stages 1 to 3 are reduced in buckets of at most this size: `reduce_bucket_size`, and
    `allgather_bucket_size`, which DeepSpeed counts in elements (5e8 by default). Divided by the testbed's scale."""

    overlap_comm: bool = True
    """Whether a GPU reduces in a stream of its own while the backward pass goes on. On a CPU nothing changes."""

    prefetch: Annotated[Size, Field(ge=0)] = 0.0
    """How much of the parameters of stage 3 is gathered ahead: `stage3_prefetch_bucket_size`. What DeepSpeed meets on
    its way from the forward into the backward pass it keeps, and gathers once. Divided by the testbed's scale."""

    microbatches: int = Field(default=1, ge=1)
    """Parts of the batch, each with passes of its own: `gradient_accumulation_steps`, and what a pipeline is filled
    with. Stages 2 and 3 reduce the gradients of each."""

    pipeline_stages: int = Field(default=1, ge=1)
    """Pipeline stages, of consecutive layers with about as many parameters each, in DeepSpeed's order 1F1B. Ranks fill
    `hosts` stage by stage: the replicas of a stage are next to each other."""

    activation: Annotated[Size, Field(gt=0)] | None = None
    """What a stage passes on to the next one of each microbatch, and gets back as its gradient. Divided by the
    testbed's scale. Default: that of a GPT's hidden states; another model does not tell."""

    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    """What parameters, gradients and activations travel as. DeepSpeed has `fp16` on GPUs alone."""

    log: bool = False
    """Whether DeepSpeed's communication logger counts and times each operation, for the table `communication`. Each
    operation takes some 40 us longer with it, and on a GPU it waits for each; the trace costs less, and knows when
    operations end that do not block."""

    python: str | None = Field(default=None, min_length=1)
    """Python interpreter that has DeepSpeed, the same path on each host. Default: on containers of this machine the one
    that `orch prepare` built, else the host's `python`."""


def problems(config: Config, topology: Topology) -> list[Problem]:
    found = [*placement_problems(config.hosts, topology), *trained_model.model_problems(config)]
    found += jitter.problems(config, emulated=True)
    found = found or torch_ranks.backend_problems(config, topology)
    if found:
        return found
    return [*_own_problems(config, topology), *_pipeline_problems(config, topology)]


def _own_problems(config: Config, topology: Topology) -> list[Problem]:
    found = []
    backend = torch_ranks.backend_of(config, ranks(config.hosts, topology))
    if config.precision == "fp16" and backend == "gloo":
        message = "DeepSpeed does not train with fp16 on a CPU"
        found.append(Problem(at=("precision",), message=message, accepted="fp32 or bf16"))
    if trained_model.batch(config) % config.microbatches:
        message = f"a batch of {trained_model.batch(config)} has no {config.microbatches} equal parts"
        found.append(Problem(at=("microbatches",), message=message, accepted="a divisor of the batch"))
    return found


def launches(config: Config, job: Job, topology: Topology, seed: int) -> list[Launch]:
    """Return a launch for each rank; training and rendezvous flows stand on that of rank 0."""
    program, settings = (
        _pipeline(config, job, topology, seed) if config.pipeline_stages > 1 else _zero(config, job, topology, seed)
    )
    started = torch_ranks.launches(
        config,
        job,
        topology,
        program=program,
        settings=settings,
        footprint=trained_model.footprint(config, topology, ranks=len(job.ranks), share=1 / config.pipeline_stages),
    )
    return [
        replace(
            launch,
            argv=(_python(config, launch.node, topology), *launch.argv[1:]),
            env={**_env(config, job, launch.node), **launch.env},
        )
        for launch in started
    ]


def _settings(config: Config, job: Job, seed: int) -> engine.DeepSpeedSettings:
    """Return the settings of both programs."""
    return {
        **torch_ranks.settings(config, job, seed=seed),
        "zero_stage": config.zero_stage,
        "microbatches": config.microbatches,
        "precision": config.precision,
        "batch": trained_model.batch(config),
        "log": config.log,
    }


def _pipeline(config: Config, job: Job, topology: Topology, seed: int) -> tuple[str, pipeline.PipelineSettings]:
    return "deepspeed.pipeline", {
        **_settings(config, job, seed),
        **jitter.settings(config, seed=seed),
        "stages": _stage_plans(config, topology),
        "activation": _activation(config, topology),
    }


def _zero(config: Config, job: Job, topology: Topology, seed: int) -> tuple[str, zero.ZeroSettings]:
    element = ELEMENT_BYTES[config.precision] * topology.scale
    return "deepspeed.zero", {
        **_settings(config, job, seed),
        **jitter.settings(config, seed=seed),
        "layers": [
            (forward_s / config.microbatches, backward_s / config.microbatches, sizes)
            for forward_s, backward_s, sizes in trained_model.layers(config, topology)
        ],
        "bucket_elements": max(1, round(config.bucket / element)),
        "prefetch_elements": round(config.prefetch / element),
        "overlap_comm": config.overlap_comm,
    }


def _env(config: Config, job: Job, node: str) -> dict[str, str]:
    """Return variables of DeepSpeed and its imports, beside those of torch: their files stay in the folder."""
    backend = torch_ranks.backend_of(config, job.ranks)
    return {
        "DS_ACCELERATOR": "cuda" if backend == "nccl" else "cpu",
        "LOCAL_SIZE": str(sum(rank.node == node for rank in job.ranks)),
        "PYTHONWARNINGS": "ignore",  # torch's deprecations hide a rank's own last line
        "TMPDIR": ".",
        "TORCH_EXTENSIONS_DIR": "cache",
        "TRITON_HOME": "cache",
    }


def requirements(config: Config, job: Job, topology: Topology) -> list[Requirement]:
    return environments.requirements(
        ("torch", "deepspeed"), job.nodes, topology, given=config.python, environment="torch", needed_by=NAME
    )


def theory(config: Config, job: Job, topology: Topology) -> Theory | None:
    """Return the bytes that a rank sends, by the operations of DeepSpeed 0.19 and of the backend below it.

    ZeRO's paper (Rajbhandari, section 7) counts a reduce-scatter and an all-gather, and in stage 3 a second one, of
    (N-1)/N x parameters each. DeepSpeed all-reduces the gradients in stages 1 and 2, too, of which each rank keeps its
    share; gloo does so where DeepSpeed reduces and scatters (stage 3). None where stage 3 prefetches: how much is
    gathered twice then depends on where the prefetching stands when the forward pass ends.
    """
    element = ELEMENT_BYTES[config.precision]
    if config.pipeline_stages > 1:
        pairs, parameters, source = _pipeline_traffic(config, topology)
        return rank_traffic.theory(job, pairs, parameters=parameters, source=source)
    if config.zero_stage == 3 and config.prefetch:
        return None
    pairs, parameters, source = _zero_traffic(config, job, topology, element_bytes=element)
    return rank_traffic.theory(job, pairs, parameters=parameters, source=source)


def tasks(config: Config, job: Job, topology: Topology) -> TaskGraph | str:
    """Return an iteration as tasks: a pipeline, parameters that are gathered (ZeRO-3), or buckets of gradients."""
    world = len(job.ranks)
    each = ELEMENT_BYTES[config.precision]
    if config.pipeline_stages > 1:
        return pipelined_tasks.pipelined(_pipeline_work(config, topology, world))
    layers = trained_model.layers(config, topology)
    if config.zero_stage == 3:
        if config.prefetch:
            return "how much is gathered twice depends on where the prefetching stands; accepted: no prefetch"
        units = [
            (sum(-(-size // world) * world for size in sizes) * each, forward_s, backward_s)
            for forward_s, backward_s, sizes in layers
        ]
        parts = config.microbatches
        units = [(size, forward_s / parts, backward_s / parts) for size, forward_s, backward_s in units]
        whole = torch_ranks.backend_of(config, job.ranks) == "gloo"
        return sharded_tasks.sharded(world, units, again=True, whole=whole, passes=parts)
    reductions = config.microbatches if config.zero_stage == 2 else 1
    cap = config.bucket / topology.scale / reductions
    single = buckets(layers, cap=cap, first=None, element_bytes=each * reductions)

    def reduce(graph: TaskGraph, _number: int, size: float, ready: Ready) -> Done:
        return collective_tasks.ring_all_reduce(graph, range(world), size, ready)

    def gather(graph: TaskGraph, ready: Ready) -> Done:
        moved = trained_model.parameters(config, topology) * each
        return collective_tasks.ring_pass(graph, range(world), moved, ready, step=1)

    return replicated_tasks.overlapped(
        world,
        single,
        reduce,
        forward_s=sum(forward_s for forward_s, _, _ in layers),
        backward_s=sum(backward_s for _, backward_s, _ in layers),
        finish=gather if config.zero_stage else None,
    )


def _pipeline_work(config: Config, topology: Topology, world: int) -> Pipelined:
    """Return the work of a pipeline's ranks; what ZeRO-1 gathers counts as half a reduction more."""
    each = ELEMENT_BYTES[config.precision]
    replicas = world // config.pipeline_stages
    stages = [
        StageWork(
            forward_s=plan["forward_s"],
            forward_pieces=1,
            forward_all_reduces=0,
            backward_s=plan["backward_s"],
            backward_pieces=1,
            backward_all_reduces=0,
            gradients=round(sum(plan["sizes"]) * each * (1.5 if config.zero_stage else 1.0)),
        )
        for plan in _stage_plans(config, topology)
    ]
    return Pipelined(
        microbatches=config.microbatches,
        activation=_activation(config, topology) * each,
        embedding=0,
        stages=tuple(stages),
        stage_of=tuple(rank // replicas for rank in range(world)),
        tensor_groups=[[rank] for rank in range(world)],
        lines=[list(range(replica, world, replicas)) for replica in range(replicas)],
        data_groups=[list(range(first, first + replicas)) for first in range(0, world, replicas)],
        ends=[],
    )


def _zero_traffic(config: Config, job: Job, topology: Topology, *, element_bytes: int) -> tuple[Pairs, int, str]:
    world = len(job.ranks)
    parts = config.microbatches
    share = (world - 1) / world * element_bytes
    if config.zero_stage == 3:
        sizes = [size for layer in catalog.scaled_sizes(trained_model.data(config), topology.scale) for size in layer]
        moved = sum(-(-size // world) * world for size in sizes)
        scatters = 2 if torch_ranks.backend_of(config, job.ranks) == "gloo" else 1
        reduced, gathered = parts * scatters * share * moved, parts * 2 * share * moved
        source = f"ZeRO-3: {parts} x (2 all-gathers and a reduce-scatter that sends {scatters} times its share)"
    else:
        moved = trained_model.parameters(config, topology)
        reductions = parts if config.zero_stage == 2 else 1
        reduced = 2 * reductions * share * moved
        # The flat parameters are padded to twice the number of ranks.
        gathered = share * -(-moved // (2 * world)) * 2 * world if config.zero_stage else 0.0
        source = f"ZeRO-{config.zero_stage}: {reductions} x all-reduce"
        source += " and an all-gather" if config.zero_stage else ""
    pairs = rank_traffic.summed(
        [rank_traffic.ring(world, reduced), rank_traffic.turned(rank_traffic.ring(world, gathered))]
    )
    return pairs, moved, f"{source}, (N-1)/N x parameters x {element_bytes} bytes for each share"


def _pipeline_problems(config: Config, topology: Topology) -> list[Problem]:
    """Find why the pipeline cannot be the requested one; the placement must be without problems."""
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


def _layers(config: Config, topology: Topology) -> list[EmulatedLayer]:
    return [
        EmulatedLayer(forward_s, backward_s, tuple(sizes))
        for forward_s, backward_s, sizes in trained_model.layers(config, topology)
    ]


def partition(sizes: list[int], stages: int) -> list[slice]:
    """Return consecutive non-empty parts of which the largest is as small as possible.

    This is what DeepSpeed's `partition_method: parameters` aims at.
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


def stage_layers(config: Config, topology: Topology) -> list[list[EmulatedLayer]]:
    """Return the layers of each stage."""
    layers = _layers(config, topology)
    return [layers[part] for part in partition([sum(layer.sizes) for layer in layers], config.pipeline_stages)]


def _activation(config: Config, topology: Topology) -> int:
    """Return the elements, scaled, of the activation that a stage sends for a microbatch."""
    each = ELEMENT_BYTES[config.precision]
    size = config.activation
    if size is None:
        shape = catalog.load(config.model).transformer
        if shape is None:
            raise AssertionError("a configuration without problems has an activation")
        _, hidden, sequence, _ = shape
        size = trained_model.batch(config) / config.microbatches * sequence * hidden * each
    return max(1, round(size / each / topology.scale))


def _stage_plans(config: Config, topology: Topology) -> list[StagePlan]:
    """Return the rank program's settings of the stages."""
    return [
        {
            "forward_s": sum(layer.forward_s for layer in layers) / config.microbatches,
            "backward_s": sum(layer.backward_s for layer in layers) / config.microbatches,
            "sizes": [size for layer in layers for size in layer.sizes],
        }
        for layers in stage_layers(config, topology)
    ]


def _pipeline_traffic(config: Config, topology: Topology) -> tuple[Pairs, int, str]:
    """Return the bytes between ranks in an iteration, the parameters of the whole model, and the method of counting."""
    world = len(ranks(config.hosts, topology))
    element_bytes = ELEMENT_BYTES[config.precision]
    replicas = world // config.pipeline_stages
    message = config.microbatches * _activation(config, topology) * element_bytes
    found: list[Pairs] = []
    total = 0
    for number, layers in enumerate(stage_layers(config, topology)):
        held = sum(size for layer in layers for size in layer.sizes)
        total += held
        # ZeRO-1 gathers the parameters, padded to twice the number of replicas, where each has updated its share.
        gathered = -(-held // (2 * replicas)) * 2 * replicas if config.zero_stage else 0
        members = range(number * replicas, (number + 1) * replicas)
        share = (replicas - 1) / replicas * element_bytes
        found += [
            rank_traffic.ring_of(members, 2 * share * held),
            rank_traffic.turned(rank_traffic.ring_of(members, share * gathered)),
        ]
    for line in (range(replica, world, replicas) for replica in range(replicas)):
        for before, after in pairwise(line):
            found.append({(before, after): message, (after, before): message})
    passes = f"{config.microbatches} microbatches forward and backward between {config.pipeline_stages} stages"
    reduced = "all-reduce" + (" and all-gather" if config.zero_stage else "")
    return (
        rank_traffic.summed(found),
        total,
        f"{passes}, {reduced} over {replicas} replicas, {element_bytes} bytes each",
    )


def read(output: LaunchOutput) -> Mapping[str, Columns]:
    return {**read_training(output), **read_communication(output)}


def _python(config: Config, node: str, topology: Topology) -> str:
    return environments.interpreter(config.python, "torch", topology.node(node), topology)
