"""Checkpoints: every period each training host writes its part of the model's state to storage hosts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic import Field

from cross_traffic import periodic
from cross_traffic.periodic import demands, escalate, launches, problems, read, remarks, requirements, sent

__all__ = ["NAME", "Config", "demands", "escalate", "launches", "problems", "read", "remarks", "requirements", "sent"]

NAME = "checkpoint"


class Config(periodic.StateConfig):
    """The state of a training, written by its hosts to storage hosts at once: N to 1, or N to M."""

    src: periodic.Hosts = Field(alias="from")
    """Host that writes, or a list of them, each of which has as much of the state as any other."""
    to: periodic.Hosts
    """Storage host, or a list of them, over which each part is spread evenly."""
    bytes_per_parameter: float = Field(default=14.0, gt=0, le=64)
    """Bytes of each parameter. Mixed precision with Adam keeps 14: 2 of the weight, 4 of its master copy, and 4 of each
    moment (ZeRO, Rajbhandari et al., SC 2020, section 3.1, without the gradient). BLOOM of 176e9 parameters: 2.3 TB."""

    @property
    def places(self) -> Mapping[str, Sequence[str]]:
        return {"from": periodic.listed(self.src), "to": periodic.listed(self.to)}

    @property
    def transfers(self) -> Sequence[periodic.Transfer]:
        senders, receivers = self.places.values()
        pairs = [(src, dst) for src in senders for dst in receivers]
        sizes = periodic.parts_of(self.state_bytes, len(pairs))
        return [periodic.Transfer(src=src, dst=dst, size=size) for (src, dst), size in zip(pairs, sizes, strict=True)]
