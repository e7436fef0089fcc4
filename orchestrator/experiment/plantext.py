"""Write a plan as text: every run, change and process, with similar ones grouped."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence

from orchestrator.core.screen import alike, layout
from orchestrator.core.units import bytes_text, duration_text, rate_text
from orchestrator.core.where import text_of
from orchestrator.experiment import scale_limits, seeds
from orchestrator.experiment.documents import Variable
from orchestrator.experiment.experiment import validity_model
from orchestrator.experiment.plan import PlannedJob, PlannedSource, PlannedWindow, RunPlan
from orchestrator.parts.launch import Change, Container, Launch
from orchestrator.parts.topology import Fabric, Topology
from orchestrator.validity.gates import load

_SHOWN_FILES = 20  # of a process
_MOST_RUNS = 10  # that have a line each
_MOST_DIFFERENCES = 3  # places in which command lines of one group may differ
_MOST_VALUES = 60  # characters in which the values of such a place are listed
_STEP = "  "
_CONSTANT_OVER_S = 1.0  # the time over which a load that is constant is looked at
_OFF = 0.13  # of a load of drawn flows over the time that they carry it, in 95 of 100 places; less over longer times


class _Text:
    """Lines of text, each broken to the width of the screen."""

    def __init__(self, width: int | None) -> None:
        self.lines: list[str] = []
        self._width = width

    def add(self, text: str, *, deep: int = 0) -> None:
        indent = _STEP * deep
        self.lines.append(layout.hanging(text, self._width, indent=indent, rest=indent + _STEP * 2))


def plan_text(runs: Sequence[RunPlan], *, verbose: bool = False, width: int | None = None) -> str:
    """Write every process of the first run, and the differences of other runs.

    Processes that run the same program on several hosts are one entry that names what differs, unless `verbose`.
    Lines are broken to `width` columns.
    """
    text, first = _Text(width), runs[0]
    _testbed(text, first, len(runs))
    for line in _changes(first.changes, verbose=verbose):
        text.add(line)
    _processes(text, [*first.helper_processes(), *first.collectors], first.topology, verbose=verbose)
    for job in first.jobs:
        _job(text, job, first.topology, verbose=verbose)
    _windows(text, first, verbose=verbose)
    limits = validity_model().model_construct(None, **first.validity).model_dump(mode="json")
    text.add(f"validity: {', '.join(f'{key} {value}' for key, value in limits.items())}")
    text.add("")
    shown = runs if verbose or len(runs) <= _MOST_RUNS else runs[: _MOST_RUNS - 1]
    for run in shown:
        text.add(f"run {run.repetition}: point {run.point}, seed {run.seed}")
    if len(shown) < len(runs):
        text.add(f"... and {len(runs) - len(shown)} more; --verbose lists all")
    text.add(salt_text(first.salt))
    return "\n".join(text.lines)


def salt_text(salt: str) -> str:
    """Write the salt that a plan's random numbers follow from, and whether runs have that one."""
    drawn = ", which plans have: runs draw their own without `--seed`" if salt == seeds.PLANNED else ""
    return f"random numbers from the salt {salt}{drawn}"


def variables_text(variables: Sequence[Variable], *, width: int | None = None) -> str:
    """Write the variables of the files that a plan was made from, each with its value; empty where there are none."""
    variables_listed = [
        f"{one.name} = {text_of(one.value)}" + (" (--set)" if one.origin == "--set" else "") for one in variables
    ]
    return (
        layout.hanging(f"variables: {', '.join(variables_listed)}", width, indent="", rest=_STEP * 2) + "\n"
        if variables_listed
        else ""
    )


def _testbed(text: _Text, run: RunPlan, count: int) -> None:
    topology = run.topology
    scale = topology.wire_scale
    links = _rates([link.rate for link in topology.links], scale)
    dilation = topology.dilation
    text.add(f"experiment {run.experiment}: {count} run{'s' if count > 1 else ''} on {topology.described} hosts")
    text.add(f"hosts {_hosts(topology)}", deep=1)
    if topology.fabric is not None:
        text.add(_fabric(topology.fabric, scale), deep=1)
    text.add(f"links {links}, scale {scale}, MTU {topology.mtu}", deep=1)
    if dilation > 1:
        text.add(
            f"dilation {dilation}: every duration below is {dilation} times that of the file, and the run takes as many"
            f" times longer; sizes are divided by {topology.scale}; results are divided back",
            deep=1,
        )
    for remark in scale_limits.remarks(run):
        text.add(remark, deep=1)
    text.add("")


