"""Tasks of trainings with parameter servers and of pair averaging, in which ranks need not wait for each other.

`fetching` is TensorFlow's between-graph replication, `pulling` synchronous workers that pull sums while their next
forward pass begins (Hashemi et al., TicTac), `pair_averaged` asynchronous decentralized SGD (Lian et al.).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, pairwise

from orchestrator.parts.taskgraph import TaskGraph
from workloads.rank.lifecycle import LayerPlan

REQUEST_BYTES = 4  # that ask a peer for its weights

Order = Callable[[int], Sequence[int]]  # of an iteration: the numbers of the buckets as they are pulled


def fetching(
    workers: int,
    servers: Sequence[str],
    layers: Sequence[LayerPlan],
    *,
    element_bytes: int,
    order: Sequence[int] | None,
    one_by_one: bool,
) -> TaskGraph:
    """Return steps of workers that fetch every variable, compute, and send every gradient; none waits for another.

    Variables are on the servers in turn. `order` has their numbers as they are fetched, each once the one before is
    there if `one_by_one`; then each layer waits for its own alone. Without an order the forward pass waits for all.
    """
    graph = TaskGraph(ranks=workers, servers=tuple(servers))
    sizes = [size * element_bytes for _, _, own in layers for size in own]
    first = list(accumulate((len(own) for _, _, own in layers), initial=0))
    for worker in range(workers):
        begin = graph.begins[worker]
        there: dict[int, int] = {}
        before = begin
        for number in order if order is not None else range(len(sizes)):
            there[number] = graph.send(workers + number % len(servers), worker, sizes[number], (before,))
            before = there[number] if one_by_one else begin
        last = begin if order is not None else graph.join(worker, (begin, *there.values()))
        for place, (forward_s, _, _) in enumerate(layers):
            needed = [there[number] for number in range(first[place], first[place + 1])] if order is not None else []
            last = graph.compute(worker, forward_s, (last, *needed))
        sent = []
        for place, (_, backward_s, _) in reversed(list(enumerate(layers))):
            last = graph.compute(worker, backward_s, (last,))
            sent += [
                graph.send(worker, workers + number % len(servers), sizes[number], (last,))
                for number in range(first[place], first[place + 1])
            ]
        graph.ends.append(graph.join(worker, (last, *there.values(), *sent)))
    # A server does what it is asked for; only so that it has iterations, too, those of the first worker are its own.
    graph.ends += [
        graph.join(workers + one, (graph.begins[workers + one], graph.ends[0])) for one in range(len(servers))
    ]
    return graph


def pulling(
    servers: int,
    workers: int,
    layers: Sequence[LayerPlan],
    buckets: Sequence[tuple[int, frozenset[int]]],
    *,
    order: Order | None,
    computing: Order | None = None,
    cycle: int,
    step_s: float = 0.0,
) -> TaskGraph:
    """Return iterations in which workers push buckets as gradients come, and pull the sums in the next forward pass.

    The first ranks are the `servers`, each of an equal part of every bucket. `buckets` have their bytes and the layers
    that compute with them, in the order of the backward pass. Each layer waits for its own buckets. Without an order a
    bucket is pulled as soon as its sum is there; else once all sums are, one after the other, in the order of the
    iteration's place in the cycle. `computing` has the layers of an iteration's forward pass in the sequence in which
    they compute, where that is not one after the other.
    """
    graph = TaskGraph(ranks=servers + workers, cycle=cycle)
    pulled: list[list[dict[int, tuple[int, ...]]]] = []  # of each iteration and worker: the tasks that end a bucket
    forward: list[list[dict[int, int]]] = []
    for turn in range(cycle):
        of_servers = [graph.place(rank, turn) for rank in range(servers)]
        of_workers = [graph.place(servers + rank, turn) for rank in range(workers)]
        begins = {place: graph.begins[place] for place in (*of_servers, *of_workers)}
        sequence = range(len(layers)) if computing is None else computing(turn)
        computed = [_forward(graph, place, layers, sequence) for place in of_workers]
        forward.append(computed)
        ready = [
            _backward(graph, place, layers, after=own[sequence[-1]])
            for place, own in zip(of_workers, computed, strict=True)
        ]
        pushed: list[dict[int, tuple[int, ...]]] = [{} for _ in of_workers]
        sums: dict[int, dict[int, int]] = {}  # by bucket and server
        posted, taken = [begins[place] for place in of_workers], {place: begins[place] for place in of_servers}
        for number, (size, needed) in enumerate(buckets):
            arriving: dict[int, list[int]] = {place: [taken[place]] for place in of_servers}
            for worker, place in enumerate(of_workers):
                last = ready[worker][min(needed)]
                posted[worker] = graph.join(place, (posted[worker], last))
                pushes = tuple(
                    graph.send(place, server, size / servers, (posted[worker], taken[server])) for server in of_servers
                )
                for server, push in zip(of_servers, pushes, strict=True):
                    arriving[server].append(push)
                pushed[worker][number] = pushes
                posted[worker] = graph.join(place, pushes)
            taken = {server: graph.join(server, tasks) for server, tasks in arriving.items()}
            sums[number] = dict(taken)
        stepped = [
            graph.compute(place, step_s, (own[min(own)], posted[worker]))
            for worker, (place, own) in enumerate(zip(of_workers, ready, strict=True))
        ]
        wanted = None if order is None else order(turn)
        own, of_last = _pulls(graph, wanted, sums, stepped, sizes=[size for size, _ in buckets])
        pulled.append(own)
        graph.ends += [graph.join(server, (taken[server], *of_last[server])) for server in of_servers]
        graph.ends += [graph.join(graph.owners[step], (step,)) for step in stepped]
    _hold(graph, forward, pulled, buckets)
    return graph


def _forward(graph: TaskGraph, place: int, layers: Sequence[LayerPlan], sequence: Sequence[int]) -> dict[int, int]:
    """Add the forward pass of a worker, whose layers compute in this sequence; return the task of each layer."""
    last, found = graph.begins[place], {}
    for number in sequence:
        last = graph.compute(place, layers[number][0], (last,))
        found[number] = last
    return found


def _backward(graph: TaskGraph, place: int, layers: Sequence[LayerPlan], *, after: int) -> dict[int, int]:
    """Add the backward pass of a worker; return the task of each layer."""
    found = {}
    for number, (_, backward_s, _) in reversed(list(enumerate(layers))):
        after = graph.compute(place, backward_s, (after,))
        found[number] = after
    return found


def _pulls(
    graph: TaskGraph,
    order: Sequence[int] | None,
    sums: dict[int, dict[int, int]],
    stepped: Sequence[int],
    *,
    sizes: Sequence[int],
) -> tuple[list[dict[int, tuple[int, ...]]], dict[int, tuple[int, ...]]]:
    """Add the pulls of an iteration, once workers have `stepped` where there is an order.

    Return those that end each bucket of each worker, and the last ones of each server.
    """
    found: list[dict[int, tuple[int, ...]]] = [{} for _ in stepped]
    servers = list(sums[0])
    last: dict[int, tuple[int, ...]] = {
        server: () if order is None else (sums[len(sums) - 1][server],) for server in servers
    }
    for number in range(len(sizes)) if order is None else order:
        sending: dict[int, list[int]] = {server: [] for server in servers}
        for worker, step in enumerate(stepped):
            posted = () if order is None else (step,)
            pulls = [
                graph.send(server, graph.owners[step], sizes[number] / len(servers), (there, *posted, *last[server]))
                for server, there in sums[number].items()
            ]
            for server, pull in zip(servers, pulls, strict=True):
                sending[server].append(pull)
            found[worker][number] = tuple(pulls)
        last = {server: tuple(tasks) for server, tasks in sending.items()}
    return found, last


def _hold(
    graph: TaskGraph,
    forward: Sequence[Sequence[dict[int, int]]],
    pulled: Sequence[Sequence[dict[int, tuple[int, ...]]]],
    buckets: Sequence[tuple[int, frozenset[int]]],
) -> None:
    """Have each layer wait for its buckets of the iteration before."""
    for turn, computed in enumerate(forward):
        for worker, tasks in enumerate(computed):
            for number, (_, needed) in enumerate(buckets):
                for pull in pulled[turn - 1][worker][number]:
                    for place in sorted(needed):
                        if turn:
                            graph.also(tasks[place], pull)
                        else:
                            graph.carry(tasks[place], pull)


def by_graph(
    after: Sequence[Sequence[int]],
    layers: Sequence[LayerPlan],
    needs: Sequence[frozenset[int]],
    there_s: Sequence[float],
) -> list[int]:
    """Return layers in the sequence in which a worker computes them: the first whose inputs and buckets are there.

    `after` has the layers whose results each takes, `needs` its buckets, `there_s` when each bucket is there.
    """
    left, found = list(range(len(layers))), []
    now_s = 0.0
    while left:
        free = [place for place in left if all(other in found for other in after[place])]
        ready_s = {place: max((there_s[bucket] for bucket in needs[place]), default=0.0) for place in free}
        now_s = max(now_s, min(ready_s.values()))
        chosen = next(place for place in free if ready_s[place] <= now_s)
        now_s += layers[chosen][0]
        left.remove(chosen)
        found.append(chosen)
    return found


def pair_averaged(
    ranks: int, size: float, asked: Sequence[Sequence[int]], *, forward_s: float, backward_s: float, step_s: float
) -> TaskGraph:
    """Return iterations in which each rank computes, and then fetches the weights of a peer, which waits for nobody.

    `asked` has the peer of each rank in each iteration of the cycle.
    """
    graph = TaskGraph(ranks=ranks, cycle=len(asked))
    ends: list[tuple[int, ...]] = []
    for turn, peers in enumerate(asked):
        for rank, peer in enumerate(peers):
            place, other = graph.place(rank, turn), graph.place(peer, turn)
            computed = graph.compute(place, forward_s + backward_s, (graph.begins[place],))
            request = graph.send(place, other, REQUEST_BYTES, (computed,))
            ends.append((graph.send(other, place, size, (request,)),))
    graph.end(ends, step_s=[step_s] * graph.places)
    return graph


def shuffled(count: int) -> list[int]:
    """Return so many numbers in an order that nobody chose, the same at each call."""
    found = list(range(count))
    random.Random(count).shuffle(found)  # noqa: S311 - a model, no secret
    return found


def layers_of(sizes: Sequence[Sequence[int]], bounds: Sequence[int]) -> Iterator[frozenset[int]]:
    """Yield the layers of each bucket; `bounds` are the elements after which one ends, from the last layer on."""
    at, ends = 0, []
    for place, own in reversed(list(enumerate(sizes))):
        for size in own:
            at += size
            ends.append((at, place))
    for low, high in pairwise((0, *bounds)):
        yield frozenset(place for end, place in ends if low < end <= high)
