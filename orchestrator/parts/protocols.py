"""The few seams: what a workload, a traffic source, a collector and a condition must offer, and who carries bytes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from orchestrator.core.deadline import Deadline
from orchestrator.core.fields import Model
from orchestrator.parts.launch import Change, Launch, Requirement, Wrapper
from orchestrator.parts.rows import Columns, LaunchOutput
from orchestrator.parts.taskgraph import TaskGraph
from orchestrator.parts.theory import Compute, Theory, Work
from orchestrator.parts.topology import Job, Topology


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A mistake that only shows when the file is held against its testbed.

    `at` is the path below the part's own configuration ("hosts", 2), `message` what is wrong, `accepted` what would do.
    """

    at: tuple[str | int, ...]
    message: str
    accepted: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One traffic source in one window. Its ports are `port`, and up to 15 above it."""

    name: str  # "iperf0": the kind and its place in the window's list
    window: str
    port: int
    duration_s: float  # the longest that it can be needed; it is stopped before
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """Cross traffic asked for from one host to another over a rail: layer-2 bits a second (no FCS, no preamble).

    Unscaled. `over_s`: the least time over which its mean is the rate. `period_s`: after how long the same flows come
    again; 0 where they do not. `pause_s`: for how long it may pause by its own nature.
    """

    src: str
    dst: str
    rate: float
    over_s: float = 1.0
    period_s: float = 0.0
    pause_s: float = 0.0
    rail: int = 0

    @property
    def end(self) -> str:
        """Where it arrives, for people: the host, and the rail where it is not the first."""
        return end_name(self.dst, self.rail)


def end_name(host: str, rail: int) -> str:
    """Return a host's end of a rail: "h1", "h1 rail 1"."""
    return f"{host} rail {rail}" if rail else host


@dataclass(frozen=True, slots=True, kw_only=True)
class Escalation:
    """What a traffic source can still do to reach its load; `text` says it to people ("8 streams")."""

    config: Any
    text: str


class Part(Protocol):
    """What every part offers: a module in its folder, found by its name."""

    NAME: str  # its key in the YAML
    Config: type[Model]  # what stands below the key; a docstring an attribute

    def problems(self, config: Any, topology: Topology) -> list[Problem]: ...


class Workload(Part, Protocol):
    """A training framework: launches the ranks of a job, and reads what they logged."""

    def launches(self, config: Any, job: Job, topology: Topology, seed: int) -> list[Launch]: ...

    def requirements(self, config: Any, job: Job, topology: Topology) -> list[Requirement]: ...

    def theory(self, config: Any, job: Job, topology: Topology) -> Theory | None: ...

    def read(self, output: LaunchOutput) -> Mapping[str, Columns]: ...


class Predictable(Workload, Protocol):
    """A workload of which `orch predict` knows a model."""

    def work(self, config: Any, job: Job, topology: Topology) -> Work | str:
        """Return what the ranks do in an iteration; of what cannot be predicted, why, and what would be."""
        ...


class Foreseeable(Workload, Protocol):
    """A workload of which a simulation knows what its ranks do."""

    def tasks(self, config: Any, job: Job, topology: Topology) -> TaskGraph | str:
        """Return an iteration as a graph of computing and transfers; of what has no model, why, and what would have."""
        ...


class Computing(Foreseeable, Protocol):
    """A workload whose ranks may compute for as long as it takes: a simulation asks a run, or estimates it."""

    def computes(self, config: Any) -> bool:
        """Return whether no file says how long ranks of this configuration compute."""
        ...

    def computed_tasks(self, config: Any, job: Job, topology: Topology, compute: Compute) -> TaskGraph | str:
        """Return the graph of `tasks` with these times of computing."""
        ...


class Remarking(Workload, Protocol):
    """A workload that has something to say of a job to whoever reads the plan."""

    def remarks(self, config: Any) -> Sequence[str]:
        """Return what a reader of the plan has to know before anything is measured."""
        ...


class OwnPaced(Workload, Protocol):
    """A workload that may run a program whose iterations begin when that likes: they cannot be paced from outside."""

    def own_pace(self, config: Any) -> str:
        """Return what begins iterations there, such as "the command"; empty where a rank waits for each one's turn."""
        ...


