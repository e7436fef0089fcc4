"""Learning on PyTorch: batches as tensors, the small network, and how a model does on held-out images."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

from . import pictures, small_cnn
from .epochs import Evaluation, Feed

if TYPE_CHECKING:
    import numpy as np

    from .compute_settings import RealSettings

Batch = tuple[torch.Tensor, torch.Tensor]


class Epochs:
    """Batches of a rank's share of CIFAR-10 or of gratings, without end."""

    classes = pictures.CLASSES

    def __init__(self, config: RealSettings, data: str, *, rank: int, world: int, device: torch.device) -> None:
        training, self._held_out = pictures.load(
            data, training=config["samples"], held_out=config["held_out"], seed=config["seed"]
        )
        self._feed = Feed(training, batch=config["batch"], rank=rank, world=world, seed=config["seed"])
        self._rank, self._world, self._device = rank, world, device

    def next(self) -> Batch:
        return self._moved(*self._feed.next())

    def _moved(self, images: np.ndarray, labels: np.ndarray) -> Batch:
        return torch.from_numpy(images).to(self._device), torch.from_numpy(labels).to(self._device)

    def evaluation(self, model: nn.Module) -> Evaluation:
        """What looks at the held-out images after each epoch."""

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
    """The small network on PyTorch."""
    layers: list[nn.Module] = []
    for made, read, height, width in small_cnn.KERNELS:
        layers += [nn.Conv2d(read, made, (height, width), padding="same"), nn.ReLU(), nn.MaxPool2d(2)]
    layers.append(nn.Flatten())
    for made, read in small_cnn.DENSE:
        layers += [nn.Linear(read, made), nn.ReLU()]
    model = nn.Sequential(*layers[:-1])
    with torch.no_grad():
        for parameter, values in zip(model.parameters(), small_cnn.weights(seed)):
            parameter.copy_(torch.from_numpy(values))
    return model
