"""Records of a run in brief: what listings, filters and sweeps need of a manifest, `records` has the rest.

Units are those of `records`. They lie apart from it since listings are the quicker for every record that they need not
make.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from orchestrator.core.errors import UnsafePath
from orchestrator.core.opendata import AxisValues
from orchestrator.core.paths import safepath
from orchestrator.parts.theory import Theory
from orchestrator.store.manifests.coding import Real, Whole


def known(value: float | None) -> float:
    """Return the figure; NaN where it is not known."""
    return math.nan if value is None else value


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """The first and last iteration of a job that a window counts."""

    first: Whole
    last: Whole


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Cross traffic of a source from one host to another over a rail in a window.

    Its flows are the same in every `period_s` seconds; 0 where they are not. It may pause for `pause_s` seconds by its
    own nature.
    """

    source: str
    src: str
    dst: str
    rail: Whole = 0
    period_s: Real = 0.0
    pause_s: Real = 0.0
    requested_bps: Real
    achieved_bps: Real | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """A job's iterations in a window, seconds with 95 % intervals.

    `effective_iterations` counts independent ones that would say as much of the mean; intervals are of the run alone.
    `sent_bytes` is the TCP payload of a rank in an iteration, `theory_bytes` the same by theory; `left_out` counts the
    iterations under the window's traffic that were warm-up, and `drift` is the trend of what is left. `absorbed` is the
    largest share of its iterations in which a rank did something else while its emulated layers were to compute.
    `interval_note` says why there is no interval, or what slow iterations there are; empty for ordinary ones.
    Of a job with a pace, `period_s` is the mean time between the begins of its iterations, `late_s` the mean time by
    which they missed their turn, `offset_s` their mean offset to another job's, and `off_s` by how much that is off.
    """

    job: str
    ranks: Whole = 0
    iterations: Whole
    effective_iterations: Real | None = None
    mean_s: Real | None
    mean_low_s: Real | None = None
    mean_high_s: Real | None = None
    p50_s: Real | None
    p50_low_s: Real | None = None
    p50_high_s: Real | None = None
    p99_s: Real | None
    p99_low_s: Real | None = None
    p99_high_s: Real | None = None
    sent_bytes: Real | None = None
    theory_bytes: Real | None = None
    left_out: Whole | None = None
    absorbed: Real | None = None
    drift: Real | None = None
    drift_low: Real | None = None
    drift_high: Real | None = None
    drift_p: Real | None = None
    interval_note: str = ""
    period_s: Real | None = None
    period_low_s: Real | None = None
    period_high_s: Real | None = None
    late_s: Real | None = None
    offset_s: Real | None = None
    offset_low_s: Real | None = None
    offset_high_s: Real | None = None
    off_s: Real | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowSummary:
    """A measured window, as far as listings and sweeps need it; `iterations` are those that count, by job."""

    name: str
    start_ns: Whole
    end_ns: Whole
    iterations: Mapping[str, Span] = field(default_factory=dict)
    loads: tuple[Load, ...] = ()
    training: tuple[Training, ...] = ()
    valid: bool
    reasons: tuple[str, ...]

    @property
    def span_ns(self) -> tuple[int, int]:
        return self.start_ns, self.end_ns

    @property
    def seconds(self) -> float:
        return (self.end_ns - self.start_ns) / 1e9

    @property
    def requested_bps(self) -> float:
        """All loads together, scaled; 0 without cross traffic."""
        return math.fsum(load.requested_bps for load in self.loads)

    @property
    def achieved_bps(self) -> float | None:
        """The same as it arrived; None where that is not known of one of them."""
        rates = [load.achieved_bps for load in self.loads]
        known = [rate for rate in rates if rate is not None]
        return math.fsum(known) if len(known) == len(rates) else None


FORMAT = 7  # raised whenever what is written changes: whoever reads an older one may not know all that a newer one says