def _rates(rates: Iterable[float], scale: int) -> str:
    """Write different rates, each with that on the wire."""
    return ", ".join(
        rate_text(rate) + (f" (set up as {rate_text(rate / scale)})" if scale != 1 else "")
        for rate in sorted(set(rates))
    )


def _fabric(fabric: Fabric, scale: int) -> str:
    uplinks = _rates([uplink.rate for uplink in fabric.uplinks], scale)
    choice = f"; {fabric.multipath}, seed {fabric.seed}" if fabric.multipath else ""
    return f"fabric {alike.names(fabric.leaves)}, {alike.names(fabric.spines)}, uplinks {uplinks}{choice}"


def _hosts(topology: Topology) -> str:
    """Write every host with its address, as two ranges where both are numbered in parallel."""
    names = [host.name for host in topology.hosts]
    if topology.rails > 1:
        return ", ".join(f"{host.name} ({', '.join(host.addresses)})" for host in topology.hosts)
    addresses = [host.address for host in topology.hosts]
    spans = [alike.names(names), alike.names(addresses)]
    if spans == [f"{names[0]}..{names[-1]}", f"{addresses[0]}..{addresses[-1]}"]:
        return f"{spans[0]} ({spans[1]})"
    return ", ".join(f"{name} ({address})" for name, address in zip(names, addresses, strict=True))


def _changes(changes: Iterable[Change], *, verbose: bool) -> Iterator[str]:
    """Write a line for changes of one kind, with their nodes as ranges; one for all of an event within windows."""
    for during in dict.fromkeys(change.during for change in changes if change.during):
        where = f"window {during.window}" if during.window else "each window"
        yield f"event: {during.event} from {during.begin_s:g} s to {during.end_s:g} s of {where}"
    changes = [change for change in changes if change.during is None]
    if verbose:
        yield from (f"change: {change.name} on {change.node}" for change in changes)
        return
    kinds: dict[str, list[str]] = {}
    for change in changes:
        kinds.setdefault(change.name.replace(change.node, "<host>"), []).append(change.node)
    for name, nodes in kinds.items():
        yield (
            f"change: {name} on {alike.names(nodes)}"
            if len(nodes) > 1
            else (f"change: {name.replace('<host>', nodes[0])} on {nodes[0]}")
        )


def _job(text: _Text, job: PlannedJob, topology: Topology, *, verbose: bool) -> None:
    text.add(f"job {job.job.name} ({job.workload}), ranks {_ranks([rank.node for rank in job.job.ranks])}")
    if job.theory is not None:
        size = bytes_text(job.theory.bytes_per_iteration)
        text.add(f"theory: each rank sends {size} an iteration: {job.theory.source}", deep=1)
    if job.pace.text:
        text.add(f"pace: {job.pace.text}", deep=1)
    for remark in job.remarks:
        text.add(remark, deep=1)
    _processes(text, job.launches, topology, verbose=verbose)


def _ranks(nodes: Sequence[str]) -> str:
    """Write the placement of ranks: "0..3=h1..h4" in the order of the names, else each stretch on one node."""
    last = len(nodes) - 1
    if len(set(nodes)) == len(nodes) and ".." in (spread := alike.names(nodes)) and "," not in spread:
        first, end = spread.split("..")
        if (nodes[0], nodes[-1]) == (first, end):
            return f"0..{last}={spread}"
    starts = [rank for rank in range(len(nodes)) if rank == 0 or nodes[rank] != nodes[rank - 1]]
    ends = [start - 1 for start in starts[1:]] + [last]
    return ", ".join(
        f"{start}={nodes[start]}" if start == end else f"{start}..{end}={nodes[start]}"
        for start, end in zip(starts, ends, strict=True)
    )


