"""The models that can be trained: their layers, sizes and calibrated times, read from `models/` without a framework."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import cache
from itertools import accumulate, pairwise
from pathlib import Path

_FOLDER = Path(__file__).parent

CLASSES = 1000  # of ImageNet, by which models of images are counted
FORWARD_SHARE = 1 / 3  # of the compute time; the backward pass takes the rest


@dataclass(frozen=True, slots=True)
class Layer:
    """A module with parameters of its own.

    `sizes` counts the values of each parameter tensor in order; `flops` are those of its forward pass for one sample.
    """

    name: str
    sizes: tuple[int, ...]
    flops: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelData:
    """A model as its data file describes it.

    `compute_s` is the time of a forward and a backward pass of `batch` samples, in seconds, None where nobody has
    calibrated it; `source` says what it was fitted to. `torchvision` tells whether real compute knows the model.
    `transformer` is a GPT's number of blocks, hidden size, sequence length and vocabulary. `after` has, for each layer,
    the places of the layers whose results it takes, without those that follow from others; None where the layers are
    known as one after the other alone.
    """

    name: str
    torchvision: bool
    sample: str
    parameters: int
    batch: int
    compute_s: float | None
    source: str
    layers: tuple[Layer, ...]
    transformer: tuple[int, int, int, int] | None = None
    after: tuple[tuple[int, ...], ...] | None = None


@dataclass(frozen=True, slots=True)
class EmulatedLayer:
    """An emulated layer: times in seconds, scaled sizes of its parameter tensors."""

    forward_s: float
    backward_s: float
    sizes: tuple[int, ...]


@cache
def names() -> tuple[str, ...]:
    """Return the known models in alphabetical order."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.json")))


@cache
def load(name: str) -> ModelData:
    """Return the data of a known model."""
    data = json.loads((_FOLDER / f"{name}.json").read_text())
    layers = tuple(Layer(layer, tuple(sizes), flops) for layer, sizes, flops in data.pop("layers"))
    shape, after = data.pop("transformer", None), data.pop("after", None)
    return ModelData(
        **data,
        layers=layers,
        transformer=None if shape is None else tuple(shape),
        after=None if after is None else tuple(map(tuple, after)),
    )


def branching() -> tuple[str, ...]:
    """Return the models whose layers are known as a graph with branches, in alphabetical order."""
    return tuple(name for name in names() if load(name).after is not None)


def has_classes(model: ModelData) -> bool:
    """Return whether a model ends in layers with a value for each class of ImageNet."""
    return any(map(_is_head, model.layers))


def with_classes(model: ModelData, classes: int) -> ModelData:
    """Return the model with so many classes: its last layers (Inception has two) have as many outputs."""
    layers = tuple(_with_outputs(layer, classes) if _is_head(layer) else layer for layer in model.layers)
    return replace(model, layers=layers, parameters=sum(sum(layer.sizes) for layer in layers))


def _is_head(layer: Layer) -> bool:
    """Return whether a layer is linear with an output, and so a bias, for each class."""
    return len(layer.sizes) == 2 and layer.sizes[1] == CLASSES and layer.sizes[0] % CLASSES == 0


def _with_outputs(layer: Layer, classes: int) -> Layer:
    inputs = layer.sizes[0] // CLASSES
    return replace(layer, sizes=(inputs * classes, classes), flops=layer.flops * classes // CLASSES)


def compute_time(model: ModelData, batch: int) -> float | None:
    """Return the calibrated seconds of forward and backward pass of `batch` samples, proportional to the batch."""
    return None if model.compute_s is None else model.compute_s * batch / model.batch


def scaled_sizes(model: ModelData, scale: int) -> tuple[tuple[int, ...], ...]:
    """Return the sizes of each layer's parameter tensors, divided by `scale`; a tensor that vanishes is left out.

    The running total is divided and rounded down, so that the sum is exactly that of all parameters divided.
    """
    totals = accumulate((size for layer in model.layers for size in layer.sizes), initial=0)
    scaled = iter([after // scale - before // scale for before, after in pairwise(totals)])
    return tuple(tuple(size for size in (next(scaled) for _ in layer.sizes) if size) for layer in model.layers)


def emulate(model: ModelData, *, compute_s: float, scale: int) -> tuple[EmulatedLayer, ...]:
    """Return the model's layers for emulated compute: each has its share of the FLOPs as its share of the time."""
    total = sum(layer.flops for layer in model.layers)
    return tuple(
        EmulatedLayer(
            forward_s=compute_s * FORWARD_SHARE * layer.flops / total,
            backward_s=compute_s * (1 - FORWARD_SHARE) * layer.flops / total,
            sizes=sizes,
        )
        for layer, sizes in zip(model.layers, scaled_sizes(model, scale), strict=True)
    )
