"""Simulate a window of a plan: its jobs, its links and its cross traffic, once for each draw of its inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import Literal

import numpy as np

from orchestrator.core.errors import ConfigError
from orchestrator.parts.protocols import Sent
from orchestrator.parts.taskgraph import NOWHERE, TaskGraph
from orchestrator.parts.topology import Job
from orchestrator.predict.network_costs import Rates
from orchestrator.predict.simulation import flows, machine, packets
from orchestrator.predict.simulation.flows import Arrivals, Links
from orchestrator.predict.simulation.links import SimulatedNetwork
from orchestrator.predict.simulation.machine import Floats, Tasks
from orchestrator.predict.simulation.packets import Queues

Grain = Literal["flows", "packets"]

ACK_SHARE = 66 / 2 / 1514  # of a full frame: one acknowledgement for two, the other way
LATE_S = 20e-6  # of emulated compute beside its pieces: the kernel's timers
MOST_ITERATION_S = 200.0  # an iteration that takes longer on average is not waited for


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedJob:
    """A job with its tasks; `factors` multiply its ranks' compute times (ranks x iterations, repeated)."""

    job: Job
    graph: TaskGraph
    factors: Floats | None = None


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
) -> Simulated:
    """Simulate so many iterations of the first job beside its traffic; ConfigError where it cannot be waited for."""
    wanted = warmup + iterations
    paths, numbers = _paths(jobs, traffic)
    by_packets = grain == "packets"
    tasks, path_of = _tasks(jobs, numbers, rates, wanted=wanted, link_factor=1.0 if by_packets else rates.link_factor)
    arrivals, lasting = _arrivals(traffic, numbers, offset=len(path_of), mss=network.mss if by_packets else 0)
    connections = np.array([*path_of, *lasting], dtype=np.int64)
    costs = np.array([rates.round_s, rates.byte_s, rates.inside_byte_s, LATE_S])
    until_s = wanted * MOST_ITERATION_S
    machine.seeded(seed % 2**32)
    if by_packets:
        queues = _queues(network, paths, numbers)
        carried = queues.links["carried"]
        stopped = packets.run(
            tasks, queues, arrivals, connections, wanted=wanted, until_s=until_s, costs=costs, mss=float(network.mss)
        )
    else:
        links = _links(network, paths, traffic)
        carried = links.carried
        stopped = flows.run(tasks, links, arrivals, connections, wanted=wanted, until_s=until_s, costs=costs)
    if stopped == flows.OVERLOADED:
        raise ConfigError("more flows than can be simulated are under way at once: the links cannot carry this load")
    if stopped:
        raise ConfigError(f"an iteration takes longer than {MOST_ITERATION_S:g} s")
    seconds = tasks.ended_s - tasks.began_s
    first = list(accumulate((one.graph.ranks for one in jobs), initial=0))
    duration_s = float(tasks.ended_s[0, wanted - 1])
    return Simulated(
        seconds={
            one.job.name: seconds[rank, warmup : min(wanted, int(tasks.done[rank]))]
            for one, rank in zip(jobs, first, strict=False)
        },
        use={
            link.name: float(size / link.rate / duration_s) for link, size in zip(network.links, carried, strict=True)
        },
        duration_s=duration_s,
    )


Way = tuple[str, str, int]  # from host to host over a rail


def _paths(jobs: Sequence[SimulatedJob], traffic: Sequence[Sent]) -> tuple[list[Way], dict[Way, int]]:
    """Return every way that something is sent or acknowledged, and its number."""
    ways: dict[Way, None] = {}
    for one in jobs:
        node = [rank.node for rank in one.job.ranks]
        graph = one.graph
        for owner, peer, rail in zip(graph.owners, graph.peers, graph.rails, strict=True):
            if peer != NOWHERE:
                ways[node[owner], node[peer], rail] = None
    for sent in traffic:
        ways[sent.src, sent.dst, sent.rail] = None
    ways |= {(dst, src, rail): None for src, dst, rail in ways}
    found = list(ways)
    return found, {way: number for number, way in enumerate(found)}


def _links(network: SimulatedNetwork, ways: Sequence[Way], traffic: Sequence[Sent]) -> Links:
    """Return the links; acknowledgements of cross traffic take their share of those of the way back."""
    paths = [network.path(*way) for way in ways] or [()]
    rate = np.array([link.rate for link in network.links])
    if traffic and traffic[-1].at_s > 0:
        for sent in traffic:
            for link in network.path(sent.dst, sent.src, sent.rail):
                rate[link] -= ACK_SHARE * sent.wire / traffic[-1].at_s
    return Links(
        rate=np.maximum(rate, 1.0),
        hop_of=np.array(list(accumulate(map(len, paths), initial=0)), dtype=np.int64),
        hop=np.array(list(chain.from_iterable(paths)) or [0], dtype=np.int64),
        delay_s=np.array([network.delay_s(src, dst) for src, dst, _ in ways] or [0.0]),
        carried=np.zeros(len(network.links)),
    )


