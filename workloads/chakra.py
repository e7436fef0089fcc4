"""Replay of a recorded training from Chakra execution traces: its messages and collectives, its computing emulated."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Literal

from pydantic import Field

from orchestrator.core.errors import ConfigError
from orchestrator.core.paths.lookup import NamedFile, NamedFolder
from orchestrator.parts.launch import Launch, Requirement
from orchestrator.parts.protocols import Problem
from orchestrator.parts.rows import Columns, LaunchOutput
from orchestrator.parts.taskgraph import TaskGraph
from orchestrator.parts.theory import Theory
from orchestrator.parts.topology import Job, Topology
from workloads.common import collective_tasks, footprints, rank_traffic, recordings, shipping, torch_ranks
from workloads.common.collective_tasks import Done, Ready
from workloads.common.collective_traffic import sent_in
from workloads.common.placement import placement_problems, ranks
from workloads.common.rank_traffic import Pairs
from workloads.common.recordings import Met, Recorded, Recording
from workloads.common.torch_ranks import TorchConfig
from workloads.rank.torch.program import TorchSettings
from workloads.rank.torch.replay import Activity, ReplaySettings
from workloads.readers.iteration_logs import read_training

NAME = "chakra"

_PROGRAM = "torch.replay"
_ELEMENT_BYTES = 4
_IN_PARTS = ("reduce-scatter", "all-to-all", "scatter")  # what a rank brings is of a part for each rank
_WHOLE = (*_IN_PARTS, "all-gather")  # whose message is of a part of each rank
_UNTOLD = frozenset({"forward_s", "backward_s", "loss", "samples"})


class Config(TorchConfig):
    """A recorded training, sent again: each rank does what a trace says, in the same process groups.

    Computing takes its recorded time, and what depends on something waits for it. An iteration is one of the recording
    where its nodes have the attribute `iteration`, as those of the export `chakra` do, else the whole of it; behind
    the last one the first comes again.
    """

    traces: NamedFolder
    """Folder of Chakra execution traces in protobuf, a file a rank: the rank is the number at the end of its name, as
    in trace.0.et. Sizes are divided by the testbed's scale. Looked up beside the file that names it, then from the
    current folder."""

    groups: NamedFile | None = None
    """File of process groups, where traces name some and do not say which ranks they have, as ASTRA-sim takes it:
    `{"1": [0, 1], "2": [2, 3]}`."""

    one_for_all: bool = False
    """Whether the folder has one file, which each rank replays: of a training all of whose ranks do the same."""

    compute_factor: Annotated[float, Field(ge=0, le=1000)] = 1.0
    """What recorded times of computing are multiplied by, such as 0.5 for an accelerator that is twice as fast."""


def problems(config: Config, topology: Topology) -> list[Problem]:
    found = placement_problems(config.hosts, topology)
    if found:
        return found
    world = len(ranks(config.hosts, topology))
    try:
        recorded = len(_recording(config, world, topology).paths)
    except ConfigError as error:
        accepted = error.hint or "Chakra execution traces of all ranks of one training, as the export `chakra` has"
        return [Problem(at=("traces",), message=error.message, accepted=accepted)]
    if recorded != world:
        message = f"{config.traces} has the traces of {recorded} ranks, and here are {world}"
        accepted = f"{recorded} hosts; a host named more than once has more than one rank"
        return [Problem(at=("hosts",), message=message, accepted=accepted)]
    return torch_ranks.backend_problems(config, topology)


def _recording(config: Config, world: int, topology: Topology) -> Recording:
    return recordings.recorded(
        config.traces,
        config.groups,
        ranks=world if config.one_for_all else None,
        tags=_backend(config, topology) == "gloo",
    )


def _backend(config: Config, topology: Topology) -> Literal["gloo", "nccl"]:
    return torch_ranks.backend_of(config, ranks(config.hosts, topology))


def launches(config: Config, job: Job, topology: Topology, seed: int) -> list[Launch]:
    """Return a launch for each rank; training and rendezvous flows stand on that of rank 0."""
    recording = _recording(config, len(job.ranks), topology)
    settings = torch_ranks.settings(config, job, seed=seed)
    started = torch_ranks.launches(
        config,
        job,
        topology,
        program=_PROGRAM,
        settings=settings,
        footprint=footprints.emulated(
            _held_bytes(recording, topology), compute_s=_computed_s(config, recording, topology), ranks=len(job.ranks)
        ),
    )
    return [
        replace(launch, files=shipping.files(_PROGRAM, settings=_settings(settings, config, recording, topology, rank)))
        for rank, launch in enumerate(started)
    ]


def _held_bytes(recording: Recording, topology: Topology) -> float:
    """Return the most bytes of messages that a rank has in an iteration."""
    return max(
        math.fsum(_message(one, recording, topology.scale) for one in course)
        for parts in recording.iterations
        for course in parts
    )


def _computed_s(config: Config, recording: Recording, topology: Topology) -> float:
    """Return what a rank computes in an iteration, in the mean, in seconds."""
    times = [_seconds(one, config, topology) for parts in recording.iterations for course in parts for one in course]
    return math.fsum(times) / (len(recording.iterations) * len(recording.paths))


def _seconds(one: Recorded, config: Config, topology: Topology) -> float:
    """Return what a computation takes; a communication takes no time by itself."""
    if one.node.kind != "compute":
        return 0.0
    return one.node.took_us * 1e-6 * config.compute_factor * topology.dilation


def _settings(
    common: TorchSettings, config: Config, recording: Recording, topology: Topology, rank: int
) -> ReplaySettings:
    return {
        **common,
        "groups": [list(members) for members in recording.groups],
        "buffered": recording.buffered,
        "iterations": [_activities(parts[rank], config, recording, topology) for parts in recording.iterations],
    }


def _activities(course: Sequence[Recorded], config: Config, recording: Recording, topology: Topology) -> list[Activity]:
    lanes: dict[str, int] = {}
    found = []
    for one in course:
        node = one.node
        activity: Activity = {
            "kind": node.operation if node.kind == "collective" else node.kind,
            "name": node.name if node.kind == "compute" else node.operation or node.kind,
            "after": one.after,
            "lag_s": round(one.lag_us * 1e-6 * topology.dilation, 9),
            "what": node.what,
        }
        if node.kind == "compute":
            activity["seconds"] = round(_seconds(one, config, topology), 9)
            activity["lane"] = lanes.setdefault(node.lane, len(lanes))
        else:
            activity.update(_sent(one, recording, topology.scale))
        found.append(activity)
    return found


def _sent(one: Recorded, recording: Recording, scale: int) -> Activity:
    """Return what is to be known of a communication."""
    told: Activity = {
        "group": one.group,
        "elements": _elements(one, recording, scale),
        "size": _message(one, recording, scale),
    }
    if one.behind is not None:
        told["behind"] = one.behind
    if one.node.kind != "collective":
        return {**told, "peer": one.peer, "tag": one.node.tag}
    if one.node.operation == "all-to-all":
        told["parts"] = [_part(size, len(one.gets), scale) for size in one.gets]
    return {**told, "root": one.root}


def _elements(one: Recorded, recording: Recording, scale: int) -> int:
    """Return the floats that a rank brings to a communication, or those for each rank of its group."""
    if one.node.kind == "compute" or one.node.operation == "barrier":
        return 0
    return _part(one.size, len(recording.members(one.group)) if one.node.operation in _IN_PARTS else 1, scale)


def _part(size: float, parts: int, scale: int) -> int:
    return max(1, math.ceil(round(size / scale) / (_ELEMENT_BYTES * parts)))


def _message(one: Recorded, recording: Recording, scale: int) -> int:
    """Return the bytes of a message as nccl-tests count it: of an all-gather what all ranks together contribute."""
    times = len(recording.members(one.group)) if one.node.operation in _WHOLE else 1
    return _ELEMENT_BYTES * _elements(one, recording, scale) * times


def requirements(config: Config, job: Job, topology: Topology) -> list[Requirement]:  # noqa: ARG001
    return torch_ranks.requirements(job, topology, needed_by=NAME)


def theory(config: Config, job: Job, topology: Topology) -> Theory:
    """Return the bytes that the backend's algorithms send for what was recorded: the mean over its iterations."""
    recording = _recording(config, len(job.ranks), topology)
    backend = torch_ranks.backend_of(config, job.ranks)
    total: dict[tuple[int, int], float] = defaultdict(float)
    for parts in recording.iterations:
        for met in recordings.meetings(recording, parts):
            for pair, size in _pairs(recording, parts, met, backend=backend, scale=topology.scale).items():
                total[pair] += size / len(recording.iterations)
    count = len(recording.iterations)
    source = f"what was recorded in {count} iteration{'s' * (count > 1)}, by rings, mesh and binomial tree on {backend}"
    return rank_traffic.theory(job, total, parameters=0, source=source)


