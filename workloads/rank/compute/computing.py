"""Build the model that a rank on PyTorch computes with: emulated layers, or a real model of images."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ..lifecycle import Step
from .training import ModelSettings

if TYPE_CHECKING:
    import torch


class Compute(Protocol):
    """A model, and when its gradients are there."""

    @property
    def module(self) -> torch.nn.Module: ...

    def loss(self, model: torch.nn.Module) -> torch.Tensor:
        """The forward pass of `module`, through the wrapper `model`; it has ended when this returns."""

    def waited_s(self) -> float:
        """Seconds from the last gradient until now; call it as soon as the backward pass returns."""

    def held(self, seconds: float) -> None:
        """The forward pass had to wait for so long before its next layer."""

    def learned(self) -> dict[str, float]:
        """What the last forward pass tells beside the loss, for the iteration log."""

    def evaluated(self, step: Step) -> Step:
        """The step, followed by a look at held-out images after each epoch where there are any."""


def build(config: ModelSettings, *, rank: int, world: int, device: torch.device) -> Compute:
    """Build the model that the settings ask for, with its passes."""
    if config["compute"] == "emulated":
        from .emulated_torch import EmulatedCompute

        return EmulatedCompute(config["layers"], seed=config["seed"] + rank, device=device)
    from .vision_torch import RealCompute

    return RealCompute(config, rank=rank, world=world, device=device)
