"""Collective operations as tasks of a graph: which rank sends what to whom, and what it waits for before it does."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from orchestrator.parts.taskgraph import TaskGraph
from workloads.common.rank_traffic import Pairs

SEGMENT_BYTES = 2**20  # gloo's longest segment of a ring (gloo/allreduce.h), which no scale divides
LEAST_SEGMENTS = 2  # of each rank's part, so that one travels while another is reduced
AT_ONCE = 2  # segments of a rank that are under way
MOST_MESSAGES = 200_000  # of a phase; one of more is simulated with fewer and larger segments

Ready = Mapping[int, Sequence[int]]  # by rank: what it waits for before it takes part
Done = dict[int, tuple[int, ...]]  # by rank: when it has its result


def ring_all_reduce(
    graph: TaskGraph, members: Sequence[int], size: float, ready: Ready, *, rails: Sequence[int] = (0,)
) -> Done:
    """Add gloo's ring all-reduce of `size` bytes (gloo/allreduce.cc, `ring`); each message is split over these rails.

    A rank's part is of two segments or more. In each of two phases a rank posts two segments at a time, and sends to
    the rank before it.
    """
    ordered = sorted(members)
    reduced = ring_pass(graph, ordered, size, ready, step=-1, rails=rails)
    return ring_pass(graph, ordered, size, reduced, step=-1, rails=rails)


def ring_pass(
    graph: TaskGraph, ordered: Sequence[int], size: float, ready: Ready, *, step: int, rails: Sequence[int] = (0,)
) -> Done:
    """Add one phase of a ring of `size` bytes: a reduce-scatter, or an all-gather; `step` -1 sends to the rank before.

    The work of each rank is (n - 1) / n of the bytes. A rank has a few tasks however many segments there are: a round
    begins when all of the one before are there, its segments are posted, and each is sent once both ends have posted.
    """
    world = len(ordered)
    if world < 2:
        return {rank: tuple(ready[rank]) for rank in ordered}
    parts = math.ceil(max(math.ceil(size / SEGMENT_BYTES), LEAST_SEGMENTS * world) / world)
    count = parts * (world - 1)
    steps = min(count, max(AT_ONCE, MOST_MESSAGES // world))
    messages = count / steps
    segment = messages * size / (parts * world)
    rounds, odd = divmod(steps, AT_ONCE)
    done: Ready = ready
    for at_once, times in ((AT_ONCE, rounds), (1, odd)):
        if not times:
            continue
        begun = {rank: graph.join(rank, done[rank], times=times) for rank in ordered}
        posted = {rank: graph.join(rank, (begun[rank],), times=times * at_once) for rank in ordered}
        arriving: Done = {}
        for place, rank in enumerate(ordered):
            to = ordered[(place + step) % world]
            both = (posted[rank], posted[to])
            arriving[to] = tuple(
                graph.send(rank, to, segment / len(rails), both, rail=rail, times=times * at_once, messages=messages)
                for rail in rails
            )
        for rank in ordered:
            graph.carry(posted[rank], posted[rank])
            for message in arriving[rank]:
                graph.carry(begun[rank], message)
        done = {rank: (graph.join(rank, arriving[rank]),) for rank in ordered}
    return {rank: tuple(done[rank]) for rank in ordered}


def collective(
    graph: TaskGraph, operation: str, ordered: Sequence[int], size: float, ready: Ready, *, backend: str, pairs: Pairs
) -> Done:
    """Add a collective of `size` bytes, the root first: a ring, a tree, or messages of `pairs`, all sent at once."""
    if operation == "all-reduce" or (operation == "reduce-scatter" and backend == "gloo"):
        return ring_all_reduce(graph, ordered, size, ready)
    if operation in ("all-gather", "reduce-scatter"):
        return ring_pass(graph, ordered, size, ready, step=1)
    if operation == "broadcast":
        return broadcast(graph, ordered, size, ready)
    if operation == "barrier":
        everyone = tuple(task for rank in ordered for task in ready[rank])
        return dict.fromkeys(ordered, everyone)
    return exchange(graph, pairs, ready)


def exchange(graph: TaskGraph, pairs: Mapping[tuple[int, int], float], ready: Ready) -> Done:
    """Add messages that are all sent at once, each once both of its ends are ready; a rank waits for those to it.

    They are in turns, in each of which a rank sends to one and receives from one (gloo/alltoallv.cc).
    """
    found: dict[int, list[int]] = {rank: list(tasks) for rank, tasks in ready.items()}
    place = {rank: number for number, rank in enumerate(sorted(ready))}
    turns = sorted(pairs.items(), key=lambda pair: (place[pair[0][1]] - place[pair[0][0]]) % len(place))
    for (src, dst), size in turns:
        if size:
            found[dst].append(graph.send(src, dst, size, (*ready[src], *ready[dst])))
    return {rank: tuple(tasks) for rank, tasks in found.items()}


def broadcast(graph: TaskGraph, ordered: Sequence[int], size: float, ready: Ready) -> Done:
    """Add a broadcast from the first of these ranks along a binomial tree."""
    have = {ordered[0]: tuple(ready[ordered[0]])}
    done = {ordered[0]: tuple(ready[ordered[0]])}
    for place in range(1, len(ordered)):
        rank, parent = ordered[place], ordered[place - (1 << (place.bit_length() - 1))]
        message = graph.send(parent, rank, size, (*have[parent], *ready[rank]))
        have[rank] = (message,)
        done[rank] = (message,)
        done[parent] = (*done[parent], message)
    return done