def _pairs(recording: Recording, parts: Sequence[list[Recorded]], met: Met, *, backend: str, scale: int) -> Pairs:
    """Return the bytes between ranks in what some of them do together."""
    rank, place = next(iter(met.items()))
    one = parts[rank][place]
    if one.node.kind == "compute":
        return {}
    size = _message(one, recording, scale)
    if one.node.kind != "collective":
        return {(rank, one.peer): size}
    members = recording.members(one.group)
    if one.node.operation == "all-to-all":
        own = {
            src: _ELEMENT_BYTES * _part(gets, len(members), scale) for src, gets in zip(members, one.gets, strict=True)
        }
        return {(src, dst): own[src] for src in members for dst in members if src != dst}
    turned = _root_first(one, members)
    within = sent_in(one.node.operation, len(members), size, backend=backend)
    return {(turned[src], turned[dst]): sent for (src, dst), sent in within.items()}


def _root_first(one: Recorded, members: Sequence[int]) -> list[int]:
    place = list(members).index(one.root)
    return [*members[place:], *members[:place]]


def tasks(config: Config, job: Job, topology: Topology) -> TaskGraph | str:
    """Return an iteration in the middle of the recording as tasks."""
    recording = _recording(config, len(job.ranks), topology)
    if recording.buffered:
        return "when a message that waits for no receiver ends is not known; accepted: ranks that do not all send first"
    model = _Model(config, topology, recording, backend=torch_ranks.backend_of(config, job.ranks))
    for met in recordings.meetings(recording, model.parts):
        model.add(met)
    model.graph.end([tuple(task for tasks in ends.values() for task in tasks) for ends in model.done])
    return model.graph


