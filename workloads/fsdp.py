"""PyTorch FSDP2 with emulated compute: each rank holds a shard of every parameter and gathers the rest to compute."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated

from pydantic import Field

from orchestrator.core.fields import Duration, Size
from orchestrator.parts.launch import Launch, Requirement
from orchestrator.parts.protocols import Problem
from orchestrator.parts.rows import Columns, LaunchOutput
from orchestrator.parts.taskgraph import TaskGraph
from orchestrator.parts.theory import Theory
from orchestrator.parts.topology import Job, Topology
from workloads.common import jitter, rank_traffic, sharded_tasks, torch_ranks, trained_model
from workloads.common.jitter import JitteredConfig
from workloads.common.placement import placement_problems
from workloads.common.sharded_tasks import Unit
from workloads.common.torch_ranks import TorchConfig
from workloads.common.trained_model import BYTES_PER_PARAMETER, ModelName
from workloads.models import catalog
from workloads.rank.torch.fsdp import FsdpSettings
from workloads.readers.iteration_logs import read_training

NAME = "fsdp"


class Config(JitteredConfig, TorchConfig):
    """A training with FSDP2's `fully_shard`: what a rank does not hold itself it gathers before it computes with it.

    Layers sleep to absolute instants: the time of gathering counts as hidden behind computing, as prefetching hides it,
    until there is nothing left to hide it behind.
    """

    model: ModelName
    """The model that is trained; its layers, sizes and calibrated time are in `workloads/models`."""

    classes: int | None = Field(default=None, ge=1)
    """How many classes a model of images tells apart: outputs of its last layer. Default: ImageNet's 1000."""

    batch: int | None = Field(default=None, ge=1)
    """Samples per rank and iteration. Default: the batch that the model's compute time was calibrated with."""

    compute_time: Duration | None = None
    """Time of the forward and the backward pass of one iteration on the accelerator that is modelled.
    Default: the model's calibrated time, times batch over the batch it was calibrated with."""

    unit: Annotated[Size, Field(gt=0)] = 25 * 2.0**20
    """Consecutive layers of at least this size together are gathered and scattered at once. Divided by the testbed's
    scale."""

    reshard: bool = True
    """Whether gathered parameters are freed after the forward pass and gathered again for the backward pass."""


def problems(config: Config, topology: Topology) -> list[Problem]:
    found = [*placement_problems(config.hosts, topology), *trained_model.model_problems(config)]
    found += jitter.problems(config, emulated=True)
    return found or torch_ranks.backend_problems(config, topology)


def launches(config: Config, job: Job, topology: Topology, seed: int) -> list[Launch]:
    """Return a launch for each rank; training and rendezvous flows stand on that of rank 0."""
    settings: FsdpSettings = {
        **torch_ranks.settings(config, job, seed=seed),
        **jitter.settings(config, seed=seed),
        "layers": trained_model.layers(config, topology),
        "batch": trained_model.batch(config),
        "unit_bytes": config.unit / topology.scale,
        "reshard": config.reshard,
    }
    return torch_ranks.launches(
        config,
        job,
        topology,
        program="torch.fsdp",
        settings=settings,
        footprint=trained_model.footprint(config, topology, ranks=len(job.ranks)),
    )


def requirements(config: Config, job: Job, topology: Topology) -> list[Requirement]:  # noqa: ARG001
    return torch_ranks.requirements(job, topology, needed_by=NAME)


def theory(config: Config, job: Job, topology: Topology) -> Theory:
    """Return a rank's bytes: rings of all-gather, once or twice, and reduce-scatter, (N-1)/N of all parameters each.

    A parameter is divided among ranks in equal parts, the last ones padded. Gloo's reduce-scatter is an all-reduce of
    which each rank keeps its share: it sends twice as much.
    """
    world = len(job.ranks)
    sizes = [size for layer in catalog.scaled_sizes(trained_model.data(config), topology.scale) for size in layer]
    padded = sum(-(-size // world) * world for size in sizes)
    gathers = 2 if config.reshard else 1
    scatters = 2 if torch_ranks.backend_of(config, job.ranks) == "gloo" else 1
    share = (world - 1) / world * padded * BYTES_PER_PARAMETER
    source = f"{gathers} all-gathers and a reduce-scatter that sends {scatters} times its share: "
    source += f"{gathers + scatters} (N-1)/N x parameters x 4 bytes"
    pairs = rank_traffic.summed(
        [rank_traffic.ring(world, scatters * share), rank_traffic.turned(rank_traffic.ring(world, gathers * share))]
    )
    return rank_traffic.theory(job, pairs, parameters=padded, source=source)


def tasks(config: Config, job: Job, topology: Topology) -> TaskGraph:
    """Return an iteration as tasks: each unit is gathered before it computes, and scattered after its backward pass."""
    world = len(job.ranks)
    gloo = torch_ranks.backend_of(config, job.ranks) == "gloo"
    return sharded_tasks.sharded(world, list(_units(config, topology, world)), again=config.reshard, whole=gloo)


def _units(config: Config, topology: Topology, world: int) -> Iterator[Unit]:
    """Yield the bytes of each unit, each parameter padded to equal shards, and its forward and backward time."""
    held, size, forward_s, backward_s = 0, 0, 0.0, 0.0
    for layer_forward_s, layer_backward_s, sizes in trained_model.layers(config, topology):
        forward_s += layer_forward_s
        backward_s += layer_backward_s
        held += sum(sizes) * BYTES_PER_PARAMETER
        size += sum(-(-one // world) * world for one in sizes) * BYTES_PER_PARAMETER
        if held >= config.unit / topology.scale:
            yield size, forward_s, backward_s
            held, size, forward_s, backward_s = 0, 0, 0.0, 0.0
    if held or forward_s:
        yield size, forward_s, backward_s


def read(output: LaunchOutput) -> Mapping[str, Columns]:
    return read_training(output)
