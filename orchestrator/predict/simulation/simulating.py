"""Simulate a window of a plan: its jobs, its links and its cross traffic, once for each draw of its inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from statistics import fmean
from typing import Literal

import numpy as np

from orchestrator.core.errors import ConfigError
from orchestrator.experiment.pacing import Pace
from orchestrator.parts.protocols import Sent
from orchestrator.parts.taskgraph import NOWHERE, TaskGraph
from orchestrator.parts.topology import Job
from orchestrator.predict.network_costs import Rates
from orchestrator.predict.simulation import flows, machine, packets
from orchestrator.predict.simulation.compiled import call
from orchestrator.predict.simulation.flows import Links
from orchestrator.predict.simulation.links import SimulatedNetwork
from orchestrator.predict.simulation.machine import Arrivals, Floats, Reroutes, Tasks
from orchestrator.predict.simulation.packets import Queues

Grain = Literal["flows", "packets"]

ACK_SHARE = 66 / 2 / 1514  # of a full frame: one acknowledgement for two, the other way
LATE_S = 20e-6  # of emulated compute beside its pieces: the kernel's timers
FREE = Pace()
MOST_ITERATION_S = 200.0  # an iteration that takes longer on average is not waited for


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedJob:
    """A job with its tasks and its pace; `factors` multiply its ranks' compute times (ranks x iterations, repeated).

    `beside_s` is what each iteration takes that no cost stands for. A negative one takes away what an iteration ends
    with, at most.
    """

    job: Job
    graph: TaskGraph
    pace: Pace = FREE
    factors: Floats | None = None
    beside_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """What a simulation gave: iterations of each job's rank 0 in seconds, and the use of each link, 0 to 1."""

    seconds: dict[str, Floats]
    use: dict[str, float]
    duration_s: float


