"""Make what is shown of a run while it goes on: texts, curves and tables, for a terminal and a page alike; pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median
from types import MappingProxyType

from orchestrator.core.screen import alike
from orchestrator.core.units import bytes_text, duration_text, rate_text, share_text, span_text
from orchestrator.experiment import runtext
from orchestrator.store.live import Live, LiveJob, LiveRank
from orchestrator.store.manifests.records import Gate, Manifest
from orchestrator.store.sweeps import MeasuredWindow, Sweep, chosen
from orchestrator.sweep import sweeptext
from orchestrator.validity import so_far
from orchestrator.validity.so_far import LoadSoFar, SoFar

MOST_ROWS = 32  # of ranks and hosts: of more the slowest ranks, and the first hosts
WAITED_FOR = 0.05  # of an iteration by which others have to wait longer for a rank to be named
NO_WAITS: Mapping[str, str] = MappingProxyType({})
_BARS = "▁▂▃▄▅▆▇█"
_LEAST_SPREAD = 0.1  # of the mean, over the height of a sparkline: noise is not drawn as if it were a change
_MARKS = {True: "ok", None: "?", False: "FAIL"}
_ITERATING = ("warm-up", "window")  # phases
_STALLED_S, _STALLED_TIMES = 3.0, 5.0  # seconds, and iterations, without one that ends


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Values in their order, oldest first (seconds), and what is to be said of them."""

    name: str
    text: str
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A table; all columns but the first have figures."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A gate as it would be judged now."""

    name: str
    mark: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What is shown at a moment; `share` is how much of the window is measured, None where that is not known.

    `curves` are of jobs, `course` is of the sweep over its points. `verdict` says how it ended, once it has, and
    `failed` that there is none to come.
    """

    title: str
    label: str = ""
    phase: str = ""
    progress: str = ""
    elapsed_s: int = 0
    share: float | None = None
    curves: tuple[Curve, ...] = ()
    course: tuple[Curve, ...] = ()
    waits: tuple[str, ...] = ()
    causes: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()
    gates: tuple[Judged, ...] = ()
    tables: tuple[Shown, ...] = ()
    verdict: str = ""
    ended: bool = False
    failed: bool = False


def of_run(
    manifest: Manifest,
    live: Live | None,
    now_ns: int,
    *,
    waits: Mapping[str, str] = NO_WAITS,
    causes: Sequence[str] = (),
) -> View:
    """Return what is shown of a run under way, with the causes that form in it.

    `waits` says who waits for whom in the jobs of which passes are known; of others that is told by what ranks wait.
    """
    title = f"{manifest.experiment}: {manifest.run}"
    if live is None:
        return View(title=title, phase=manifest.stage or "")
    return View(
        title=title,
        label=live.label,
        phase=_phase(live),
        progress=_progress(live),
        elapsed_s=max(0, round((now_ns - live.phase_began_ns) / 1e9)),
        share=_share(live),
        curves=tuple(_curve(job) for job in live.jobs if job.seconds),
        waits=tuple(filter(None, (_waited(manifest, job, now_ns, waits) for job in live.jobs if job.seconds)))
        if live.phase in _ITERATING
        else (),
        causes=tuple(causes),
        failures=live.failures,
        gates=tuple(gates(manifest, live)),
        tables=tuple(one for one in (_loads(live), _ranks(manifest, live), _hosts(live)) if one.rows),
    )


def of_sealed(manifest: Manifest, outcome: str, path: str) -> View:
    """Return what is shown of a run that is over: its verdict, and why it does not count."""
    why = list(manifest.reasons) or [reason for window in manifest.windows for reason in window.reasons]
    said = alike.sentences(why) if outcome != "completed" or not manifest.valid else []
    error = (manifest.error or "").partition("\n")[0]
    lines = [f"{manifest.run}: {runtext.verdict(manifest, outcome)}", *([error] if error else []), *said]
    return View(
        title=f"{manifest.experiment}: {manifest.run}",
        verdict=f"{lines[0]}{': ' if lines[1:] else ''}{'; '.join(dict.fromkeys(lines[1:]))} ({path})",
    )


def with_sweep(shown: View, sweep: Sequence[Curve | Shown], *, ended: bool = False) -> View:
    """Return a view with what is known of a sweep; `ended` when nothing follows."""
    curves = tuple(one for one in sweep if isinstance(one, Curve))
    tables = tuple(one for one in sweep if isinstance(one, Shown))
    return replace(shown, course=curves, tables=(*shown.tables, *tables), ended=ended)


def of_sweep(sweep: Sweep, found: Sequence[MeasuredWindow]) -> tuple[Curve | Shown, ...]:
    """Return what is known of a sweep: a row for each point that was measured, and the curve over its points."""
    names = sweeptext.short_names(sweep.plan.axes)
    good, rows, seconds = chosen(found), [], []
    for point in sweep.plan.points:
        mine = [one for one in good if one.point == point.point]
        tried = [one for one in found if one.point == point.point and not one.recheck]
        if not tried:
            continue
        means = sweeptext.means(mine)
        rows.append(
            (
                sweeptext.values_text(point.values),
                runtext.rate_or_dash(means.achieved_bps),
                runtext.ms_or_dash(means.mean_s),
                runtext.ms_or_dash(means.p99_s),
                f"{len(mine)} of {len(tried)}",
            )
        )
        if means.mean_s is not None:
            seconds.append(means.mean_s)
    planned = sweep.planned()
    title = f"Sweep {sweep.name}: {len({one.key for one in found if one.valid})} measured"
    title += f" of {len(planned)} planned" if planned else ""
    table = Shown(title=title, head=("point", "achieved", "mean", "p99", "valid"), rows=tuple(rows))
    over = ", ".join(names.values())
    curve = Curve(name=f"over {over}", text=f"mean iteration time of {len(seconds)} points", values=tuple(seconds))
    return (*((curve,) if len(seconds) > 1 else ()), *((table,) if rows else ()))


def gates(manifest: Manifest, live: Live) -> list[Judged]:
    """Return the gates as they would be judged now, of those that the controller's own figures tell something of."""
    if live.phase != "window" or live.window is None:
        return []
    window = SoFar(
        name=live.window.name,
        wanted=live.window.wanted,
        measured={job.name: job.measured for job in live.jobs},
        seconds={job.name: job.seconds[-job.measured :] if job.measured else () for job in live.jobs},
        loads=[
            LoadSoFar(
                end=one.end,
                requested_bps=one.requested_bps / manifest.scale,
                mean_bps=None if one.mean_bps is None else one.mean_bps / manifest.scale,
            )
            for one in live.loads
        ],
    )
    return [_judged(gate) for gate in so_far.gates(manifest, window)]


