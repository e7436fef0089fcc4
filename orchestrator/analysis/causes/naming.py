"""Name the causes of a window's iteration times: parts that sum to them, and findings with place, share and evidence.

Nothing here reads what an experiment was set to: conditions, loads and jobs count by what was measured of them. Limits
were chosen on runs of planted causes and tried on others (`python -m tests.bench causes`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from orchestrator.analysis.causes import passes as passed
from orchestrator.analysis.causes import ports as measured
from orchestrator.analysis.causes.explanation import LEAST_SHARE, Explanation, Finding, Part
from orchestrator.analysis.causes.passes import Passes, Split
from orchestrator.analysis.causes.ports import STEP_NS, Axis, Edge, Port
from orchestrator.core.units import rate_text, span_text
from orchestrator.store.manifests.records import Job, Manifest, Window

Floats = npt.NDArray[np.float64]

QUEUED = 0.4  # of the exposed time a port must hold a queue to be what training waits for
BEYOND = 2.0  # times the usual queue of the other ports
FREE_RATE = 0.85  # a queue that never leaves faster than this share of its link's rate is on a slower link
HIGHEST = 0.98  # quantile of the rates of a queue: what it can leave at
OTHERS = 0.08  # of a link's rate: others that take more of it are named
LOST = 0.005  # of the payload sent again: more is loss, less only what its time-outs cost
DELAY_S = 0.0004  # beyond the usual of the other pairs
ROUNDS = 2  # a ring's chunk comes by each hop as often, in 2 (N - 1) steps of N ranks
LIMITED = 0.15  # of its busy time that a connection waits for the receiver's window, or the sender's buffer
SMALL_WINDOW = 0.4  # of what other connections have in flight
SMALL_QUEUE_S = 0.0015  # a queue that drops when it is no longer than this is small
FEWEST_DROPS = 20
WAITED = 0.05  # of the window, for which ranks waited for processors that other work used
SILENCE_S = 0.15  # without any packet of the job: a retransmission time-out, or everybody stands still
QUIET_STEPS = 3  # without a packet before and after, and a rank that logs whole iterations computes
LONGER = 0.04  # of its passes, by which a slow rank's are longer
STEADY = 0.5  # of how much longer its passes are: a slow rank's vary by less (standard deviation)
STALL_SHARE = 0.34  # of the iterations at most hold a stall's time
RARE = ("stall", "loss")  # happened, however rarely: an interval down to nothing is of how often they come back
SURE = 1.5  # times as strong must the first candidate be as the second, to be named alone
_Z = 1.96

TELLS: Mapping[str, str] = {  # of causes that show while links are idle: what has the evidence
    "loss": "tcpdump (payload sent again) and tcp (time-outs)",
    "delay": "tcp (least round-trip time)",
    "receive-window": "tcp (time limited by the receiver's window)",
    "send-buffer": "tcp (time limited by the sender's buffer)",
    "small-queue": "qdisc (backlogs and drops)",
}


class Source(Protocol):
    """A run whose tables can be read by name (pyarrow Tables); one that was never written is empty."""

    @property
    def manifest(self) -> Manifest: ...

    def table(self, name: str) -> Any: ...

    def counter_rows(self, pattern: str) -> Any: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _Evidence:
    """All that was measured of a job in a window."""

    job: Job
    manifest: Manifest
    passes: Passes
    split: Split
    axis: Axis
    ports: tuple[Port, ...]
    edges: tuple[Edge, ...]
    others_wait: Mapping[str, float]  # by host: share of the window for which a rank waited, since others computed
    bottleneck: Port | None = None  # whose queue training waits for, where one stands out
    idle: Floats = field(default_factory=lambda: np.zeros(0))  # seconds an iteration of waiting for idle links
    mtu: int

    @property
    def total(self) -> float:
        return float(self.split.total.sum())

    def seconds(self, steps: Floats | npt.NDArray[np.bool_]) -> Floats:
        """Return what these shares of exposed steps amount to in each iteration, in seconds."""
        inside = self.axis.iteration >= 0
        weight = (self.axis.exposed * steps)[inside] * (STEP_NS / 1e9)
        found: Floats = np.bincount(self.axis.iteration[inside], weight, len(self.passes.iteration)).astype(np.float64)
        return found


def explanations(run: Source, *, iteration: int | None = None) -> Iterator[Explanation]:
    """Yield an explanation for each job of each window that logged iterations.

    With `iteration`, a number in the job, those that have it are explained by that iteration alone.
    """
    for window in run.manifest.windows:
        yield from of_window(run, window, iteration=iteration)


def of_window(run: Source, window: Window, *, iteration: int | None = None) -> Iterator[Explanation]:
    """Yield an explanation for each job of a window, likewise; the window's processors have been judged."""
    for job in run.manifest.jobs:
        if job.name in window.iterations:
            found = explain(run, window, job, iteration=iteration)
            if found is not None:
                yield found


