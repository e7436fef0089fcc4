"""Compute how processors served a run in a window: whose work they did, and how long its processes waited.

A window is cut into steps of about a second; in each, with everything in seconds of processor time,

    others = busy - own                             of all processors of a kernel; own: of all nodes that share it
    work   = busy + interrupt + steal
    kept   = wait (others + steal) / work + run steal / (busy + interrupt)

for each process of a job: what it waited in run queues, by the share of the work that was not the run's, and what was
stolen while it ran. Where samplers say on which processor each thread waited, its wait is that of whoever else worked
on that one:

    kept = wait (others + steal) / (others + steal + own - run)      of the thread's processor; run: the thread's own

since a thread does not wait for itself, and a processor among many that is not free is as busy as one alone. Threads
move between samples, so that the run's own work may be looked for on another processor than it was done on: the others'
of all processors together are scaled down to what they are by the kernel's own count.

A step's `kept` of a job is that of its process that was kept longest, at most the step itself;
waits of a process' threads add up, whichever of them the iteration waits for, so `kept` is nearer to the most that the
job can have lost than to the least. The rest of what was waited is the run's own.

Senders of cross traffic do not wait for each other: of a source the one counts that was kept longest over the window.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from orchestrator.analysis.traffic import throughput
from orchestrator.store.manifests.records import Manifest, ProcessorShares, Window
from orchestrator.store.manifests.summaries import known
from orchestrator.validity.window import ProcessorUse, ProcessorWait

STEP_NS = 1e9  # shorter ones would see the kernel's ticks of 10 ms
COUNTERS = ("count", "busy_s", "interrupt_s", "steal_s", "own_s", "pressure_s", "throttled_s")
PART = "collector.processor"
PREFIX = "processor."
OF_EACH = r"^processor\.cpu[0-9]+\."  # counters of each processor
KINDS = ("busy_s", "steal_s", "own_s")
NEEDED = tuple(PREFIX + name for name in COUNTERS)  # counters
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Series:
    """A cumulative counter: instants in nanoseconds, and its values."""

    time_ns: npt.NDArray[np.int64]
    values: Floats

    def growth(self, edges_ns: Floats, origin_ns: int) -> Floats:
        """Return the growth between edges, which are relative to `origin_ns`; NaN when samples do not reach them."""
        if len(self.time_ns) < 2 or np.isnan(self.values).any():
            return np.full(len(edges_ns) - 1, np.nan)
        at = (self.time_ns - origin_ns).astype(np.float64)
        if at[0] > edges_ns[0] + STEP_NS or at[-1] < edges_ns[-1] - STEP_NS:
            return np.full(len(edges_ns) - 1, np.nan)
        return np.diff(np.interp(edges_ns, at, self.values))


NOTHING = Series(np.zeros(0, np.int64), np.zeros(0))


@dataclass(frozen=True, slots=True)
class Waits:
    """The threads of a process that waited: the sample that saw it, the processor, and seconds since the one before."""

    time_ns: npt.NDArray[np.int64]
    processor: npt.NDArray[np.int64]
    run_s: Floats
    wait_s: Floats


@dataclass(frozen=True, slots=True)
class NodeSamples:
    """The samples of a node over a run: its counters by their names here, and of each process `run` and `wait`."""

    counters: Mapping[str, Series]
    run: Mapping[str, Series]
    wait: Mapping[str, Series]
    processors: Mapping[int, Mapping[str, Series]] = field(default_factory=dict)  # by number, KINDS
    waits: Mapping[str, Waits] = field(default_factory=dict)  # by process


@dataclass(frozen=True, slots=True)
class Steps:
    """A window cut into steps: edges in nanoseconds from its beginning."""

    begin_ns: int
    edges_ns: Floats

    @classmethod
    def of(cls, begin_ns: int, end_ns: int) -> Steps:
        """Return steps of equal length, as near to a second as can be."""
        count = max(1, round((end_ns - begin_ns) / STEP_NS))
        return cls(begin_ns, np.linspace(0.0, float(end_ns - begin_ns), count + 1))

    @property
    def seconds(self) -> float:
        return float(self.edges_ns[-1]) / 1e9

    def growth(self, series: Series) -> Floats:
        return series.growth(self.edges_ns, self.begin_ns)


@dataclass(frozen=True, slots=True)
class Kernel:
    """The work of the processors that some nodes share, in seconds of each step."""

    nodes: tuple[str, ...]
    count: float
    busy: Floats
    interrupt: Floats
    steal: Floats
    own: Floats  # NaN when it is not known of some node

    @property
    def others(self) -> Floats:
        return np.clip(self.busy - self.own, 0.0, None)

    @property
    def work(self) -> Floats:
        return self.busy + self.interrupt + self.steal

    @property
    def foreign(self) -> Floats:
        """The share of the work that was not the run's."""
        return _ratio(self.others + self.steal, self.work)

    def kept(self, run: Floats, wait: Floats) -> Floats:
        """Return how long in each step a process was kept from a processor by work that is not the run's."""
        return wait * self.foreign + run * _ratio(self.steal, self.busy + self.interrupt)


