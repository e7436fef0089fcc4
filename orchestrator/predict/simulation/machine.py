"""Carry out task graphs event by event, whatever carries their transfers: the part that both grains share.

A graph is a marked graph: each wait of a task for another is a place that holds tokens, a task begins once all its
places hold what it needs, and takes that from each. The place from a rank's last task to its first holds one from the
beginning, so that the graph of one iteration stands for all of them (Commoner et al., "Marked directed graphs", 1971).
A place takes or holds back several at once where one of its tasks takes place more often than the other.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from orchestrator.predict.simulation.compiled import compiled

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

LINKS = 2  # that a message between hosts crosses at least
OVERLOADED, LATE = 1, 2  # what stops a simulation before its end
NEVER = np.inf


class Tasks(NamedTuple):
    """The graphs of all jobs as arrays, and what they have done so far; ranks are numbered over all jobs."""

    owner: Ints
    connection: Ints  # that carries it, or -1 of a task that sends nothing
    seconds: Floats
    size: Floats
    messages: Floats  # that each stands for
    place_of: Ints  # the first place of each task; places of a task follow one another, and one more entry ends them
    then_of: Ints  # the first entry in `then` of each task, likewise
    then: Ints  # places that get a token when the task ends
    task_of: Ints  # whose place it is
    gives: Ints  # tokens that each place gets at once
    needs: Ints  # tokens that a task takes from each of its places
    tokens: Ints  # in each place
    empty: Ints  # places of each task without the tokens that it needs
    begin: Ints  # of each rank
    end: Ints
    turn_s: Floats  # when the first iteration of each rank may begin
    every_s: Floats  # from then on, 0 where they follow one another
    factor: Floats  # of a rank's compute times in each iteration (ranks x iterations, repeated)
    done: Ints  # iterations of each rank
    first: Ints  # rank 0 of each job
    began_s: Floats  # ranks x iterations
    ended_s: Floats


class Arrivals(NamedTuple):
    """Cross traffic in the order of its instants: bytes on the wire, path, and its connection, -1 of a new one."""

    at_s: Floats
    size: Floats
    path: Ints
    connection: Ints
    mute: npt.NDArray[np.bool_]  # whether it is a datagram, which nothing acknowledges and nobody sends again


class Reroutes(NamedTuple):
    """When paths take the links of others, in order, from when all jobs have done `warmup` iterations."""

    at_s: Floats
    path: Ints
    first: Ints  # entries in the list of all paths' links
    end: Ints
    warmup: int


class Heap(NamedTuple):
    """Tasks that end at known instants, the earliest first."""

    at_s: Floats
    task: Ints
    held: Ints  # how many, one number


@compiled
def push(heap: Heap, at_s: float, task: int) -> None:
    """Add an instant to the heap."""
    place = heap.held[0]
    heap.held[0] += 1
    while place > 0:
        above = (place - 1) >> 1
        if heap.at_s[above] <= at_s:
            break
        heap.at_s[place] = heap.at_s[above]
        heap.task[place] = heap.task[above]
        place = above
    heap.at_s[place] = at_s
    heap.task[place] = task


@compiled
def pop(heap: Heap) -> int:
    """Take the earliest task off the heap."""
    found = int(heap.task[0])
    heap.held[0] -= 1
    last = heap.held[0]
    at_s, task = heap.at_s[last], heap.task[last]
    place = 0
    while True:
        below = 2 * place + 1
        if below >= last:
            break
        if below + 1 < last and heap.at_s[below + 1] < heap.at_s[below]:
            below += 1
        if heap.at_s[below] >= at_s:
            break
        heap.at_s[place] = heap.at_s[below]
        heap.task[place] = heap.task[below]
        place = below
    heap.at_s[place] = at_s
    heap.task[place] = task
    return found


@compiled
def ended(tasks: Tasks, task: int, now_s: float, ready: Ints, count: int) -> int:
    """Note that a task has ended; put those that can begin into `ready`, which has `count`; return how many it has."""
    rank = tasks.owner[task]
    number = tasks.done[rank]
    if number < tasks.began_s.shape[1]:
        if task == tasks.begin[rank]:
            tasks.began_s[rank, number] = now_s
        elif task == tasks.end[rank]:
            tasks.ended_s[rank, number] = now_s
    if task == tasks.end[rank]:
        tasks.done[rank] += 1
    for at in range(tasks.then_of[task], tasks.then_of[task + 1]):
        place = tasks.then[at]
        had = tasks.tokens[place]
        tasks.tokens[place] = had + tasks.gives[place]
        if had < tasks.needs[place] <= tasks.tokens[place]:
            other = tasks.task_of[place]
            tasks.empty[other] -= 1
            if tasks.empty[other] == 0:
                ready[count] = other
                count += 1
    return count


@compiled
def start(tasks: Tasks, ready: Ints) -> int:
    """Put the first task of each rank into `ready`; return how many there are."""
    count = 0
    for task in tasks.begin:
        if tasks.empty[task] == 0:
            ready[count] = task
            count += 1
    return count


@compiled
def have_done(tasks: Tasks, count: int) -> bool:
    """Return whether every job has done so many iterations."""
    least = count
    for rank in tasks.first:
        least = min(least, tasks.done[rank])
    return bool(least >= count)


@compiled
def take(tasks: Tasks, task: int) -> bool:
    """Take what a task needs from each of its places as it begins; return whether it can begin once more."""
    empty = 0
    for place in range(tasks.place_of[task], tasks.place_of[task + 1]):
        tasks.tokens[place] -= tasks.needs[place]
        if tasks.tokens[place] < tasks.needs[place]:
            empty += 1
    tasks.empty[task] = empty
    return empty == 0


@compiled
def round_s(costs: Floats, links: int) -> float:
    """Return what a round takes beside its bytes, of a message that crosses so many links, by `run`'s costs."""
    if links == 0:
        return float(costs[6])
    return float(costs[0] + max(0, links - LINKS) * costs[7])


@compiled
def duration_s(tasks: Tasks, task: int, late_s: float, now_s: float) -> float:
    """Return how long a task takes now: until its rank's turn, or computing, late by `late_s` in the mean."""
    rank = tasks.owner[task]
    if task == tasks.begin[rank]:
        return float(max(0.0, tasks.turn_s[rank] + tasks.done[rank] * tasks.every_s[rank] - now_s))
    seconds = tasks.seconds[task]
    if seconds <= 0.0:
        return 0.0
    factor = tasks.factor[rank, tasks.done[rank] % tasks.factor.shape[1]]
    return float(seconds * factor + late_s * np.random.exponential())


@compiled
def seeded(seed: int) -> None:
    """Have compiled code draw the same random numbers again."""
    np.random.seed(seed)