def explain(run: Source, window: Window, job: Job, *, iteration: int | None = None) -> Explanation | None:
    """Explain the iterations of a job in a window, or one of them; None where nothing of it is logged."""
    found = passed.passes(run.table("iterations"), run.table("spans"), job, window.iterations[job.name])
    if found is None or (iteration is not None and iteration not in found.iteration):
        return None
    whole = len(found.iteration)
    most_s = measured.MOST_VALUES // max(1, len(run.manifest.topology.links)) * STEP_NS / 1e9
    found = passed.within(found, most_s, until=iteration)
    split = passed.split(found)
    evidence = _evidence(run, window, job, found, split)
    findings = [*_network(evidence), *_ranks(evidence), *_processors(evidence)]
    chosen = np.ones(len(found.iteration), bool) if iteration is None else found.iteration == iteration
    return _explained(run.manifest.run, window, evidence, findings, chosen, whole=whole, missing=_missing(evidence))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cost:
    """A cause, its place, its seconds in each iteration, the part of the time that these are of, and the evidence."""

    cause: str
    place: str
    hosts: tuple[str, ...]
    seconds: Floats
    of: str
    evidence: tuple[str, ...]
    strength: float


def _evidence(run: Source, window: Window, job: Job, found: Passes, split: Split) -> _Evidence:
    topology = run.manifest.topology
    span_ns = window.start_ns, window.end_ns
    begin_ns, end_ns = (found.origin_ns + round(at * 1e9) for at in (found.start.min(), found.end.max()))
    over = measured.axis(begin_ns, end_ns, split.begun, split.ended, found.origin_ns)
    captured = run.table("capture_flows")
    ports = measured.ports(
        topology,
        job.name,
        captured=captured,
        packets=run.table("flow_packets"),
        counters=run.counter_rows(measured.QUEUES),
        over=over,
    )
    ports = tuple(port for port in ports if port.host in {rank.node for rank in job.ranks})
    edges = measured.edges(topology, job.name, captured=captured, sockets=run.table("sockets"), span_ns=span_ns)
    waits = {one.host: one.others_wait_share for one in window.processors if one.others_wait_share is not None}
    if found.whole:
        over, split = _moving(over, split, ports)
    bare = _Evidence(
        job=job,
        manifest=run.manifest,
        passes=found,
        split=split,
        axis=over,
        ports=ports,
        edges=edges,
        others_wait={host: wait for host, wait in waits.items() if not math.isnan(wait)},
        mtu=topology.mtu,
    )
    seen = replace(bare, bottleneck=_bottleneck(bare))
    return replace(seen, idle=np.clip(split.network - seen.seconds(_used(seen)), 0, None))


def _moving(over: Axis, split: Split, ports: Sequence[Port]) -> tuple[Axis, Split]:
    """Return the axis and the split of ranks that log whole iterations: what moves no packets counts as computing."""
    known = [port.own for port in ports if port.own is not None]
    near = np.ones(2 * QUIET_STEPS + 1)
    moving = np.convolve(np.sum(known, axis=0), near, "same") > 0 if known else np.zeros(over.steps)
    axis = replace(over, exposed=over.exposed * moving)
    inside = axis.iteration >= 0
    weight = axis.exposed[inside] * (STEP_NS / 1e9)
    network = np.minimum(np.bincount(axis.iteration[inside], weight, len(split.network)), split.network)
    return axis, replace(split, computing=split.computing + split.network - network, network=network)


