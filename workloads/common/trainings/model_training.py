"""What workloads that train a model of the catalog on torch share: its options, their problems, what ranks are told."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from orchestrator.core.fields import Duration
from orchestrator.parts.launch import Footprint
from orchestrator.parts.protocols import Problem
from orchestrator.parts.topology import Job, Topology
from workloads.common import footprints
from workloads.common.placement import placement_problems
from workloads.common.torch_ranks import TorchConfig, backend_of, backend_problems
from workloads.common.trainings import modelled, real_training
from workloads.common.trainings.modelled import ModelName
from workloads.common.trainings.real_training import LearningConfig
from workloads.rank.compute.training import ModelSettings

NUMPY = {"numpy": "pip install numpy"}
TORCHVISION = {"torchvision": "pip install --no-deps torchvision pillow"}


class ModelConfig(LearningConfig, TorchConfig):
    """A training of a model of the catalog."""

    model: ModelName
    """The model that is trained; its layers, sizes and calibrated time are in `workloads/models`."""

    classes: int | None = Field(default=None, ge=1)
    """How many classes a model of images tells apart: outputs of its last layer. Default: ImageNet's 1000, or with
    real compute those of `data`, which must be as many as are named here."""

    batch: int | None = Field(default=None, ge=1)
    """Samples per rank and iteration. Default: the batch that the model's compute time was calibrated with."""

    compute: Literal["emulated", "real"] = "emulated"
    """`emulated`: layers sleep for their share of the compute time, real gradients travel. `real`: torchvision's model,
    or `small_cnn`, is trained on images: without `data` on one batch of noise again and again."""

    compute_time: Duration | None = None
    """Emulated compute: time of the forward and the backward pass of one iteration on the accelerator that is modelled.
    Default: the model's calibrated time, times batch over the batch it was calibrated with."""

    image: int = Field(default=224, ge=32)
    """Real compute: edge of the square input images in pixels; gratings and CIFAR-10's binary version keep their 32."""

    loaders: int = Field(default=0, ge=0)
    """Processes of each rank that read images; 0: the rank reads them itself."""


def problems(config: ModelConfig, topology: Topology) -> list[Problem]:
    """What keeps this model from being trained on this testbed."""
    found = [*placement_problems(config.hosts, topology), *modelled.without_classes(config)]
    if config.compute == "real":
        found += real_training.real_problems(config, topology, known=real_training.on_torch())
    else:
        found += modelled.uncalibrated(config) + real_training.emulated_problems(config)
    return found or backend_problems(config, topology)


def settings(config: ModelConfig, topology: Topology, *, seed: int) -> ModelSettings:
    """What the rank program is given of the model; the same for all ranks."""
    return {
        **real_training.real_settings(config, image=config.image, loaders=config.loaders, seed=seed),
        "compute": config.compute,
        "layers": [] if config.compute == "real" else modelled.layers(config, topology),
    }


def on_gpu(config: ModelConfig, job: Job) -> bool:
    """Gloo takes gradients from the CPU; only where real compute has a GPU for each rank does it run there."""
    with_gpus = all(rank.device != "cpu" for rank in job.ranks)
    return backend_of(config, job.ranks) == "nccl" or (config.compute == "real" and with_gpus)


def footprint(config: ModelConfig, job: Job, topology: Topology) -> Footprint:
    """What a rank takes of its machine, where it computes on processors."""
    ranks = len(job.ranks)
    if on_gpu(config, job):
        return footprints.unknown(ranks)
    if config.compute == "real":
        held = modelled.parameters(config, topology) * modelled.BYTES_PER_PARAMETER
        return footprints.computing(held, threads=config.threads + config.loaders, ranks=ranks)
    return modelled.footprint(config, topology, ranks=ranks)


def modules(config: ModelConfig) -> dict[str, str]:
    """Python modules beside torch that the ranks import, and how to get them."""
    if config.compute == "emulated":
        return {}
    return NUMPY if config.model == real_training.SMALL else TORCHVISION
