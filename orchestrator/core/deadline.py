"""Deadlines: points in time by which something must have happened, passed down through every wait."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from orchestrator.core.errors import DeadlineExceeded


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
        """Return this deadline, or the one in `seconds` from now where that is earlier."""
        return Deadline(min(self.at, time.monotonic() + seconds))

    def patient(self, seconds: float) -> Patience:
        """Return a deadline that also passes `seconds` after the last sign of progress."""
        return Patience(self, seconds)

    def check(self, waiting_for: str, *, node: str | None = None) -> None:
        """Raise DeadlineExceeded when the time has passed."""
        if self.expired:
            raise DeadlineExceeded(f"gave up waiting for {waiting_for}", node=node)

    def poll(self, ready: Callable[[], bool], *, every_s: float, waiting_for: str, node: str | None = None) -> None:
        """Ask `ready` every `every_s` seconds until it says yes; DeadlineExceeded when it never does."""
        while not ready():
            self.check(waiting_for, node=node)
            time.sleep(min(every_s, self.remaining))


class Patience:
    """A deadline that also passes `seconds` after the last sign of progress."""

    def __init__(self, deadline: Deadline, seconds: float) -> None:
        self.seconds = seconds
        self._deadline = deadline
        self._sooner = deadline.sooner(seconds)

    @property
    def remaining(self) -> float:
        """Seconds left, never negative."""
        return self._sooner.remaining

    def renew(self) -> None:
        """Note a sign of progress: the time without one starts again."""
        self._sooner = self._deadline.sooner(self.seconds)