def _used(evidence: _Evidence) -> Floats:
    """Return the share of each step for which the link that training waits for was used at its rate, or queued."""
    port = evidence.bottleneck
    if port is None:
        known = [one for one in evidence.ports if one.carried is not None]
        rates = [_share_of_rate(one, one.carried) for one in known]
        return np.max(rates, axis=0) if rates else np.zeros(evidence.axis.steps)
    return np.maximum(port.queued(evidence.mtu).astype(np.float64), _share_of_rate(port, port.carried))


def _share_of_rate(port: Port, bytes_of_step: Floats | None) -> Floats:
    if bytes_of_step is None:
        return np.zeros(0)
    return np.clip(bytes_of_step * (8e9 / STEP_NS) / port.rate_bps, 0, 1)


def _bottleneck(evidence: _Evidence) -> Port | None:
    """Return the port whose queue training waits for; None where no queue stands out.

    Where no queue is sampled it is the port that carries packets for much longer than the others, of the sender where
    both ends of a hop do: whoever waits for it sends in bursts.
    """
    known = [port for port in evidence.ports if port.carried is not None and port.backlog is not None]
    known = known or [port for port in evidence.ports if port.carried is not None]
    shares = [_queued_share(evidence, port) for port in known]
    found = [
        (share, port)
        for port, share in zip(known, shares, strict=True)
        if share >= max(QUEUED, BEYOND * _usual_share(known, shares, port))
    ]
    sampled = any(port.backlog is not None for port in known)
    return max(found, key=lambda one: (not sampled and one[1].direction == "out", one[0]), default=(0.0, None))[1]


def _usual_share(known: Sequence[Port], shares: Sequence[float], port: Port) -> float:
    """Return the median share of the other ports of a direction; 0 where these are too few."""
    same = [
        share
        for other, share in zip(known, shares, strict=True)
        if other.direction == port.direction and other is not port
    ]
    return float(np.median(same)) if len(same) > 1 else 0.0


def _queued_share(evidence: _Evidence, port: Port) -> float:
    exposed = evidence.axis.exposed
    whole = float(exposed.sum())
    return float((exposed * port.queued(evidence.mtu)).sum()) / whole if whole > 0 else 0.0


def _network(evidence: _Evidence) -> Iterator[_Cost]:
    if evidence.bottleneck is not None:
        yield from _at_queue(evidence, evidence.bottleneck)
    yield from (*_losses(evidence), *_delays(evidence), *_windows(evidence), *_small_queues(evidence))


def _at_queue(evidence: _Evidence, port: Port) -> Iterator[_Cost]:
    """Yield what a queue costs beyond the link's own rate: a slower link, or others who share it."""
    queued = port.queued(evidence.mtu)
    carried = port.carried
    if carried is None:
        return
    rate = _share_of_rate(port, measured.smoothed(carried))
    weight = evidence.axis.exposed * queued
    mean = float(np.average(rate, weights=weight))
    share = _queued_share(evidence, port)
    what = "it carried" if port.backlog is None else "its queue held"
    waits = f"{what} packets for {share:.0%} of the time in which training waited for the network"
    scale = evidence.manifest.topology.wire_scale
    whole = _rate(port.rate_bps * scale)
    for name, values in port.others.items():
        part = _share_of_rate(port, measured.smoothed(values))
        taken = float(np.average(part, weights=weight))
        if taken >= OTHERS:
            yield _Cost(
                cause="job" if any(name == job.name for job in evidence.manifest.jobs) else "load",
                place=f"{name} on {port.name}",
                hosts=(port.host,),
                seconds=evidence.seconds(queued * part),
                of="network",
                evidence=(waits, f"{name} took {_rate(taken * port.rate_bps * scale)} of its {whole} then"),
                strength=taken / OTHERS,
            )
    highest = float(np.quantile(rate[queued], HIGHEST))
    if mean < FREE_RATE and highest < FREE_RATE:
        others = [one for one in evidence.ports if one is not port and one.direction == port.direction]
        fast = [float(np.quantile(_share_of_rate(one, one.carried), 0.95)) for one in others if one.carried is not None]
        seen = f"; others reached {_rate(max(fast) * port.rate_bps * scale)}" if fast else ""
        yield _Cost(
            cause="link-rate",
            place=port.name,
            hosts=(port.host,),
            seconds=evidence.seconds(queued * np.clip(1 - rate, 0, 1)),
            of="network",
            evidence=(waits, f"it left at {_rate(mean * port.rate_bps * scale)} of {whole}{seen}"),
            strength=FREE_RATE / max(mean, 0.01),
        )


