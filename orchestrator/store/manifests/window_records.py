"""What a manifest says of a run's windows: what was requested and measured in each, and how it was judged."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from orchestrator.store.manifests.bounded import Real, Whole


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """The first and last iteration of a job that a window counts."""

    first: Whole
    last: Whole


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Cross traffic of a source from one host to another over a rail in a window."""

    source: str
    src: str
    dst: str
    rail: Whole = 0
    requested_bps: Real
    achieved_bps: Real | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """A job's iterations in a window, seconds with 95 % intervals.

    `effective_iterations` counts independent ones that would say as much of the mean; intervals are of the run alone.
    `sent_bytes` is the TCP payload of a rank in an iteration, `theory_bytes` the same by theory; `left_out` counts the
    iterations under the window's traffic that were warm-up, and `drift` is the trend of what is left.
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
    drift: Real | None = None
    drift_low: Real | None = None
    drift_high: Real | None = None
    drift_p: Real | None = None


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
    """How warm-up was chosen: of so many samples MSER-5 without a bound would have left out `unbounded`."""

    samples: Whole = 0
    unbounded: Whole | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Window(WindowSummary):
    """A measured window and what it amounts to.

    `earliest` is the first iteration of each job under the window's traffic. Where `warmup` is to be chosen from the
    data, a run sets `iterations` to begin after the most that may be left out, and `mser` says how it was chosen.
    """

    wanted_iterations: Whole | None = None
    warmup: Whole | Literal["auto"] | None = None
    earliest: Mapping[str, Whole] = field(default_factory=dict)
    mser: Mapping[str, Truncation] = field(default_factory=dict)
    variation: tuple[Variation, ...] = ()
    processors: tuple[ProcessorShares, ...] = ()
    gates: tuple[Gate, ...] = ()