def kernels(nodes: Mapping[str, NodeSamples], shared: Mapping[str, str], steps: Steps) -> dict[str, Kernel]:
    """Return the kernel of each node; `shared` names it for nodes that share one, each other node has its own."""
    groups: dict[str, list[str]] = {}
    for node in nodes:
        groups.setdefault(shared.get(node, node), []).append(node)
    found = {}
    for members in groups.values():
        grown = [{name: steps.growth(nodes[node].counters.get(name, NOTHING)) for name in COUNTERS} for node in members]
        seen = nodes[members[0]].counters.get("count", NOTHING).values
        kernel = Kernel(
            tuple(members),
            float(seen[-1]) if len(seen) else np.nan,
            grown[0]["busy_s"],
            grown[0]["interrupt_s"],
            grown[0]["steal_s"],
            np.sum([one["own_s"] for one in grown], axis=0),
        )
        found.update(dict.fromkeys(members, kernel))
    return found


@dataclass(frozen=True, slots=True)
class ProcessWaits:
    """A process of a job in a window: seconds of each step in which it was kept from a processor, and waited in all."""

    node: str
    process: str
    kept: Floats
    waited: Floats
    processor: int | None = None  # on which it was kept longest; None where that is not known
    others: float = math.nan  # share of the work there
    stolen: float = math.nan


def process_waits(
    nodes: Mapping[str, NodeSamples], kernel: Mapping[str, Kernel], steps: Steps, processes: Iterable[tuple[str, str]]
) -> Iterator[ProcessWaits]:
    """Yield these processes of a job, given by node and name, with their waiting in every step."""
    step_s = steps.seconds / (len(steps.edges_ns) - 1)
    for node, process in processes:
        run = steps.growth(nodes[node].run.get(process, NOTHING))
        wait = steps.growth(nodes[node].wait.get(process, NOTHING))
        if all(nodes[one].processors for one in kernel[node].nodes) and not np.isnan(wait).any():
            found = _by_processor(nodes, kernel[node], steps, node, process)
            stolen = run * _ratio(kernel[node].steal, kernel[node].busy + kernel[node].interrupt)
            kept = np.minimum(found.kept + stolen, step_s)
            yield replace(found, kept=kept, waited=np.minimum(wait, step_s))
            continue
        kept = np.minimum(kernel[node].kept(run, wait), step_s)
        yield ProcessWaits(node, process, kept, np.minimum(wait, step_s))


