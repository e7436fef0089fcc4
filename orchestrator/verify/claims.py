"""The claims that are verified: what each says, what would break it, and its judgement by what was measured; pure.

A claim rests on verdicts of gates wherever a gate judges it. One that is broken in a window from which other work kept
processors is not judged: it may be that work.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from orchestrator.analysis.compare.regression import PointChange
from orchestrator.analysis.windows.device_counters import RAIL_FIGURES
from orchestrator.core.units import span_text
from orchestrator.store.manifests.records import Gate, Manifest, Window
from orchestrator.validity.gates import clock
from orchestrator.verify import experiments

Verdict = Literal["held", "broken", "not judged"]
Code = Literal[
    "", "no GPU", "no RDMA device", "one host", "unreached", "lacking", "refused", "failed", "disturbed", "no verdict",
    "not known", "cannot tell", "left out", "out of time", "interrupted",
]  # fmt: skip

LEAST_KERNEL_COUNTERS = frozenset({"rx_bytes", "tx_bytes", "rx_packets", "tx_packets"})
MOST_OVERHEAD = 0.05  # of a mean or median iteration, that collectors may add
RDMA = "rdma."
OF_ETHERNET, OF_RDMA = ("discards", "pfc_rx", "pfc_tx"), ("cnp_sent", "out_of_sequence", "timeouts")
# Drivers whose counters of congestion and losses are known by name, and whose RDMA devices count those of RAIL_FIGURES.
KNOWN_DRIVERS: Mapping[str, int] = {"mlx5_core": 0, "bnxt_en": 1, "ionic": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSeen:
    """A host that was asked: how long it took to reach, in seconds, and its clock; `trouble` alone where it was not.

    `offset_s` is the controller's clock minus the host's, NaN where it was not measured. `kernel` and `python` are
    versions.
    """

    host: str
    reached_s: float = math.nan
    offset_s: float = math.nan
    uncertainty_s: float = math.nan
    python: str = ""
    kernel: str = ""
    trouble: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSeen:
    """A device of the data plane: its driver, and the names of counters that were read of it."""

    host: str
    device: str
    driver: str
    counters: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """The runs of a measurement, the last try of each; or why there are none: `code`, `why` and what hosts `lack`.

    `short` says why the load of its only reachable windows was not to be had.
    """

    manifests: tuple[Manifest, ...] = ()
    code: Code = ""
    why: str = ""
    lack: tuple[str, ...] = ()
    short: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Undone:
    """What was found after the controller of a run was killed: `left` and `changed` in sentences, `back_s` later.

    `recovered` says whether its results were sealed, `changes` how many changes the run had made to hosts.
    """

    back_s: float
    changes: int
    left: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    recovered: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """All that was measured on a testbed."""

    hosts: tuple[HostSeen, ...]
    gpu_hosts: int = 0  # that have GPUs, by the testbed's file
    rdma: bool = False  # whether rails have RDMA devices, likewise
    ran: Mapping[str, Ran] = field(default_factory=dict)  # by measurement
    devices: tuple[DeviceSeen, ...] = ()
    undone: Undone | None = None
    overhead: PointChange | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A number that a judgement rests on, and its limit where it has one; `what` names no host."""

    what: str
    value: float
    unit: str = ""
    limit: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """The judgement of a claim: why, for the testbed's owner; `code` and `lack` say why without any name."""

    verdict: Verdict
    why: str
    figures: tuple[Figure, ...] = ()
    code: Code = ""
    lack: tuple[str, ...] = ()


