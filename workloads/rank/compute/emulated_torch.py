"""A model whose layers take time instead of computing, with real parameters and gradients.

Each layer is one autograd function: its forward and its backward sleep until the layer would have been done, and its
backward returns gradients that were made beforehand. The framework around it sees parameters that get their gradients
one after the other, as from a real model, and moves them with its own hooks, buckets and collectives.
"""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import nn

from ..lifecycle import LayerPlan, Step
from .training import ComputeClock, EmulatedSettings, clock_of, sharpen_timer


class _Layer:
    """One layer's gradients and times; `forward_s` and `backward_s` count from the start of the pass."""

    __slots__ = ("backward_s", "clock", "first", "forward_s", "gradients", "last", "tells")

    def __init__(self, clock: ComputeClock, *, gradients: tuple[torch.Tensor, ...]) -> None:
        self.clock = clock
        self.gradients = gradients
        self.forward_s = self.backward_s = 0.0
        self.first = self.last = False
        self.tells = False  # whether the loss is of its parameters


class _Pass(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, layer: _Layer, signal: torch.Tensor, *parameters: torch.Tensor) -> torch.Tensor:
        ctx.layer = layer
        if layer.first:
            layer.clock.start()
        layer.clock.sleep_until(layer.forward_s)
        return parameters[-1].square().mean() if layer.tells else signal.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        layer: _Layer = ctx.layer
        if layer.last:
            layer.clock.start()
        layer.clock.sleep_until(layer.backward_s)
        if layer.first:
            layer.clock.last_gradient_ns = time.monotonic_ns()
        return (None, gradients[0], *layer.gradients)


class EmulatedBlock(nn.Module):
    """One layer that sleeps, with its parameters."""

    def __init__(self, layer: _Layer, weights: list[nn.Parameter]) -> None:
        super().__init__()
        self.layer = layer
        for number, weight in enumerate(weights):  # its own: DeepSpeed gathers for a module what that module holds
            self.register_parameter(f"weight{number}", weight)

    def forward(self, signal: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = _Pass.apply(self.layer, signal, *self.parameters(recurse=False))  # type: ignore[no-untyped-call]
        return result


class EmulatedModel(nn.Module):
    """Layers that sleep. A call takes no input and returns the loss, a tensor of one value.

    The gradients are noise, drawn once from `seed`: give each rank a seed of its own, and averaging shows. The loss is
    the mean square of the last layer's parameters: a real number that moves with them, and no sign of learning.
    """

    def __init__(
        self, layers: list[LayerPlan], *, seed: int, device: torch.device, clock: ComputeClock | None = None
    ) -> None:
        super().__init__()
        draw = torch.Generator().manual_seed(seed)
        self.clock = clock or ComputeClock()
        self.blocks = nn.ModuleList()
        # It needs a gradient itself, so that a first layer whose parameters all scaled away has a backward pass too.
        self._signal = torch.zeros((), device=device).requires_grad_()
        made: list[_Layer] = []
        forward_s = 0.0
        for layer_forward_s, _, sizes in layers:
            forward_s += layer_forward_s
            owned = [nn.Parameter(torch.ones(size, device=device)) for size in sizes]
            gradients = tuple(torch.randn(size, generator=draw).to(device) for size in sizes)
            layer = _Layer(self.clock, gradients=gradients)
            layer.forward_s = forward_s
            made.append(layer)
            self.blocks.append(EmulatedBlock(layer, owned))
        backward_s = 0.0
        for layer, (_, layer_backward_s, _) in zip(reversed(made), reversed(layers)):
            backward_s += layer_backward_s
            layer.backward_s = backward_s
        made[0].first = True
        made[-1].last = True
        next(layer for layer in reversed(made) if layer.gradients).tells = True

    @property
    def weights(self) -> list[nn.Parameter]:
        """All parameters, the first layer's first."""
        return list(self.parameters())

    def forward(self) -> torch.Tensor:
        signal = self._signal.view_as(self._signal)
        for block in self.blocks:
            signal = block(signal)
        return signal


class EmulatedCompute:
    """Emulated compute of a rank: layers sleep for their share of the compute time."""

    def __init__(self, config: EmulatedSettings, *, rank: int, device: torch.device) -> None:
        sharpen_timer()
        self.module = EmulatedModel(
            config["layers"], seed=config["seed"] + rank, device=device, clock=clock_of(config, rank)
        )

    def loss(self, model: nn.Module) -> torch.Tensor:
        result: torch.Tensor = model()
        return result

    def waited_s(self) -> float:
        return (time.monotonic_ns() - self.module.clock.last_gradient_ns) * 1e-9

    def held(self, seconds: float) -> None:
        self.module.clock.hold(seconds)

    def end_iteration(self) -> dict[str, float]:
        return self.module.clock.end_iteration()

    def evaluated(self, step: Step) -> Step:
        return step
