"""A recorded training, from the traces of its ranks: who does what in each iteration, and which ranks meet for it.

Traces are of strangers. That they belong together is found out here, not by ranks that wait for ever: each collective
is begun by all ranks of its group, each message is sent and received, and nothing waits for what cannot happen.
"""

from __future__ import annotations

import functools
import heapq
import re
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from orchestrator.core.errors import ConfigError
from workloads.readers.chakra_traces import Node, RankTrace, read_groups, read_trace

MOST_ACTIVITIES = 20_000  # of a rank in an iteration: its log has a line for all of them
ALL = -1  # the place of the group of all ranks

_FILE = re.compile(r"(?:.*\D)?(\d{1,5})\.et(?:\.gz)?")
_NAMES_OF_ALL = ("", "0")  # of the group of all ranks, where nothing says which ranks it has
_AS_LARGE = ("all-reduce", "reduce-scatter", "broadcast", "reduce")  # on all ranks
_ROOTED = ("broadcast", "reduce", "gather", "scatter")

Met = Mapping[int, int]  # by rank: the place of its activity in the iteration


@dataclass(slots=True, kw_only=True)
class Recorded:
    """An activity of a rank in an iteration; times in microseconds, sizes in bytes."""

    node: Node
    after: list[int]  # places of those that it waits for
    lag_us: int  # how long it began after the last of them had ended
    group: int = ALL
    behind: int | None = None  # place of the communication that has to begin before it
    root: int = 0
    peer: int = -1
    size: int = 0
    gets: list[int] = field(default_factory=list)  # of an all-to-all: what comes from each rank of the group


@dataclass(frozen=True, slots=True)
class Recording:
    """What each rank does in each iteration (by iteration, then by rank), in process groups that all ranks make."""

    groups: tuple[tuple[int, ...], ...]
    iterations: tuple[tuple[list[Recorded], ...], ...]
    paths: tuple[Path, ...]  # of each rank's trace
    tags: bool  # whether what is sent finds what is received by its tag, too
    buffered: bool = False  # whether what waits for a send goes on once it has begun: its ranks all send at first

    def where(self, rank: int, one: Recorded) -> str:
        """Return how a message names an activity."""
        return f"{self.paths[rank]}: node {one.node.number} ({one.node.name})"

    def members(self, place: int) -> Sequence[int]:
        """Return the ranks of a group."""
        return range(len(self.iterations[0])) if place == ALL else self.groups[place]


def files_of(folder: Path) -> list[Path]:
    """Return the file of each rank in a folder, by the number at the end of its name; ConfigError where one lacks."""
    found: dict[int, Path] = {}
    try:
        names = sorted(path for path in folder.iterdir() if path.is_file())
    except OSError as error:
        raise ConfigError(f"{folder}: cannot be read: {error.strerror}") from None
    for path in names:
        match = _FILE.fullmatch(path.name)
        if match is None:
            continue
        rank = int(match[1])
        if rank in found:
            raise ConfigError(f"{folder}: {found[rank].name} and {path.name} are both of rank {rank}")
        found[rank] = path
    if not found:
        raise ConfigError(f"{folder}: it has no file of a rank", hint="trace.0.et, trace.1.et, and so on")
    lacking = next((rank for rank in range(len(found)) if rank not in found), None)
    if lacking is not None:
        raise ConfigError(f"{folder}: it has {len(found)} files of ranks, but none of rank {lacking}")
    return [found[rank] for rank in range(len(found))]


def recorded(folder: Path, groups: Path | None, *, ranks: int | None, tags: bool) -> Recording:
    """Return the training that a folder of traces has recorded; ConfigError where they are none of one training.

    `ranks`: how many all replay the only file. `groups`: ASTRA-sim's file of process groups. `tags`: whether what is
    sent finds what is received by its tag, too.
    """
    files = files_of(folder)
    if ranks is not None:
        if len(files) > 1:
            raise ConfigError(f"{folder}: it has the files of {len(files)} ranks, not one for all")
        files *= ranks
    named = [*files, *([] if groups is None else [groups])]
    try:
        versions = tuple((path, path.stat().st_mtime_ns, path.stat().st_size) for path in named)
    except OSError as error:
        raise ConfigError(f"{folder}: cannot be read: {error.strerror}") from None
    return _read(versions, with_groups=groups is not None, tags=tags)


