"""How far a sweep or a study is as a whole, and when it will end by what its runs took so far."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from orchestrator.sweep.sweepplan import Estimate
from orchestrator.sweep.sweeptext import estimate_text

_WEEK = timedelta(days=6)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """Measurements done and in all, and how long the others may take, as of the instant `since` (local time).

    `after` is of what follows the run that begins then: should that run take longer than estimated, all ends later.
    """

    name: str  # of the study or the sweep
    done: int
    total: int
    left: Estimate
    after: Estimate
    since: datetime

    def ends(self, now: datetime) -> datetime | None:
        """When all will have been measured; None where that is not known."""
        if self.left.seconds is None or self.after.seconds is None:
            return None
        return max(self.since + timedelta(seconds=self.left.seconds), now + timedelta(seconds=self.after.seconds))

    def text(self) -> str:
        """For a line that stays: "12 of 80 done, about 40 min left, until about 14:32"."""
        progress = f"{self.done} of {self.total} done"
        if self.done >= self.total:
            return progress
        return f"{progress}, {estimate_text(self.left)} left{self._until(self.since)}"

    def brief(self, windows: int, now: datetime) -> str:
        """For the live line, `windows` windows of the run being measured already: "14/80, until about 14:32"."""
        return f"{min(self.total, self.done + windows)}/{self.total}{self._until(now)}"

    def _until(self, now: datetime) -> str:
        end = self.ends(now)
        if end is None:
            return ""
        return (
            f", until {clock_text(end, now)} at the latest"
            if self.left.bound
            else f", until about {clock_text(end, now)}"
        )


def clock_text(at: datetime, now: datetime) -> str:
    """An instant that is to come, as people say it: the time, from tomorrow on with the day."""
    if at.date() == now.date():
        return f"{at:%H:%M}"
    return f"{at:%a %H:%M}" if at - now < _WEEK else f"{at:%Y-%m-%d %H:%M}"