def _rate(bps: float) -> str:
    """Return a rate (bit/s) at full size, to three digits."""
    return rate_text(float(f"{bps:.3g}"))


def _usual(values: Sequence[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return float(np.median(known)) if known else math.nan


def _others(edges: Sequence[Edge], mine: Sequence[Edge]) -> list[Edge]:
    return [edge for edge in edges if edge not in mine]


def _losses(evidence: _Evidence) -> Iterator[_Cost]:
    """Yield the edge whose payload was sent again, and was not dropped by a queue that we see."""
    if not evidence.edges:
        return
    edge = max(evidence.edges, key=lambda one: one.repeated)
    segments = edge.repeated_bytes / evidence.mtu
    drops = sum(
        port.drops
        for port in evidence.ports
        if (port.host, port.direction) in ((edge.src, "out"), (edge.dst, "in")) and not math.isnan(port.drops)
    )
    lost = edge.repeated * max(0.0, 1 - drops / segments) if segments > 0 else 0.0
    silent = evidence.seconds(_silent(evidence)) if edge.timeouts > 0 else np.zeros(len(evidence.idle))
    if lost < LOST and not silent.any():
        return
    varies = evidence.idle - np.quantile(evidence.idle, 0.1)
    cost = np.maximum(varies, silent) if lost >= LOST else silent
    said = [f"{edge.repeated:.1%} of what {edge.src} sent {edge.dst} was sent again, and queues dropped {drops:.0f}"]
    if edge.timeouts > 0:
        said.append(f"its connections timed out {edge.timeouts:.0f} times")
    if silent.sum() > 0:
        said.append(
            f"for {span_text(float(silent.mean()))} an iteration no packet moved for {span_text(SILENCE_S)} or more"
        )
    place = f"packets from {edge.src} to {edge.dst}"
    yield _Cost(
        cause="loss",
        place=place,
        hosts=(edge.dst, edge.src),
        seconds=np.minimum(cost, evidence.split.network),
        of="network",
        evidence=tuple(said),
        strength=max(lost / LOST, 1.0),
    )


def _silent(evidence: _Evidence) -> Floats:
    """Return the exposed steps that are of a long time without any packet of the job."""
    known = [port.own for port in evidence.ports if port.own is not None]
    if not known:
        return np.zeros(evidence.axis.steps)
    moving = np.flatnonzero(np.sum(known, axis=0) > 0)
    found = np.zeros(evidence.axis.steps)
    for place in np.flatnonzero(np.diff(moving) * STEP_NS >= SILENCE_S * 1e9):
        found[moving[place] + 1 : moving[place + 1]] = 1
    return found


def _delays(evidence: _Evidence) -> Iterator[_Cost]:
    """Yield the host to and from which even the fastest packets take longer."""
    best: tuple[float, str, list[Edge]] = (0.0, "", [])
    for host in sorted({edge.dst for edge in evidence.edges}):
        mine = [edge for edge in evidence.edges if host in (edge.src, edge.dst)]
        more = _usual([edge.rtt_s for edge in mine]) - _usual([edge.rtt_s for edge in _others(evidence.edges, mine)])
        if more > best[0]:
            best = (more, host, mine)
    more, host, mine = best
    if evidence.bottleneck is not None and evidence.bottleneck.host == host:
        more -= _queueing_s(evidence, evidence.bottleneck)
    if more < DELAY_S:
        return
    cost = np.minimum(evidence.idle, ROUNDS * len(evidence.passes.collectives) * more)
    rtt = span_text(_usual([edge.rtt_s for edge in mine]))
    usual = span_text(_usual([edge.rtt_s for edge in _others(evidence.edges, mine)]))
    yield _Cost(
        cause="delay",
        place=f"packets to {host}",
        hosts=(host,),
        seconds=cost,
        of="network",
        evidence=(f"the least round trip to and from {host} takes {rtt}, elsewhere {usual}",),
        strength=more / DELAY_S,
    )


def _queueing_s(evidence: _Evidence, port: Port) -> float:
    """Return how long packets wait in a port's queue while it holds any, on average, at the rate at which it leaves."""
    queued = port.queued(evidence.mtu)
    if port.backlog is None or port.carried is None or not queued.any():
        return 0.0
    rate = float(port.carried[queued].mean()) * 8e9 / STEP_NS
    return float(port.backlog[queued].mean()) * 8 / rate if rate > 0 else 0.0


def _windows(evidence: _Evidence) -> Iterator[_Cost]:
    """Yield the connection that waits for the receiver's window or the sender's buffer."""
    for edge in evidence.edges:
        for kind, cause, host in (("rwnd", "receive-window", edge.dst), ("sndbuf", "send-buffer", edge.src)):
            share = edge.limited.get(kind, 0.0)
            if share >= LIMITED:
                what = "receiver's window" if kind == "rwnd" else "sender's buffer"
                yield _Cost(
                    cause=cause,
                    place=f"{host}, on what {edge.src} sends {edge.dst}",
                    hosts=(host,),
                    seconds=np.minimum(evidence.idle, share * evidence.split.network),
                    of="network",
                    evidence=(f"for {share:.0%} of its busy time it waited for the {what}",),
                    strength=share / LIMITED,
                )
    if any(edge.limited for edge in evidence.edges):
        return
    for edge in evidence.edges:
        usual = _usual([other.window_segments for other in _others(evidence.edges, [edge])])
        if edge.window_segments <= SMALL_WINDOW * usual and edge.window_segments <= edge.cwnd_segments / 2:
            said = f"{edge.src} never had more than {edge.window_segments:.0f} segments on their way to {edge.dst}"
            yield _Cost(
                cause="receive-window",
                place=f"{edge.dst}, on what {edge.src} sends {edge.dst}",
                hosts=(edge.dst,),
                seconds=np.clip(evidence.idle - np.quantile(evidence.idle, 0.1) / 2, 0, None),
                of="network",
                evidence=(said, f"others {usual:.0f}, and its congestion window is {edge.cwnd_segments:.0f}"),
                strength=SMALL_WINDOW * usual / max(edge.window_segments, 1.0),
            )


def _small_queues(evidence: _Evidence) -> Iterator[_Cost]:
    """Yield the queue that drops packets though it is never long; one that is always full is not too small."""
    for port in evidence.ports:
        if port.backlog is None or not port.drops >= FEWEST_DROPS or port is evidence.bottleneck:
            continue
        longest_s = float(port.backlog.max()) * 8 / port.rate_bps
        if longest_s <= SMALL_QUEUE_S:
            longest = span_text(longest_s)
            said = f"it dropped {port.drops:.0f} packets, and never held more than {longest} of its link's rate"
            yield _Cost(
                cause="small-queue",
                place=port.name,
                hosts=(port.host,),
                seconds=np.clip(evidence.idle - np.quantile(evidence.idle, 0.1), 0, None),
                of="network",
                evidence=(said,),
                strength=port.drops / FEWEST_DROPS,
            )


def _ranks(evidence: _Evidence) -> Iterator[_Cost]:
    """Yield ranks whose passes, or whose steps, the others wait for."""
    found, split = evidence.passes, evidence.split
    if len(found.ranks) < 2 or len(found.iteration) < 3:
        return
    usual = np.median(found.passes_s, axis=0)
    for place, rank in enumerate(found.ranks):
        others = np.delete(found.passes_s, place, axis=0)
        longer = found.passes_s[place] - np.median(others, axis=0)
        mean, error = float(longer.mean()), float(longer.std(ddof=1)) / math.sqrt(len(longer))
        name = f"rank {rank} on {found.nodes[place]}"
        if mean - _Z * error > 0 and mean > LONGER * float(usual.mean()) and _holds(split.behind, place):
            steady = error * math.sqrt(len(longer)) < STEADY * mean
            spread = float(found.passes_s[place].std(ddof=1) / usual.mean())
            took = span_text(float(found.passes_s[place].mean()))
            said = f"its passes take {took}, those of the others {span_text(float(np.median(others, axis=0).mean()))}"
            yield _Cost(
                cause="slow-rank" if steady else "jittery-rank",
                place=name,
                hosts=(found.nodes[place],),
                seconds=split.behind[place],
                of="computing",
                evidence=(said, f"they vary by {spread:.0%} (standard deviation)"),
                strength=mean / (LONGER * float(usual.mean())),
            )
        held = split.held[place]
        if held.mean() > LEAST_SHARE * split.total.mean() and _holds(split.held, place):
            by = np.sort(held)[::-1]
            few = int(np.searchsorted(np.cumsum(by), 0.8 * held.sum())) + 1
            said = f"others wait {span_text(float(by[:few].mean()))} for it in {few} of {len(held)} iterations"
            yield _Cost(
                cause="stall" if few <= STALL_SHARE * len(held) else "slow-step",
                place=name,
                hosts=(found.nodes[place],),
                seconds=held,
                of="computing",
                evidence=(said, "before its next pass, and not in its passes"),
                strength=2.0,
            )


def _holds(amounts: Floats, place: int) -> bool:
    """Return whether more than half of the time is a rank's, and twice what is another's."""
    each = amounts.sum(axis=1)
    return bool(each[place] > 0.5 * each.sum() and each[place] >= 2 * np.max(np.delete(each, place)))


def _processors(evidence: _Evidence) -> Iterator[_Cost]:
    """Yield other work on the hosts' processors: what it adds to passes, and to what no queue explains.

    Hosts that share one kernel share its processors, so that none of them can be named.
    """
    host, waited = max(evidence.others_wait.items(), key=lambda one: one[1], default=("", 0.0))
    if waited < WAITED:
        return
    kernels = {evidence.manifest.kernels.nodes.get(rank.node, rank.node) for rank in evidence.job.ranks}
    shared = len(kernels) == 1 < len(evidence.job.nodes)
    split = evidence.split
    stretched = np.clip(split.computing - np.quantile(split.computing, 0.05), 0, None)
    even = split.behind.sum(axis=0) + split.held.sum(axis=0)
    cost = stretched + even + min(1.0, waited) * evidence.idle
    most = waited * split.total.sum()  # nobody waited longer than that
    yield _Cost(
        cause="processor",
        place="the hosts' one machine" if shared else host,
        hosts=() if shared else (host,),
        seconds=cost * min(1.0, most / cost.sum()) if cost.any() else cost,
        of="both",
        evidence=(f"threads of ranks waited {waited:.0%} of the window for processors that other work used",),
        strength=waited / WAITED,
    )


def _explained(
    run: str,
    window: Window,
    evidence: _Evidence,
    costs: Sequence[_Cost],
    chosen: npt.NDArray[np.bool_],
    *,
    whole: int,
    missing: tuple[str, ...],
) -> Explanation:
    """Return the explanation of these iterations: what several causes claim is given to the strongest first."""
    split = evidence.split
    left = {"network": split.network.copy(), "computing": split.behind.sum(axis=0) + split.held.sum(axis=0)}
    left["passes"] = split.computing - np.minimum(split.computing, np.quantile(split.computing, 0.05))
    named: list[tuple[_Cost, Floats]] = []
    for cost in sorted(costs, key=lambda one: (one.of == "both", one.cause in TELLS, -one.strength)):
        pools = ("network", "computing", "passes") if cost.of == "both" else (cost.of,)
        wanted, given = cost.seconds.copy(), np.zeros_like(cost.seconds)
        for pool in pools:
            taken = np.minimum(wanted, left[pool])
            left[pool] -= taken
            wanted -= taken
            given += taken
        named.append((cost, given))
    total = split.total[chosen]
    findings = [
        finding
        for cost, given in named
        if (finding := _finding(cost, given[chosen], total)).share >= LEAST_SHARE
        and (finding.low > 0 or finding.cause in RARE)
    ]
    usual = np.minimum(split.computing, np.quantile(split.computing, 0.05))
    sending = np.minimum(left["network"], evidence.seconds(_used(evidence)))
    parts = {
        "computing": usual + left["passes"],
        "between iterations": split.between,
        "waiting for ranks that are out of step": left["computing"],
        "sending at the links' rates": sending,
        "network, no cause seen": left["network"] - sending,
        **{f"{cost.cause}: {cost.place}": given for cost, given in named},
    }
    mean = float(total.mean())
    return Explanation(
        run=run,
        window=window.name,
        job=evidence.job.name,
        iterations=tuple(int(number) for number in evidence.passes.iteration[chosen]),
        measured=whole,
        mean_s=mean,
        noise=_half_width(total, total),
        parts=tuple(
            Part(name=name, seconds=float(values[chosen].mean()), share=float(values[chosen].mean()) / mean)
            for name, values in parts.items()
        ),
        findings=tuple(sorted(findings, key=lambda one: -one.share)),
        undecided=_undecided(named),
        missing=missing,
    )


def _undecided(named: Sequence[tuple[_Cost, Floats]]) -> tuple[str, ...]:
    """Return two causes of idle links that this evidence does not tell apart, and the collector that would."""
    idle = sorted((cost for cost, _ in named if cost.cause in TELLS), key=lambda one: -one.strength)
    if len(idle) > 1 and idle[0].cause != idle[1].cause and idle[0].strength < SURE * idle[1].strength:
        first, second = idle[:2]
        return first.cause, second.cause, TELLS[second.cause]
    return ()


def _finding(cost: _Cost, given: Floats, total: Floats) -> Finding:
    share = float(given.sum() / total.sum())
    half = _half_width(given, total)
    return Finding(
        cause=cost.cause,
        place=cost.place,
        hosts=cost.hosts,
        share=share,
        low=max(0.0, share - half),
        high=share + half,
        seconds=float(given.mean()),
        evidence=cost.evidence,
        strength=cost.strength,
    )


def _half_width(given: Floats, total: Floats) -> float:
    """Return the half width of the 95 % interval of a share, sum over sum (ratio estimator); 0 of one iteration.

    Iterations that follow one another are alike: the variance is that of means of neighbours in groups.
    """
    count = len(total)
    if count < 4:
        return 0.0
    rest = given - float(given.sum() / total.sum()) * total if given is not total else total - total.mean()
    size = max(1, int(math.sqrt(count) / 2))
    groups = count // size
    means = rest[: groups * size].reshape(groups, size).mean(axis=1)
    return _Z * float(means.std(ddof=1)) / math.sqrt(groups) / float(total.mean())


def _missing(evidence: _Evidence) -> tuple[str, ...]:
    """Return the collectors without which causes cannot be named."""
    found = []
    if not any(port.own is not None for port in evidence.ports):
        found.append("tcpdump")
    if not any(port.backlog is not None for port in evidence.ports):
        found.append("qdisc")
    if not any(not math.isnan(edge.rtt_s) for edge in evidence.edges):
        found.append("tcp")
    return tuple(found)