@functools.lru_cache(maxsize=4)
def _read(versions: tuple[tuple[Path, int, int], ...], *, with_groups: bool, tags: bool) -> Recording:
    paths = [path for path, *_ in versions]
    given = read_groups(paths.pop()) if with_groups else {}
    read: dict[Path, RankTrace] = {}
    for path in paths:
        if path not in read:
            read[path] = read_trace(path)
    traces = [read[path] for path in paths]
    groups = _Groups(given, len(traces))
    begins_us = [min(node.start_us for node in trace.nodes) for trace in traces]
    iterations = []
    for parts in _divided(traces):
        iterations.append(
            tuple(
                _Course(trace, rank, groups, tags=tags).recorded(nodes, begin_us=begins_us[rank])
                for rank, (trace, nodes) in enumerate(zip(traces, parts, strict=True))
            )
        )
        begins_us = [max(node.start_us + node.took_us for node in nodes) for nodes in parts]
    found = Recording(tuple(groups.made), tuple(iterations), tuple(paths), tags)
    if not any(one.node.kind != "compute" for parts in iterations for one in parts[0]):
        raise ConfigError(
            f"{paths[0]}: it sends nothing", hint="nodes of communication without is_cpu_op, in groups of two"
        )
    try:
        _hold(found)
    except _Waiting:  # in the recording a message did not wait for its receiver
        found = replace(found, buffered=True)
        _hold(found)
    return found


def _hold(recording: Recording) -> None:
    for parts in recording.iterations:
        for met in meetings(recording, parts):
            _agree(recording, parts, met)


class _Groups:
    """The process groups of a training, in the order in which all ranks make them."""

    def __init__(self, given: Mapping[str, tuple[int, ...]], world: int) -> None:
        self._given = given
        self._world = world
        self._places: dict[tuple[str, tuple[int, ...]], int] = {}
        self.made: list[tuple[int, ...]] = []

    def members(self, place: int) -> Sequence[int]:
        """Return the ranks of a group."""
        return range(self._world) if place == ALL else self.made[place]

    def place(self, trace: RankTrace, rank: int, node: Node) -> int | None:
        """Return the place of a node's group; None where the rank is alone in it."""
        where = f"{trace.path}: node {node.number} ({node.name})"
        members = self._given.get(node.group, trace.groups.get(node.group))
        if not members:
            if members is None and node.group not in _NAMES_OF_ALL:
                hint = 'a file of groups, as in `groups: groups.json` with {"1": [0, 1]}'
                raise ConfigError(f"{where}: nothing says which ranks its process group {node.group} has", hint=hint)
            members = tuple(range(self._world))
        if rank not in members or members[-1] >= self._world:
            raise ConfigError(f"{where}: its process group {node.group} has the ranks {members}, and this is {rank}")
        if len(members) == 1:
            return None
        if node.group in _NAMES_OF_ALL and len(members) == self._world:
            return ALL
        key = node.group, members
        if key not in self._places:
            self._places[key] = len(self.made)
            self.made.append(members)
        return self._places[key]


def _divided(traces: Sequence[RankTrace]) -> Iterator[list[list[Node]]]:
    """Yield the nodes of each rank in each iteration that all ranks have; all of them where none tells its iteration.

    Whatever costs no time may tell none: it is of the first.
    """
    nodes = [node for trace in traces for node in trace.nodes if node.kind != "compute" or node.took_us]
    if any(node.iteration is None for node in nodes) or not nodes:
        yield [list(trace.nodes) for trace in traces]
        return
    first = min(node.iteration for node in nodes if node.iteration is not None)
    parts: list[dict[int, list[Node]]] = []
    for trace in traces:
        of_rank: dict[int, list[Node]] = defaultdict(list)
        for node in trace.nodes:
            of_rank[first if node.iteration is None else node.iteration].append(node)
        parts.append(of_rank)
    common = sorted(set.intersection(*(set(of_rank) for of_rank in parts)))
    if not common:
        raise ConfigError(f"{traces[0].path.parent}: there is no iteration that all ranks have recorded")
    for number in common:
        yield [of_rank[number] for of_rank in parts]


