"""Describe what is known of a measured window: the records that gates judge, and the object that gives them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from orchestrator.parts.protocols import end_name
from orchestrator.store.manifests.records import Manifest, Window
from orchestrator.store.manifests.summaries import Load, Training

THEORY_TOLERANCE = 0.02  # largest |sent / theory - 1| of a training's bytes that is not remarked upon


@dataclass(frozen=True, slots=True, kw_only=True)
class JobIterations:
    """Iterations of a job in a window; `ranks` should have logged each, and `incomplete` are those that some did not.

    `sent_bytes` and `theory_bytes` are a rank's in an iteration, NaN where not known; `edges` is the share of what was
    sent that may fall on either side of the window's ends.
    """

    name: str
    iterations: int
    incomplete: int
    ranks: int
    ranks_seen: int
    sent_bytes: float = math.nan
    theory_bytes: float = math.nan
    edges: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrivedLoad(Load):
    """A window's load, and what is known of its arrival; `achieved_bps` is NaN where nothing at `dst` says it.

    By the counters of a network device several sources are one load, with the names of all in `source` and in `src`.
    `seen_by` says in a few words what it was counted by, where that is no capture, and `unseen` why it is not known.
    """

    achieved_bps: float
    longest_gap_s: float
    seen_by: str = ""
    unseen: str = ""

    @property
    def end(self) -> str:
        """The receiving host and rail, for people."""
        return end_name(self.dst, self.rail)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadCourse:
    """The load of a source at a receiver over `seconds` of a window, against its schedule.

    `off` is the share of the mean load by which every span kept to what was due, but for `grace_s` of it; NaN where the
    window is too short to tell. `swing_s` is what any span had too much or too little, in seconds of the mean load. In
    the span that was farthest off, from `begin_s` to `end_s` into the window, the `due` and the `arrived` rate are
    shares of the mean.
    Of a source with `bursts`, 0 is for bursts as they were due and 1 for none, by the starts of its flows and by what
    arrived; NaN where that is not known.
    """

    source: str
    dst: str
    seconds: float
    grace_s: float = math.nan
    off: float = math.nan
    swing_s: float = math.nan
    begin_s: float = 0.0
    end_s: float = 0.0
    due: float = math.nan
    arrived: float = math.nan
    bursts: bool = False
    bursts_started_off: float = math.nan
    bursts_arrived_off: float = math.nan


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratedFlows:
    """The flows of a generator in a window; rates in layer-2 bit/s, NaN where something is not known."""

    source: str
    flows: int
    shed: int
    starved: int  # of those shed: for want of the sender's processor time, not because too many were open
    unfinished: int  # open when it was stopped: neither lost nor done
    failed: int
    late_p50_s: float
    late_p99_s: float
    late_max_s: float
    planned_bps: float
    acknowledged_bps: float
    received_payload_bps: float
    size_distance: float
    size_limit: float
    gap_distance: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Capture:
    """A capture with the counts of its tool at its exit, over the whole run; None when it gave none.

    `gap` says why no figure may be taken from it, and is empty for a whole one; `needed` whether figures of the window
    rest on it.
    """

    node: str
    port: str
    captured: int | None
    received: int | None
    dropped: int | None
    gap: str = ""
    needed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MeteredBytes:
    """Layer-2 bytes of frames of a port in a window, by a meter and by a capture beside it (NaN: not whole).

    `edges` is what may lie on either side of the window's ends.
    """

    node: str
    port: str
    direction: str
    metered: float
    captured: float
    edges: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PortBytes:
    """Layer-2 bytes of a port in a window: by the capture (NaN: not whole), and the interface's counter (NaN: unknown).

    `captured` is of `packets` as they were captured; on the wire these are `frames`, with `wire` bytes. The interface
    counted `counted` bytes and `counted_packets`.
    `edges` are those bytes that may fall on either side of the window's two ends, and `packet_edges` the packets, since
    captures are counted in bins and counters between samples. `earlier` is the same of the run's first seconds, by
    which the device's counters are read.
    """

    node: str
    port: str
    direction: str
    captured: float
    counted: float
    edges: float = 0.0
    packet_edges: float = 0.0
    packets: float = 0.0
    frames: float = 0.0
    wire: float = 0.0
    counted_packets: float = 0.0
    counting: bool = False  # whether the counters were to be sampled
    metered: bool = False  # by a meter in the place of a capture
    earlier: PortBytes | None = None

    @property
    def joined(self) -> bool:
        """Whether packets were captured that are several frames on the wire."""
        return self.frames > self.packets


@dataclass(frozen=True, slots=True, kw_only=True)
class RailBytes:
    """A rail of a host of a job in a window; bytes, NaN where not known.

    `captured_bytes` (layer 2, all that left by it) and `counted_bytes` (by the kernel's counter) are of the window,
    `sent_bytes` (TCP payload of the job), `rdma_bytes` (by the RDMA device's counter, headers included) and
    `theory_bytes` of an iteration. `headers` is the most of `rdma_bytes` that may be headers, `edges` the share of
    `sent_bytes` that may fall on either side of the window's ends.
    """

    job: str
    host: str
    rail: int
    device: str
    captured_bytes: float
    counted_bytes: float
    sent_bytes: float
    rdma_bytes: float
    theory_bytes: float
    headers: float = 0.0
    edges: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RailCongestion:
    """A rail of a host in a window: by how much each figure grew, NaN for what its device does not count.

    Of what is `lost` the device has counters, and by how much they grew is not known.
    """

    host: str
    rail: int
    device: str
    figures: Mapping[str, float]
    lost: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchPort:
    """A port of a switch in a window: by how much each figure grew, NaN where it is not known."""

    switch: str
    port: str
    figures: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessorWait:
    """The waiting of a job's processes for processors; shares are of the window, NaN where not counted.

    `kept` for work that is not the run's, `own` for the run's. `process` on `node` was kept longest, on `processor`
    (None: not known), and of the work of it, or of all there, `others` was somebody else's, `stolen` the hypervisor's.
    With `traffic` it is that of a source of cross traffic, of that name, by the sender that was kept longest.
    """

    job: str
    kept: float
    own: float
    process: str
    node: str
    others: float
    stolen: float
    processor: int | None = None
    traffic: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessorUse:
    """The use of the processors that some nodes share in a window, as shares of their time; NaN where not counted.

    `used` by the run and by interrupts, `pressure` the share of the window in which some process waited, `throttled`
    that in which a control group's limit stopped processes of the run.
    """

    nodes: tuple[str, ...]
    used: float
    pressure: float
    throttled: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeoutWaits:
    """The retransmission time-outs of TCP in a window, and the iterations of a job that waited for them.

    `waited` of its `iterations` did, for a share `lost` of their time; `timeouts` are those of the job's connections,
    and `whose` counts all, by job or source of traffic, and ends. `least_s` is the shortest one that was set, and
    where kernels do not count them (`exact`) there may have been more.
    """

    job: str
    iterations: int
    waited: int
    lost: float
    timeouts: int
    whose: Mapping[str, int]
    least_s: float
    exact: bool = True


class MeasuredWindow(Protocol):
    """A measured window of a run; its figures are computed when a gate first asks for them."""

    @property
    def manifest(self) -> Manifest:
        """The run's manifest; `manifest.validity` has the limits."""

    @property
    def record(self) -> Window:
        """The window as the manifest has it: its span, its iterations, the loads that were requested."""

    def table(self, name: str) -> Any:
        """Return a table of the whole run (a pyarrow Table), such as `nccl_connections`."""

    def growth(self, node: str, counter: str, *, port: str = "") -> float:
        """Return the growth of a counter over the window; NaN where it was not sampled throughout.

        A gate names the counters that it asks for in COUNTERS; `port` is empty for a counter of the whole node.
        """

    @property
    def jobs(self) -> tuple[JobIterations, ...]:
        """The iterations that each job's ranks logged, and the bytes that they sent."""

    @property
    def training(self) -> tuple[Training, ...]:
        """The figures of each job's iterations, with the trend of their time."""

    @property
    def loads(self) -> tuple[ArrivedLoad, ...]:
        """The cross traffic that arrived."""

    @property
    def courses(self) -> tuple[LoadCourse, ...]:
        """The course of the cross traffic over the window, against its schedule."""

    @property
    def generated(self) -> tuple[GeneratedFlows, ...]:
        """The flows sent by generators of single flows."""

    @property
    def captures(self) -> tuple[Capture, ...]:
        """Every capture that the run was to make."""

    @property
    def port_bytes(self) -> tuple[PortBytes, ...]:
        """Both directions of each port that was to be captured, beside the port's counters."""

    @property
    def metered(self) -> tuple[MeteredBytes, ...]:
        """Both directions of each port that was metered beside its capture."""

    @property
    def rails(self) -> tuple[RailBytes, ...]:
        """The bytes that each rail carried of each job."""

    @property
    def congestion(self) -> tuple[RailCongestion, ...]:
        """The losses and pauses of each rail whose device counts them."""

    @property
    def switch_ports(self) -> tuple[SwitchPort, ...]:
        """The counts of switches at the ports that were sampled."""

    @property
    def processor_waits(self) -> tuple[ProcessorWait, ...]:
        """The waiting of each job, and of each source of cross traffic that sends in the window, for processors."""

    @property
    def processor_use(self) -> tuple[ProcessorUse, ...]:
        """The use of each kernel's processors."""

    @property
    def timeout_waits(self) -> tuple[TimeoutWaits, ...]:
        """The waiting of each job for retransmission time-outs; empty where it is not known."""

    @property
    def unreadable_captures(self) -> tuple[str, ...]:
        """Problems of capture files that could not be read, in sentences."""

    @property
    def silent_collectors(self) -> Mapping[tuple[str, str], str]:
        """The reason why a collector brought nothing that can be read, by node and launch."""


@dataclass(frozen=True, kw_only=True)
class PartlyKnown:
    """A window of which some is known: one that is being measured, or one made by a test. All else is empty."""

    manifest: Manifest
    record: Window
    jobs: tuple[JobIterations, ...] = ()
    training: tuple[Training, ...] = ()
    loads: tuple[ArrivedLoad, ...] = ()
    courses: tuple[LoadCourse, ...] = ()
    generated: tuple[GeneratedFlows, ...] = ()
    captures: tuple[Capture, ...] = ()
    port_bytes: tuple[PortBytes, ...] = ()
    metered: tuple[MeteredBytes, ...] = ()
    rails: tuple[RailBytes, ...] = ()
    congestion: tuple[RailCongestion, ...] = ()
    switch_ports: tuple[SwitchPort, ...] = ()
    processor_waits: tuple[ProcessorWait, ...] = ()
    processor_use: tuple[ProcessorUse, ...] = ()
    timeout_waits: tuple[TimeoutWaits, ...] = ()
    unreadable_captures: tuple[str, ...] = ()
    silent_collectors: Mapping[tuple[str, str], str] = field(default_factory=dict)

    def table(self, name: str) -> Any:
        """Return a table without rows."""
        from orchestrator.store.tabular import tables

        return tables.schema(name).empty_table()

    def growth(self, node: str, counter: str, *, port: str = "") -> float:  # noqa: ARG002 - the protocol's
        """Return NaN: no counter was sampled."""
        return math.nan
