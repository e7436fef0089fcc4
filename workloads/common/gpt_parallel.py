"""A GPT split over ranks by tensor, pipeline and data: which part each rank has, and how much they send at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from workloads.common.torch_ranks import TorchConfig
from workloads.models import gpt
from workloads.models.gpt import GptName, Shape, Stage
from workloads.rank.torch import parallel
from workloads.rank.torch.parallel import Place

Dimension = Literal["pipeline", "tensor", "data"]
Order = tuple[Dimension, Dimension, Dimension]

# Li, figures 3 and 12: which ranks come next to each other, and so share a host first.
ORDERS: Mapping[str, Order] = {
    "default": ("tensor", "data", "pipeline"),
    "customized": ("tensor", "pipeline", "data"),
}


class GptConfig(TorchConfig):
    """A GPT on p x t x d ranks: p pipeline stages, each split over t ranks, all of it d times."""

    model: GptName | Shape
    """The GPT: one of the catalog, or `{layers, hidden, sequence, vocabulary}`."""

    pipeline: int = Field(default=1, ge=1)
    """Pipeline stages: p. They pass activations of one microbatch on, and their gradients back, in 1F1B order."""

    tensor: int = Field(default=1, ge=1)
    """Ranks over which each block's products are split: t. They all-reduce each block's activations twice a pass."""

    data: int = Field(default=1, ge=1)
    """Replicas of the model: d. They all-reduce all gradients once, when the last backward pass has ended."""

    mapping: (
        Literal["default", "customized"] | Order | Annotated[tuple[tuple[int, int, int], ...], Field(min_length=1)]
    ) = "default"
    """Which part of the model each rank has. Ranks fill `hosts` in order. `default` (DeepSpeed's): neighbours differ in
    tensor, then data, then pipeline, so that stages are far apart; `customized`: in tensor, then pipeline, then data.
    Or the three dimensions in an order of choice, or [stage, tensor, replica] of each rank, all counted from 0."""

    batch: int = Field(default=32, ge=1)
    """Samples of a microbatch: b."""

    microbatches: int = Field(default=8, ge=1)
    """Microbatches of each replica in an iteration: m."""

    precision: Literal["fp32", "fp16", "bf16"] = "fp16"
    """What activations and gradients travel as."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Messages:
    """Elements of what travels, scaled: an activation, and of each stage's rank all gradients and the table's."""

    activation: int
    gradients: tuple[int, ...]
    embedding: int


def sizes(config: GptConfig) -> tuple[int, int, int]:
    """Stages, ranks of a tensor and replicas."""
    return config.pipeline, config.tensor, config.data


def placed(config: GptConfig) -> list[Place]:
    """Stage, part of each tensor and replica of each rank."""
    mapping = config.mapping
    if isinstance(mapping, str):
        return parallel.places(sizes(config), ORDERS[mapping])
    if isinstance(mapping[0], str):
        return parallel.places(sizes(config), [str(name) for name in mapping])
    return [(int(stage), int(tensor), int(replica)) for stage, tensor, replica in mapping]


def stages(config: GptConfig) -> list[Stage]:
    """What each pipeline stage holds and computes."""
    return gpt.stages(gpt.shape_of(config.model), pipeline=config.pipeline, tensor=config.tensor)


def messages(config: GptConfig, scale: int) -> Messages:
    """What travels at this scale; nothing vanishes."""
    shape = gpt.shape_of(config.model)
    parts = stages(config)

    def scaled(count: int) -> int:
        return max(1, round(count / scale))

    return Messages(
        activation=scaled(config.batch * shape.sequence * shape.hidden),
        gradients=tuple(scaled(stage.parameters) for stage in parts),
        embedding=scaled(parts[0].embedding),
    )
