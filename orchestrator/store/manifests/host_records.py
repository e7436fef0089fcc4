"""What a manifest says of a run's hosts: their kernels and clocks, and the packets that conditions hit there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from orchestrator.store.manifests.bounded import Real, Whole


@dataclass(frozen=True, slots=True, kw_only=True)
class Offset:
    """A node's clock: controller minus node, and how far off that may be; and what its own synchronisation says.

    `chrony_ns` is chrony's bound on how far the clock is off true time, `ptp_ns` how far ptp4l saw it from its master.
    """

    offset_ns: Whole
    uncertainty_ns: Whole
    chrony_ns: Whole | None = None
    ptp_ns: Whole | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """A node's clock before and after what is measured; None where it could not be read."""

    before: Offset | None = None
    after: Offset | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernels:
    """On which kernel (by its boot) each node and the controller ran."""

    nodes: Mapping[str, str] = field(default_factory=dict)
    controller: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Hits:
    """How many packets a condition that hits them at random saw and hit; `share` was asked for."""

    node: str
    name: str
    share: Real
    seen: Whole
    hit: Whole


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """The image of a job's containers: what its name meant on every host, by `id`, and versions of what ran it."""

    id: str
    runtime: str
    version: str
    python: str
