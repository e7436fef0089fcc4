"""Train models of images on PyTorch: torchvision's, also beside a torch built without CUDA, and the small network."""

from __future__ import annotations

import time
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ..lifecycle import Evaluated, Step
from . import image_sets
from .image_sets import EpochBatches, Evaluation
from .training import RealSettings

if TYPE_CHECKING:
    import numpy as np

CLASSES = 1000
IMAGENET_MEAN_AND_DEVIATION = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
_MISSING_OPERATOR = "torchvision::nms"


Batch = tuple[torch.Tensor, torch.Tensor]


class Epochs:
    """Batches of a rank's share of CIFAR-10 or of gratings, without end."""

    classes = image_sets.CLASSES

    def __init__(self, config: RealSettings, data: str, *, rank: int, world: int, device: torch.device) -> None:
        training, self._held_out = image_sets.load_images(
            data, training=config["samples"], held_out=config["held_out"], seed=config["seed"]
        )
        self._feed = EpochBatches(training, batch=config["batch"], rank=rank, world=world, seed=config["seed"])
        self._rank, self._world, self._device = rank, world, device

    def next(self) -> Batch:
        return self._moved(*self._feed.next())

    def _moved(self, images: np.ndarray, labels: np.ndarray) -> Batch:
        return torch.from_numpy(images).to(self._device), torch.from_numpy(labels).to(self._device)

    def evaluation(self, model: nn.Module) -> Evaluation:
        """Return the evaluation on held-out images after each epoch."""

        def score(images: np.ndarray, labels: np.ndarray) -> tuple[int, float]:
            seen, right = self._moved(images, labels)
            model.eval()
            with torch.no_grad():
                scores = model(seen)
                lost = nn.functional.cross_entropy(scores, right, reduction="sum")
            model.train()
            return int((scores.argmax(1) == right).sum()), float(lost)

        return Evaluation(self._held_out, score, steps=self._feed.steps, rank=self._rank, world=self._world)


def small_network(seed: int) -> nn.Module:
    """Build the small network on PyTorch."""
    layers: list[nn.Module] = []
    for made, read, height, width in image_sets.KERNELS:
        layers += [nn.Conv2d(read, made, (height, width), padding="same"), nn.ReLU(), nn.MaxPool2d(2)]
    layers.append(nn.Flatten())
    for made, read in image_sets.DENSE:
        layers += [nn.Linear(read, made), nn.ReLU()]
    model = nn.Sequential(*layers[:-1])
    with torch.no_grad():
        for parameter, values in zip(model.parameters(), image_sets.small_cnn_weights(seed)):
            parameter.copy_(torch.from_numpy(values))
    return model


def load_torchvision() -> ModuleType:
    """Import torchvision's models.

    The package index carries torchvision built for CUDA, whose import looks for two operators that its own library
    would define; beside a CPU torch that library does not load, so they are declared here. No model calls them.
    Where the library loads, declaring them would clash: so only after the plain import failed.
    """
    try:
        from torchvision import models
    except RuntimeError as error:
        if _MISSING_OPERATOR not in str(error):
            raise
        declared: Any = torch.library.Library("torchvision", "FRAGMENT")
        for name in ("nms", "qnms"):
            declared.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        from torchvision import models
    found: ModuleType = models
    return found


def build_torchvision(name: str, *, classes: int = CLASSES) -> nn.Module:
    """Build the torchvision model of this name with random weights."""
    # Inception is told not to redraw its weights from a truncated normal, which takes a minute.
    more = {"init_weights": False} if name == "inception_v3" else {}
    model: nn.Module = getattr(load_torchvision(), name)(weights=None, num_classes=classes, **more)
    return model


class Noise:
    """One repeated batch: images (batch, 3, image, image) of float32 noise, labels (batch,) of some classes."""

    def __init__(self, batch: int, image: int, *, classes: int, seed: int, device: torch.device) -> None:
        self.classes = classes
        draw = torch.Generator().manual_seed(seed)
        self._images = torch.randn(batch, 3, image, image, generator=draw).to(device)
        self._labels = torch.randint(classes, (batch,), generator=draw).to(device)

    def next(self) -> Batch:
        return self._images, self._labels


