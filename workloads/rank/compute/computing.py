"""Build the model that a rank on PyTorch computes with: emulated layers, or a real model of images."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ..lifecycle import Step
from .training import ModelSettings

if TYPE_CHECKING:
    import torch


class Compute(Protocol):
    """A model with its passes, and the times of its gradients."""

    @property
    def module(self) -> torch.nn.Module: ...

    def loss(self, model: torch.nn.Module) -> torch.Tensor:
        """Run the forward pass of `module`, through the wrapper `model`; it has ended when this returns."""

    def waited_s(self) -> float:
        """Return the seconds from the last gradient until now; call it as soon as the backward pass returns."""

    def held(self, seconds: float) -> None:
        """Note that the forward pass waited for so long, in seconds, before its next layer."""

    def end_iteration(self) -> dict[str, float]:
        """End an iteration; return what there is to log of it beside times and loss."""

    def evaluated(self, step: Step) -> Step:
        """Return the step, followed after each epoch by an evaluation on held-out images where there are any."""


def build(config: ModelSettings, *, rank: int, world: int, device: torch.device) -> Compute:
    """Build the model that the settings ask for, with its passes."""
    if config["compute"] == "emulated":
        from .emulated_torch import EmulatedCompute

        return EmulatedCompute(config, rank=rank, device=device)
    from .vision_torch import RealCompute

    return RealCompute(config, rank=rank, world=world, device=device)
