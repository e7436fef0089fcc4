"""One point in time by which something must have happened, passed down through every wait."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from orchestrator.errors import DeadlineExceeded


@dataclass(frozen=True, slots=True)
class Deadline:
    """An instant of the monotonic clock, in seconds."""

    at: float

    @classmethod
    def after(cls, seconds: float) -> Deadline:
        return cls(time.monotonic() + seconds)

    @property
    def remaining(self) -> float:
        """Seconds left, never negative."""
        return max(0.0, self.at - time.monotonic())

    @property
    def expired(self) -> bool:
        return time.monotonic() >= self.at

    def sooner(self, seconds: float) -> Deadline:
        """This deadline, or `seconds` from now where that is earlier."""
        return Deadline(min(self.at, time.monotonic() + seconds))

    def check(self, waiting_for: str, *, node: str | None = None) -> None:
        """Raise DeadlineExceeded when the time has passed."""
        if self.expired:
            raise DeadlineExceeded(f"gave up waiting for {waiting_for}", node=node)

    def poll(self, ready: Callable[[], bool], *, every_s: float, waiting_for: str, node: str | None = None) -> None:
        """Ask `ready` every `every_s` seconds until it says yes; DeadlineExceeded when it never does."""
        while not ready():
            self.check(waiting_for, node=node)
            time.sleep(min(every_s, self.remaining))
