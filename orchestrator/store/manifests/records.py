"""Records of a manifest: what a run, its hosts and its windows were; `manifest` reads and writes them as JSON.

A field is called in the JSON as it is here. Instants are nanoseconds since the epoch in the controller's time base,
rates layer-2 bit/s and sizes bytes, both as on the wire: a run's `scale` multiplies them back. A figure that is not
known is None; one that has just been worked out may be NaN, which is written as null.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import combinations
from typing import Literal

from orchestrator.core.errors import UnsafePath
from orchestrator.core.opendata import AxisValues
from orchestrator.core.paths import safepath
from orchestrator.parts.launch import LaunchFacts
from orchestrator.parts.theory import Theory
from orchestrator.parts.topology import Topology
from orchestrator.store.manifests.coding import Count, Real, Whole


def known(value: float | None) -> float:
    """Return the figure; NaN where it is not known."""
    return math.nan if value is None else value


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
class DeviceReading:
    """What the counters of a host's device count in a direction, as `orch doctor` measured it `when_ns`.

    `counts` are readings of the gate `capture-nic`: several where the device joins and cuts no packets.
    """

    node: str
    port: str
    direction: str
    counts: tuple[str, ...]
    when_ns: Whole


@dataclass(frozen=True, slots=True, kw_only=True)
class Hits:
    """How many packets a condition that hits them at random saw and hit; `share` was asked for."""

    node: str
    name: str
    share: Real
    seen: Whole
    hit: Whole


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """What a condition did within a window, such as a link that went down: when it was to, and when it did.

    Seconds are from the window's beginning; instants are None for what did not come to pass. Dilated time is divided
    back, as that of windows.
    """

    window: str
    event: str
    begin_s: Real
    end_s: Real
    began_ns: Whole | None = None
    ended_ns: Whole | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """The image of a job's containers: what its name meant on every host, by `id`, and versions of what ran it."""

    id: str
    runtime: str
    version: str
    python: str


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
class Variation:
    """How much the iterations of a rank vary in a window (-1: of the job); `parts.rows` has what the shares are of."""

    job: str
    rank: Whole
    iterations: Whole
    mean_s: Real | None = None
    cv: Real | None
    p50_s: Real | None
    p95_s: Real | None
    p99_s: Real | None
    max_s: Real | None
    straggler_share: Real | None
    efficiency: Real | None
    overlapped: Real | None
    orders: Whole


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessorShares:
    """Whose work the processors of a node's kernel did in a window; `parts.rows` has what the shares are of."""

    host: str
    count: Real | None
    own_share: Real | None
    others_share: Real | None
    interrupt_share: Real | None
    steal_share: Real | None
    pressure_share: Real | None
    throttled_share: Real | None
    wait_share: Real | None
    others_wait_share: Real | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """One judgement: `passed` is None where it could not be made; a `required` gate must pass for a window to be valid.

    `measured` and `limit` are in the unit that the message says.
    """

    name: str
    passed: bool | None
    required: bool = True
    measured: Real | None = None
    limit: Real | None = None
    message: str


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Truncation:
    """What MSER-5 takes for warm-up: the first `unbounded` of so many samples."""

    samples: Whole = 0
    unbounded: Whole | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Window(WindowSummary):
    """A measured window and what it amounts to.

    `earliest` is the first iteration of each job under the window's traffic. Where `warmup` is "auto", `mser` says what
    a rule takes for warm-up by the iterations themselves. `lost` says why it was given up before its end.
    """

    wanted_iterations: Whole | None = None
    warmup: Whole | Literal["auto"] | None = None
    earliest: Mapping[str, Whole] = field(default_factory=dict)
    lost: str = ""
    mser: Mapping[str, Truncation] = field(default_factory=dict)
    variation: tuple[Variation, ...] = ()
    processors: tuple[ProcessorShares, ...] = ()
    gates: tuple[Gate, ...] = ()


FORMAT = 7  # raised whenever what is written changes: whoever reads an older one may not know all that a newer one says