class DataSet:
    """Batches of a rank's share of a data set, shuffled anew in each epoch, without end.

    A folder that holds `cifar-10-batches-py` is CIFAR-10 in its own format; else it has a folder a class, as ImageNet's
    training set is unpacked, or holds such a set as `train`.
    """

    def __init__(self, folder: Path, config: RealSettings, *, rank: int, world: int, device: torch.device) -> None:
        from torch.utils.data import DataLoader, DistributedSampler

        image_sets = _open(folder, image=config["image"])
        self.classes = len(image_sets.classes)
        if config["classes"] not in (None, self.classes):
            raise RuntimeError(f"{folder} has {self.classes} classes, and {config['classes']} are configured")
        self._device = device
        self._epoch = 0
        self._sampler: DistributedSampler[Any] = DistributedSampler(
            image_sets, world, rank, seed=config["seed"], drop_last=True
        )
        self._loader = DataLoader(
            image_sets,
            config["batch"],
            sampler=self._sampler,
            num_workers=config["loaders"],
            drop_last=True,
            pin_memory=device.type == "cuda",
            persistent_workers=config["loaders"] > 0,
        )
        if not len(self._loader):
            raise RuntimeError(f"{folder} has too few images for batches of {config['batch']} on {world} ranks")
        self._left = iter(self._loader)

    def next(self) -> Batch:
        found = next(self._left, None)
        if found is None:
            self._epoch += 1
            self._sampler.set_epoch(self._epoch)
            self._left = iter(self._loader)
            found = next(self._left)
        images, labels = found
        return images.to(self._device), labels.to(self._device)


def _open(folder: Path, *, image: int) -> Any:
    load_torchvision()
    from torchvision import datasets, transforms

    size = [transforms.Resize(image), transforms.CenterCrop(image)]
    shape = transforms.Compose([*size, transforms.ToTensor(), transforms.Normalize(*IMAGENET_MEAN_AND_DEVIATION)])
    if (folder / "cifar-10-batches-py").is_dir():
        return datasets.CIFAR10(str(folder), train=True, transform=shape)
    inner = folder / "train"
    return datasets.ImageFolder(str(inner if inner.is_dir() else folder), transform=shape)


def batches(config: RealSettings, *, rank: int, world: int, device: torch.device) -> Noise | DataSet | Epochs:
    """Return the images that a rank trains on: of the folder `data`, gratings, or noise where none is named."""
    data = config["data"]
    if data is None:
        classes = CLASSES if config["classes"] is None else config["classes"]
        return Noise(config["batch"], config["image"], classes=classes, seed=config["seed"] + rank, device=device)
    if data == image_sets.GRATINGS or Path(data, image_sets.CIFAR_FOLDER).is_dir():
        return Epochs(config, data, rank=rank, world=world, device=device)
    return DataSet(Path(data), config, rank=rank, world=world, device=device)


def _network(config: RealSettings, *, classes: int) -> nn.Module:
    if config["model"] == image_sets.SMALL_CNN:
        return small_network(config["seed"])
    return build_torchvision(config["model"], classes=classes)


class RealCompute:
    """A model that classifies images: those of a data set, or one repeated batch of noise."""

    def __init__(self, config: RealSettings, *, rank: int, world: int, device: torch.device) -> None:
        torch.manual_seed(config["seed"])
        self._batches = batches(config, rank=rank, world=world, device=device)
        self.module = _network(config, classes=self._batches.classes).to(device)
        self._criterion = nn.CrossEntropyLoss()
        self._accuracy = 0.0
        self._last_gradient_ns = 0
        # A GPU runs behind the program: only an event in its own queue tells when a gradient was there.
        self._last_gradient = torch.cuda.Event(enable_timing=True) if device.type == "cuda" else None
        for parameter in self.module.parameters():
            parameter.register_hook(self._gradient_is_there)

    def _gradient_is_there(self, _gradient: torch.Tensor) -> None:
        if self._last_gradient is None:
            self._last_gradient_ns = time.monotonic_ns()
        else:
            self._last_gradient.record()

    def loss(self, model: nn.Module) -> torch.Tensor:
        images, labels = self._batches.next()
        scores = model(images)
        result: torch.Tensor
        if isinstance(scores, tuple):  # Inception has a second classifier half way, weighed as its paper does
            result = self._criterion(scores[0], labels) + 0.3 * self._criterion(scores[1], labels)
            scores = scores[0]
        else:
            result = self._criterion(scores, labels)
        if self._last_gradient is not None:
            torch.cuda.synchronize()
        self._accuracy = float((scores.detach().argmax(1) == labels).float().mean())
        return result

    def waited_s(self) -> float:
        if self._last_gradient is None:
            return (time.monotonic_ns() - self._last_gradient_ns) * 1e-9
        now = torch.cuda.Event(enable_timing=True)
        now.record()
        now.synchronize()
        elapsed_ms: float = self._last_gradient.elapsed_time(now)
        return elapsed_ms * 1e-3

    def held(self, seconds: float) -> None:
        """Do nothing: real compute takes its time after a wait, too."""

    def end_iteration(self) -> dict[str, float]:
        return {"accuracy": round(self._accuracy, 6)}

    def evaluated(self, step: Step) -> Step:
        if isinstance(self._batches, Epochs):
            return Evaluated(step, self._batches.evaluation(self.module))
        return step
