"""PyTorch DistributedDataParallel over gloo or NCCL, with real or emulated compute."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from pydantic import Field

from orchestrator.core.fields import Size
from orchestrator.parts.launch import Launch, Requirement
from orchestrator.parts.protocols import Problem
from orchestrator.parts.rows import Columns, LaunchOutput
from orchestrator.parts.taskgraph import TaskGraph
from orchestrator.parts.theory import Compute, Replicated, Theory
from orchestrator.parts.topology import Job, Topology
from workloads.common import (
    collective_tasks,
    jitter,
    rank_traffic,
    real_training,
    replicated_tasks,
    torch_ranks,
    trained_model,
)
from workloads.common.collective_tasks import Done, Ready
from workloads.common.real_training import TorchModelConfig
from workloads.common.trained_model import BYTES_PER_PARAMETER
from workloads.rank.lifecycle import LayerPlan
from workloads.rank.torch.ddp import DdpSettings
from workloads.readers.evaluations import read_evaluations
from workloads.readers.iteration_logs import read_training

NAME = "ddp"

AT_ONCE = 2  # threads of gloo's process group, each with one collective

_ELEMENT_BYTES = {"none": BYTES_PER_PARAMETER, "fp16": 2, "bf16": 2}


class Config(TorchModelConfig):
    """A training with PyTorch DistributedDataParallel: all ranks hold the model and average their gradients."""

    bucket: Annotated[Size, Field(gt=0)] = 25 * 2.0**20
    """Gradients are reduced in buckets of at least this size. Divided by the testbed's scale."""

    first_bucket: Annotated[Size, Field(gt=0)] | None = None
    """Size of the first bucket, likewise. PyTorch's own default is 1mib, so that communication begins early. Default:
    that of every bucket."""

    compression: Literal["none", "fp16", "bf16", "powersgd"] = "none"
    """What DDP's communication hook does to a bucket before it travels: halves its floats, or approximates its matrices
    by ones of low rank. `powersgd` needs real compute: emulated layers have sizes and no shapes."""

    powersgd_rank: int = Field(default=1, ge=1)
    """Rank of PowerSGD's approximations; its first two iterations travel whole."""

    accumulate: int = Field(default=1, ge=1)
    """Batches whose gradients are added up before they are reduced once: an iteration has so many passes."""


def problems(config: Config, topology: Topology) -> list[Problem]:
    found = real_training.torch_problems(config, topology)
    if config.compression == "powersgd" and config.compute == "emulated":
        found.append(
            Problem(
                at=("compression",),
                message="PowerSGD approximates matrices, and emulated layers have sizes and no shapes",
                accepted="compute: real, or one of none, fp16, bf16",
            )
        )
    return found


def launches(config: Config, job: Job, topology: Topology, seed: int) -> list[Launch]:
    """Return a launch for each rank; training and rendezvous flows stand on that of rank 0."""
    settings: DdpSettings = {
        **torch_ranks.settings(config, job, seed=seed, on_gpu=real_training.on_gpu(config, job)),
        **real_training.torch_settings(config, topology, seed=seed),
        "bucket_mib": config.bucket / topology.scale / 2**20,
        "first_bucket_mib": None if config.first_bucket is None else config.first_bucket / topology.scale / 2**20,
        "compression": config.compression,
        "powersgd_rank": config.powersgd_rank,
        "accumulate": config.accumulate,
    }
    return torch_ranks.launches(
        config,
        job,
        topology,
        program="torch.ddp",
        settings=settings,
        footprint=real_training.torch_footprint(config, job, topology),
    )


def requirements(config: Config, job: Job, topology: Topology) -> list[Requirement]:
    return torch_ranks.requirements(job, topology, needed_by=NAME, modules=real_training.torch_modules(config))


def theory(config: Config, job: Job, topology: Topology) -> Theory | None:
    """Return a rank's bytes over the network in a ring all-reduce of all gradients: 2 (N - 1) / N times their size.

    Between two ranks of one host they do not cross the network: of the ring's N edges only those between hosts count,
    so that this is the mean over ranks, as it is measured. None for PowerSGD: its volume follows from shapes, which
    the catalog does not have.
    """
    if config.compression == "powersgd":
        return None
    moved = trained_model.parameters(config, topology)
    count = len(job.ranks)
    size = _ELEMENT_BYTES[config.compression]
    edge = 2 * (count - 1) / count * moved * size
    crossing = sum(rank.node != job.ranks[i - 1].node for i, rank in enumerate(job.ranks))
    rest = "; without DDP's broadcast of buffers" if config.compute == "real" else ""
    if crossing < count:
        rest = f", {crossing} of {count} ring edges between hosts{rest}"
    source = f"ring all-reduce, 2 (N-1)/N x parameters x {size} bytes (Salamy, eq. 3.1){rest}"
    spread = torch_ranks.spread(config, job, traced=config.trace and config.compute == "emulated")
    return rank_traffic.theory(job, rank_traffic.ring(count, edge), parameters=moved, source=source, spread=spread)


def work(config: Config, job: Job, topology: Topology) -> Replicated | str:
    """Return the work of a rank in an iteration, or why it cannot be predicted."""
    if config.compute == "real":
        return real_training.UNPREDICTED
    if config.jitter is not None:
        return jitter.UNPREDICTED
    return _work(config, job, topology, trained_model.layers(config, topology))


def _work(config: Config, job: Job, topology: Topology, layers: Sequence[LayerPlan]) -> Replicated | str:
    if config.compression == "powersgd":
        return "there is no theory of PowerSGD's bytes; compression: none, fp16 or bf16"
    return Replicated(
        ranks=len(job.ranks),
        forward_s=sum(forward_s for forward_s, _, _ in layers),
        backward_s=sum(backward_s for _, backward_s, _ in layers),
        passes=config.accumulate,
        buckets=replicated_tasks.buckets(
            layers,
            cap=config.bucket / topology.scale,
            element_bytes=_ELEMENT_BYTES[config.compression],
            first=None if config.first_bucket is None else config.first_bucket / topology.scale,
        ),
    )


def tasks(config: Config, job: Job, topology: Topology) -> TaskGraph | str:
    """Return an iteration as tasks: passes, and buckets that are reduced beside the last backward pass, two at once."""
    found = work(config.model_copy(update={"jitter": None}), job, topology)
    return found if isinstance(found, str) else _graph(config, job, topology, found)


computes = real_training.computes


def computed_tasks(config: Config, job: Job, topology: Topology, compute: Compute) -> TaskGraph | str:
    """Return the same with these times of computing."""
    found = _work(config, job, topology, real_training.layers(config, topology, compute))
    return found if isinstance(found, str) else _graph(config, job, topology, found, step_s=compute.step_s)


def _graph(config: Config, job: Job, topology: Topology, found: Replicated, *, step_s: float = 0.0) -> TaskGraph:
    everyone = range(found.ranks)
    even = torch_ranks.spread(config, job, traced=True) == "even"

    def reduce(graph: TaskGraph, number: int, size: float, ready: Ready) -> Done:
        rails = range(topology.rails) if even else (number % topology.rails,)
        return collective_tasks.ring_all_reduce(graph, everyone, size, ready, rails=rails)

    return replicated_tasks.overlapped(
        found.ranks,
        found.buckets,
        reduce,
        forward_s=found.forward_s,
        backward_s=found.backward_s,
        passes=found.passes,
        at_once=AT_ONCE,
        step_s=step_s,
    )


def read(output: LaunchOutput) -> Mapping[str, Columns]:
    return {**read_training(output), **read_evaluations(output)}