def _judged(gate: Gate) -> Judged:
    """Give a gate a mark: there may be enough iterations yet, and what is no requirement is a remark."""
    open_yet = gate.name == "iterations" and not gate.passed
    remark = gate.passed is False and not gate.required
    mark = "..." if open_yet else "note" if remark else _MARKS[gate.passed]
    return Judged(name=gate.name, mark=mark, text=gate.message)


def _phase(live: Live) -> str:
    if live.window is None or live.phase not in _ITERATING:
        return live.phase
    several = f" ({live.window.number} of {live.window.of})" if live.window.of > 1 else ""
    before = "warm-up of " if live.phase == "warm-up" else ""
    return f"{before}window {live.window.name}{several}"


def _progress(live: Live) -> str:
    if live.phase != "window" or live.window is None:
        return ""
    done = min((job.measured for job in live.jobs), default=0)
    text = f"{done}" + (f" of {live.window.wanted}" if live.window.wanted else "") + " iterations"
    if live.window.left_s is not None and done:
        text += f", about {duration_text(max(1, round(live.window.left_s)))} left"
    return text


def _share(live: Live) -> float | None:
    if live.phase != "window" or live.window is None or not live.window.wanted:
        return None
    return min(1.0, min((job.measured for job in live.jobs), default=0) / live.window.wanted)


def _curve(job: LiveJob) -> Curve:
    last, middle, most = map(span_text, (job.seconds[-1], median(job.seconds), max(job.seconds)))
    text = f"{last} the last, {middle} the median, {most} the slowest of {len(job.seconds)}"
    return Curve(name=job.name, text=text, values=job.seconds)


def sparkline(values: Sequence[float], width: int) -> str:
    """Return the last values as bars, as high as they are between the least and the most of them."""
    shown = values[-width:]
    if not shown:
        return ""
    low, high = min(shown), max(shown)
    missing = _LEAST_SPREAD * fmean(shown) - (high - low)
    if missing > 0:
        low, high = low - missing / 2, high + missing / 2
    step = (high - low) / len(_BARS) or 1.0
    return "".join(_BARS[min(len(_BARS) - 1, int((value - low) / step))] for value in shown)


def _stalled(job: LiveJob, now_ns: int) -> str:
    """Return for how long no iteration has ended, where that is long for the job; empty where it is not."""
    silent_s = (now_ns - job.heard_ns) / 1e9
    if silent_s < max(_STALLED_S, _STALLED_TIMES * median(job.seconds)):
        return ""
    return f"{job.name}: no iteration has ended, for {silent_s:.0f} s now"


def _waited(manifest: Manifest, job: LiveJob, now_ns: int, by_passes: Mapping[str, str]) -> str:
    stalled = _stalled(job, now_ns)
    return stalled or (by_passes[job.name] if job.name in by_passes else _waiting(manifest, job))


def _waiting(manifest: Manifest, job: LiveJob) -> str:
    """Return who waits for whom: of ranks that exchange gradients, who waits least is waited for by the others.

    Empty where none waits much longer than another, or ranks do not say.
    """
    waits = {rank.rank: rank.wait_s for rank in job.ranks if rank.wait_s is not None}
    if len(waits) < 2:
        return ""
    least = min(waits, key=lambda rank: waits[rank])
    longer = median(wait for rank, wait in waits.items() if rank != least) - waits[least]
    mean = fmean(rank.seconds for rank in job.ranks)
    if not mean > 0 or longer < WAITED_FOR * mean:
        return ""
    waiting = [rank for rank in waits if rank != least]
    node = _nodes(manifest, job.name).get(least, "")
    return waiting_text(job.name, waiting, least, node, wait_s=longer, iteration_s=mean)


