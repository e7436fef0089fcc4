"""Say when iterations of jobs may begin: an offset after another job's, and a period of their own; pure.

CASSINI (Rajasekaran et al., NSDI 2024) shifts trainings that share a link in time, so that one communicates while the
other computes. A shift lasts as long as both keep one period: each iteration waits for its turn, and one whose turn has
passed begins at once, without moving the turns after it. Without periods, or with different ones, the first iterations
alone have the offset.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from orchestrator.core.fields import Duration, Model
from orchestrator.core.units import Mistake, duration_text

SAME = 1e-9  # of a period, by which a multiple of another one may differ from it in floating point


class Start(Model):
    """When the first iteration of a job begins."""

    after: str
    """The job, of those before it in the list, whose first iteration it follows."""
    by: Annotated[Duration, Field(ge=0)] = 0.0
    """How much later it begins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """When iterations of a job may begin: `begin_s` after the gate opens, then every `every_s` (None: at once).

    `after` is the job from which the offset `by_s` counts, empty where there is none; it is `held` where the periods of
    both keep it.
    """

    begin_s: float = 0.0
    every_s: float | None = None
    after: str = ""
    by_s: float = 0.0
    held: bool = False

    @property
    def text(self) -> str:
        """The pace in words; empty where iterations follow one another and begin with the gate."""
        words = []
        if self.after:
            keeps = "" if self.held else ", at first: nothing holds it"
            words.append(f"begins {duration_text(self.by_s)} after {self.after}{keeps}")
        if self.every_s is not None:
            words.append(f"an iteration every {duration_text(self.every_s)}")
        return ", ".join(words)

    def dilated(self, by: int) -> Pace:
        """Return the same pace where time is dilated."""
        every_s = None if self.every_s is None else self.every_s * by
        return Pace(begin_s=self.begin_s * by, every_s=every_s, after=self.after, by_s=self.by_s * by, held=self.held)


def paces(jobs: Sequence[tuple[str, Start | None, float | None]]) -> dict[str, Pace]:
    """Return the pace of each job, of its name, its start and its period; offsets after one another add up."""
    found: dict[str, Pace] = {}
    for name, start, every_s in jobs:
        if start is None:
            found[name] = Pace(every_s=every_s)
            continue
        other = found[start.after]
        held = other.every_s is not None and every_s is not None and _is_multiple(every_s, other.every_s)
        begin_s = other.begin_s + start.by
        found[name] = Pace(begin_s=begin_s, every_s=every_s, after=start.after, by_s=start.by, held=held)
    return found


def _is_multiple(every_s: float, of_s: float) -> bool:
    """Return whether each turn of a period falls on the same place within another one."""
    times = every_s / of_s
    return round(times) >= 1 and math.isclose(times, round(times), rel_tol=SAME)


def check_starts(jobs: Sequence[tuple[str, Start | None]]) -> None:
    """Raise Mistake for a start after a job that does not stand before it."""
    before: list[str] = []
    for place, (name, start) in enumerate(jobs):
        if start is not None and start.after not in before:
            accepted = f"one of {', '.join(before)}" if before else "no start of the first job"
            message = f"{start.after!r} is no job before {name}"
            raise Mistake(message, accepted=accepted, at=("jobs", place, "start", "after"))
        before.append(name)


def too_long(paced: dict[str, Pace], stall_timeout_s: float) -> Iterator[tuple[str, str]]:
    """Yield jobs that would seem to stall, each with why: they idle for longer than a run waits for an iteration."""
    for name, pace in paced.items():
        longest = max(pace.begin_s, pace.every_s or 0.0)
        if longest >= stall_timeout_s:
            yield name, f"{duration_text(longest)} without an iteration are a stall"
