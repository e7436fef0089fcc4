"""Traffic between the ranks of a job: flows to recognise their packets, and bytes in theory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations

from orchestrator.parts.launch import Flow
from orchestrator.parts.theory import Spread, Theory
from orchestrator.parts.topology import Job, Topology

Pairs = Mapping[tuple[int, int], float]  # (sending rank, receiving rank) -> bytes in an iteration


def flows(job: Job, topology: Topology, *, port: int) -> tuple[Flow, ...]:
    """Return the flows of the rendezvous store at rank 0, then those between each two hosts of the job."""
    store = Flow(kind="control", name=job.name, src=topology.node(job.nodes[0]).address, port=port)
    return (store, *training_flows(job, topology))


def training_flows(job: Job, topology: Topology, *, others: Iterable[str] = ()) -> tuple[Flow, ...]:
    """Return flows between each two hosts of the job, those of its ranks and `others`, on each rail."""
    hosts = [topology.node(name) for name in dict.fromkeys((*job.nodes, *others))]
    return tuple(
        Flow(kind="training", name=job.name, src=src, dst=dst)
        for one, other in combinations(hosts, 2)
        for src, dst in zip(one.addresses, other.addresses, strict=True)
    )


def between_nodes(job: Job, pairs: Pairs) -> tuple[tuple[str, str, float], ...]:
    """Return bytes in an iteration from node to node, without those between ranks of one node."""
    found: dict[tuple[str, str], float] = {}
    for (src, dst), size in pairs.items():
        way = job.ranks[src].node, job.ranks[dst].node
        if way[0] != way[1] and size:
            found[way] = found.get(way, 0.0) + size
    return tuple((*way, size) for way, size in found.items())


def theory(job: Job, pairs: Pairs, *, parameters: int, source: str, spread: Spread = "") -> Theory:
    """Return the bytes over the network of ranks that send each other these: the mean over ranks, as measured."""
    between = between_nodes(job, pairs)
    mean = sum(size for _, _, size in between) / len(job.ranks)
    return Theory(bytes_per_iteration=mean, parameters=parameters, source=source, pairs=between, spread=spread)


def ring(world: int, size: float) -> Pairs:
    """Return a ring in gloo's direction: each rank sends `size` bytes to the one before it."""
    return ring_of(range(world), size)


def ring_of(members: Sequence[int], size: float) -> Pairs:
    """Return a ring of these ranks alone, such as a process group has: always in the order of their numbers."""
    ordered = sorted(members)
    return {(rank, ordered[place - 1]): size for place, rank in enumerate(ordered)} if len(ordered) > 1 else {}


def turned(pairs: Pairs) -> Pairs:
    """Reverse a ring: each rank sends to the one after it, as in gloo's all-gather."""
    return {(dst, src): size for (src, dst), size in pairs.items()}


def summed(parts: Iterable[Pairs]) -> Pairs:
    """Sum several traffic matrices."""
    total: dict[tuple[int, int], float] = {}
    for pairs in parts:
        for pair, size in pairs.items():
            total[pair] = total.get(pair, 0.0) + size
    return total