class _Course:
    """Makes the activities of a rank in an iteration from its nodes."""

    def __init__(self, trace: RankTrace, rank: int, groups: _Groups, *, tags: bool) -> None:
        self._trace = trace
        self._rank = rank
        self._groups = groups
        self._tags = tags
        self._last: dict[tuple[object, ...], int] = {}  # the last communication of those that begin in an order

    def recorded(self, nodes: list[Node], *, begin_us: int) -> list[Recorded]:
        """Return the activities in the order in which they began, as far as that is told.

        What waits for nothing waited since `begin_us`.
        """
        if len(nodes) > MOST_ACTIVITIES:
            message = f"{len(nodes)} nodes in an iteration, and at most {MOST_ACTIVITIES} are replayed"
            raise ConfigError(f"{self._trace.path}: {message}")
        ordered = self._ordered(nodes)
        places = {node.number: place for place, node in enumerate(ordered)}
        timed = any(node.start_us for node in nodes)
        course = []
        for place, node in enumerate(ordered):
            after = [places[number] for number in node.after if number in places]
            ends_us = [ordered[before].start_us + ordered[before].took_us for before in after]
            lag_us = max(0, node.start_us - max(ends_us, default=begin_us)) if timed else 0
            one = Recorded(node=node, after=after, lag_us=lag_us)
            if node.kind != "compute":
                self._communicate(one, place)
            course.append(one)
        return course

    def _ordered(self, nodes: list[Node]) -> list[Node]:
        """Return nodes behind those that they wait for, else by their begin, then by their number."""
        found = {node.number: node for node in nodes}
        missing = {node.number: sum(number in found for number in node.after) for node in nodes}
        waiting: dict[int, list[int]] = defaultdict(list)
        for node in nodes:
            for number in node.after:
                waiting[number].append(node.number)
        free = [(node.start_us, node.number) for node in nodes if not missing[node.number]]
        heapq.heapify(free)
        ordered = []
        while free:
            _, number = heapq.heappop(free)
            ordered.append(found[number])
            for follower in waiting[number]:
                missing[follower] -= 1
                if not missing[follower]:
                    heapq.heappush(free, (found[follower].start_us, follower))
        if len(ordered) < len(nodes):
            number = min(number for number, left in missing.items() if left)
            raise ConfigError(f"{self._trace.path}: node {number} ({found[number].name}) waits for itself")
        return ordered

    def _communicate(self, one: Recorded, place: int) -> None:
        """Say among whom a communication is, and behind which one it begins."""
        node = one.node
        group = self._groups.place(self._trace, self._rank, node)
        if group is None:  # of a group of one rank, where nothing is sent
            one.node = replace(node, kind="compute", took_us=0)
            return
        members = self._groups.members(group)
        one.group, one.size = group, node.size
        order: tuple[object, ...] = ("collective", group)
        if node.kind == "collective":
            one.root = members[0] if node.root is None else node.root
            self._is_other(node, one.root, members)
        else:
            others = [rank for rank in members if rank != self._rank]
            if node.peer is None and len(others) > 1:
                raise ConfigError(f"{self._where(node)}: it does not say with which rank")
            one.peer = others[0] if node.peer is None else node.peer
            self._is_other(node, one.peer, others)
            order = node.kind, group, one.peer, node.tag if self._tags else 0
        one.behind = self._last.get(order)
        self._last[order] = place

    def _is_other(self, node: Node, rank: int, ranks: Sequence[int]) -> None:
        if rank not in ranks:
            raise ConfigError(f"{self._where(node)}: rank {rank} is not among those that it can be with")

    def _where(self, node: Node) -> str:
        return f"{self._trace.path}: node {node.number} ({node.name})"


class _Waiting(ConfigError):
    """Ranks would wait for ever."""