class _Model:
    """An iteration as tasks: what each rank waits for, and what it then does alone or with others."""

    def __init__(self, config: Config, topology: Topology, recording: Recording, *, backend: str) -> None:
        self._config = config
        self._topology = topology
        self._recording = recording
        self._backend = backend
        self.parts = recording.iterations[len(recording.iterations) // 2]
        self.graph = TaskGraph(ranks=len(self.parts))
        self.done: list[dict[int, tuple[int, ...]]] = [{} for _ in self.parts]  # by place: the tasks that end it
        self._lanes: list[dict[str, int]] = [{} for _ in self.parts]  # the last computation of each

    def add(self, met: Met) -> None:
        """Add what some ranks do together, or one by itself."""
        ready = {rank: self._ready(rank, self.parts[rank][place]) for rank, place in met.items()}
        rank, place = next(iter(met.items()))
        one = self.parts[rank][place]
        ended: Done
        if one.node.kind == "compute":
            ended = {rank: (self._compute(rank, one, ready[rank]),)}
        elif one.node.kind == "collective":
            ended = self._collective(one, met, ready)
        else:
            size = _message(one, self._recording, self._topology.scale)
            message = self.graph.send(rank, one.peer, size, (*ready[rank], *ready[one.peer]))
            ended = dict.fromkeys(met, (message,))
        for each, there in met.items():
            self.done[each][there] = ended[each]

    def _ready(self, rank: int, one: Recorded) -> tuple[int, ...]:
        before = [task for other in one.after for task in self.done[rank][other]] or [self.graph.begins[rank]]
        if not one.lag_us:
            return tuple(before)
        return (self.graph.compute(rank, one.lag_us * 1e-6 * self._topology.dilation, before),)

    def _compute(self, rank: int, one: Recorded, ready: tuple[int, ...]) -> int:
        last = self._lanes[rank].get(one.node.lane)
        after = ready if last is None else (*ready, last)
        task = self.graph.compute(rank, _seconds(one, self._config, self._topology), after, pieces=1)
        self._lanes[rank][one.node.lane] = task
        return task

    def _collective(self, one: Recorded, met: Met, ready: Ready) -> Done:
        scale = self._topology.scale
        ordered = _root_first(one, self._recording.members(one.group))
        size = _message(one, self._recording, scale)
        pairs = _pairs(self._recording, self.parts, met, backend=self._backend, scale=scale)
        return collective_tasks.collective(
            self.graph, one.node.operation, ordered, size, ready, backend=self._backend, pairs=pairs
        )


def read(output: LaunchOutput) -> Mapping[str, Columns]:
    """Read the tables of one rank."""
    return read_training(output, unknown=_UNTOLD)