def _queues(network: SimulatedNetwork, ways: Sequence[Way], numbers: dict[Way, int]) -> Queues:
    """Return the queues of all links, full of tokens; the way back of each way must be among the ways."""
    hops = [network.path(*way) for way in ways] or [()]
    queues = np.zeros(len(network.links), packets.QUEUE)
    for queue, link in zip(queues, network.links, strict=True):
        queue["rate"], queue["limit"], queue["loss"] = link.rate, link.queue, link.loss
        queue["depth"] = queue["tokens"] = link.depth
    paths = np.zeros(len(hops), packets.PATH)
    first = list(accumulate(map(len, hops), initial=0))
    paths["first"], paths["end"] = first[:-1], first[1:]
    for path, (src, dst, rail) in zip(paths, ways, strict=False):
        path["back"], path["delay_s"] = numbers[dst, src, rail], network.delay_s(src, dst)
    return Queues(links=queues, paths=paths, hops=np.array(list(chain.from_iterable(hops)) or [0], dtype=np.int64))


def _arrivals(traffic: Sequence[Sent], numbers: dict[Way, int], *, offset: int, mss: int) -> tuple[Arrivals, list[int]]:
    """Return cross traffic as arrays, and the path of each of its lasting connections.

    Sizes are bytes on the wire; with an `mss` they are without the headers of segments.
    """
    lasting: dict[tuple[Way, int], int] = {}
    path_of = []
    connection = np.full(len(traffic), -1, dtype=np.int64)
    path = np.zeros(len(traffic), dtype=np.int64)
    for place, sent in enumerate(traffic):
        way = (sent.src, sent.dst, sent.rail)
        path[place] = numbers[way]
        if sent.connection >= 0:
            key = (way, sent.connection)
            if key not in lasting:
                lasting[key] = offset + len(lasting)
                path_of.append(numbers[way])
            connection[place] = lasting[key]
    arrivals = Arrivals(
        at_s=np.array([sent.at_s for sent in traffic], dtype=np.float64),
        size=np.array(
            [sent.wire - (packets.HEADER * -(-sent.size // mss) if mss else 0.0) for sent in traffic], dtype=np.float64
        ),
        path=path,
        connection=connection,
    )
    return arrivals, path_of


def _tasks(
    jobs: Sequence[SimulatedJob], numbers: dict[Way, int], rates: Rates, *, wanted: int, link_factor: float
) -> tuple[Tasks, list[int]]:
    """Return the graphs of all jobs as arrays, with the path of each connection between two ranks."""
    owner: list[int] = []
    connection: list[int] = []
    seconds: list[float] = []
    size: list[float] = []
    waits: list[tuple[int, ...]] = []
    tokens: list[list[int]] = []
    begin: list[int] = []
    end: list[int] = []
    known: dict[tuple[int, int, int], int] = {}
    path_of: list[int] = []
    ranks = 0
    for one in jobs:
        graph, first = one.graph, len(owner)
        node = [rank.node for rank in one.job.ranks]
        begins, ends = set(graph.begins), set(graph.ends)
        for task, (rank, peer, rail) in enumerate(zip(graph.owners, graph.peers, graph.rails, strict=True)):
            owner.append(ranks + rank)
            own_s = graph.seconds[task] + graph.pieces[task] * rates.piece_s + (rates.step_s if task in ends else 0.0)
            seconds.append(own_s)
            size.append(graph.sizes[task] * link_factor)
            waits.append(tuple(first + other for other in graph.waits[task]))
            tokens.append([0] * len(graph.waits[task]))
            if task in begins:
                waits[-1] = (first + graph.ends[rank],)
                tokens[-1] = [1]
            key = (ranks + rank, ranks + peer, rail)
            if peer != NOWHERE and key not in known:
                known[key] = len(path_of)
                path_of.append(numbers[node[rank], node[peer], rail])
            connection.append(known[key] if peer != NOWHERE else -1)
        begin += [first + task for task in graph.begins]
        end += [first + task for task in graph.ends]
        ranks += graph.ranks
    then: list[list[int]] = [[] for _ in owner]
    task_of: list[int] = []
    for task, others in enumerate(waits):
        for other in others:
            then[other].append(len(task_of))
            task_of.append(task)
    factor = np.ones((ranks, max([1, *(one.factors.shape[1] for one in jobs if one.factors is not None)])))
    at = 0
    for one in jobs:
        if one.factors is not None:
            factor[at : at + one.graph.ranks] = np.resize(one.factors, (one.graph.ranks, factor.shape[1]))
        at += one.graph.ranks
    tasks = Tasks(
        owner=np.array(owner, dtype=np.int64),
        connection=np.array(connection, dtype=np.int64),
        seconds=np.array(seconds),
        size=np.array(size),
        place_of=np.array(list(accumulate(map(len, waits), initial=0)), dtype=np.int64),
        then_of=np.array(list(accumulate(map(len, then), initial=0)), dtype=np.int64),
        then=np.array(list(chain.from_iterable(then)), dtype=np.int64),
        task_of=np.array(task_of, dtype=np.int64),
        tokens=np.array(list(chain.from_iterable(tokens)), dtype=np.int64),
        empty=np.array([sum(not token for token in one) for one in tokens], dtype=np.int64),
        begin=np.array(begin, dtype=np.int64),
        end=np.array(end, dtype=np.int64),
        factor=factor,
        done=np.zeros(ranks, dtype=np.int64),
        began_s=np.zeros((ranks, wanted)),
        ended_s=np.zeros((ranks, wanted)),
    )
    return tasks, path_of