Outcome = Literal["running", "completed", "failed", "interrupted", "lost"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Controller:
    """Who runs: enough for another `orch` to tell whether this one still lives, also once the machine is renamed.

    `boot` and `pids` are the kernel's boot and the PID namespace, in which `pid` counts; `start` is when the process
    started, in clock ticks since boot.
    """

    host: str = "another machine"
    boot: str | None = None
    pids: str | None = None
    pid: Whole | None = None
    start: Whole | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Git:
    """The commit of the source tree that ran, and whether the tree was changed since."""

    commit: str | None = None
    dirty: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank:
    """A rank of a job; `logs` says whether it logs its iterations."""

    rank: Whole
    node: str
    logs: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPace:
    """When iterations of a job were to begin: every `every_s`, if not at once, and `by_s` after those of another job.

    The offset is `held` where the periods of both keep it; seconds, at full size.
    """

    every_s: Real | None = None
    after: str = ""
    by_s: Real = 0.0
    held: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A training; `theory` is what a rank sends in an iteration by a model, where there is one."""

    name: str
    workload: str
    model: str | None = None
    compute: str | None = None
    ranks: tuple[Rank, ...]
    theory: Theory | None = None
    pace: JobPace | None = None

    @property
    def nodes(self) -> list[str]:
        """The node of each rank."""
        return [rank.node for rank in self.ranks]

    @property
    def theory_bytes(self) -> float:
        """What a rank sends in an iteration by theory; NaN without one."""
        return math.nan if self.theory is None else self.theory.bytes_per_iteration


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureCounts:
    """Packets of all captures together, as their tool counted them."""

    captured: Whole
    received: Whole
    dropped: Whole


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """Which measurement of a sweep a window is; `recheck`: the check of a window in a run of its own."""

    point: str
    values: AxisValues
    repetition: Whole
    recheck: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class OfSweep:
    """Which sweep a run is of, and which measurement each of its windows is."""

    id: str
    name: str
    definition: str = ""
    mode: str = ""
    points: Mapping[str, Point]


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """A run, as far as listings, filters and sweeps need it.

    `began_ns` and `ended_ns` are by the controller's clock, `phases` and `overhead_s` seconds as they passed. Random
    numbers follow from the `salt`, which `--seed` repeats; a run that is older than salts has none.
    `dilation` multiplied every duration that was measured: windows and tables have them divided back.
    `scale` multiplies their rates and sizes back. `unreached` says why the load of a window was not to be had,
    `given_up` which hosts' files were, `unreduced` why there are no tables.
    """

    format: int = FORMAT
    run: str
    experiment: str
    outcome: Outcome
    stage: str | None = None
    error: str | None = None
    failed_node: str | None = None
    controller: Controller | None = None
    began_ns: Whole
    ended_ns: Whole | None = None
    valid: bool = False
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    point: str | None = None
    repetition: Whole | None = None
    salt: str | None = None
    seed: Whole | None = None
    scale: Whole = 1
    dilation: Whole = 1
    git: Git | None = None
    phases: Mapping[str, Real] = field(default_factory=dict)
    overhead_s: Real | None = None
    capture: CaptureCounts | None = None
    unreached: Mapping[str, str] = field(default_factory=dict)
    given_up: tuple[str, ...] = ()
    unreduced: str | None = None
    jobs: tuple[Job, ...] = ()
    sweep: OfSweep | None = None
    windows: tuple[WindowSummary, ...] = ()

    def __post_init__(self) -> None:
        """Refuse a run or an experiment that no folder can be called by (ValueError)."""
        for field_name in ("run", "experiment"):
            try:
                safepath.segment(getattr(self, field_name))
            except UnsafePath as error:
                raise ValueError(f"{field_name}: {error.message}") from None

    def job(self, name: str) -> Job:
        """Return the job of this name; KeyError for another."""
        for job in self.jobs:
            if job.name == name:
                return job
        raise KeyError(name)

    @property
    def points(self) -> Mapping[str, Point]:
        """Which measurement of its sweep each window is; empty for a run of none."""
        return {} if self.sweep is None else self.sweep.points
