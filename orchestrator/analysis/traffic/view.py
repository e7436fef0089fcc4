"""Describe the traffic of trainings for a report: patterns, iterations, flows and throughput, as numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from orchestrator.analysis.capture.trace import Trace
from orchestrator.analysis.stats.iterations import JobSeries
from orchestrator.analysis.traffic import bottleneck, pattern, periodicity, traffic
from orchestrator.analysis.traffic.bottleneck import Rates
from orchestrator.analysis.traffic.pattern import Pattern
from orchestrator.analysis.traffic.periodicity import Iterations
from orchestrator.analysis.traffic.traffic import CONTROL, CROSS, OTHER, TRAINING, Floats, Ints, Mask, Traffic

STEP_NS = 10_000_000  # bins in which mean and peak rates are taken
PAUSE_NS = 2_000_000  # a silence that ends a message

_MOST_FLOWS = 12

KINDS = (TRAINING, CROSS, CONTROL, OTHER)

SSH_PORT = 22
BIG = 0.01  # of the bytes of the biggest flow: smaller ones are not judged by their shape
FLOOD = 0.05  # of the same: from which on small flows of one pair of hosts are big together
SWINGS = 0.5  # coefficient of variation within a period; what only yields to a training swings with it, but less
LIVES = 0.5  # of the trace: a training's flow is there for most of it
SAME = 0.1  # by which periods of one training may differ
_MOST_JUDGED = 400
_STEPS = 20_000  # bins of a flow's series


@dataclass(frozen=True, slots=True, kw_only=True)
class KindRow:
    """The share of the traffic of one kind."""

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
    """The analysis of a stretch of traffic: kinds, trainings, big flows, and the three flows of a bottleneck."""

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
    """Describe traffic whose flows have been told apart.

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
    """Return the view of a trace from anywhere, its flows told apart by their shape."""
    return look(told_apart(traffic.from_trace(trace)))


def _cycle(jobs: Sequence[JobView]) -> float:
    periods = [job.iterations.period.period_s for job in jobs if job.iterations.period.found]
    return max(periods, default=0.0)


def _step(found: Traffic) -> int:
    """Return the width of bins for rates: a multiple of the traffic's own, about `STEP_NS`."""
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


def told_apart(found: Traffic) -> Traffic:
    """Return the traffic with `kind` and `name` inferred from the shape of flows.

    SSH by its port. Of the big flows those are training that live for most of the trace and repeat themselves with
    one period, swinging between much and little: the period under which most bytes do so. Big flows without it are
    cross traffic: transfers and floods have no beat. A training that never pauses looks like cross traffic. Small
    flows among a training's hosts are its side connections (control); the rest is other.
    """
    kind = np.full(len(found), OTHER, object)
    name = np.full(len(found), "", object)
    ssh = (found.src_port == SSH_PORT) | (found.dst_port == SSH_PORT)
    kind[ssh], name[ssh] = CONTROL, "ssh"
    big = _big(found) & ~ssh
    training = _beating(found, big)
    # What the receiver of a training's flow sends back is mostly acknowledgements, on the same connection.
    kind[_same_connection(found, training) & ~ssh] = TRAINING
    kind[(kind == OTHER) & _same_connection(found, big)] = CROSS
    hosts = np.union1d(found.src[training], found.dst[training])
    side = (kind == OTHER) & np.isin(found.src, hosts) & np.isin(found.dst, hosts) & (found.src_port > 0)
    kind[side], name[side] = CONTROL, "side connection"
    return replace(found, kind=kind, name=name, guessed=True)


def _big(found: Traffic) -> Mask:
    sizes = found.payload_bytes
    if not len(sizes) or sizes.max() <= 0:
        return np.zeros(len(sizes), bool)
    big = sizes >= BIG * sizes.max()
    pair = found.src * len(found.hosts) + found.dst
    together = np.bincount(pair, np.where(big, 0, sizes))[pair]
    flood: Mask = big | ((together >= FLOOD * sizes.max()) & (sizes > 0))
    return flood


def _beating(found: Traffic, big: Mask) -> Mask:
    """Return a mask of the big flows that repeat themselves with the period that most bytes share."""
    chosen = np.zeros(len(found), bool)
    length = found.end_ns - found.begin_ns
    lives = found.last_ns - found.first_ns >= LIVES * length
    rows = np.flatnonzero(big & lives)
    rows = rows[np.argsort(-found.payload_bytes[rows])][:_MOST_JUDGED]
    width = max(1, round(length / found.width_ns / _STEPS)) * found.width_ns
    periods = {}
    for row in rows.tolist():
        mine = np.zeros(len(found), bool)
        mine[row] = True
        values = traffic.series(found, mine, payload=True, width_ns=width)
        beat = periodicity.period(values, width / 1e9)
        if beat.found and _swing(values, beat.period_s * 1e9 / width) >= SWINGS:
            periods[row] = beat
    if not periods:
        return chosen
    weight = {row: found.payload_bytes[row] * beat.strength for row, beat in periods.items()}

    def alike(one: float, other: float) -> bool:
        return abs(one - other) <= SAME * other

    best = max(
        periods,
        key=lambda row: sum(
            weight[other] for other, beat in periods.items() if alike(beat.period_s, periods[row].period_s)
        ),
    )
    beat_s = periods[best].period_s
    # A flow may show twice or half of it, where every second iteration differs or one has two bursts.
    chosen[[row for row, beat in periods.items() if any(alike(beat.period_s, beat_s * f) for f in (1, 2, 0.5))]] = True
    return chosen


def _swing(values: Floats, lag: float) -> float:
    """Return the coefficient of variation of a series in bins of a tenth of `lag`, while the flow lives."""
    places = np.flatnonzero(values)
    lived = values[places[0] : places[-1] + 1]
    join = max(1, round(lag / 10))
    joined = lived[: len(lived) // join * join].reshape(-1, join).sum(axis=1)
    return float(joined.std() / joined.mean()) if len(joined) and joined.mean() > 0 else 0.0


def _same_connection(found: Traffic, flows: Mask) -> Mask:
    """Return the flows with the same two ends as some flows, in either direction."""
    ends = np.stack((found.src * 65536 + found.src_port, found.dst * 65536 + found.dst_port))
    number = np.unique(ends, return_inverse=True)[1].reshape(ends.shape)
    connection = number.min(axis=0) * (number.max(initial=0) + 1) + number.max(axis=0)
    return np.isin(connection, connection[flows])
