"""Options, problems and settings of workloads with real training: model, data, optimizer.

Frameworks that meet by themselves (Horovod, TensorFlow) build on `RealConfig`, those on torch.distributed on
`TorchModelConfig`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, Literal, Protocol

from pydantic import Field

from orchestrator.core.fields import Duration
from orchestrator.parts.launch import Footprint
from orchestrator.parts.protocols import Problem
from orchestrator.parts.theory import Compute
from orchestrator.parts.topology import Job, Topology
from workloads.common import footprints, jitter, trained_model
from workloads.common.footprints import Framework
from workloads.common.jitter import JitteredConfig
from workloads.common.placement import WorkloadConfig, placement_problems
from workloads.common.torch_ranks import TorchConfig, backend_of, backend_problems
from workloads.common.trained_model import EmulatedConfig, ModelName
from workloads.models import catalog
from workloads.rank.compute.training import ModelSettings, RealSettings
from workloads.rank.lifecycle import LayerPlan

UNPREDICTED = "real compute takes the time that it takes; compute: emulated, with the compute_time of the accelerator"
GRATINGS = "gratings"
SMALL = "small_cnn"
_CLASSES = 10
_RATES = {"sgd": 0.01, "adam": 0.001, "rmsprop": 0.001}
_LEAST_EDGE = {"inception_v3": 75}  # in pixels; images of CIFAR-10 have 32
NUMPY = {"numpy": "pip install numpy"}
TORCHVISION = {"torchvision": "pip install --no-deps torchvision pillow"}


class LearningConfig(WorkloadConfig):
    """Options of learning: data, optimizer, evaluation."""

    data: str | None = None
    """Real compute: `gratings`, a set of ten classes that each rank makes from the seed, or a folder of images, the
    same path on each host: one with CIFAR-10's binary version (`cifar-10-batches-bin`) in it, or, on torch, with
    `cifar-10-batches-py` or a folder for each class (ImageNet's, or one that holds it as `train`). Of gratings and
    CIFAR-10's binary version a part is held out, which the model is judged by after each epoch (table `accuracy`)."""

    samples: Annotated[int, Field(ge=1)] | None = None
    """Gratings, CIFAR-10's binary version: images that are trained on. Default: 4000 gratings, all of a folder."""

    held_out: Annotated[int, Field(ge=1)] | None = None
    """The same: images that are held out. Default: 1000 gratings, all of a folder."""

    optimizer: Literal["sgd", "adam", "rmsprop"] = "sgd"
    """Real compute: what makes a step of averaged gradients; with Keras's constants in every framework."""

    learning_rate: Annotated[float, Field(gt=0)] | None = None
    """Real compute: the optimizer's. Default: 0.01 for sgd, 0.001 for the others."""


class RealConfig(LearningConfig, EmulatedConfig):
    """A training of a model of the catalog with emulated or real compute, whose framework meets by itself."""

    compute: Literal["emulated", "real"] = "emulated"
    """`emulated`: layers sleep for their share of the compute time, real gradients travel. `real`: the model learns
    from `data`."""


class Trained(Protocol):
    """The keys of a configuration with `LearningConfig` that this module reads."""

    @property
    def compute(self) -> Literal["emulated", "real"]: ...
    @property
    def model(self) -> str: ...
    @property
    def batch(self) -> int | None: ...
    @property
    def classes(self) -> int | None: ...
    @property
    def compute_time(self) -> float | None: ...
    @property
    def data(self) -> str | None: ...
    @property
    def samples(self) -> int | None: ...
    @property
    def held_out(self) -> int | None: ...
    @property
    def optimizer(self) -> Literal["sgd", "adam", "rmsprop"]: ...
    @property
    def learning_rate(self) -> float | None: ...


def real_option_problems(config: Trained) -> list[Problem]:
    """Find options of real compute where layers sleep."""
    found = []
    given = {
        "data": config.data,
        "samples": config.samples,
        "held_out": config.held_out,
        "optimizer": None if config.optimizer == "sgd" else config.optimizer,
        "learning_rate": config.learning_rate,
    }
    for name, value in given.items():
        if value is not None:
            message = "emulated compute looks at no images" if name == "data" else "emulated compute learns nothing"
            found.append(Problem(at=(name,), message=message, accepted=f"no {name}, or compute: real"))
    return found


def real_problems(config: Trained, topology: Topology, *, known: tuple[str, ...]) -> list[Problem]:
    """Find why a model cannot be trained with real compute; `known` are the framework's models."""
    found = []
    if topology.scale != 1:
        message = f"real gradients cannot be divided by the testbed's scale of {topology.scale}"
        found.append(
            Problem(at=("compute",), message=message, accepted="compute: emulated, or a testbed with scale: 1")
        )
    if config.model not in known:
        accepted = f"compute: emulated, or one of {', '.join(known)}"
        found.append(Problem(at=("model",), message=f"{config.model} has no real compute", accepted=accepted))
    if config.compute_time is not None:
        message = "real compute takes the time that it takes"
        found.append(Problem(at=("compute_time",), message=message, accepted="no compute_time, or compute: emulated"))
    return found or _data_problems(config)


def _data_problems(config: Trained) -> list[Problem]:
    if config.model == SMALL and config.data is None:
        message = f"{SMALL} learns from images"
        accepted = f"{GRATINGS}, or a folder with cifar-10-batches-bin in it"
        return [Problem(at=("data",), message=message, accepted=accepted)]
    if config.data == GRATINGS and config.model != SMALL and config.classes != _CLASSES:
        return [Problem(at=("classes",), message=f"{GRATINGS} have {_CLASSES} classes", accepted=str(_CLASSES))]
    if config.data == GRATINGS and config.model in _LEAST_EDGE:
        message = f"{config.model} needs images of {_LEAST_EDGE[config.model]} pixels, and gratings have 32"
        return [Problem(at=("data",), message=message, accepted="a folder of images")]
    return []


def computes(config: Trained) -> bool:
    """Return whether no file says how long a training computes."""
    return config.compute == "real"


def layers(config: Trained, topology: Topology, compute: Compute) -> list[LayerPlan]:
    """Return the layers of a model with these times of computing; each has the share of the passes that is known.

    Times are shared by FLOPs; those of the backward pass, where it is known when gradients were ready, so that each
    layer ends when the share of all gradients is reached that it brings. What the pass takes after the last gradient is
    a layer without parameters.
    """
    model = trained_model.data(config)
    sizes = catalog.scaled_sizes(model, topology.scale)
    flops = [layer.flops for layer in model.layers]
    all_flops, all_elements = sum(flops), sum(map(sum, sizes))
    elements, work, found = 0, 0, []
    before_s = 0.0
    for own_flops, own in zip(reversed(flops), reversed(sizes), strict=True):
        elements, work = elements + sum(own), work + own_flops
        share = work / all_flops if not compute.ready else _share(compute.ready, elements / all_elements)
        at_s = compute.backward_s * share
        found.append((compute.forward_s * own_flops / all_flops, at_s - before_s, list(own)))
        before_s = at_s
    if before_s < compute.backward_s:
        found.append((0.0, compute.backward_s - before_s, []))
    return found[::-1]


def _share(ready: Sequence[tuple[float, float]], elements: float) -> float:
    """Return the share of the backward pass in which so large a share of gradients comes."""
    for (low, early), (high, late) in pairwise(((0.0, 0.0), *ready, (1.0, 1.0))):
        if elements <= high:
            return early if high <= low else early + (late - early) * (elements - low) / (high - low)
    return 1.0


def on_torch() -> tuple[str, ...]:
    """Return the models whose real compute PyTorch has."""
    return (*(name for name in catalog.names() if catalog.load(name).torchvision), SMALL)


def real_settings(config: Trained, *, image: int, loaders: int, seed: int) -> RealSettings:
    """Return a rank's settings of real compute."""
    return {
        "model": config.model,
        "batch": trained_model.batch(config),
        "classes": config.classes,
        "image": image,
        "data": config.data,
        "samples": config.samples,
        "held_out": config.held_out,
        "loaders": loaders,
        "seed": seed,
        "optimizer": config.optimizer,
        "learning_rate": config.learning_rate if config.learning_rate is not None else _RATES[config.optimizer],
    }


class ThreadedSettings(ModelSettings):
    """The settings of a rank whose framework meets the others by itself."""

    threads: int


def problems(config: RealConfig, topology: Topology, *, known: tuple[str, ...]) -> list[Problem]:
    """Find why this model cannot be trained on this testbed."""
    if config.compute == "real":
        found = [*placement_problems(config.hosts, topology), *trained_model.without_classes(config)]
        found += jitter.problems(config, emulated=False)
        return found or real_problems(config, topology, known=known)
    return trained_model.emulated_problems(config, topology) + real_option_problems(config)


def settings(config: RealConfig, topology: Topology, *, seed: int) -> ThreadedSettings:
    """Return the settings of the model, which are the same for all ranks; in real compute images keep their size."""
    real = config.compute == "real"
    return {
        **jitter.settings(config, seed=seed),
        **real_settings(config, image=32, loaders=0, seed=seed),
        "compute": config.compute,
        "layers": [] if real else trained_model.layers(config, topology),
        "threads": config.threads,
    }


def footprint(config: RealConfig, topology: Topology, *, ranks: int, framework: Framework) -> Footprint:
    """Return the footprint of a rank."""
    if config.compute == "emulated":
        return trained_model.footprint(config, topology, ranks=ranks, framework=framework)
    held = trained_model.parameters(config, topology) * trained_model.BYTES_PER_PARAMETER
    return footprints.computing(held, threads=config.threads, ranks=ranks, framework=framework)


class TorchModelConfig(LearningConfig, JitteredConfig, TorchConfig):
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


def torch_problems(config: TorchModelConfig, topology: Topology) -> list[Problem]:
    """Find why this model cannot be trained on this testbed."""
    found = [*placement_problems(config.hosts, topology), *trained_model.without_classes(config)]
    found += jitter.problems(config, emulated=config.compute == "emulated")
    if config.compute == "real":
        found += real_problems(config, topology, known=on_torch())
    else:
        found += trained_model.uncalibrated(config) + real_option_problems(config)
    return found or backend_problems(config, topology)


def torch_settings(config: TorchModelConfig, topology: Topology, *, seed: int) -> ModelSettings:
    """Return the rank program's settings of the model, the same for all ranks."""
    return {
        **jitter.settings(config, seed=seed),
        **real_settings(config, image=config.image, loaders=config.loaders, seed=seed),
        "compute": config.compute,
        "layers": [] if config.compute == "real" else trained_model.layers(config, topology),
    }


def on_gpu(config: TorchModelConfig, job: Job) -> bool:
    """Return whether ranks compute on GPUs: with gloo only where real compute has a GPU for each rank."""
    with_gpus = all(rank.device != "cpu" for rank in job.ranks)
    return backend_of(config, job.ranks) == "nccl" or (config.compute == "real" and with_gpus)


def torch_footprint(config: TorchModelConfig, job: Job, topology: Topology) -> Footprint:
    """Return the footprint of a rank, where it computes on processors."""
    ranks = len(job.ranks)
    if on_gpu(config, job):
        return footprints.unknown(ranks)
    if config.compute == "real":
        held = trained_model.parameters(config, topology) * trained_model.BYTES_PER_PARAMETER
        return footprints.computing(held, threads=config.threads + config.loaders, ranks=ranks)
    return trained_model.footprint(config, topology, ranks=ranks)


def torch_modules(config: TorchModelConfig) -> dict[str, str]:
    """Return Python modules beside torch that the ranks import, and how to get them."""
    if config.compute == "emulated":
        return {}
    return NUMPY if config.model == SMALL else TORCHVISION
