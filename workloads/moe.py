"""A GPT with experts spread over ranks: tokens go all to all to the experts that learning gates choose for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from orchestrator.core.fields import Duration
from orchestrator.core.opendata import JsonObject
from orchestrator.parts.launch import Launch, Requirement
from orchestrator.parts.protocols import Problem
from orchestrator.parts.rows import Columns, LaunchOutput, Row, gathered
from orchestrator.parts.taskgraph import TaskGraph
from orchestrator.parts.theory import Theory
from orchestrator.parts.topology import Job, Topology
from workloads.common import collective_tasks, footprints, jitter, rank_traffic, torch_ranks
from workloads.common.jitter import JitteredConfig
from workloads.common.placement import placement_problems
from workloads.common.rank_traffic import Pairs
from workloads.common.torch_ranks import TorchConfig
from workloads.common.trained_model import BYTES_PER_PARAMETER
from workloads.models import gpt
from workloads.models.catalog import FORWARD_SHARE
from workloads.models.gpt import GptName, Shape
from workloads.rank.torch.moe import MoeSettings
from workloads.readers import lines
from workloads.readers.iteration_logs import read_training

NAME = "moe"

LOG = "routing.jsonl"

_ELEMENT_BYTES = {"fp32": 4, "fp16": 2, "bf16": 2}
_GATE_FEATURES = 32  # FEATURES of rank/torch/gating.py, which needs torch
_GATE_BYTES = 4


class Config(JitteredConfig, TorchConfig):
    """A mixture of experts: each rank holds some experts of each sparse block, and a copy of everything else."""

    model: GptName | Shape = "gpt2"
    """The GPT whose feed-forward layers become experts. Li's 125M, 350M and 760M are about `gpt2`, `gpt2-medium` and
    `gpt2-large`; or `{layers, hidden, sequence, vocabulary}`."""

    experts: int = Field(default=8, ge=2)
    """Experts of each sparse block; each rank holds as many."""

    every: int = Field(default=2, ge=1)
    """Every how many blocks one is sparse."""

    top: int = Field(default=2, ge=1)
    """Experts that a token may go to, the best by its gate: always to the first, to a further one with a probability
    that grows with its gate. So the volume changes from iteration to iteration, and grows as gates become even."""

    gate_rate: float = Field(default=0.5, gt=0)
    """Learning rate of the gates. They minimize the loss that balances experts, and nothing else."""

    batch: int = Field(default=4, ge=1)
    """Samples per rank and iteration."""

    compute_time: Annotated[Duration, Field(gt=0)]
    """Time of the forward and the backward pass of one iteration on the accelerator that is modelled, were each token
    to go to one expert and all experts to get as many. Measured: train the model with one expert a block on one such
    accelerator. A rank whose experts get more computes longer."""

    precision: Literal["fp32", "fp16", "bf16"] = "fp16"
    """What tokens and gradients travel as."""


def problems(config: Config, topology: Topology) -> list[Problem]:
    found = [*placement_problems(config.hosts, topology), *jitter.problems(config, emulated=True)]
    world = len(config.hosts if config.hosts is not None else topology.placed)
    if config.experts % world:
        found.append(
            Problem(
                at=("experts",),
                message=f"{config.experts} experts cannot be divided among {world} ranks",
                accepted=f"a multiple of {world}",
            )
        )
    if config.top > config.experts:
        found.append(
            Problem(
                at=("top",),
                message=f"a token cannot go to {config.top} of {config.experts} experts",
                accepted=f"at most {config.experts}",
            )
        )
    if not _sparse(config):
        blocks = gpt.shape_of(config.model).layers
        found.append(
            Problem(at=("every",), message=f"none of {blocks} blocks would have experts", accepted=f"at most {blocks}")
        )
    if config.backend == "nccl":
        found.append(
            Problem(at=("backend",), message="routes are made on the CPU, where NCCL has no tensors", accepted="gloo")
        )
    return found + torch_ranks.transport_problems(config, "gloo")


def _sparse(config: Config) -> list[int]:
    """Return the blocks that have experts: each `every`th."""
    return list(range(config.every - 1, gpt.shape_of(config.model).layers, config.every))


def parameters(config: Config) -> tuple[int, int]:
    """Return the parameters that each rank has a copy of, without those of the gates, and those of all experts."""
    shape = gpt.shape_of(config.model)
    (whole,) = gpt.stages(shape, pipeline=1, tensor=1)
    feed_forward = 8 * shape.hidden**2 + 5 * shape.hidden
    sparse = len(_sparse(config))
    return whole.parameters - sparse * feed_forward, sparse * config.experts * feed_forward


def _dense(config: Config, scale: int) -> int:
    return max(1, round(parameters(config)[0] / scale))


def launches(config: Config, job: Job, topology: Topology, seed: int) -> list[Launch]:
    """Return a launch for each rank; training and rendezvous flows stand on that of rank 0."""
    shape = gpt.shape_of(config.model)
    (whole,) = gpt.stages(shape, pipeline=1, tensor=1)
    second = config.compute_time * FORWARD_SHARE / whole.flops
    settled = config.model_copy(update={"backend": "gloo"})
    settings: MoeSettings = {
        **torch_ranks.settings(settled, job, seed=seed),
        **jitter.settings(config, seed=seed),
        "blocks": shape.layers,
        "sparse": _sparse(config),
        "experts": config.experts,
        "top": config.top,
        "gate_rate": config.gate_rate,
        "batch": config.batch,
        "tokens": config.batch * shape.sequence,
        "hidden": shape.hidden,
        "scale": topology.scale,
        "dense": _dense(config, topology.scale),
        "precision": config.precision,
        "attention_s": whole.attention_flops * second,
        "feed_forward_s": whole.feed_forward_flops * second,
        "head_s": whole.head_flops * second,
        "backward": (1 - FORWARD_SHARE) / FORWARD_SHARE,
    }
    held = settings["dense"] * BYTES_PER_PARAMETER
    return torch_ranks.launches(
        settled,
        job,
        topology,
        program="torch.moe",
        settings=settings,
        footprint=footprints.emulated(held, compute_s=config.compute_time, ranks=len(job.ranks)),
    )


def requirements(config: Config, job: Job, topology: Topology) -> list[Requirement]:  # noqa: ARG001
    return torch_ranks.requirements(job, topology, needed_by=NAME)


def traffic(config: Config, world: int, scale: int) -> dict[str, Pairs]:
    """Return the bytes between ranks in an iteration with even gates: tokens go to `top` experts, evenly spread."""
    shape = gpt.shape_of(config.model)
    bytes_each = _ELEMENT_BYTES[config.precision]
    sparse = len(_sparse(config))
    copies = config.batch * shape.sequence * config.top / world
    exchanged = 4 * sparse * copies * shape.hidden / scale * bytes_each
    gates = sparse * config.experts * _GATE_FEATURES * _GATE_BYTES
    reduced = _dense(config, scale) * bytes_each + gates
    return {
        "experts": {(a, b): exchanged for a in range(world) for b in range(world) if a != b},
        "data": rank_traffic.ring(world, 2 * (world - 1) / world * reduced),
    }


def theory(config: Config, job: Job, topology: Topology) -> Theory:
    """Return the bytes with even gates, which an iteration approaches as gates learn.

    The table `routing` has the bytes that were sent.
    """
    kinds = traffic(config, len(job.ranks), topology.scale)
    source = (
        f"with even gates: all-to-all of b s h k {config.precision}, k = {config.top}, four times a sparse block, and "
        "the all-reduce of all other parameters (Li, section 3.2)"
    )
    moved = _dense(config, topology.scale)
    return rank_traffic.theory(job, rank_traffic.summed(kinds.values()), parameters=moved, source=source)


def tasks(config: Config, job: Job, topology: Topology) -> TaskGraph:
    """Return an iteration as tasks, with even gates: blocks, tokens all to all and back, a reduction at the end."""
    shape = gpt.shape_of(config.model)
    (whole,) = gpt.stages(shape, pipeline=1, tensor=1)
    second = config.compute_time * FORWARD_SHARE / whole.flops
    back = (1 - FORWARD_SHARE) / FORWARD_SHARE
    world = len(job.ranks)
    everyone = range(world)
    sparse = _sparse(config)
    kinds = traffic(config, world, topology.scale)
    exchanged = {pair: size / (4 * len(sparse)) for pair, size in kinds["experts"].items()}
    graph = TaskGraph(ranks=world)
    last = {rank: graph.begins[rank] for rank in everyone}

    def compute(seconds: float) -> None:
        for rank in everyone:
            last[rank] = graph.compute(rank, seconds, (last[rank],), pieces=1)

    def exchange() -> None:
        done = collective_tasks.exchange(graph, exchanged, {rank: (last[rank],) for rank in everyone})
        last.update({rank: graph.join(rank, done[rank]) for rank in everyone})

    for times, blocks in ((1.0, range(shape.layers)), (back, reversed(range(shape.layers)))):
        for block in blocks:
            if times == 1.0:
                compute(whole.attention_flops * second)
            if block in sparse:
                exchange()
            compute(whole.feed_forward_flops * second * times * (config.top if block in sparse else 1))
            if block in sparse:
                exchange()
            if times != 1.0:
                compute(whole.attention_flops * second * times)
        compute(whole.head_flops * second * times)
    reduced = kinds["data"][0, world - 1] * world / (2 * (world - 1)) if world > 1 else 0.0
    done = collective_tasks.ring_all_reduce(graph, everyone, reduced, {rank: (last[rank],) for rank in everyone})
    graph.end([done[rank] for rank in everyone])
    return graph


def read(output: LaunchOutput) -> Mapping[str, Columns]:
    """Read the tables of a rank, and `routing`; damaged lines are passed over."""
    who = {"job": output.job or "", "rank": output.rank if output.rank is not None else -1, "window_name": ""}
    rows = ({**who, **row} for found in lines.records(output.folder / LOG, output.unread, _rows) for row in found)
    return {**read_training(output), "routing": gathered("routing", rows)}


def _rows(record: JsonObject) -> list[Row] | None:
    """Return a row for each rank that the record's rank sends to, itself too; None where the record is not complete."""
    whole = {name: record.get(name) for name in ("iteration", "highest", "lowest")}
    copies, sent = record.get("copies"), record.get("bytes")
    if not isinstance(copies, list) or not isinstance(sent, list) or len(copies) != len(sent):
        return None
    if not all(map(lines.is_whole, (*whole.values(), *copies, *sent))):
        return None
    return [
        {
            "iteration": whole["iteration"],
            "peer": peer,
            "tokens": tokens,
            "bytes": size,
            "highest_bytes": whole["highest"],
            "lowest_bytes": whole["lowest"],
            "nonuniform_bytes": record["highest"] - record["lowest"],
        }
        for peer, (tokens, size) in enumerate(zip(copies, sent, strict=True))
    ]
