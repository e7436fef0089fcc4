"""A model whose layers take time instead of computing, with real parameters and gradients.

Each layer is one autograd function: its forward and its backward sleep until the layer would have been done, and its
backward returns gradients that were made beforehand. The framework around it sees parameters that get their gradients
one after the other, as from a real model, and moves them with its own hooks, buckets and collectives.
"""

from __future__ import annotations

import time
from bisect import insort
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import nn

from ..lifecycle import LayerPlan, Step
from .training import ComputeClock, EmulatedSettings, clock_of, sharpen_timer


class _Layer:
    """One layer's gradients and times; `forward_s` and `backward_s` count from the start of the pass."""

    __slots__ = ("backward_s", "clock", "first", "forward_s", "gradients", "last", "sleeps", "tells")

    def __init__(self, clock: ComputeClock, *, gradients: tuple[torch.Tensor, ...]) -> None:
        self.clock = clock
        self.gradients = gradients
        self.forward_s = self.backward_s = 0.0
        self.first = self.last = False
        self.sleeps = True  # whether its forward pass does, and not the graph's for it
        self.tells = False  # whether the loss is of its parameters


class _Pass(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, layer: _Layer, signal: torch.Tensor, *parameters: torch.Tensor) -> torch.Tensor:
        ctx.layer = layer
        if layer.sleeps:
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


Pick = Callable[[Sequence[int]], int]
"""Takes the places of layers whose inputs are there, in their order; returns that of the one to compute next."""


class _Graph:
    """The order in which layers of a graph compute, and the time that each takes."""

    def __init__(
        self, clock: ComputeClock, after: Sequence[Sequence[int]], seconds: Sequence[float], pick: Pick
    ) -> None:
        self._clock, self._seconds, self._pick = clock, seconds, pick
        self._lacks = [len(before) for before in after]
        self._then: list[list[int]] = [[] for _ in after]  # the layers that take the results of each
        for place, before in enumerate(after):
            for other in before:
                self._then[other].append(place)

    def passes(self) -> Iterator[list[bool]]:
        """Compute a forward pass; yield after each layer which of all have computed."""
        lacks = list(self._lacks)
        done = [False] * len(lacks)
        can = [place for place, count in enumerate(lacks) if not count]
        end_s = 0.0
        self._clock.start()
        while can:
            place = self._pick(can)
            end_s += self._seconds[place]
            self._clock.sleep_until(end_s)
            done[place] = True
            can.remove(place)
            for other in self._then[place]:
                lacks[other] -= 1
                if not lacks[other]:
                    insort(can, other)
            yield done


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
        self._graph: _Graph | None = None
        # It needs a gradient itself, so that a first layer whose parameters all scaled away has a backward pass too.
        self._signal = torch.zeros((), device=device).requires_grad_()
        self._layers = made = list[_Layer]()
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

    def by_graph(self, after: Sequence[Sequence[int]], pick: Pick) -> None:
        """Compute forward passes as a graph from now on: one layer at a time, whichever `pick` takes of those that can.

        `after` has the places of the layers whose results each takes. The backward pass goes through the layers in the
        reverse of their order, whatever the forward pass took first.
        """
        for layer in self._layers:
            layer.sleeps = False
        ends = [0.0, *(layer.forward_s for layer in self._layers)]
        self._graph = _Graph(self.clock, after, [end - begin for begin, end in zip(ends, ends[1:])], pick)

    def forward(self) -> torch.Tensor:
        signal = self._signal.view_as(self._signal)
        if self._graph is None:
            for block in self.blocks:
                signal = block(signal)
            return signal
        built = 0
        for done in self._graph.passes():
            # Autograd's chain of layers is made in their order, as far as all have computed, while others take time.
            while built < len(done) and done[built]:
                signal = self.blocks[built](signal)
                built += 1
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