LimitValue = Whole | Real | str  # of a key of `validity:`: shares of 1, seconds, or a word that stands for a limit

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
class Launch(LaunchFacts):
    """A process, and how it ended: its exit status, and why it counts as failed; of its files the sizes in bytes."""

    files: Mapping[str, Whole] = field(default_factory=dict)
    rank: Whole | None = None
    status: Whole | None = None
    failed: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureCounts:
    """Packets of all captures together, as their tool counted them."""

    captured: Whole
    received: Whole
    dropped: Whole


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """A file of the run's folder."""

    path: str
    bytes: Count
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Stayed(Artifact):
    """A capture's file in the `folder` of the run on its host; `path` is where it would lie at home.

    Size and hash are the host's word; the hash is empty where it could not reduce the capture.
    """

    node: str
    folder: str

    @property
    def launch(self) -> str:
        """The launch that captured it."""
        return self.path.removeprefix(f"hosts/{self.node}/").partition("/")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruned(Artifact):
    """A capture that was dropped, or compressed `into` another file."""

    what: Literal["compress", "drop"]
    why: str
    when_ns: Whole
    into: Artifact | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reduction:
    """When the tables were made, by which command (`why`) of what; its `notes` are among those of the run."""

    when_ns: Whole
    why: str
    git: Git | None = None
    versions: Mapping[str, str | None] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest(Summary):
    """Everything that is recorded of a run but its files.

    `validity` is what windows had to keep to; a run that is older than a gate lacks its limit, or has None.
    `preflight` has the rates at which cross traffic arrived alone on the links, by window and receiver, `testbed` what
    ran hosts of this machine, `images` what jobs' containers were of, `forced` why hosts were too small,
    `free_disk_bytes` the least that was seen on each node, `device_readings` what `orch doctor` had found that the
    counters of devices count, `events` what conditions did within windows.
    `planned_windows` is how many there were to be, and `reductions` says what made the
    tables, the last one those that there are.
    """

    windows: tuple[Window, ...] = ()
    argv: tuple[str, ...] = ()
    versions: Mapping[str, str | None] = field(default_factory=dict)
    topology: Topology
    validity: Mapping[str, LimitValue | None] = field(default_factory=dict)
    testbed: Mapping[str, str] = field(default_factory=dict)
    images: Mapping[str, Image] = field(default_factory=dict)
    kernels: Kernels = field(default_factory=Kernels)
    clocks: Mapping[str, Clock] = field(default_factory=dict)
    device_readings: tuple[DeviceReading, ...] = ()
    free_disk_bytes: Mapping[str, Whole] = field(default_factory=dict)
    forced: tuple[str, ...] = ()
    preflight: Mapping[str, Mapping[str, Real]] = field(default_factory=dict)
    hits: tuple[Hits, ...] = ()
    events: tuple[Event, ...] = ()
    launches: tuple[Launch, ...] = ()
    artifacts: tuple[Artifact, ...] = ()
    pruned: tuple[Pruned, ...] = ()
    stayed: tuple[Stayed, ...] = ()
    planned_windows: Whole | None = None
    reductions: tuple[Reduction, ...] = ()

    @property
    def disturbed(self) -> bool:
        """Whether it was measured whole, and is not valid for what the same run may be spared at another time.

        Other work kept ranks from processors, with whatever followed from that; or iteration times drifted.
        """
        if self.outcome != "completed" or self.unreached or not self.windows:
            return False
        failed = {gate.name for window in self.windows for gate in window.gates if gate.required and not gate.passed}
        return "processor" in failed or failed == {"drift"}

    @property
    def nodes(self) -> list[str]:
        """The nodes on which processes were to run, in order of their names."""
        return sorted({launch.node for launch in self.launches})

    def nodes_running(self, part: str) -> frozenset[str]:
        """Return the nodes on which processes of a part, such as `collector.cpu`, were to run."""
        return frozenset(launch.node for launch in self.launches if launch.part == part)

    @property
    def shared_hosts(self) -> list[tuple[str, str, tuple[str, ...]]]:
        """Return the pairs of jobs that talk between the same hosts, and those hosts.

        A training's flows are known by their pair of hosts alone, so that one job gets the bytes of both.
        """
        nodes = {job.name: set(job.nodes) for job in self.jobs}
        common = [(one, other, tuple(sorted(nodes[one] & nodes[other]))) for one, other in combinations(nodes, 2)]
        return [entry for entry in common if len(entry[2]) > 1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reduced:
    """What a manifest gains when the run's tables have been made; `notes` are those of that alone."""

    windows: tuple[Window, ...]
    capture: CaptureCounts | None
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What the process that makes tables says when it is done: what it found, or why it could not."""

    ok: Reduced | None = None
    error: str | None = None
    hint: str | None = None
