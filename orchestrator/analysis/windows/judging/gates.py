"""Validity gates: whether a window's numbers may be believed, judged from what was measured in it; pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from orchestrator.analysis.windows.judging import portbytes
from orchestrator.analysis.windows.judging.capture_gates import Capture, judge_captures
from orchestrator.analysis.windows.judging.clock_gates import Clock, OneWay, judge_clocks, judge_order
from orchestrator.analysis.windows.judging.conditions import Held, Hits, judge_held, judge_hits
from orchestrator.analysis.windows.judging.congested import Congestion, judge_congestion
from orchestrator.analysis.windows.judging.course import Course, judge_courses
from orchestrator.analysis.windows.judging.judgement import gate
from orchestrator.analysis.windows.judging.load_gates import Load, judge_loads
from orchestrator.analysis.windows.judging.portbytes import PortBytes
from orchestrator.analysis.windows.judging.railbytes import Carried, judge_rails
from orchestrator.analysis.windows.judging.steadiness import Steadiness, judge_steadiness
from orchestrator.analysis.windows.judging.switchports import SwitchPort, judge_switches
from orchestrator.analysis.windows.judging.transports import Transport, judge_transports
from orchestrator.analysis.windows.judging.waiting import Processors, Waiting, judge_waiting
from orchestrator.core.units import span_text
from orchestrator.store.manifests.window_records import Gate


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerances:
    """What a window must keep to. Shares are of 1; a None switches the gate off."""

    load: float | None = 0.05  # largest |achieved / requested - 1|; None: as achieved, told but never failed
    load_course: float | None = 0.2  # largest departure of a load over time from its schedule; None: only told
    capture_drops: float = 0.0001  # largest share of packets that a capture dropped
    capture_nic: float | None = 0.02  # largest |captured / counted - 1| of a port's bytes
    capture_nic_floor_bytes: float = 1e6  # below it a direction of a port is too quiet to compare
    min_iterations: int = 20
    clock_s: float = 0.001  # largest uncertainty of a node's clock against the controller's
    gap_s: float | None = 1.0  # longest time without any received cross traffic of a load
    free_disk_bytes: float = 256e6  # least free space on a node
    congestion: bool = False  # whether losses of RDMA and of switches, and pauses, make it invalid; else they are told
    launch_late_s: float = 0.01  # largest 99th percentile of how late a generated flow starts
    lost_flows: float = 0.001  # largest share of generated flows that fail; none may be shed
    theory: float = 0.02  # largest |sent / theory - 1| of a training's bytes that is not remarked upon
    drift: float | None = 0.05  # largest trend of the iteration time over the window, a share of it; None: only told
    processor: float | None = 0.05  # largest share of a window that a job is kept from processors; None: only told
    gap_distance: float = 0.1  # largest Kolmogorov-Smirnov distance of the gaps between flows from the planned ones


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
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
class Generated:
    """What a generator of single flows did in a window; rates in layer-2 bit/s, NaN where something is not known."""

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
class Evidence:
    """Everything that the gates of one window need."""

    window: str
    scale: int = 1  # that rates were divided by
    loads: tuple[Load, ...] = ()
    courses: tuple[Course, ...] = ()
    generated: tuple[Generated, ...] = ()
    captures: tuple[Capture, ...] = ()
    port_bytes: tuple[PortBytes, ...] = ()
    jobs: tuple[Job, ...] = ()
    drifts: tuple[Steadiness, ...] = ()
    shared_hosts: tuple[tuple[str, str, tuple[str, ...]], ...] = ()  # two jobs, and hosts between which both talk
    clocks: tuple[Clock, ...] = ()
    one_way: tuple[OneWay, ...] = ()
    swapped_pages: tuple[tuple[str, float], ...] = ()  # of each node, in the window; NaN: not sampled
    counting_swap: frozenset[str] = frozenset()  # nodes on which a collector was to count those pages
    throttles: tuple[tuple[str, float], ...] = ()  # of each node, in the window; NaN: it does not count them
    free_disk_bytes: tuple[tuple[str, float], ...] = ()  # of each node, the least seen
    failed_collectors: tuple[tuple[str, str, bool], ...] = ()  # launch, why, whether it was required
    lost_evidence: tuple[tuple[str, str, bool], ...] = ()  # launch that brought nothing, why, whether asked for
    problems: tuple[str, ...] = ()  # of reading captures
    hits: tuple[Hits, ...] = ()
    held: tuple[Held, ...] = ()
    waiting: tuple[Waiting, ...] = ()
    congestion: tuple[Congestion, ...] = ()
    switch_ports: tuple[SwitchPort, ...] = ()
    rails: tuple[Carried, ...] = ()
    transports: tuple[Transport, ...] = ()
    processors: tuple[Processors, ...] = ()


def judge(evidence: Evidence, tolerances: Tolerances) -> list[Gate]:
    """Every gate of a window, failed ones first."""
    gates = [
        *_iterations(evidence.jobs, tolerances),
        *judge_steadiness(evidence.drifts, tolerances.drift),
        *_sent(evidence, tolerances),
        *judge_loads(evidence.loads, tolerances.load, tolerances.gap_s, scale=evidence.scale),
        *judge_courses(evidence.courses, tolerances.load_course),
        *_generated(evidence.generated, tolerances),
        *judge_captures(evidence.captures, tolerances.capture_drops),
        *_port_bytes(evidence.port_bytes, tolerances),
        *judge_clocks(evidence.clocks, tolerances.clock_s),
        *judge_order(evidence.one_way, evidence.clocks),
        *_hosts(evidence, tolerances),
        *_collectors(evidence),
        *judge_hits(evidence.hits),
        *judge_held(evidence.held),
        *judge_congestion(evidence.congestion, required=tolerances.congestion),
        *judge_switches(evidence.switch_ports, required=tolerances.congestion),
        *judge_rails(evidence.rails, tolerances.theory),
        *judge_transports(evidence.transports),
        *judge_waiting(evidence.waiting, evidence.processors, tolerances.processor),
    ]
    order = {False: 0, None: 1, True: 2}
    return sorted(gates, key=lambda one: (order[one.passed], not one.required))


def valid(gates: Iterable[Gate]) -> bool:
    """Whether every required gate passed; what could not be judged is not taken on trust."""
    return not reasons(gates)


def reasons(gates: Iterable[Gate]) -> list[str]:
    """Why a window is invalid."""
    return [one.message for one in gates if one.required and not one.passed]


def _iterations(jobs: Iterable[Job], tolerances: Tolerances) -> Iterator[Gate]:
    for job in jobs:
        fewest = tolerances.min_iterations
        enough = job.iterations >= fewest
        text = f"job {job.name}: {job.iterations} iterations, {'' if enough else 'fewer than the '}{fewest} needed"
        yield gate("iterations", enough, text, measured=job.iterations, limit=fewest)
        together = job.ranks_seen == job.ranks and job.incomplete == 0 and job.iterations > 0
        text = f"job {job.name}: every iteration was logged by {job.ranks} of {job.ranks} ranks that log"
        if job.ranks_seen < job.ranks:
            text = f"job {job.name}: only {job.ranks_seen} of {job.ranks} ranks logged iterations"
        elif not together:
            text = f"job {job.name}: {job.incomplete} iterations were not logged by all {job.ranks} ranks"
        yield gate("overlap", together, text, measured=job.incomplete, limit=0)


def _sent(evidence: Evidence, tolerances: Tolerances) -> Iterator[Gate]:
    for one, other, hosts in evidence.shared_hosts:
        names = f"{', '.join(hosts[:-1])} and {hosts[-1]}"
        text = f"jobs {one} and {other} share hosts {names}: their bytes cannot be distinguished"
        yield gate("shared-hosts", None, text, measured=math.nan, limit=None, required=False)
    for job in evidence.jobs:
        if math.isnan(job.sent_bytes) or not job.theory_bytes > 0:
            continue
        off, limit = job.sent_bytes / job.theory_bytes - 1, tolerances.theory + job.edges
        text = f"job {job.name}: a rank sent {job.sent_bytes / 1e6:.5g} MB an iteration, {off:+.1%} of theory"
        text += "" if abs(off) <= limit else f": off by more than {limit:.3g} of it"
        yield gate("theory", abs(off) <= limit, text, measured=off, limit=limit, required=False)


def _generated(generators: Iterable[Generated], tolerances: Tolerances) -> Iterator[Gate]:
    for made in generators:
        lost, limit = made.shed + made.failed, tolerances.lost_flows
        share = lost / made.flows if made.flows else math.inf
        text = f"{made.source}: {made.flows} flows, {made.failed} failed, {made.shed} shed"
        why = f" ({made.shed - made.starved} because too many were open, {made.starved} for want of processor time)"
        text += why if made.shed else "" if made.flows else ": it planned none in the window"
        yield gate("flows", share <= limit and not made.shed, text, measured=share, limit=limit)
        if not made.flows:
            continue
        late, late_p99, latest = map(span_text, (made.late_p50_s, made.late_p99_s, made.late_max_s))
        text = f"{made.source}: flows started {late} late (p50), {late_p99} (p99), {latest} at most"
        punctual = made.late_p99_s <= tolerances.launch_late_s
        text += "" if punctual else f"; the p99 is above {span_text(tolerances.launch_late_s)}"
        yield gate("launch", punctual, text, measured=made.late_p99_s, limit=tolerances.launch_late_s)
        for name, what, distance, most in (
            ("flow-sizes", "their sizes are off their distribution", made.size_distance, made.size_limit),
            ("flow-gaps", "the gaps between them are off the planned ones", made.gap_distance, tolerances.gap_distance),
        ):
            if not math.isnan(distance):
                text = f"{made.source}: {what} by {distance:.3g} (Kolmogorov-Smirnov, at most {most:.3g})"
                yield gate(name, distance <= most, text, measured=distance, limit=most)


def _port_bytes(ports: Iterable[PortBytes], tolerances: Tolerances) -> Iterator[Gate]:
    if tolerances.capture_nic is not None:
        yield from portbytes.judge(ports, tolerances.capture_nic, floor=tolerances.capture_nic_floor_bytes)


def _hosts(evidence: Evidence, tolerances: Tolerances) -> Iterator[Gate]:
    for node, pages in evidence.swapped_pages:
        if math.isnan(pages):
            asked = node in evidence.counting_swap
            why = "the collector `cpu` did not say it" if asked else "the collector `cpu` counts it"
            text = f"{node}: not known whether it swapped ({why})"
            yield gate("swap", None, text, measured=pages, limit=0, required=asked)
        else:
            text = f"{node}: swapped {pages:.0f} pages in the window" if pages > 0 else f"{node}: did not swap"
            yield gate("swap", pages <= 0, text, measured=pages, limit=0)
    for node, times in evidence.throttles:
        if not math.isnan(times):
            text = (
                f"{node}: its processors were throttled {times:.0f} times" if times > 0 else f"{node}: did not throttle"
            )
            yield gate("throttle", times <= 0, text, measured=times, limit=0)
    for node, free in evidence.free_disk_bytes:
        limit = tolerances.free_disk_bytes
        text = f"{node}: {free / 1e6:.0f} MB of disk were free"
        text += f", less than {limit / 1e6:.0f} MB" if free < limit else ""
        yield gate("disk", free >= limit, text, measured=free, limit=limit)


def _collectors(evidence: Evidence) -> Iterator[Gate]:
    for launch, why, required in evidence.failed_collectors:
        yield gate("collector", False, f"{launch} failed: {why}", measured=math.nan, limit=None, required=required)
    failed = {launch for launch, _, _ in evidence.failed_collectors}
    for launch, why, asked in evidence.lost_evidence:
        text = f"{launch} brought nothing{'' if launch in failed else f': {why}'}"
        yield gate("collector", None, text, measured=math.nan, limit=None, required=asked)
    for problem in evidence.problems:
        yield gate("capture-file", False, problem, measured=math.nan, limit=None)
