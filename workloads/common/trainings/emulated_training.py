"""What workloads share whose ranks train a model of the catalog with emulated compute, whatever their framework."""

from __future__ import annotations

from pydantic import Field

from orchestrator.core.fields import Duration
from orchestrator.parts.protocols import Problem
from orchestrator.parts.topology import Topology
from workloads.common.placement import WorkloadConfig, placement_problems
from workloads.common.trainings import modelled
from workloads.common.trainings.modelled import ModelName
from workloads.rank.lifecycle import TrainingSettings

READY_S = 180.0  # for all ranks to import their framework and to meet


class EmulatedConfig(WorkloadConfig):
    """A training whose layers sleep for their share of the compute time while real gradients travel."""

    model: ModelName
    """The model that is trained; its layers, sizes and calibrated time are in `workloads/models`."""

    classes: int | None = Field(default=None, ge=1)
    """How many classes a model of images tells apart: outputs of its last layer. Default: ImageNet's 1000."""

    batch: int | None = Field(default=None, ge=1)
    """Samples per rank and iteration. Default: the batch that the model's compute time was calibrated with."""

    compute_time: Duration | None = None
    """Time of the forward and the backward pass of one iteration on the accelerator that is modelled.
    Default: the model's calibrated time, times batch over the batch it was calibrated with."""

    threads: int = Field(default=1, ge=1)
    """CPU threads that each rank may compute with."""

    python: str | None = Field(default=None, min_length=1)
    """Python interpreter that has the framework, the same path on each host. Default: on containers of this machine the
    one that `orch prepare` built, else the host's `python`."""


def problems(config: EmulatedConfig, topology: Topology, *, least: int = 2) -> list[Problem]:
    """Hosts that are not there, and a model whose time nobody knows."""
    return [*placement_problems(config.hosts, topology, least=least), *modelled.problems(config)]


def settings(config: EmulatedConfig, topology: Topology, *, seed: int) -> TrainingSettings:
    """What every such program is given."""
    return {
        "layers": modelled.layers(config, topology),
        "batch": modelled.batch(config),
        "seed": seed,
        "threads": config.threads,
    }