def waiting_text(job: str, waiting: Sequence[int], rank: int, node: str, *, wait_s: float, iteration_s: float) -> str:
    """Return who waits for whom: "training: 3 ranks wait for rank 2 on h3, 29 ms of 160 ms an iteration"."""
    who = f"rank {waiting[0]} waits" if len(waiting) == 1 else f"{len(waiting)} ranks wait"
    where = f" on {node}" if node else ""
    return f"{job}: {who} for rank {rank}{where}, {span_text(wait_s)} of {span_text(iteration_s)} an iteration"


def _loads(live: Live) -> Shown:
    rows = [
        (one.end, rate_text(_digits(one.requested_bps)), *(_rate(rate) for rate in (one.received_bps, one.mean_bps)))
        for one in live.loads
    ]
    return Shown(title="Loads", head=("receiver", "requested", "receives", "so far"), rows=tuple(rows))


def _ranks(manifest: Manifest, live: Live) -> Shown:
    """Return a row for each rank, of many the slowest ones."""
    rows = []
    for job in live.jobs:
        nodes = _nodes(manifest, job.name)
        for rank in _slowest(job.ranks):
            waits = "-" if rank.wait_s is None else span_text(rank.wait_s)
            name = f"{job.name} {rank.rank}" if len(live.jobs) > 1 else str(rank.rank)
            rows.append((f"{name} on {nodes.get(rank.rank, '?')}", str(rank.last), span_text(rank.seconds), waits))
    return Shown(title="Ranks", head=("rank", "iteration", "takes", "waits"), rows=tuple(rows[:MOST_ROWS]))


def _slowest(ranks: Sequence[LiveRank]) -> list[LiveRank]:
    """Return as many ranks as are shown, in order of their numbers: those that are waited for most, or take longest."""
    worst = sorted(ranks, key=lambda rank: rank.wait_s if rank.wait_s is not None else -rank.seconds)[:MOST_ROWS]
    return sorted(worst, key=lambda rank: rank.rank)


def _hosts(live: Live) -> Shown:
    """Return a row for each host, while there are samples of them."""
    hosts = live.hosts if live.phase in _ITERATING else ()
    rows = [
        (
            one.node,
            *(_rate(rate) for rate in (one.received_bps, one.sent_bps)),
            bytes_text(one.queue_bytes),
            str(one.dropped),
            str(one.retransmits),
            "-" if one.busy is None else share_text(round(one.busy, 2)),
        )
        for one in sorted(hosts, key=lambda one: alike.natural(one.node))[:MOST_ROWS]
    ]
    head = ("host", "receives", "sends", "queue", "drops", "sent again", "processors")
    return Shown(title="Hosts", head=head, rows=tuple(rows))


def _nodes(manifest: Manifest, job: str) -> dict[int, str]:
    return {rank.rank: rank.node for one in manifest.jobs if one.name == job for rank in one.ranks}


def _digits(value: float) -> float:
    return float(f"{value:.3g}")


def _rate(value: float | None) -> str:
    return "-" if value is None else rate_text(_digits(value))


def changes(before: View | None, now: View) -> list[str]:
    """Return what is new since an earlier view, in lines: for what is no terminal."""
    old = before if before is not None and before.title == now.title else View(title="")
    lines = [" ".join(filter(None, (now.title, now.label)))] if not old.title else []
    if now.phase and now.phase != old.phase:
        lines.append(f"  {now.phase}")
    if now.progress and now.progress != old.progress:
        lines.append("    " + "; ".join([now.progress, *(f"{one.name} {one.text}" for one in now.curves)]))
    known = {_head(wait) for wait in old.waits}
    lines += [f"    {wait}" for wait in now.waits if _head(wait) not in known]
    told = {_cause(cause) for cause in old.causes}
    lines += [f"    {cause}" for cause in now.causes if _cause(cause) not in told]
    marks = {(gate.name, _subject(gate)): gate.mark for gate in old.gates}
    lines += [
        f"    gate {gate.name}: {gate.mark}: {gate.text}"
        for gate in now.gates
        if marks.get((gate.name, _subject(gate))) != gate.mark
    ]
    lines += [f"    {text}" for text in now.failures if text not in old.failures]
    if now.verdict and now.verdict != old.verdict:
        lines.append(now.verdict)
    return lines


def _head(wait: str) -> str:
    return wait.partition(",")[0]


def _cause(line: str) -> str:
    """Return what a line on a cause names, before its share."""
    return re.split(r" [0-9.]+%", line)[0]


def _subject(gate: Judged) -> str:
    return gate.text.partition(":")[0]