def _windows(text: _Text, run: RunPlan, *, verbose: bool) -> None:
    """Write windows with their loads, those that differ in load alone together; then the sources of traffic."""
    alike_ones: dict[tuple[str, ...], list[PlannedWindow]] = {}
    for window in run.windows:
        shape = (_measure(window), *(source.shape for source in window.sources), window.name if verbose else "")
        alike_ones.setdefault(shape, []).append(window)
    for group in alike_ones.values():
        some = "windows" if len(group) > 1 else "window"
        text.add(f"{some} {alike.names(window.name for window in group)}: {_measure(group[0])}")
        for sources in zip(*(window.sources for window in group), strict=True):
            for line in _demands(sources, run.topology.wire_scale):
                text.add(line, deep=1)
            for remark in sources[0].remarks:
                text.add(remark, deep=2)
            if escalations := [step.text for step in sources[0].escalations]:
                text.add(f"if it does not reach this load alone on the link: {', then '.join(escalations)}", deep=2)
        for remark in dict.fromkeys(remark for window in group for remark in _too_short(run, window)):
            text.add(remark, deep=1)
    if run.ends_lost:
        text.add("a window that is lost already ends early, and is measured again")
    launches = [launch for window in run.windows for source in window.sources for launch in source.launches]
    _processes(text, launches, run.topology, verbose=verbose)


def _too_short(run: RunPlan, window: PlannedWindow) -> Iterator[str]:
    """Yield a sentence for each source whose flows may not carry its load in a window of so few iterations."""
    most_off, each_s = load.MOST_OFF.number(run.validity), scale_limits.iteration_s(run, window.name)
    iterations = window.measure.iterations
    if not most_off or not each_s or iterations is None:
        return  # any load will do, none can be, or how long the window takes is not known
    for source in window.sources:
        over_s = max((one.over_s for one in source.demands if not one.period_s), default=0.0)
        wanted = math.ceil(over_s * _OFF / most_off / each_s)
        if over_s > _CONSTANT_OVER_S and iterations < wanted:
            yield (
                f"{iterations} iterations are few for {source.name}, whose flows carry its load over {over_s:g} s: the"
                f" gate `load` may fail in each attempt alike; measure {wanted}, or say"
                " `validity: {load: as-achieved}`"
            )


def _demands(sources: Sequence[PlannedSource], scale: int) -> Iterator[str]:
    """Write the demands of one source in consecutive windows: sender, receiver and rate, in bit/s at full size."""
    senders: dict[tuple[str, tuple[float, ...]], list[str]] = {}
    for demands in zip(*(source.demands for source in sources), strict=True):
        senders.setdefault((demands[0].dst, tuple(one.rate for one in demands)), []).append(demands[0].src)
    for (dst, rates), nodes in senders.items():
        listed = ", ".join(map(_rate, rates)) + (" each" if len(nodes) > 1 else "")
        scaled = "" if scale == 1 else f" (scaled: {', '.join(_rate(rate / scale) for rate in rates)})"
        yield f"traffic {sources[0].name}: {alike.names(nodes)} -> {dst} at {listed}{scaled}"


def _rate(rate: float) -> str:
    return rate_text(float(f"{rate:.6g}"))


def _measure(window: PlannedWindow) -> str:
    measure = window.measure
    ends = [f"{measure.iterations} iterations"] if measure.iterations else []
    ends += [duration_text(measure.at_most)] if measure.at_most else []
    return f"{measure.before} iterations of warm-up, then {' or '.join(ends)}"


# Processes


