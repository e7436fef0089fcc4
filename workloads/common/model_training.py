"""What workloads that train a model of the catalog on torch share: its options, their problems, what ranks are told."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from orchestrator.core.units import Duration
from orchestrator.parts.launch import Footprint
from orchestrator.parts.protocols import Problem
from orchestrator.parts.topology import Job, Topology
from workloads.common import footprints, modelled
from workloads.common.modelled import ModelName
from workloads.common.placement import placement_problems
from workloads.common.torch_ranks import TorchConfig, backend_of, backend_problems
from workloads.models import catalog
from workloads.rank.compute.computing import Settings

TORCHVISION = {"torchvision": "pip install --no-deps torchvision pillow"}


class ModelConfig(TorchConfig):
    """A training of a model of the catalog."""

    model: ModelName
    """The model that is trained; its layers, sizes and calibrated time are in `workloads/models`."""

    classes: int | None = Field(default=None, ge=1)
    """How many classes a model of images tells apart: outputs of its last layer. Default: ImageNet's 1000, or with
    real compute those of `data`, which must be as many as are named here."""

    batch: int | None = Field(default=None, ge=1)
    """Samples per rank and iteration. Default: the batch that the model's compute time was calibrated with."""

    compute: Literal["emulated", "real"] = "emulated"
    """`emulated`: layers sleep for their share of the compute time, real gradients travel. `real`: torchvision's model
    is trained on images."""

    compute_time: Duration | None = None
    """Emulated compute: time of the forward and the backward pass of one iteration on the accelerator that is modelled.
    Default: the model's calibrated time, times batch over the batch it was calibrated with."""

    image: int = Field(default=224, ge=32)
    """Real compute: edge of the square input images in pixels."""

    data: str | None = None
    """Real compute: folder of images, the same path on each host: one with `cifar-10-batches-py` in it, or with a
    folder for each class (ImageNet's, or one that holds it as `train`). Default: one batch of noise again and again."""

    loaders: int = Field(default=0, ge=0)
    """Processes of each rank that read images; 0: the rank reads them itself."""


def problems(config: ModelConfig, topology: Topology) -> list[Problem]:
    """What keeps this model from being trained on this testbed."""
    found = [*placement_problems(config.hosts, topology), *modelled.without_classes(config)]
    if config.compute == "real":
        found += _real_problems(config, topology)
    else:
        found += _emulated_problems(config)
    return found or backend_problems(config, topology)


def _emulated_problems(config: ModelConfig) -> list[Problem]:
    found = modelled.uncalibrated(config)
    if config.data is not None:
        found.append(
            Problem(at=("data",), message="emulated compute looks at no images", accepted="no data, or compute: real")
        )
    return found


def _real_problems(config: ModelConfig, topology: Topology) -> list[Problem]:
    found = []
    if topology.scale != 1:
        found.append(
            Problem(
                at=("compute",),
                message=f"real gradients cannot be divided by the testbed's scale of {topology.scale}",
                accepted="compute: emulated, or a testbed with scale: 1",
            )
        )
    if not catalog.load(config.model).torchvision:
        known = [name for name in catalog.names() if catalog.load(name).torchvision]
        found.append(
            Problem(
                at=("model",),
                message=f"{config.model} has no real compute",
                accepted=f"compute: emulated, or one of {', '.join(known)}",
            )
        )
    if config.compute_time is not None:
        found.append(
            Problem(
                at=("compute_time",),
                message="real compute takes the time that it takes",
                accepted="no compute_time, or compute: emulated",
            )
        )
    return found


def settings(config: ModelConfig, topology: Topology, *, seed: int) -> Settings:
    """What the rank program is given of the model; the same for all ranks."""
    return {
        "seed": seed,
        "model": config.model,
        "batch": modelled.batch(config),
        "classes": config.classes,
        "image": config.image,
        "data": config.data,
        "loaders": config.loaders,
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
    return TORCHVISION if config.compute == "real" else {}
