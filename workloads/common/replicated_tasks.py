"""Tasks of data parallelism: passes of a replica, and buckets of gradients that are reduced beside the last of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import pairwise

from orchestrator.parts.taskgraph import TaskGraph
from orchestrator.parts.theory import Bucket
from workloads.common import collective_tasks
from workloads.common.collective_tasks import Done, Ready
from workloads.common.mpi_ranks import Algorithm
from workloads.rank.lifecycle import LayerPlan
from workloads.rank.torch.exchange import Round

_BUFFER_ELEMENT_BYTES = 4  # DDP counts a bucket as it lies in memory, before any compression

# Adds the reduction of a bucket (its number and its bytes) to a graph.
Reduce = Callable[[TaskGraph, int, float, Ready], Done]
Finish = Callable[[TaskGraph, Ready], Done]


def overlapped(
    ranks: int,
    buckets: Sequence[Bucket],
    reduce: Reduce,
    *,
    forward_s: float,
    backward_s: float,
    passes: int = 1,
    at_once: int = 1,
    idle: Collection[int] = (),
    step_s: float = 0.0,
    finish: Finish | None = None,
) -> TaskGraph:
    """Return an iteration: so many passes, and each bucket's reduction once its gradients are there.

    At most `at_once` reductions of a rank are under way, in the order of buckets. Ranks in `idle` compute nothing, as
    servers do. `finish` adds what follows all of it, `step_s` is what an iteration ends with.
    """
    graph = TaskGraph(ranks=ranks)
    everyone = range(ranks)
    scale = {rank: 0.0 if rank in idle else 1.0 for rank in everyone}
    before_s = forward_s + (passes - 1) * (forward_s + backward_s)
    last = {rank: graph.compute(rank, scale[rank] * before_s, (graph.begins[rank],)) for rank in everyone}
    reduced: list[Done] = []
    at_s = 0.0
    for number, bucket in enumerate(buckets):
        part_s, at_s = bucket.ready_s - at_s, bucket.ready_s
        last = {rank: graph.compute(rank, scale[rank] * part_s, (last[rank],)) for rank in everyone}
        free = reduced[number - at_once] if number >= at_once else {}
        ready = {rank: (last[rank], *free.get(rank, ())) for rank in everyone}
        reduced.append(reduce(graph, number, bucket.size, ready))
    rest = {rank: graph.compute(rank, scale[rank] * (backward_s - at_s), (last[rank],)) for rank in everyone}
    ends: Done = {rank: (rest[rank], *(task for one in reduced[-at_once:] for task in one[rank])) for rank in everyone}
    if finish is not None:
        ends = finish(graph, ends)
    graph.end([ends[rank] for rank in everyone], step_s=[scale[rank] * step_s for rank in everyone])
    return graph


def buckets(layers: Sequence[LayerPlan], *, cap: float, first: float | None, element_bytes: int) -> tuple[Bucket, ...]:
    """Return DDP's buckets from its second iteration on, when they are made in the order in which gradients come.

    A bucket is closed by the first tensor with which it has `cap` bytes or more (`first` for the first bucket, where
    that is another size); `element_bytes` is what an element travels as (torch's `compute_bucket_assignment_by_size`).
    """
    found = []
    held, limit = 0, cap if first is None else first
    ready_s = 0.0
    for ready_s, size in gradients(layers):
        held += size
        if held * _BUFFER_ELEMENT_BYTES >= int(limit):
            found.append(Bucket(size=held * element_bytes, ready_s=ready_s))
            held, limit = 0, cap
    if held:
        found.append(Bucket(size=held * element_bytes, ready_s=ready_s))
    return tuple(found)


def gradients(layers: Sequence[LayerPlan]) -> Iterator[tuple[float, int]]:
    """Yield each gradient's instant in the backward pass, in seconds, and its elements, the last layer's first."""
    ready_s = 0.0
    for _, backward_s, sizes in reversed(layers):
        ready_s += backward_s
        for size in sizes:
            yield ready_s, size


def scheduled(graph: TaskGraph, rounds: Mapping[int, Sequence[Round]], ready: Ready, *, element_bytes: int) -> Done:
    """Add messages of a schedule: of each rank its rounds, one after the other; a message waits for both of its ends.

    The messages from one rank to another are received in the order in which they are sent.
    """
    posted = {rank: [graph.join(rank, ready[rank])] for rank in rounds}
    for rank, own in rounds.items():
        posted[rank] += [graph.join(rank, ()) for _ in own]
    sends: dict[tuple[int, int], list[tuple[int, int]]] = {}
    receives: dict[tuple[int, int], list[int]] = {}
    for rank, own in rounds.items():
        for number, one in enumerate(own):
            for send in one.sends:
                sends.setdefault((rank, send.peer), []).append((number, send.high - send.low))
            for receive in one.receives:
                receives.setdefault((receive.peer, rank), []).append(number)
    for (src, dst), sent in sends.items():
        for (begun, elements), got in zip(sent, receives[src, dst], strict=True):
            message = graph.send(src, dst, elements * element_bytes, (posted[src][begun], posted[dst][got]))
            graph.also(posted[src][begun + 1], message)
            graph.also(posted[dst][got + 1], message)
    for steps in posted.values():
        for before, after in pairwise(steps):
            graph.also(after, before)
    return {rank: (steps[-1],) for rank, steps in posted.items()}


def by_mpi(graph: TaskGraph, algorithm: Algorithm, world: int, size: float, ready: Ready) -> Done:
    """Add an all-reduce over all ranks by an algorithm of Open MPI; `mpi_ranks.all_reduce` has its bytes."""
    if algorithm == "ring":
        return turning(graph, range(world), size, ready)
    power = 1 << (world.bit_length() - 1)
    extra = world - power
    halving = algorithm == "rabenseifner"
    member = [2 * place + (0 if halving else 1) if place < extra else place + extra for place in range(power)]
    distances = [1 << step for step in range(power.bit_length() - 1)]
    pairs = [(even, even + 1) for even in range(0, 2 * extra, 2)]
    if halving:
        steps = [{(odd, even): size for even, odd in pairs} | dict.fromkeys(pairs, size / 2)]
        shares = [(distance, size / (2 * distance)) for distance in distances]
        shares += reversed(shares)
    else:
        steps = [dict.fromkeys(pairs, size)]
        shares = [(distance, size) for distance in distances]
    steps += [{(member[place], member[place ^ far]): share for place in range(power)} for far, share in shares]
    steps.append({(even, odd) if halving else (odd, even): size for even, odd in pairs})
    done: Ready = ready
    for step in steps:
        done = collective_tasks.exchange(graph, step, done)
    return {rank: tuple(tasks) for rank, tasks in done.items()}


def turning(graph: TaskGraph, members: Sequence[int], size: float, ready: Ready) -> Done:
    """Add a ring all-reduce that turns with the ranks, as those of Open MPI and TensorFlow do."""
    ordered = sorted(members)
    reduced = collective_tasks.ring_pass(graph, ordered, size, ready, step=1)
    return collective_tasks.ring_pass(graph, ordered, size, reduced, step=1)