def _processes(text: _Text, launches: Sequence[Launch], topology: Topology, *, verbose: bool) -> None:
    for group in _groups(launches) if not verbose else [[launch] for launch in launches]:
        first = group[0]
        argv = _merged([list(launch.argv) for launch in group], group, topology)
        text.add(f"{_called(group)}: {shlex.join(first.argv) if len(group) == 1 else ' '.join(argv)}", deep=1)
        if first.env:
            values = _merged([list(launch.env.values()) for launch in group], group, topology)
            text.add("env " + " ".join(f"{key}={value}" for key, value in zip(first.env, values, strict=True)), deep=3)
        if first.env_from:
            text.add("env_from " + " ".join(f"{name}<{source}" for name, source in first.env_from.items()), deep=3)
        if first.container is not None:
            text.add(_container(first.container), deep=3)
        if first.files:
            shown = list(first.files)[:_SHOWN_FILES]
            more = f" and {len(first.files) - len(shown)} more" if len(first.files) > len(shown) else ""
            text.add("files " + " ".join(shown) + more, deep=3)


def _container(container: Container) -> str:
    """Write the container of processes, with the folders of the host that they see."""
    mounts = [f"{one.source}:{one.target}{':rw' if one.writable else ''}" for one in container.mounts]
    seen = f", sees {' '.join(mounts)}" if mounts else ""
    return f"in a container of {container.image} by {container.runtime}{seen}{', GPUs' if container.gpus else ''}"


def _called(group: Sequence[Launch]) -> str:
    """Write the name and node of a process, or the common name of a group."""
    first = group[0]
    if len(group) == 1:
        return f"{first.name} on {first.node}"
    stem = _stem(first)
    name = stem.removesuffix(".<host>") if stem.endswith(".<host>") else alike.names(launch.name for launch in group)
    return f"{name} on {alike.names(launch.node for launch in group)}"


def _stem(launch: Launch) -> str:
    """Return a launch's name without the parts that differ in its kind: its node, its rank, its window."""
    name = re.sub(rf"(?<=[.-]){re.escape(launch.node)}\Z", "<host>", launch.name)
    if launch.rank is not None:
        name = re.sub(rf"rank{launch.rank}\b", "rank<rank>", name)
    return name.replace(f"{launch.window}.", "<window>.", 1) if launch.window else name


def _groups(launches: Sequence[Launch]) -> Iterator[list[Launch]]:
    """Group launches whose command lines differ in few words, in the order of the first of each."""
    kinds: dict[tuple[object, ...], list[Launch]] = {}
    for launch in launches:
        shape = (
            _stem(launch),
            len(launch.argv),
            tuple(launch.env),
            tuple(launch.env_from.items()),
            tuple(launch.files),
        )
        kinds.setdefault(shape, []).append(launch)
    for group in kinds.values():
        places = [set(words) for words in zip(*(launch.argv for launch in group), strict=True)]
        if sum(len(words) > 1 for words in places) <= _MOST_DIFFERENCES:
            yield group
        else:
            yield from ([launch] for launch in group)


def _merged(lines: Sequence[Sequence[str]], group: Sequence[Launch], topology: Topology) -> list[str]:
    """Merge the command lines of a group's launches into one, word by word."""
    return [_word(words, group, topology) for words in zip(*lines, strict=True)]


def _word(words: Sequence[str], group: Sequence[Launch], topology: Topology) -> str:
    """Write the word at one position: the common word, a property of the host or rank, or every value."""
    if len(set(words)) == 1:
        return shlex.quote(words[0])
    for name, values in _of_hosts(group, topology).items():
        general = {re.sub(_whole(value), f"<{name}>", word) for word, value in zip(words, values, strict=True)}
        if len(general) == 1:
            return general.pop()
    listed = ",".join(dict.fromkeys(words))
    return "{" + (listed if len(listed) <= _MOST_VALUES else f"{words[0]},...,{words[-1]}") + "}"


def _whole(value: str) -> str:
    """Return a pattern that finds a value, but not within a longer word or number."""
    return rf"(?<!\d){value}(?!\d)" if value.isdigit() else rf"(?<!\w){re.escape(value)}(?!\w)"


def _of_hosts(group: Sequence[Launch], topology: Topology) -> Mapping[str, list[str]]:
    """Return the properties that differ by host and by rank, for each launch of a group."""
    found = {
        "address": [topology.node(launch.node).address for launch in group],
        "host": [launch.node for launch in group],
        "rank": ["" if launch.rank is None else str(launch.rank) for launch in group],
    }
    return {name: values for name, values in found.items() if all(values)}
