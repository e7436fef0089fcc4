"""What a rank computes: a model, its loss, and when its last gradient was there."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import torch


class Compute(Protocol):
    """A model, and when its gradients are there."""

    module: torch.nn.Module

    def loss(self, model: torch.nn.Module) -> torch.Tensor:
        """The forward pass of `module`, through the wrapper `model`; it has ended when this returns."""

    def waited_s(self) -> float:
        """Seconds from the last gradient until now; call it as soon as the backward pass returns."""

    def held(self, seconds: float) -> None:
        """The forward pass had to wait for so long before its next layer."""

    def learned(self) -> dict[str, float]:
        """What the last forward pass tells beside the loss, for the iteration log."""


class EmulatedCompute:
    """Layers that sleep for their share of the compute time."""

    def __init__(self, config: dict[str, Any], *, rank: int, device: torch.device) -> None:
        from .emulated_torch import EmulatedModel
        from .pace import sharpen_timer

        sharpen_timer()
        self.module = EmulatedModel(config["layers"], seed=config["seed"] + rank, device=device)

    def loss(self, model: torch.nn.Module) -> torch.Tensor:
        result: torch.Tensor = model()
        return result

    def waited_s(self) -> float:
        return (time.monotonic_ns() - self.module.pace.last_gradient_ns) * 1e-9

    def held(self, seconds: float) -> None:
        self.module.pace.hold(seconds)

    def learned(self) -> dict[str, float]:
        return {}


class RealCompute:
    """A torchvision model that classifies images: those of a data set, or one batch of noise again and again."""

    def __init__(self, config: dict[str, Any], *, rank: int, world: int, device: torch.device) -> None:
        import torch

        from .vision import batches, build

        torch.manual_seed(config["seed"])
        self._batches = batches(config, rank=rank, world=world, device=device)
        self.module = build(config["model"], classes=self._batches.classes).to(device)
        self._criterion = torch.nn.CrossEntropyLoss()
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

    def loss(self, model: torch.nn.Module) -> torch.Tensor:
        import torch

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
        import torch

        if self._last_gradient is None:
            return (time.monotonic_ns() - self._last_gradient_ns) * 1e-9
        now = torch.cuda.Event(enable_timing=True)
        now.record()
        now.synchronize()
        return self._last_gradient.elapsed_time(now) * 1e-3

    def held(self, seconds: float) -> None:
        """What computes really takes its time after it waited, too."""

    def learned(self) -> dict[str, float]:
        return {"accuracy": round(self._accuracy, 6)}


def build(config: dict[str, Any], *, rank: int, world: int, device: torch.device) -> Compute:
    """The compute that the configuration asks for."""
    if config["compute"] == "emulated":
        return EmulatedCompute(config, rank=rank, device=device)
    return RealCompute(config, rank=rank, world=world, device=device)
