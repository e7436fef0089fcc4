"""Incast: every period several hosts answer a request of one host at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from pydantic import Field

from cross_traffic import periodic
from cross_traffic.periodic import demands, escalate, launches, problems, read, remarks, requirements, sent
from cross_traffic.schedule_files import LARGEST_FLOW
from orchestrator.core.fields import Size

__all__ = ["NAME", "Config", "demands", "escalate", "launches", "problems", "read", "remarks", "requirements", "sent"]

NAME = "incast"


class Config(periodic.PeriodicConfig):
    """Answers of one size that several hosts send to the same host at the same instant."""

    src: periodic.Hosts = Field(alias="from")
    """The hosts that answer."""
    to: str
    """The host that has asked; its requests themselves are not sent."""
    answer: Annotated[Size, Field(gt=0, le=LARGEST_FLOW)] = 256 * 1024
    """Bytes of each host's answer. 256 KiB are the server request unit of Phanishayee et al. (FAST 2008)."""

    connections: Literal["new", "pool"] = "pool"
    """Idle TCP connections again, as servers keep them, or a new one an answer."""

    @property
    def places(self) -> Mapping[str, Sequence[str]]:
        return {"from": periodic.listed(self.src), "to": (self.to,)}

    @property
    def transfers(self) -> Sequence[periodic.Transfer]:
        size = max(1, round(self.answer))
        return [periodic.Transfer(src=src, dst=self.to, size=size) for src in periodic.listed(self.src)]