def meetings(recording: Recording, parts: Sequence[list[Recorded]]) -> Iterator[Met]:
    """Yield what happens in an iteration, each behind what it waits for.

    A computation is of one rank, a collective of all of its group, a message of two, of which the sender comes first.
    ConfigError where ranks would wait for ever.
    """
    missing = [[len(one.after) + (one.behind is not None) for one in course] for course in parts]
    waiting, behind = _followers(parts)
    free = deque((rank, place) for rank, left in enumerate(missing) for place, count in enumerate(left) if not count)
    begun: Counter[tuple[object, ...]] = Counter()
    met: defaultdict[tuple[object, ...], dict[int, int]] = defaultdict(dict)

    def release(rank: int, followers: Sequence[int]) -> None:
        for place in followers:
            missing[rank][place] -= 1
            if not missing[rank][place]:
                free.append((rank, place))

    while free:
        rank, place = free.popleft()
        one = parts[rank][place]
        what, wanted = _meeting(recording, one, rank)
        key = *what, begun[rank, one.node.kind, what]
        begun[rank, one.node.kind, what] += 1
        release(rank, behind[rank][place])
        if recording.buffered and one.node.kind == "send":
            release(rank, waiting[rank].pop(place, []))
        met[key][rank] = place
        if len(met[key]) == wanted:
            here = met.pop(key)
            receiver = {"send": one.peer, "receive": rank}.get(one.node.kind)
            yield dict(sorted(here.items(), key=lambda each: (each[0] == receiver, each[0])))
            for each, there in here.items():
                release(each, waiting[each].pop(there, []))
    if met:
        rank, place = min(min(here.items()) for here in met.values())
        raise _Waiting(
            f"{recording.where(rank, parts[rank][place])}: no other rank takes part in it, or not all of its group do",
            hint="traces of all ranks of one training, over the same iterations",
        )


def _followers(parts: Sequence[list[Recorded]]) -> tuple[list[dict[int, list[int]]], list[dict[int, list[int]]]]:
    """Return, by rank and place, those that wait for an activity's end, and those that wait for its begin."""
    waiting: list[dict[int, list[int]]] = [defaultdict(list) for _ in parts]
    behind: list[dict[int, list[int]]] = [defaultdict(list) for _ in parts]
    for rank, course in enumerate(parts):
        for place, one in enumerate(course):
            for before in one.after:
                waiting[rank][before].append(place)
            if one.behind is not None:
                behind[rank][one.behind].append(place)
    return waiting, behind


def _meeting(recording: Recording, one: Recorded, rank: int) -> tuple[tuple[object, ...], int]:
    """Return what tells which activities of ranks are the same one, beside their number; and of how many it is."""
    if one.node.kind == "compute":
        return ("compute", rank), 1
    if one.node.kind == "collective":
        return ("collective", one.group), len(recording.members(one.group))
    ends = (rank, one.peer) if one.node.kind == "send" else (one.peer, rank)
    return ("message", one.group, *ends, one.node.tag if recording.tags else 0), 2


def _agree(recording: Recording, parts: Sequence[list[Recorded]], met: Met) -> None:
    """Hold what ranks say of an activity against each other, and tell each what it needs to know of the others."""
    ranks = list(met)
    ones = [parts[rank][place] for rank, place in met.items()]
    first = ones[0]
    for rank, one in zip(ranks, ones, strict=True):
        same = first.node.operation == one.node.operation and first.root == one.root
        as_large = first.size == one.size or (one.node.kind == "collective" and first.node.operation not in _AS_LARGE)
        if not (same and as_large):
            raise ConfigError(
                f"{recording.where(rank, one)}: {_told(one)}, which is {_told(first)} in node {first.node.number} of "
                f"{recording.paths[ranks[0]].name}"
            )
    if first.node.operation == "all-to-all":
        for one in ones:
            one.gets = [parts[rank][met[rank]].size for rank in sorted(ranks)]
    elif first.node.kind == "collective":
        for one in ones:
            one.size = max(other.size for other in ones)


def _told(one: Recorded) -> str:
    root = f" of rank {one.root}" if one.node.operation in _ROOTED else ""
    return f"{one.node.operation or one.node.kind} of {one.size} bytes{root}"
