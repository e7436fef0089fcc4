"""Training's own view of traffic: what a report says of patterns, iterations, flows and throughput, as numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from orchestrator.analysis.capture.trace import Trace
from orchestrator.analysis.stats.iterations import JobSeries
from orchestrator.analysis.traffic import bottleneck, flowshape, pattern, periodicity, traffic
from orchestrator.analysis.traffic.bottleneck import Rates
from orchestrator.analysis.traffic.pattern import Pattern
from orchestrator.analysis.traffic.periodicity import Iterations
from orchestrator.analysis.traffic.traffic import CONTROL, CROSS, OTHER, TRAINING, Ints, Mask, Traffic

STEP_NS = 10_000_000  # bins in which mean and peak rates are taken
PAUSE_NS = 2_000_000  # a silence that ends a message

_MOST_FLOWS = 12

KINDS = (TRAINING, CROSS, CONTROL, OTHER)


@dataclass(frozen=True, slots=True, kw_only=True)
class KindRow:
    """How much of the traffic is of a kind."""

    kind: str
    flows: int
    wire_bytes: int
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowRow:
    """One of the big flows."""

    label: str
    kind: str
    name: str
    wire_bytes: int
    share: float
    rates: Rates


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """A training as its traffic shows it; `name` is empty where nobody said what was launched.

    `logged_s` and `logged` are mean time and number of the iterations by the training's own log, NaN and 0 without.
    """

    name: str
    patterns: tuple[Pattern, ...]
    order: str
    iterations: Iterations
    logged_s: float
    logged: int
    messages: periodicity.Floats
    total: Rates


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A stretch of traffic: kinds, trainings, big flows, and the three flows of a bottleneck."""

    traffic: Traffic
    kinds: tuple[KindRow, ...]
    jobs: tuple[JobView, ...]
    big: Ints
    flows: tuple[FlowRow, ...]
    shares: tuple[bottleneck.Share, ...]
    share_rates: tuple[Rates, ...]

    @property
    def cycle_s(self) -> float:
        """The longest period of any training; 0 without."""
        return _cycle(self.jobs)


def look(found: Traffic, *, ranks: Mapping[str, Sequence[str]] | None = None, logs: Sequence[JobSeries] = ()) -> View:
    """Everything about traffic whose flows have been told apart.

    `ranks`: the host of every rank of each job, in their order; `logs`: what the jobs logged in the same time.
    """
    jobs = tuple(
        _job(found, name, (ranks or {}).get(name, ()), next((log for log in logs if log.job == name), None))
        for name in dict.fromkeys(found.name[found.of(TRAINING)].tolist())
    )
    everything = np.ones(len(found), bool)
    big = traffic.big_flows(found, everything)
    total = max(int(found.wire_bytes.sum()), 1)
    shares = tuple(bottleneck.three(found))
    cycle = _cycle(jobs)
    return View(
        traffic=found,
        kinds=tuple(_kind(found, kind, total) for kind in KINDS),
        jobs=jobs,
        big=big,
        flows=tuple(
            FlowRow(
                label=found.label(row),
                kind=str(found.kind[row]),
                name=str(found.name[row]),
                wire_bytes=int(found.wire_bytes[row]),
                share=float(found.wire_bytes[row]) / total,
                rates=bottleneck.rates(found, _only(found, row), width_ns=_step(found), cycle_s=cycle),
            )
            for row in big[:_MOST_FLOWS].tolist()
        ),
        shares=shares,
        share_rates=tuple(
            bottleneck.rates(found, share.flows, width_ns=_step(found), cycle_s=cycle) for share in shares
        ),
    )


def of_trace(trace: Trace) -> View:
    """The view of a trace from anywhere, its flows told apart by their shape."""
    return look(flowshape.told_apart(traffic.from_trace(trace)))


def _cycle(jobs: Sequence[JobView]) -> float:
    periods = [job.iterations.period.period_s for job in jobs if job.iterations.period.found]
    return max(periods, default=0.0)


def _step(found: Traffic) -> int:
    """The width of bins for rates: a multiple of the traffic's own, about `STEP_NS`."""
    return max(1, round(STEP_NS / found.width_ns)) * found.width_ns


def _only(found: Traffic, row: int) -> Mask:
    mask = np.zeros(len(found), bool)
    mask[row] = True
    return mask


def _kind(found: Traffic, kind: str, total: int) -> KindRow:
    mine = found.of(kind) & (found.wire_bytes > 0)
    size = int(found.wire_bytes[mine].sum())
    return KindRow(kind=kind, flows=int(mine.sum()), wire_bytes=size, share=size / total)


def _job(found: Traffic, name: str, ranks: Sequence[str], log: JobSeries | None) -> JobView:
    mine = found.of(TRAINING) & (found.name == name)
    patterns = pattern.infer_groups(traffic.matrix(found, mine))
    launched = [found.hosts.index(host) for host in ranks if host in found.hosts]
    values = traffic.series(found, mine, payload=True)
    seen = periodicity.iterations(values, begin_ns=found.begin_ns, width_ns=found.width_ns)
    cycle = seen.period.period_s if seen.period.found else 0.0
    picked = mine[found.bin_flow]
    return JobView(
        name=name,
        patterns=tuple(patterns),
        order=pattern.order_among(patterns[0], launched) if patterns and len(set(launched)) == len(launched) else "",
        iterations=seen,
        logged_s=float(np.mean(log.seconds)) if log is not None and len(log.seconds) else math.nan,
        logged=len(log.seconds) if log is not None else 0,
        messages=periodicity.messages(
            found.bin_flow[picked],
            found.bin_ns[picked],
            found.bin_payload[picked],
            pause_ns=max(PAUSE_NS, 2 * found.width_ns),
        ),
        total=bottleneck.rates(found, mine, width_ns=_step(found), cycle_s=cycle),
    )
