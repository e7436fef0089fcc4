"""Options of workloads that train a model of the catalog: its name, layers, parameters and compute time."""

from __future__ import annotations

from typing import Annotated, Protocol

from pydantic import AfterValidator, Field, WithJsonSchema

from orchestrator.core.fields import Duration
from orchestrator.core.units import Mistake
from orchestrator.parts.launch import Footprint
from orchestrator.parts.protocols import Problem
from orchestrator.parts.topology import Topology
from workloads.common import footprints, jitter
from workloads.common.footprints import Framework
from workloads.common.jitter import JitteredConfig
from workloads.common.placement import placement_problems
from workloads.models import catalog
from workloads.models.catalog import ModelData
from workloads.rank.lifecycle import LayerPlan, TrainingSettings

BYTES_PER_PARAMETER = 4  # float32
READY_S = 180.0  # for all ranks to import their framework and to meet


def _known_model(name: str) -> str:
    if name not in catalog.names():
        raise Mistake(f"no model {name!r}", accepted=f"one of {', '.join(catalog.names())}")
    return name


ModelName = Annotated[
    str, AfterValidator(_known_model), WithJsonSchema({"type": "string", "enum": list(catalog.names())})
]


class Modelled(Protocol):
    """A configuration that names a model; `None` stands for the catalog's value."""

    @property
    def model(self) -> str: ...

    @property
    def classes(self) -> int | None: ...

    @property
    def batch(self) -> int | None: ...

    @property
    def compute_time(self) -> float | None: ...


def data(config: Modelled) -> ModelData:
    """Return the model as the catalog describes it, with the configuration's number of classes."""
    found = catalog.load(config.model)
    return found if config.classes is None else catalog.with_classes(found, config.classes)


def without_classes(config: Modelled) -> list[Problem]:
    """Find a number of classes for a model that has none."""
    if config.classes is None or catalog.has_classes(catalog.load(config.model)):
        return []
    known = [name for name in catalog.names() if catalog.has_classes(catalog.load(name))]
    return [
        Problem(
            at=("classes",),
            message=f"{config.model} has no choice of classes",
            accepted=f"no classes, or one of {', '.join(known)}",
        )
    ]


def batch(config: Modelled) -> int:
    """Return the samples of a rank in an iteration."""
    return config.batch if config.batch is not None else data(config).batch


def compute_time(config: Modelled) -> float | None:
    """Return the seconds of emulated compute in an iteration; None where they are neither given nor calibrated."""
    if config.compute_time is not None:
        return config.compute_time
    return catalog.compute_time(data(config), batch(config))


def uncalibrated(config: Modelled) -> list[Problem]:
    """Find a model without a given or calibrated compute time."""
    if compute_time(config) is not None:
        return []
    return [
        Problem(
            at=("compute_time",),
            message=f"{config.model} has no calibrated compute time",
            accepted="compute_time: the time of one forward and backward pass, such as 150ms",
        )
    ]


def model_problems(config: Modelled) -> list[Problem]:
    """Find why a model cannot be emulated."""
    return [*without_classes(config), *uncalibrated(config)]


def footprint(
    config: Modelled, topology: Topology, *, ranks: int, share: float = 1.0, framework: Framework = "torch"
) -> Footprint:
    """Return the footprint of a rank with this `share` of the emulated model.

    The configuration must be without problems.
    """
    held = share * parameters(config, topology) * BYTES_PER_PARAMETER
    return footprints.emulated(held, compute_s=compute_time(config) or 0.0, ranks=ranks, framework=framework)


def layers(config: Modelled, topology: Topology) -> list[LayerPlan]:
    """Return the emulated layers for rank programs; the configuration must be without problems."""
    compute_s = compute_time(config)
    if compute_s is None:
        raise AssertionError("a configuration without problems has a compute time")
    emulated = catalog.emulate(data(config), compute_s=compute_s, scale=topology.scale)
    return [(layer.forward_s, layer.backward_s, list(layer.sizes)) for layer in emulated]


def parameters(config: Modelled, topology: Topology) -> int:
    """Return the number of trained parameters, scaled."""
    return data(config).parameters // topology.scale


class EmulatedConfig(JitteredConfig):
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


def emulated_problems(config: EmulatedConfig, topology: Topology, *, least: int = 2) -> list[Problem]:
    """Find unknown hosts, and a model without a compute time."""
    found = [*placement_problems(config.hosts, topology, least=least), *model_problems(config)]
    return found + jitter.problems(config, emulated=True)


def emulated_settings(config: EmulatedConfig, topology: Topology, *, seed: int) -> TrainingSettings:
    """Return the settings of every such program."""
    return {
        **jitter.settings(config, seed=seed),
        "layers": layers(config, topology),
        "batch": batch(config),
        "seed": seed,
        "threads": config.threads,
    }