def simulate(
    jobs: Sequence[SimulatedJob],
    network: SimulatedNetwork,
    traffic: Sequence[Sent],
    rates: Rates,
    *,
    warmup: int,
    iterations: int,
    seed: int,
    grain: Grain = "flows",
    notice: float = packets.NOTICE_BYTES,
) -> Simulated:
    """Simulate so many iterations of every job beside its traffic; ConfigError where it cannot be waited for.

    `seed` draws how late timers are, which packets are lost, and which spine a connection crosses. `notice` are the
    bytes that announce each message, as gloo does; only packets have them.
    """
    cycle = min(one.graph.cycle for one in jobs)
    wanted = -(-(warmup + iterations) // cycle)
    ways = _Ways(network, seed)
    by_packets = grain == "packets"
    tasks, path_of = _tasks(jobs, ways, rates, wanted=wanted, link_factor=1.0 if by_packets else rates.link_factor)
    answered = traffic if by_packets else [sent for sent in traffic if not sent.datagram]
    arrivals, lasting = _arrivals(answered, ways, offset=len(path_of), mss=network.mss if by_packets else 0)
    connections = np.array([*path_of, *lasting], dtype=np.int64)
    wakes = 0.0 if by_packets else fmean(link.wakes for link in network.links)
    byte_s = rates.byte_s + wakes * rates.wake_s
    costs = np.array(
        [
            *(rates.round_s, rates.inside_byte_s, LATE_S, byte_s, network.behind_s),
            *(rates.message_s, rates.inside_round_s, _link_s(rates) if network.emulated else 0.0),
        ]
    )
    until_s = wanted * cycle * MOST_ITERATION_S
    call(machine.seeded, seed % 2**32)
    if by_packets:
        reroutes = _reroutes(ways, warmup)
        queues = _queues(ways, rates.wake_s)
        carried = queues.links["carried"]
        stopped = packets.run(
            tasks,
            queues,
            arrivals,
            reroutes,
            connections,
            wanted=wanted,
            until_s=until_s,
            costs=costs,
            mss=float(network.mss),
            notice=notice,
        )
    else:
        taken = _taken(traffic, ways)
        reroutes = _reroutes(ways, warmup)
        links = _links(ways, taken)
        carried = links.carried
        stopped = flows.run(tasks, links, arrivals, reroutes, connections, wanted=wanted, until_s=until_s, costs=costs)
        carried += taken * tasks.ended_s[tasks.first, wanted - 1].max()
    if stopped == machine.OVERLOADED:
        raise ConfigError("more flows than can be simulated are under way at once: the links cannot carry this load")
    if stopped:
        raise ConfigError(f"an iteration takes longer than {MOST_ITERATION_S:g} s")
    duration_s = float(tasks.ended_s[tasks.first, wanted - 1].max())
    use = {link.name: float(size / link.rate / duration_s) for link, size in zip(network.links, carried, strict=True)}
    return Simulated(
        seconds={
            one.job.name: _of_rank_0(one.graph, tasks, last)[warmup : warmup + iterations]
            for one, last in zip(jobs, tasks.first, strict=True)
        },
        use=use,
        duration_s=duration_s,
    )


def _link_s(rates: Rates) -> float:
    """Return what each further link adds to a round, by a round over two links beside one within a host."""
    return max(0.0, rates.round_s - rates.inside_round_s) / machine.LINKS


def _of_rank_0(graph: TaskGraph, tasks: Tasks, last: int) -> Floats:
    """Return the seconds of all iterations of a job's rank 0, in their order; `last` is its place in a cycle's last."""
    own = [last - graph.place(0, graph.cycle - 1) + graph.place(0, turn) for turn in range(graph.cycle)]
    seconds: Floats = (tasks.ended_s[own] - tasks.began_s[own]).T.ravel()
    return seconds


Way = tuple[str, str, int, int]  # from host to host over a rail, and by which of its lanes


class _Ways:
    """Ways that something is sent or acknowledged, with their numbers; which lane a connection takes is drawn."""

    def __init__(self, network: SimulatedNetwork, seed: int) -> None:
        self.network = network
        self.number: dict[Way, int] = {}
        self._draw = np.random.default_rng(seed)

    def of_connection(self, src: str, dst: str, rail: int) -> int:
        """Return the number of the way of a new connection: its lane is as random as the port that it has.

        Acknowledgements take the same lane back, since the kernel's hash is the same either way.
        """
        lanes = self.network.lanes(src, dst)
        lane = int(self._draw.integers(lanes)) if lanes > 1 else 0
        return self.numbered(src, dst, rail, lane)

    def numbered(self, src: str, dst: str, rail: int, lane: int) -> int:
        """Return the number of a way."""
        for way in ((src, dst, rail, lane), (dst, src, rail, lane)):
            self.number.setdefault(way, len(self.number))
        return self.number[src, dst, rail, lane]

    @property
    def hops(self) -> list[tuple[int, ...]]:
        """The links of each way, in the order of their numbers."""
        return [self.network.path(*way) for way in self.number] or [()]

    def back(self, way: Way) -> int:
        """Return the number of the way back."""
        src, dst, rail, lane = way
        return self.number[dst, src, rail, lane]


def _reroutes(ways: _Ways, warmup: int) -> Reroutes:
    """Return when which way takes the links of another one, of which there may be more afterwards."""
    found = [
        (at_s, ways.number[src, dst, rail, lane], ways.numbered(src, dst, rail, other))
        for src, dst, rail, lane in list(ways.number)
        for at_s, other in ways.network.reroutes(src, dst, lane)
    ]
    ordered = sorted(found)
    first = list(accumulate(map(len, ways.hops), initial=0))
    return Reroutes(
        at_s=np.array([at_s for at_s, _, _ in ordered], dtype=np.float64),
        path=np.array([path for _, path, _ in ordered], dtype=np.int64),
        first=np.array([first[other] for _, _, other in ordered], dtype=np.int64),
        end=np.array([first[other + 1] for _, _, other in ordered], dtype=np.int64),
        warmup=warmup,
    )


def _taken(traffic: Sequence[Sent], ways: _Ways) -> Floats:
    """Return what datagrams, and acknowledgements of cross traffic, take of each link in bytes a second."""
    found = np.zeros(len(ways.network.links))
    if not traffic or traffic[-1].at_s <= 0:
        return found
    for sent in traffic:
        src, dst = (sent.src, sent.dst) if sent.datagram else (sent.dst, sent.src)
        lanes = ways.network.lanes(src, dst)
        size = sent.wire if sent.datagram else ACK_SHARE * sent.wire
        for lane in range(lanes):
            for link in ways.network.path(src, dst, sent.rail, lane):
                found[link] += size / lanes / traffic[-1].at_s
    return found


def _links(ways: _Ways, taken: Floats) -> Links:
    """Return the links, with what is left of them."""
    hops = ways.hops
    first = list(accumulate(map(len, hops), initial=0))
    rate = np.array([link.rate for link in ways.network.links])
    return Links(
        rate=np.maximum(rate - taken, 1.0),
        first=np.array(first[:-1], dtype=np.int64),
        end=np.array(first[1:], dtype=np.int64),
        hop=np.array(list(chain.from_iterable(hops)) or [0], dtype=np.int64),
        delay_s=np.array([ways.network.delay_s(*way) for way in ways.number] or [0.0]),
        carried=np.zeros(len(ways.network.links)),
    )


def _queues(ways: _Ways, wake_s: float) -> Queues:
    """Return the queues of all links, full of tokens; `wake_s` is what it costs to wake up the processors."""
    hops, network = ways.hops, ways.network
    queues = np.zeros(len(network.links), packets.QUEUE)
    for queue, link in zip(queues, network.links, strict=True):
        queue["rate"], queue["limit"], queue["loss"] = link.rate, link.queue, link.loss
        queue["depth"] = queue["tokens"] = link.depth
        queue["late_s"], queue["gap_s"] = link.late_s, link.gap_s
        queue["wake_s"] = wake_s * link.wakes
    paths = np.zeros(len(hops), packets.PATH)
    first = list(accumulate(map(len, hops), initial=0))
    paths["first"], paths["end"] = first[:-1], first[1:]
    for path, way in zip(paths, ways.number, strict=False):
        path["back"], path["delay_s"] = ways.back(way), network.delay_s(*way)
    return Queues(
        links=queues,
        paths=paths,
        hops=np.array(list(chain.from_iterable(hops)) or [0], dtype=np.int64),
        processors=np.zeros(1),
    )


def _arrivals(traffic: Sequence[Sent], ways: _Ways, *, offset: int, mss: int) -> tuple[Arrivals, list[int]]:
    """Return cross traffic as arrays, and the path of each of its lasting connections.

    Sizes are bytes on the wire; with an `mss` they are without the headers of segments.
    """
    lasting: dict[tuple[str, str, int, int], int] = {}
    path_of: list[int] = []
    connection = np.full(len(traffic), -1, dtype=np.int64)
    path = np.zeros(len(traffic), dtype=np.int64)
    for place, sent in enumerate(traffic):
        if sent.connection < 0:
            path[place] = ways.of_connection(sent.src, sent.dst, sent.rail)
            continue
        key = (sent.src, sent.dst, sent.rail, sent.connection)
        if key not in lasting:
            lasting[key] = offset + len(lasting)
            path_of.append(ways.of_connection(sent.src, sent.dst, sent.rail))
        connection[place], path[place] = lasting[key], path_of[lasting[key] - offset]
    arrivals = Arrivals(
        at_s=np.array([sent.at_s for sent in traffic], dtype=np.float64),
        size=np.array([_size(sent, mss) for sent in traffic], dtype=np.float64),
        path=path,
        connection=connection,
        mute=np.array([sent.datagram for sent in traffic], dtype=np.bool_),
    )
    return arrivals, path_of


def _size(sent: Sent, mss: int) -> float:
    """Return the bytes of a message on the wire; with an `mss` without the headers of its segments."""
    segments = (1 if sent.datagram else -(-sent.size // mss)) if mss else 0
    return sent.wire - packets.HEADER * segments


def _tasks(
    jobs: Sequence[SimulatedJob], ways: _Ways, rates: Rates, *, wanted: int, link_factor: float
) -> tuple[Tasks, list[int]]:
    """Return the graphs of all jobs as arrays, with the path of each connection between two ranks."""
    owner: list[int] = []
    connection: list[int] = []
    seconds: list[float] = []
    size: list[float] = []
    waits: list[tuple[int, ...]] = []
    gives: list[int] = []
    needs: list[int] = []
    tokens: list[int] = []
    empty: list[int] = []
    begin: list[int] = []
    end: list[int] = []
    known: dict[tuple[int, int, int], int] = {}
    path_of: list[int] = []
    places, last = 0, []
    for one in jobs:
        graph, first = one.graph, len(owner)
        node = [*(rank.node for rank in one.job.ranks), *graph.servers]
        before = _of_the_cycle_before(graph)
        ends = set(graph.ends)
        ended_s = max(0.0, rates.step_s + one.beside_s)
        for task, (place, peer, rail) in enumerate(zip(graph.owners, graph.peers, graph.rails, strict=True)):
            owner.append(places + place)
            own_s = graph.seconds[task] + graph.pieces[task] * rates.piece_s + (ended_s if task in ends else 0.0)
            seconds.append(own_s)
            size.append(graph.sizes[task] * link_factor)
            now, then_before = _waits(graph, task), before.get(task, ())
            waits.append(tuple(first + other for other in (*now, *then_before)))
            shares = [_share(graph.times[other], graph.times[task]) for other in (*now, *then_before)]
            gives += [given for given, _ in shares]
            needs += [needed for _, needed in shares]
            tokens += [0] * len(now) + [needed for _, needed in shares[len(now) :]]
            empty.append(len(now))
            rank, other_end = place % graph.width, peer % graph.width
            key = (places + rank, places + other_end, rail)
            if peer != NOWHERE and key not in known:
                known[key] = len(path_of)
                path_of.append(ways.of_connection(node[rank], node[other_end], rail))
            connection.append(known[key] if peer != NOWHERE else -1)
        begin += [first + task for task in graph.begins]
        end += [first + task for task in graph.ends]
        last.append(places + graph.place(0, graph.cycle - 1))
        places += graph.places
    then: list[list[int]] = [[] for _ in owner]
    task_of: list[int] = []
    for task, others in enumerate(waits):
        for other in others:
            then[other].append(len(task_of))
            task_of.append(task)
    factor = _factors(jobs)
    tasks = Tasks(
        owner=np.array(owner, dtype=np.int64),
        connection=np.array(connection, dtype=np.int64),
        seconds=np.array(seconds),
        size=np.array(size),
        messages=np.array([messages for one in jobs for messages in one.graph.messages]),
        place_of=np.array(list(accumulate(map(len, waits), initial=0)), dtype=np.int64),
        then_of=np.array(list(accumulate(map(len, then), initial=0)), dtype=np.int64),
        then=np.array(list(chain.from_iterable(then)), dtype=np.int64),
        task_of=np.array(task_of, dtype=np.int64),
        gives=np.array(gives, dtype=np.int64),
        needs=np.array(needs, dtype=np.int64),
        tokens=np.array(tokens, dtype=np.int64),
        empty=np.array(empty, dtype=np.int64),
        begin=np.array(begin, dtype=np.int64),
        end=np.array(end, dtype=np.int64),
        turn_s=np.array(
            [
                one.pace.begin_s + (place // one.graph.width) * (one.pace.every_s or 0.0)
                for one in jobs
                for place in range(one.graph.places)
            ]
        ),
        every_s=np.array(
            [one.graph.cycle * (one.pace.every_s or 0.0) for one in jobs for _ in range(one.graph.places)]
        ),
        factor=factor,
        done=np.zeros(places, dtype=np.int64),
        first=np.array(last, dtype=np.int64),
        began_s=np.zeros((places, wanted)),
        ended_s=np.zeros((places, wanted)),
    )
    return tasks, path_of


def _share(times: int, of_waiting: int) -> tuple[int, int]:
    """Return how many tokens a task gives at each of its `times` in an iteration, and how many one that waits needs."""
    if times % of_waiting and of_waiting % times:
        raise ValueError(f"what takes place {of_waiting} times an iteration waits for what does {times} times")
    return max(1, of_waiting // times), max(1, times // of_waiting)


def _waits(graph: TaskGraph, task: int) -> tuple[int, ...]:
    """Return what a task waits for in its own cycle: the beginning of an iteration for the end of the one before."""
    place = graph.owners[task]
    if task == graph.begins[place] and place >= graph.width:
        return (graph.ends[place - graph.width],)
    return graph.waits[task]


def _of_the_cycle_before(graph: TaskGraph) -> dict[int, tuple[int, ...]]:
    """Return which tasks wait for which of the cycle before: the first beginnings for the last ends."""
    found: dict[int, tuple[int, ...]] = {
        graph.begins[rank]: (graph.ends[graph.place(rank, graph.cycle - 1)],) for rank in range(graph.width)
    }
    for task, after in graph.carried:
        found[task] = (*found.get(task, ()), after)
    return found


def _factors(jobs: Sequence[SimulatedJob]) -> Floats:
    """Return the factors of compute times, a row for each place of each job's graph; what is beside ranks has none."""
    found: list[Floats] = []
    for one in jobs:
        graph = one.graph
        given = np.ones((graph.ranks, 1)) if one.factors is None else one.factors
        given = np.vstack([given, np.ones((len(graph.servers), given.shape[1]))])
        repeated = np.resize(given.T, (-(-given.shape[1] // graph.cycle) * graph.cycle, graph.width))
        found.append(repeated.reshape(-1, graph.places).T)
    columns = max(one.shape[1] for one in found)
    return np.vstack([np.resize(one.T, (columns, one.shape[0])).T for one in found])
