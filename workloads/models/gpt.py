"""GPTs by their shape: parameters, FLOPs and messages of the blocks of a pipeline stage, as Megatron-LM splits them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator, Field, WithJsonSchema

from orchestrator.core.fields import Model
from orchestrator.core.units import Mistake
from workloads.models import catalog


def names() -> tuple[str, ...]:
    """Return the GPTs of the catalog."""
    return tuple(name for name in catalog.names() if catalog.load(name).transformer is not None)


def _known(name: str) -> str:
    if name not in names():
        raise Mistake(f"no GPT {name!r}", accepted=f"one of {', '.join(names())}, or layers, hidden, ... of one")
    return name


class Shape(Model):
    """A GPT by its numbers, in Li's notation (l, h, s, V)."""

    layers: int = Field(ge=1, le=100_000)
    """Transformer blocks: l."""

    hidden: int = Field(ge=1, le=10_000_000)
    """Hidden size: h. The feed-forward layer is four times as wide."""

    sequence: int = Field(ge=1, le=1_000_000_000)
    """Tokens of a sample: s."""

    vocabulary: int = Field(ge=1, le=1_000_000_000)
    """Words: V. Each part of the embedding table has as many rows, rounded up."""

    def __str__(self) -> str:
        return f"gpt-l{self.layers}-h{self.hidden}-s{self.sequence}-v{self.vocabulary}"


GptName = Annotated[str, AfterValidator(_known), WithJsonSchema({"type": "string", "enum": list(names())})]


def shape_of(model: str | Shape) -> Shape:
    """Return the shape of a GPT that is named or given."""
    if isinstance(model, Shape):
        return model
    known = catalog.load(model).transformer
    if known is None:
        raise AssertionError("a validated name is that of a GPT")
    layers, hidden, sequence, vocabulary = known
    return Shape(layers=layers, hidden=hidden, sequence=sequence, vocabulary=vocabulary)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """The part of the model in one rank of a pipeline stage, in parameters, and its FLOPs for one sample.

    `attention_flops` and `feed_forward_flops` are those of the forward pass of one block, `head_flops` those of the
    projection on words, all of the whole stage before it is divided among its tensor ranks.
    """

    blocks: int
    parameters: int
    embedding: int  # of these, the rank's part of the embedding table, which first and last stage share
    attention_flops: int
    feed_forward_flops: int
    head_flops: int
    first: bool
    last: bool

    @property
    def flops(self) -> int:
        return self.blocks * (self.attention_flops + self.feed_forward_flops) + self.head_flops

    def all_reduces(self, *, recompute: bool) -> int:
        """Return the number of tensor-parallel all-reduces of a microbatch, each of one activation.

        Two in each block's forward pass and two in its backward pass, two more where the forward pass is done again
        (Li, eq. 2); one after the look-up of words, which is split too; one for the projection's input gradient.
        """
        return self.blocks * (6 if recompute else 4) + self.first + self.last


def stages(shape: Shape, *, pipeline: int, tensor: int) -> list[Stage]:
    """Return the pipeline's stages; where the blocks do not divide evenly the first stages have one more.

    Weights of the four products of a block are split over tensor ranks, so are the biases of those that are split by
    columns; the other biases, both normalizations and the table of positions are held by each.
    """
    hidden, sequence = shape.hidden, shape.sequence
    block = 12 * hidden * hidden // tensor + 7 * hidden // tensor + 6 * hidden
    table = -(-shape.vocabulary // tensor) * hidden
    found = []
    for number in range(pipeline):
        first, last = number == 0, number == pipeline - 1
        blocks = shape.layers // pipeline + (number < shape.layers % pipeline)
        embedding = table if first or last else 0
        found.append(
            Stage(
                blocks=blocks,
                parameters=blocks * block + embedding + first * sequence * hidden + last * 2 * hidden,
                embedding=embedding,
                attention_flops=8 * sequence * hidden * hidden + 4 * sequence * sequence * hidden,
                feed_forward_flops=16 * sequence * hidden * hidden,
                head_flops=2 * sequence * hidden * shape.vocabulary if last else 0,
                first=first,
                last=last,
            )
        )
    return found
