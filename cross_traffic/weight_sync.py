"""Weight synchronization: every period a trainer sends new weights to all hosts that generate with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Annotated, Literal

from pydantic import Field

from cross_traffic import periodic
from cross_traffic.periodic import demands, escalate, launches, problems, read, remarks, requirements, sent
from orchestrator.core.fields import Duration

__all__ = ["NAME", "Config", "demands", "escalate", "launches", "problems", "read", "remarks", "requirements", "sent"]

NAME = "weight-sync"


class Config(periodic.StateConfig):
    """The weights of a model from one host to all others, as reinforcement learning does after each step."""

    src: str = Field(alias="from")
    """The host that trains."""
    to: periodic.Hosts
    """The hosts that generate, in the order of the chain."""
    bytes_per_parameter: float = Field(default=2.0, gt=0, le=64)
    """Bytes of each parameter: 2 in bfloat16, 1 in FP8."""
    way: Literal["star", "chain"] = "star"
    """`star`: the trainer sends to each host. `chain`: each host passes the weights on to the next one while it gets
    them, as pipelined broadcasts do."""
    hop: Annotated[Duration, Field(ge=0)] = 0.01
    """In a chain, how long after a host begins to get the weights it begins to pass them on: the time of a bucket."""

    @property
    def places(self) -> Mapping[str, Sequence[str]]:
        return {"from": (self.src,), "to": periodic.listed(self.to)}

    @property
    def transfers(self) -> Sequence[periodic.Transfer]:
        size, receivers = max(1, round(self.state_bytes)), periodic.listed(self.to)
        if self.way == "star":
            return [periodic.Transfer(src=self.src, dst=dst, size=size) for dst in receivers]
        return [
            periodic.Transfer(src=src, dst=dst, size=size, after_s=number * self.hop)
            for number, (src, dst) in enumerate(pairwise((self.src, *receivers)))
        ]
