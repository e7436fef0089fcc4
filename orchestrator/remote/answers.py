"""Events that agents tell on their own account, and what the client makes of several answers."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.agents.agent.containers import ImageFound
from orchestrator.core.errors import TransportError
from orchestrator.parts.launch import Requirement


@dataclass(frozen=True, slots=True)
class ProcessExited:
    """A started process has ended; a negative status is a signal's number. `wall_ns` is the node's clock."""

    node: str
    name: str
    status: int
    wall_ns: int


@dataclass(frozen=True, slots=True)
class LineRead:
    """A whole line of a followed file; `wall_ns` is when the agent read it, by the node's clock."""

    node: str
    name: str
    text: str
    wall_ns: int


@dataclass(frozen=True, slots=True)
class AgentLost:
    """The channel ended and nobody had asked for it, or nothing was heard on it for too long.

    `error` says why, and blames whom it seems to be the fault of; `since` is an instant of our monotonic clock.
    """

    node: str
    error: TransportError
    since: float

    @property
    def reason(self) -> str:
        return self.error.message + (f"\n{self.error.tail}" if self.error.tail else "")


AgentEvent = ProcessExited | LineRead | AgentLost


@dataclass(frozen=True, slots=True)
class ClockSample:
    """Controller's clock minus the node's, known to within `uncertainty_ns` either way."""

    offset_ns: int
    uncertainty_ns: int


@dataclass(frozen=True, slots=True)
class Finding:
    """Whether a requirement is met, and what was seen; of an image which one."""

    requirement: Requirement
    found: bool
    detail: str
    image: ImageFound | None = None