def _by_processor(
    nodes: Mapping[str, NodeSamples], kernel: Kernel, steps: Steps, node: str, process: str
) -> ProcessWaits:
    """Return for how long others kept a process waiting in each step, by the processors that its threads were on."""
    kept = np.zeros(len(steps.edges_ns) - 1)
    waits = nodes[node].waits.get(process)
    numbers = sorted(set.intersection(*(set(nodes[one].processors) for one in kernel.nodes)))
    inside = np.zeros(0, bool) if waits is None else _inside(waits, steps) & np.isin(waits.processor, numbers)
    if waits is None or not inside.any():
        return ProcessWaits(node, process, kept, kept)
    begin, end = steps.begin_ns, steps.begin_ns + int(steps.edges_ns[-1])
    until = waits.time_ns[inside]
    times = nodes[node].counters["busy_s"].time_ns
    place = np.clip(np.searchsorted(times, until), 1, len(times) - 1)  # the machine is sampled right after its threads
    low, high = times[place - 1], times[place]

    def grown(series: Series) -> Floats:
        at = (series.time_ns - begin).astype(np.float64)
        return np.interp((high - begin).astype(np.float64), at, series.values) - np.interp(
            (low - begin).astype(np.float64), at, series.values
        )

    busy, steal, own = (
        np.array([sum(grown(nodes[one].processors[number][kind]) for one in members) for number in numbers])
        for kind, members in zip(KINDS, ((node,), (node,), kernel.nodes), strict=True)
    )
    others = np.clip(busy - own, 0.0, None)
    everybody = grown(nodes[node].counters["busy_s"]) - sum(grown(nodes[one].counters["own_s"]) for one in kernel.nodes)
    others *= np.minimum(1.0, _ratio(np.clip(everybody, 0.0, None), others.sum(axis=0)))
    rows, lane = np.arange(len(until)), np.searchsorted(numbers, waits.processor[inside])
    foreign = (others + steal)[lane, rows]
    mine = np.clip(own[lane, rows] - waits.run_s[inside], 0.0, None)
    lost = waits.wait_s[inside] * _ratio(foreign, foreign + mine)
    middle = np.clip((low + high) // 2, begin, end - 1) - begin
    kept += np.bincount(np.searchsorted(steps.edges_ns, middle, side="right") - 1, lost, len(kept))[: len(kept)]
    worst = int(np.argmax(np.bincount(lane, lost, len(numbers))))
    work = float((others + steal)[worst].sum() + np.minimum(own, busy)[worst].sum())
    return ProcessWaits(
        node,
        process,
        kept,
        kept,
        processor=numbers[worst],
        others=float(others[worst].sum()) / work if work else 0.0,
        stolen=float(steal[worst].sum()) / work if work else 0.0,
    )


def _inside(waits: Waits, steps: Steps) -> npt.NDArray[np.bool_]:
    end_ns = steps.begin_ns + int(steps.edges_ns[-1])
    return (waits.time_ns > steps.begin_ns) & (waits.time_ns <= end_ns + int(STEP_NS) // 2)


def waiting(job: str, processes: Sequence[ProcessWaits], kernel: Mapping[str, Kernel], steps: Steps) -> ProcessorWait:
    """Return how a job waited: in each step the process counts that was kept from a processor longest."""
    unknown = [one for one in processes if np.isnan(one.kept).any()]
    longest = (unknown or sorted(processes, key=lambda one: float(one.kept.sum())))[-1]
    there = kernel[longest.node]
    kept = np.max([one.kept for one in processes], axis=0)
    waited = np.max([one.waited for one in processes], axis=0)
    return ProcessorWait(
        job=job,
        process=longest.process,
        node=longest.node,
        kept=float(kept.sum()) / steps.seconds,
        own=float(np.clip(waited - kept, 0.0, None).sum()) / steps.seconds,
        processor=longest.processor,
        others=_share(there.others, there.work) if longest.processor is None else longest.others,
        stolen=_share(there.steal, there.work) if longest.processor is None else longest.stolen,
    )


def sending(source: str, senders: Sequence[ProcessWaits], kernel: Mapping[str, Kernel], steps: Steps) -> ProcessorWait:
    """Return how that sender of a source of cross traffic waited that was kept from a processor longest."""
    each = [waiting(source, [one], kernel, steps) for one in senders]
    return replace(max(each, key=lambda one: math.inf if math.isnan(one.kept) else one.kept), traffic=True)


def _share(part: Floats, whole: Floats) -> float:
    return float(part.sum() / whole.sum()) if whole.sum() else 0.0


def shares_of_nodes(
    nodes: Mapping[str, NodeSamples], kernel: Mapping[str, Kernel], processes: Sequence[ProcessWaits], steps: Steps
) -> Iterator[ProcessorShares]:
    """Yield the shares of each node's processor time; `processes` are those of jobs."""
    for node, sampled in nodes.items():
        there = kernel[node]
        time_s = there.count * steps.seconds
        mine = [one for one in processes if one.node == node]
        total = {name: float(steps.growth(sampled.counters.get(name, NOTHING)).sum()) for name in COUNTERS}
        yield ProcessorShares(
            host=node,
            count=there.count,
            own_share=total["own_s"] / time_s,
            others_share=float(there.others.sum()) / time_s,
            interrupt_share=float(there.interrupt.sum()) / time_s,
            steal_share=float(there.steal.sum()) / time_s,
            pressure_share=total["pressure_s"] / steps.seconds,
            throttled_share=total["throttled_s"] / steps.seconds,
            wait_share=max((float(one.waited.sum()) / steps.seconds for one in mine), default=math.nan),
            others_wait_share=max((float(one.kept.sum()) / steps.seconds for one in mine), default=math.nan),
        )


def use_of_kernels(found: Sequence[ProcessorShares], kernel: Mapping[str, Kernel]) -> Iterator[ProcessorUse]:
    """Return the use of each kernel's processors, from that of its nodes."""
    for members in dict.fromkeys(there.nodes for there in kernel.values()):
        mine = [row for row in found if row.host in members]
        stopped = sorted(mine, key=lambda row: float(np.nan_to_num(known(row.throttled_share))), reverse=True)
        yield ProcessorUse(
            nodes=tuple(row.host for row in stopped),
            used=sum(known(row.own_share) for row in mine) + known(mine[0].interrupt_share),
            pressure=known(mine[0].pressure_share),
            throttled=known(stopped[0].throttled_share),
        )


def _ratio(part: Floats, whole: Floats) -> Floats:
    """Return part over whole, 0 where there is no whole."""
    return np.divide(part, whole, out=np.where(np.isnan(whole), np.nan, 0.0), where=whole > 0)


@dataclass(frozen=True, slots=True)
class WindowProcessors:
    """The figures of processors in one window, for the gates and the table `processors`."""

    waits: tuple[ProcessorWait, ...]
    use: tuple[ProcessorUse, ...]
    rows: tuple[ProcessorShares, ...]


@dataclass(frozen=True, slots=True)
class ProcessorSamples:
    """The samples of a whole run, which nodes share a kernel, and each job's processes by node and name.

    `traffic` are the processes of each source of cross traffic in each window.
    """

    nodes: Mapping[str, NodeSamples]
    shared: Mapping[str, str]
    jobs: Mapping[str, tuple[tuple[str, str], ...]]
    traffic: Mapping[tuple[str, str], tuple[tuple[str, str], ...]] = field(default_factory=dict)

    def window(self, window: Window) -> WindowProcessors:
        """Return how processors served a window; empty for a run that was sealed before they were sampled."""
        if not self.nodes:
            return WindowProcessors((), (), ())
        steps = Steps.of(window.start_ns, window.end_ns)
        kernel = kernels(self.nodes, self.shared, steps)
        watched = {job: tuple(process_waits(self.nodes, kernel, steps, members)) for job, members in self.jobs.items()}
        everyone = [one for members in watched.values() for one in members]
        rows = tuple(shares_of_nodes(self.nodes, kernel, everyone, steps))
        waits = [waiting(job, members, kernel, steps) for job, members in watched.items() if members]
        for source in dict.fromkeys(load.source for load in window.loads):
            members = self._senders(window, source)
            if members:
                senders = tuple(process_waits(self.nodes, kernel, steps, members))
                waits.append(sending(source, senders, kernel, steps))
        return WindowProcessors(tuple(waits), tuple(use_of_kernels(rows, kernel)), rows)

    def _senders(self, window: Window, source: str) -> list[tuple[str, str]]:
        """Return the processes of a source at the hosts that it sends from."""
        sending_from = {load.src for load in window.loads if load.source == source}
        return [one for one in self.traffic.get((window.name, source), ()) if one[0] in sending_from]


def samples(counters: Any, tasks: Any, waits: Any, manifest: Manifest) -> ProcessorSamples:
    """Read samples from the tables `counters` (or its cache), `tasks` and `waits`; none of a node without a sampler."""
    if not any(launch.part == PART for launch in manifest.launches):
        return ProcessorSamples({}, {}, {})
    jobs: dict[str, tuple[tuple[str, str], ...]] = {job.name: () for job in manifest.jobs}
    traffic: dict[tuple[str, str], tuple[tuple[str, str], ...]] = {}
    for launch in manifest.launches:
        process = launch.node, launch.name
        if launch.job in jobs:
            jobs[launch.job] += (process,)
        elif launch.window is not None and launch.source is not None:
            place = launch.window, launch.source
            traffic[place] = (*traffic.get(place, ()), process)
    return ProcessorSamples(
        {node: _node_samples(counters, tasks, waits, node) for node in manifest.nodes},
        manifest.kernels.nodes,
        jobs,
        traffic,
    )


def _node_samples(counters: Any, tasks: Any, waits: Any, node: str) -> NodeSamples:
    import pyarrow.compute as pc

    known = {name: throughput.samples(counters, node=node, port="", counter=PREFIX + name) for name in COUNTERS}
    mine = tasks.filter(pc.equal(tasks["node"], node))
    run: dict[str, Series] = {}
    wait: dict[str, Series] = {}
    for process in pc.unique(mine["process"]).to_pylist():
        rows = mine.filter(pc.equal(mine["process"], process)).sort_by("time_ns")
        time_ns = rows["time_ns"].to_numpy(zero_copy_only=False).astype(np.int64)
        for found, column in ((run, "run_s"), (wait, "wait_s")):
            found[process] = Series(time_ns, rows[column].to_numpy(zero_copy_only=False).astype(np.float64))
    counted = {name: Series(*series) for name, series in known.items() if len(series[0])}
    each = _processors(counters, node) if "busy_s" in counted and "own_s" in counted else {}
    return NodeSamples(counted, run, wait, each, _waits(waits, node))


def _processors(counters: Any, node: str) -> dict[int, dict[str, Series]]:
    """Return the counters of each processor that a node has all of, as its sampler saw them."""
    found: dict[int, dict[str, Series]] = {}
    number = 0
    while True:
        series = {
            kind: throughput.samples(counters, node=node, port="", counter=f"{PREFIX}cpu{number}.{kind}")
            for kind in KINDS
        }
        if not all(len(one[0]) for one in series.values()):
            return found
        found[number] = {kind: Series(*one) for kind, one in series.items()}
        number += 1


def _waits(table: Any, node: str) -> dict[str, Waits]:
    import pyarrow.compute as pc

    mine = table.filter(pc.equal(table["node"], node))
    found = {}
    for process in pc.unique(mine["process"]).to_pylist():
        rows = mine.filter(pc.equal(mine["process"], process))
        columns = (rows[name].to_numpy(zero_copy_only=False) for name in ("time_ns", "processor", "run_s", "wait_s"))
        found[process] = Waits(*columns)
    return found
