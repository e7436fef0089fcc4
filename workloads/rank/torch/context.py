"""What the programs on torch.distributed know of themselves: which rank they are, and their settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Literal, TypedDict, TypeVar

from ..base.span_trace import Trace

if TYPE_CHECKING:
    import torch

LEARNING_RATE = 0.01

Precision = Literal["fp32", "fp16", "bf16"]


class Settings(TypedDict):
    """What every such program is given; each program's own come on top. Times in seconds."""

    backend: Literal["gloo", "nccl"]
    device: Literal["cpu", "cuda"]
    seed: int
    trace: bool  # whether spans are recorded
    rendezvous_s: float  # for all ranks to meet
    collective_s: float  # for a collective, before it counts as failed


Given = TypeVar("Given", bound=Settings)


@dataclass
class Rank(Generic[Given]):
    """Who this process is, and what it was given."""

    number: int
    world: int
    device: torch.device
    config: Given
    trace: Trace
    checksum: bool  # whether the sum of all parameters is logged after each iteration

    def checksum_of(self, module: torch.nn.Module) -> dict[str, float]:
        """The sum of all parameters for the log, if it was requested."""
        if not self.checksum:
            return {}
        return {"checksum": sum(float(weight.double().sum()) for weight in module.parameters())}


def precision_of(name: Precision) -> torch.dtype:
    """The type of elements that is called so."""
    import torch

    return {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}[name]


def gradient_of(parameter: torch.nn.Parameter) -> torch.Tensor:
    """The gradient of a parameter whose backward pass has been."""
    if parameter.grad is None:
        raise AssertionError("the backward pass gives each parameter a gradient")
    return parameter.grad


def size_of(tensor: torch.Tensor) -> int:
    """Bytes of a tensor's elements."""
    return tensor.numel() * tensor.element_size()