Judge = Callable[[Evidence], Judged]


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A claim of ours: what it says, what would break it, and the measurements that it rests on."""

    name: str
    says: str
    breaks: str
    judge: Judge
    rests: tuple[str, ...] = ()


def claims() -> tuple[Claim, ...]:
    """Return every claim, in the order in which they are told."""
    return tuple(_claims())


def _claims() -> Iterator[Claim]:
    yield Claim(
        name="agents",
        says="an agent runs on every host",
        breaks="a host that cannot be reached, or on which no agent starts",
        judge=_agents,
    )
    yield Claim(
        name="clocks",
        says=f"the offset of every host's clock is known to {span_text(float(clock.MOST_UNCERTAIN.default))}",
        breaks="a path to a host that is too long or too busy for its clock to be read",
        judge=_clocks,
    )
    yield Claim(
        name="clock-order",
        says="no packet arrives before it was sent, by the clocks of both hosts",
        breaks="a clock that is off by more than is known, or time stamps of captures that are not the clock's",
        judge=_gates(experiments.CAPTURES, "clock", "clock-order"),
        rests=(experiments.CAPTURES,),
    )
    yield Claim(
        name="runs",
        says="what can be measured on these hosts runs to its end, and its files come home",
        breaks="a run that fails",
        judge=_runs,
    )
    for window, share in experiments.LOADS.items():
        yield Claim(
            name=f"load-{window}",
            says=f"cross traffic of {share:.0%} of a link arrives as asked",
            breaks="hosts, links or switches that carry less, pauses, or counters that tell something else",
            judge=_load(window),
            rests=(experiments.LOAD,),
        )
    for window, share in experiments.LOADS.items():
        yield Claim(
            name=f"captures-{window}",
            says=f"captures beside {share:.0%} of a link lose nothing",
            breaks="a host or a disk that is too slow for its packets",
            judge=_gates(experiments.CAPTURES, "capture", "capture-drops", "capture-file", windows=(window,)),
            rests=(experiments.CAPTURES,),
        )
        yield Claim(
            name=f"capture-nic-{window}",
            says=f"captures beside {share:.0%} of a link are what counters of devices say, offloads as they are",
            breaks="a driver that counts packets as no reading of ours explains, or packets that no capture sees",
            judge=_gates(experiments.CAPTURES, "capture-nic", windows=(window,)),
            rests=(experiments.CAPTURES,),
        )
        yield Claim(
            name=f"meter-{window}",
            says=f"the meter in the kernel counts what captures see arrive beside {share:.0%} of a link",
            breaks="a kernel or driver in which packets pass by the meter, or are counted otherwise",
            judge=_gates(experiments.CAPTURES, "meter-in", windows=(window,), optional=experiments.METER),
            rests=(experiments.CAPTURES,),
        )
    yield Claim(
        name="counters",
        says="the kernel's counters of every device are read",
        breaks="a device without them",
        judge=_kernel_counters,
        rests=(experiments.CAPTURES,),
    )
    yield Claim(
        name="driver-counters",
        says="drivers count pauses and discards by the names that are known of them",
        breaks="a driver of another version, with other names",
        judge=_driver_counters,
        rests=(experiments.CAPTURES,),
    )
    yield Claim(
        name="undo",
        says="after kill -9 of the controller nothing is left on hosts, and results are recovered",
        breaks="a process, or a change to a host, that outlives its controller",
        judge=_undo,
        rests=(experiments.UNDO,),
    )
    for name in experiments.FRAMEWORKS:
        yield Claim(
            name=f"bytes-{name}",
            says=f"ranks of {name} send what theory says",
            breaks="a version of the framework that sends otherwise",
            judge=_gates(name, "theory"),
            rests=(name,),
        )
    yield Claim(
        name="overhead",
        says=f"collectors add at most {MOST_OVERHEAD:.0%} to an iteration",
        breaks="processors or disks on which captures and samplers cost more",
        judge=_overhead,
        rests=(experiments.BARE, experiments.COLLECTED),
    )
    yield Claim(
        name="nccl-tcp",
        says="NCCL sends over sockets of the data plane where it is told to",
        breaks="another transport, or another device",
        judge=_on_gpus(_gates(experiments.NCCL_TCP, "transport", "theory")),
        rests=(experiments.NCCL_TCP,),
    )
    yield Claim(
        name="nccl-rdma",
        says="NCCL sends over RDMA where it is told to",
        breaks="a fall back to sockets",
        judge=_on_gpus(_on_rdma(_gates(experiments.NCCL_RDMA, "transport"))),
        rests=(experiments.NCCL_RDMA,),
    )
    yield Claim(
        name="rdma-losses",
        says="RDMA loses nothing",
        breaks="a fabric without flow control or ECN, or a queue that overflows",
        judge=_on_gpus(_on_rdma(_gates(experiments.NCCL_RDMA, "losses"))),
        rests=(experiments.NCCL_RDMA,),
    )
    yield Claim(
        name="gpu",
        says="GPUs are sampled",
        breaks="a driver whose library tells nothing",
        judge=_on_gpus(_gates(experiments.NCCL_TCP, "collector", silence_holds=True)),
        rests=(experiments.NCCL_TCP,),
    )


# Hosts


def _agents(evidence: Evidence) -> Judged:
    if not evidence.hosts:
        return Judged(verdict="not judged", why="interrupted before hosts were asked", code="interrupted")
    lost = [f"{one.host}: {one.trouble}" for one in evidence.hosts if one.trouble]
    reached = [one.reached_s for one in evidence.hosts if not one.trouble]
    figures = (
        Figure(what="hosts", value=len(evidence.hosts)),
        Figure(what="reached", value=len(reached)),
        *([Figure(what="slowest to be reached", value=max(reached), unit="s")] if reached else []),
    )
    if lost:
        return Judged(verdict="broken", why="; ".join(lost), figures=figures)
    return Judged(
        verdict="held", why=f"{len(reached)} reached, the slowest in {span_text(max(reached))}", figures=figures
    )


def _clocks(evidence: Evidence) -> Judged:
    limit = float(clock.MOST_UNCERTAIN.default)
    told = [one for one in evidence.hosts if not math.isnan(one.uncertainty_s)]
    if not told:
        return Judged(verdict="not judged", why="no host's clock was read", code="not known")
    worst = max(told, key=lambda one: one.uncertainty_s)
    figures = tuple(
        figure
        for one in told
        for figure in (
            Figure(what="offset", value=one.offset_s, unit="s"),
            Figure(what="uncertainty", value=one.uncertainty_s, unit="s", limit=limit),
        )
    )
    shared = sum(not one.uncertainty_s for one in told)
    why = f"{worst.host} is known to {span_text(worst.uncertainty_s)}, its offset is {worst.offset_s * 1e6:+.4g} us"
    if shared == len(told):
        why = "all hosts are on the controller's own kernel, with its clock"
    return Judged(verdict="held" if worst.uncertainty_s <= limit else "broken", why=why, figures=figures)


def _runs(evidence: Evidence) -> Judged:
    manifests = [manifest for ran in evidence.ran.values() for manifest in ran.manifests]
    failed = [
        manifest
        for ran in evidence.ran.values()
        for manifest in ran.manifests
        if manifest.outcome not in ("completed", "interrupted") and not ran.short
    ]
    figures = (Figure(what="runs", value=len(manifests)), Figure(what="failed", value=len(failed), limit=0))
    if failed:
        why = "; ".join(f"{one.experiment} ({one.run}): {_first_line(one.error)}" for one in failed)
        return Judged(verdict="broken", why=why, figures=figures)
    if not manifests:
        return Judged(verdict="not judged", why="no run was made", code=_no_run(evidence))
    return Judged(verdict="held", why=f"{len(manifests)} runs", figures=figures)


def _no_run(evidence: Evidence) -> Code:
    return next((ran.code for ran in evidence.ran.values() if ran.code), "one host")


# By gates


def _gates(
    name: str, *gates: str, windows: tuple[str, ...] = (), optional: str = "", silence_holds: bool = False
) -> Judge:
    """Return the judge of a claim by verdicts of gates of a measurement: all pass, in these windows, or in all.

    `optional` is the collector without which there are none. Where a gate speaks of failures alone `silence_holds`.
    """

    def judge(evidence: Evidence) -> Judged:
        ran = _ran(evidence, name)
        if (away := _away(ran)) is not None:
            return away
        if optional and not any(manifest.nodes_running(f"collector.{optional}") for manifest in ran.manifests):
            return Judged(verdict="not judged", why=ran.why or f"no host has {optional}", code="lacking", lack=ran.lack)
        seen = [
            window for manifest in ran.manifests for window in manifest.windows if not windows or window.name in windows
        ]
        found = [gate for window in seen for gate in window.gates if gate.name in gates]
        if not seen:
            return Judged(verdict="not judged", why="the window was not measured", code="no verdict")
        return _by(found, _disturbed(seen), silence_holds=silence_holds)

    return judge


def _by(found: Sequence[Gate], disturbed: str, *, silence_holds: bool) -> Judged:
    """Judge by verdicts: broken by one that failed, held where one passed and none failed."""
    figures = tuple(
        Figure(what=gate.name, value=gate.measured, limit=gate.limit) for gate in found if gate.measured is not None
    )
    failed = [gate for gate in found if gate.passed is False]
    if failed and disturbed:
        return Judged(
            verdict="not judged", why=f"{failed[0].message}; but {disturbed}", figures=figures, code="disturbed"
        )
    if failed:
        return Judged(verdict="broken", why="; ".join(gate.message for gate in failed), figures=figures)
    passed = [gate for gate in found if gate.passed]
    if passed:
        return Judged(verdict="held", why=_told(passed), figures=figures)
    if silence_holds and not found:
        return Judged(verdict="held", why="nothing failed")
    why = found[0].message if found else "no gate gave a verdict"
    return Judged(verdict="not judged", why=why, figures=figures, code="no verdict")


def _told(passed: Sequence[Gate]) -> str:
    """Return the verdict that comes nearest to its limit, and how many there are."""

    def share(gate: Gate) -> float:
        return abs(gate.measured) / gate.limit if gate.measured and gate.limit else 0.0

    nearest = max(passed, key=share)
    return nearest.message + (f" (the nearest to its limit of {len(passed)})" if len(passed) > 1 else "")


def _disturbed(windows: Sequence[Window]) -> str:
    """Return the verdict by which other work kept processors from one of the windows; empty where none did."""
    kept = (gate for window in windows for gate in window.gates if gate.name == "processor" and gate.passed is False)
    return next((gate.message for gate in kept), "")


def _ran(evidence: Evidence, name: str) -> Ran:
    missing = Ran(code="left out", why="it was not asked for")
    if len(evidence.hosts) < 2:
        missing = Ran(code="one host", why="there is one host alone")
    return evidence.ran.get(name, missing)


def _away(ran: Ran) -> Judged | None:
    """Return the judgement of a claim whose runs were not made, or did not end."""
    if not ran.manifests:
        return Judged(verdict="not judged", why=ran.why, code=ran.code, lack=ran.lack)
    failed = [manifest for manifest in ran.manifests if manifest.outcome != "completed"]
    if failed:
        why = f"its run failed: {_first_line(failed[0].error)}"
        return Judged(verdict="not judged", why=why, code="failed")
    return None


def _first_line(text: str | None) -> str:
    return (text or "no reason is known").splitlines()[0]


def _load(window: str) -> Judge:
    """Return the judge of a load: it is broken, too, where the load alone was not to be had."""
    by_gates = _gates(experiments.LOAD, "load", "gap", windows=(window,))

    def judge(evidence: Evidence) -> Judged:
        ran = _ran(evidence, experiments.LOAD)
        unreached = [manifest.unreached[window] for manifest in ran.manifests if window in manifest.unreached]
        if unreached or ran.short:
            return Judged(verdict="broken", why=_first_line(unreached[0] if unreached else ran.short))
        return by_gates(evidence)

    return judge


# Devices


def _kernel_counters(evidence: Evidence) -> Judged:
    if not evidence.devices:
        return Judged(verdict="not judged", why="no counters were sampled", code="not known")
    lacking = [
        f"{one.host}:{one.device} lacks {', '.join(sorted(LEAST_KERNEL_COUNTERS - one.counters))}"
        for one in evidence.devices
        if not one.counters >= LEAST_KERNEL_COUNTERS
    ]
    figures = (Figure(what="devices", value=len(evidence.devices)), Figure(what="lacking", value=len(lacking), limit=0))
    if lacking:
        return Judged(verdict="broken", why="; ".join(lacking), figures=figures)
    return Judged(verdict="held", why=f"{len(evidence.devices)} devices", figures=figures)


def _driver_counters(evidence: Evidence) -> Judged:
    known_ones = [one for one in evidence.devices if one.driver in KNOWN_DRIVERS]
    if not known_ones:
        drivers = ", ".join(sorted({one.driver or "no driver that is told" for one in evidence.devices})) or "none"
        why = f"of these drivers no names of such counters are known: {drivers}"
        return Judged(verdict="not judged", why=why, code="not known")
    lacking = [f"{one.host}:{one.device} ({one.driver}) lacks {what}" for one in known_ones for what in _lacking(one)]
    figures = (Figure(what="devices", value=len(known_ones)), Figure(what="lacking", value=len(lacking), limit=0))
    if lacking:
        return Judged(verdict="broken", why="; ".join(lacking), figures=figures)
    return Judged(verdict="held", why=f"{len(known_ones)} devices", figures=figures)


def _lacking(one: DeviceSeen) -> list[str]:
    """Return figures of congestion whose counters a known driver lacks; those of RDMA where it counts any of RDMA."""
    place = KNOWN_DRIVERS[one.driver]
    counts_rdma = any(name.startswith(RDMA) for name in one.counters)
    found = []
    for figure in (*OF_ETHERNET, *(OF_RDMA if counts_rdma else ())):
        names = RAIL_FIGURES[figure][place]
        if names[0].startswith(RDMA) and not counts_rdma:
            continue
        if not one.counters & set(names):
            found.append(f"{figure} ({names[0]})")
    return found


# Undo, overhead, GPUs


def _undo(evidence: Evidence) -> Judged:
    if (one := evidence.undone) is None:
        ran = _ran(evidence, experiments.UNDO)
        return Judged(verdict="not judged", why=ran.why, code=ran.code, lack=ran.lack)
    figures = (
        Figure(what="back after", value=one.back_s, unit="s"),
        Figure(what="changes", value=one.changes),
        Figure(what="left", value=len(one.left) + len(one.changed), limit=0),
    )
    wrong = [*one.left, *one.changed, *([] if one.recovered else ["its results could not be recovered"])]
    if wrong:
        return Judged(verdict="broken", why="; ".join(wrong), figures=figures)
    why = f"{one.changes} changes and all processes were gone {span_text(one.back_s)} after it; its results are sealed"
    return Judged(verdict="held", why=why, figures=figures)


def _overhead(evidence: Evidence) -> Judged:
    if (change := evidence.overhead) is None:
        sides = [_ran(evidence, name) for name in (experiments.BARE, experiments.COLLECTED)]
        for ran in sides:
            if (away := _away(ran)) is not None:
                return away
        windows = [window for ran in sides for manifest in ran.manifests for window in manifest.windows]
        disturbed = _disturbed(windows)
        return Judged(
            verdict="not judged", why=disturbed or "too few valid runs", code="disturbed" if disturbed else "no verdict"
        )
    mean = change.change("mean")
    figures = [Figure(what="mean with collectors over without", value=mean.ratio, limit=1 + MOST_OVERHEAD)]
    between = ""
    if not math.isnan(mean.low):  # of one run a side nothing is known of how runs differ
        figures += [Figure(what="at least", value=mean.low), Figure(what="at most", value=mean.high)]
        between = f" ({mean.low - 1:+.1%} to {mean.high - 1:+.1%})"
    why = f"an iteration takes {mean.ratio - 1:+.1%}{between} with all collectors"
    if change.verdict == "worse":
        return Judged(verdict="broken", why=why, figures=tuple(figures))
    if change.verdict == "cannot tell":
        return Judged(verdict="not judged", why=f"{why}: {change.why}", figures=tuple(figures), code="cannot tell")
    return Judged(verdict="held", why=why, figures=tuple(figures))


def _on_gpus(judge: Judge) -> Judge:
    def judged(evidence: Evidence) -> Judged:
        if not evidence.gpu_hosts:
            return Judged(verdict="not judged", why="no GPU by the testbed's file", code="no GPU")
        if evidence.gpu_hosts < 2:
            return Judged(verdict="not judged", why="one host alone has GPUs", code="one host")
        return judge(evidence)

    return judged


def _on_rdma(judge: Judge) -> Judge:
    def judged(evidence: Evidence) -> Judged:
        if not evidence.rdma:
            return Judged(verdict="not judged", why="no RDMA device by the testbed's file", code="no RDMA device")
        return judge(evidence)

    return judged
