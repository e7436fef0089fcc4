"""Records of a manifest: what a run, its hosts and its windows were; `manifest` reads and writes them as JSON.

A field is called in the JSON as it is here. Instants are nanoseconds since the epoch in the controller's time base,
rates layer-2 bit/s and sizes bytes, both as on the wire: a run's `scale` multiplies them back. A figure that is not
known is None; one that has just been worked out may be NaN, which is written as null.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import combinations
from typing import Literal

from orchestrator.parts.launch import LaunchFacts
from orchestrator.parts.topology import Topology
from orchestrator.store.manifests.coding import Count, Real, Whole
from orchestrator.store.manifests.summaries import CaptureCounts, Git, Summary, WindowSummary


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


LimitValue = Whole | Real | str  # of a key of `validity:`: shares of 1, seconds, or a word that stands for a limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch(LaunchFacts):
    """A process, and how it ended: its exit status, and why it counts as failed; of its files the sizes in bytes."""

    files: Mapping[str, Whole] = field(default_factory=dict)
    rank: Whole | None = None
    status: Whole | None = None
    failed: str | None = None


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
