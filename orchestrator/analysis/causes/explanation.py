"""Explanations of iteration times: what is found, without what finds it."""

from __future__ import annotations

from dataclasses import dataclass, field

LEAST_SHARE = 0.03  # of the iteration time: less is not worth a finding
UNSEEN = "network, no cause seen"  # the part of waiting for the network that nothing explains


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A cause with its place, and the share of the iteration time that it costs, with a 95 % interval."""

    cause: str
    place: str
    hosts: tuple[str, ...]
    share: float
    low: float
    high: float
    seconds: float  # an iteration, mean
    evidence: tuple[str, ...]
    strength: float = field(default=1.0, compare=False)  # evidence over its limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part of the iteration time: mean seconds, and share of it."""

    name: str
    seconds: float
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Why the iterations of a job take as long as they do: parts that sum to the mean, and findings, largest first.

    `undecided` names two causes that this evidence does not tell apart, with what would. `noise` is the half width of
    the 95 % interval of the mean, as a share of it. `missing` names what was not collected. Of `measured` iterations
    the first ones are looked at where all would take too much memory.
    """

    run: str
    window: str
    job: str
    iterations: tuple[int, ...]
    measured: int
    mean_s: float
    noise: float
    parts: tuple[Part, ...]
    findings: tuple[Finding, ...]
    undecided: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
