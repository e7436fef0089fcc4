"""Describe what the ranks of a job do in an iteration as a graph of computing and transfers, for simulation.

A graph is built once and stands for every iteration: each rank begins again as soon as it has ended. Where iterations
differ, as those that draw whom they ask, it has a cycle of several ones, after which the first comes again. A
workload's own theory decides its tasks (`Foreseeable` in `parts/protocols.py`), and nothing here knows a framework.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

NOWHERE = -1  # rank of the other end of a task that sends nothing


@dataclass(slots=True, kw_only=True)
class TaskGraph:
    """Tasks of an iteration of `ranks` ranks, and which of them each one waits for.

    A task is of its rank and takes `seconds`; one that sends has a `peer` and so many `sizes` (bytes, scaled), and ends
    where these have arrived. Tasks of a rank run at once unless one waits for the other; the transfers from one rank to
    another share a connection in the order in which they begin. `begins` and `ends` are the first and last task of each
    rank.

    A task takes place `times` in an iteration, once unless it is told, and what takes place more often than what it
    waits for shares that evenly: of a task that takes place n times as often each n begin after one end of the other,
    and of one that takes place a n-th as often each begins after n ends (synchronous dataflow: Lee and Messerschmitt,
    1987).

    What takes part beside the ranks, such as servers, has the numbers that follow theirs, and `servers` are its hosts.
    Of a cycle of several iterations each has numbers of its own: rank 0 of the second one follows all of the first one
    (`place`).
    """

    ranks: int
    servers: tuple[str, ...] = ()
    cycle: int = 1  # iterations that differ
    owners: list[int] = field(default_factory=list)
    peers: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    sizes: list[float] = field(default_factory=list)
    rails: list[int] = field(default_factory=list)
    pieces: list[int] = field(default_factory=list)  # of emulated compute, each of which ends a little late
    waits: list[tuple[int, ...]] = field(default_factory=list)
    messages: list[float] = field(default_factory=list)  # that a transfer stands for, each of which costs a round
    times: list[int] = field(default_factory=list)  # each task takes place in an iteration
    carried: list[tuple[int, int]] = field(default_factory=list)  # a task, and what it waits for but the first time
    begins: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    computing_s: list[float] = field(default_factory=list)  # of each rank, where tasks overlap that compute

    def __post_init__(self) -> None:
        self.begins = [self._add(place, ()) for place in range(self.places)]

    @property
    def width(self) -> int:
        """How many take part: ranks, and what is beside them."""
        return self.ranks + len(self.servers)

    @property
    def places(self) -> int:
        """How many numbers there are: of all that take part, in each iteration of the cycle."""
        return self.width * self.cycle

    def place(self, rank: int, turn: int) -> int:
        """Return the number of a rank in an iteration of the cycle."""
        return turn * self.width + rank

    def compute(self, rank: int, seconds: float, after: Iterable[int], *, pieces: int = 0) -> int:
        """Add computing of a rank; return its number."""
        return self._add(rank, after, seconds=seconds, pieces=pieces)

    def join(self, rank: int, after: Iterable[int], *, times: int = 1) -> int:
        """Add a task that takes no time, such as the instant at which a rank posts a message; return its number."""
        return self._add(rank, after, times=times)

    def send(
        self,
        src: int,
        dst: int,
        size: float,
        after: Iterable[int],
        *,
        rail: int = 0,
        times: int = 1,
        messages: float = 1.0,
    ) -> int:
        """Add a transfer of `size` bytes (scaled) between two ranks over a rail; return its number.

        It stands for so many `messages`, one after the other, which are too many to be simulated each.
        """
        return self._add(src, after, peer=dst, size=size, rail=rail, times=times, messages=messages)

    def also(self, task: int, after: int) -> None:
        """Have a task wait for one more."""
        self.waits[task] = tuple(dict.fromkeys((*self.waits[task], after)))

    def carry(self, task: int, after: int) -> None:
        """Have a task wait for what another did before, such as in the last cycle; the first time it does not."""
        self.carried.append((task, after))

    def end(self, after: Sequence[Iterable[int]], *, step_s: Sequence[float] | None = None) -> None:
        """End each iteration of each rank after these tasks and a step of so many seconds; call it once."""
        steps = step_s or [0.0] * self.places
        self.ends = [self._add(rank, last, seconds=steps[rank]) for rank, last in enumerate(after)]

    @property
    def sent(self) -> float:
        """Bytes (scaled) of all transfers of a cycle."""
        return sum(size * times for size, times in zip(self.sizes, self.times, strict=True))

    @property
    def computed_s(self) -> list[float]:
        """What each rank computes in an iteration, in seconds, its last task left out: the mean of a cycle."""
        if self.computing_s:
            return self.computing_s
        ends = set(self.ends)
        found = [0.0] * self.width
        for task, owner in enumerate(self.owners):
            if task not in ends:
                found[owner % self.width] += self.seconds[task] * self.times[task] / self.cycle
        return found[: self.ranks]

    def _add(
        self,
        rank: int,
        after: Iterable[int],
        *,
        peer: int = NOWHERE,
        seconds: float = 0.0,
        size: float = 0.0,
        rail: int = 0,
        pieces: int = 0,
        times: int = 1,
        messages: float = 1.0,
    ) -> int:
        self.owners.append(rank)
        self.peers.append(peer)
        self.seconds.append(seconds)
        self.sizes.append(size)
        self.rails.append(rail)
        self.pieces.append(pieces)
        self.times.append(times)
        self.messages.append(messages)
        self.waits.append(tuple(dict.fromkeys(after)))
        return len(self.owners) - 1