class Traffic(Part, Protocol):
    """A source of cross traffic: launches receivers, then senders (by `Launch.order`)."""

    def launches(self, config: Any, source: Source, topology: Topology) -> list[Launch]: ...

    def requirements(self, config: Any, topology: Topology) -> list[Requirement]: ...

    def demands(self, config: Any) -> list[Demand]: ...

    def remarks(self, config: Any, topology: Topology) -> Sequence[str]:
        """Return what a reader of the plan has to know of this traffic before comparing it with other traffic."""
        ...

    def escalate(self, config: Any) -> Escalation | None:
        """Return the same load from more resources, for when it is not reached.

        None when there is nothing left to try.
        """

    def read(self, output: LaunchOutput) -> Mapping[str, Columns]: ...


@dataclass(frozen=True, slots=True)
class Sent:
    """A message of cross traffic before it is sent: when, from host to host over a rail, and its payload in bytes.

    Messages of one `connection` follow one another on it; -1 is one on a new connection. `wire` are its layer-2 bytes.
    A `datagram` is a single packet that nothing acknowledges, and that nobody sends again; it has a connection, too.
    """

    at_s: float
    src: str
    dst: str
    rail: int
    size: int
    wire: float
    connection: int = -1
    datagram: bool = False


class ForeseeableTraffic(Traffic, Protocol):
    """A source of which a simulation knows what it sends, message by message."""

    def sent(self, config: Any, source: Source, topology: Topology) -> Iterator[Sent]:
        """Yield what is sent in the order of its instants, in the testbed's time, until `source.duration_s`."""
        ...


class Collector(Part, Protocol):
    """Something that watches a run: nodes, ranks that run, or ranks from their start, by one of the protocols below.

    Of one that watches ranks, what hosts without ranks would need is not asked for.
    """

    def requirements(self, config: Any, topology: Topology) -> list[Requirement]: ...

    def read(self, output: LaunchOutput) -> Mapping[str, Columns]: ...


class NodeCollector(Collector, Protocol):
    """A collector that watches nodes or their ports: started before the ranks."""

    def launches(self, config: Any, topology: Topology) -> list[Launch]: ...


class RankWatcher(Collector, Protocol):
    """A collector that is started once the ranks run and wait at their gate, and is stopped before they are."""

    def rank_launches(self, config: Any, ranks: Sequence[Launch], topology: Topology) -> list[Launch]:
        """Return what watches these ranks, which are of all jobs; `job`, `rank` and `node` of each say which it is.

        `orchestrator.parts.ranks.pid_of(rank)`, in the argv of a launch on the rank's node, becomes its process id.
        """
        ...


class RankWrapper(Collector, Protocol):
    """A collector that runs as a command around ranks, each with one of its own; `read` gets a rank's output of it.

    Where ranks run in containers, so do these commands, and what they require is looked for in the image.
    """

    def wrapper(self, config: Any, rank: Launch, topology: Topology) -> Wrapper | None:
        """Return the command around this rank; None where it is to run without."""
        ...


WAYS_TO_COLLECT: Mapping[str, type] = {
    "launches": NodeCollector,
    "rank_launches": RankWatcher,
    "wrapper": RankWrapper,
}  # the function of each way, of which every collector has at least one


class Condition(Part, Protocol):
    """Reversible changes to nodes. One whose changes have processes also reads their output, as others do."""

    def changes(self, config: Any, topology: Topology) -> list[Change]: ...

    def requirements(self, config: Any, topology: Topology) -> list[Requirement]: ...


class Channel(Protocol):
    """A byte stream to an agent on a node, and nothing more: SSH gives one, so can anything else.

    `read` returns at least one byte, or b"" at the end of the stream; it may block, and `close` from another thread
    ends it. `write` writes all. `diagnosis` says what the far end printed on its standard error so far. `way` names
    what the stream goes through before the node, first one first, in words that are the same for all who share it.
    `by_hand` is a command that shows a person what the far end says to a program; empty where there is none.
    """

    way: Sequence[str]
    by_hand: str

    def read(self, size: int) -> bytes: ...

    def write(self, data: bytes) -> None: ...

    def close(self) -> None: ...

    def diagnosis(self) -> str: ...


class Testbed(Protocol):
    """Nodes that can be reached for the length of a run."""

    topology: Topology

    def open(self, run_folder: Path, deadline: Deadline) -> None:
        """Bring it up. `run_folder` is where data that nodes write may lie, if the nodes can see it."""

    def connect(self, node: str, deadline: Deadline) -> Channel:
        """Return a byte stream to a fresh agent on the node."""

    def local_folder(self, node: str) -> Path | None:
        """Where the controller sees the run's folder of the node without copying; None when it must be fetched."""

    def about(self) -> Mapping[str, str]:
        """Return what a manifest says of it once it is up: what runs its hosts, and of which very image."""

    def close(self) -> None:
        """Put everything down; a second call does nothing."""
