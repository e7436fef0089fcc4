"""Escalate a window's traffic until it reaches its load: what each source starts, and what more when that is little."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from dataclasses import dataclass

from orchestrator.experiment.plan import PlannedSource, PlannedWindow
from orchestrator.parts.launch import Launch


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadEscalation:
    """How often each source of a window was escalated; 0 is what the experiment requests."""

    window: PlannedWindow
    steps: tuple[int, ...]

    @property
    def launches(self) -> tuple[Launch, ...]:
        """Every process of the window's traffic."""
        return tuple(
            launch
            for source, step in zip(self.window.sources, self.steps, strict=True)
            for launch in (source.escalations[step - 1].launches if step else source.launches)
        )

    @property
    def rehearsal(self) -> tuple[Launch, ...]:
        """The same traffic under names of its own, for a preflight that is over before its window begins."""
        return tuple(
            dataclasses.replace(launch, name=f"preflight.{launch.name}", window=preflight_of(self.window))
            for launch in self.launches
        )

    @property
    def escalatable(self) -> frozenset[str]:
        """The receivers of sources that can be escalated further."""
        sources = zip(self.window.sources, self.steps, strict=True)
        return frozenset(
            demand.end for source, step in sources if step < len(source.escalations) for demand in source.demands
        )

    def escalated(self, short: Collection[str]) -> LoadEscalation | None:
        """Return the next step of every source of a receiver that gets too little; None when none has one."""
        steps = tuple(
            step + (step < len(source.escalations) and _reaches(source, short))
            for source, step in zip(self.window.sources, self.steps, strict=True)
        )
        return None if steps == self.steps else dataclasses.replace(self, steps=steps)

    def alike(self, window: PlannedWindow) -> LoadEscalation:
        """Return the same steps for another window of the same traffic."""
        steps = (min(step, len(source.escalations)) for step, source in zip(self.steps, window.sources, strict=True))
        return LoadEscalation(window=window, steps=tuple(steps))

    @property
    def text(self) -> str:
        """What was escalated, for people: "iperf0 with 8 streams"; empty when nothing was."""
        sources = zip(self.window.sources, self.steps, strict=True)
        return ", ".join(f"{source.name} with {source.escalations[step - 1].text}" for source, step in sources if step)


def unescalated(window: PlannedWindow) -> LoadEscalation:
    """Return a window's traffic as the experiment requests it."""
    return LoadEscalation(window=window, steps=(0,) * len(window.sources))


def requested_bps(window: PlannedWindow) -> float:
    """Everything that a window's traffic is to send, bit/s, unscaled."""
    return sum(demand.rate for source in window.sources for demand in source.demands)


def covers(other: PlannedWindow, window: PlannedWindow) -> bool:
    """Whether a window whose load was reached shows that of another can be: the same traffic, and no less of any."""
    if not window.sources or [source.shape for source in other.sources] != [source.shape for source in window.sources]:
        return False
    pairs = [
        (more.rate, less.rate)
        for one, two in zip(other.sources, window.sources, strict=True)
        for more, less in zip(one.demands, two.demands, strict=True)
    ]
    return all(more >= less for more, less in pairs)


def preflight_of(window: PlannedWindow) -> str:
    """Return what the tables call the window of traffic that only tried whether its load can be reached."""
    return f"preflight of {window.name}"


def _reaches(source: PlannedSource, receivers: Collection[str]) -> bool:
    return any(demand.end in receivers for demand in source.demands)
