"""Graphs of hosts: the cycle whose weakest edge is strongest, walks and depths of trees, connected components."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Matrix = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
_MOST_STEPS = 3_000  # of the search for a cycle


def cycle(matrix: Matrix) -> tuple[int, ...] | None:
    """The closed way through all hosts whose weakest edge is about the strongest possible, from host 0 on.

    No such way's weakest edge exceeds the strongest threshold over which every host can be given a successor of its
    own (a bottleneck assignment); over edges about as strong as that there are few ways, and it is one of them.
    """
    values = np.unique(matrix[matrix > 0])
    low, high = 0, len(values)
    while low < high:
        middle = (low + high) // 2
        if _assignable(matrix >= values[middle]):
            low = middle + 1
        else:
            high = middle
    if low == 0:
        return None
    for weaker in (1.0, 0.9, 0.75, 0.5):
        if cycle := _hamiltonian(matrix, matrix >= weaker * values[low - 1]):
            return cycle
    return None


def _assignable(allowed: Mask) -> bool:
    """Whether every row can have a column of its own among those allowed (Kuhn's augmenting paths)."""
    owner: dict[int, int] = {}
    for row in range(len(allowed)):
        # Breadth first, from the row over columns whose owners could move on.
        reached: dict[int, int] = {}
        line = [row]
        free = None
        for current in line:
            for column in np.flatnonzero(allowed[current]).tolist():
                if column not in reached:
                    reached[column] = current
                    if column not in owner:
                        free = column
                        break
                    line.append(owner[column])
            if free is not None:
                break
        if free is None:
            return False
        while free is not None:
            mover = reached[free]
            before = next((column for column, held in owner.items() if held == mover), None)
            owner[free] = mover
            if before is not None:
                del owner[before]
            free = before
    return True


def _hamiltonian(matrix: Matrix, allowed: Mask) -> tuple[int, ...] | None:
    """A cycle through all hosts over allowed edges, strong ones first; None when there is none, or none soon found."""
    count = len(matrix)
    np.fill_diagonal(allowed, val=False)
    after = [[int(to) for to in np.argsort(-matrix[host]) if allowed[host, to]] for host in range(count)]
    if not all(after) or not allowed.any(axis=0).all():
        return None
    way, seen = [0], {0}
    choices = [iter(after[0])]
    for _ in range(_MOST_STEPS):
        step = next((to for to in choices[-1] if to not in seen), None)
        if step is None:
            choices.pop()
            seen.discard(way.pop())
            if not way:
                return None
            continue
        way.append(step)
        seen.add(step)
        if len(way) == count and allowed[step, 0]:
            return tuple(way)
        choices.append(iter(after[step]))
    return None


def depths(edges: Mask, root: int) -> list[int]:
    """How many edges each host of a tree is away from `root`."""
    depth = {root: 0}
    line = [root]
    for host in line:
        for to in np.flatnonzero(edges[host]).tolist():
            if to not in depth:
                depth[to] = depth[host] + 1
                line.append(to)
    return [depth[host] for host in sorted(depth)]


def walk(edges: Mask, start: int) -> tuple[int, ...]:
    """Hosts of a tree from `start` on, nearer ones first."""
    order = [start]
    for host in order:
        order += [to for to in np.flatnonzero(edges[host]).tolist() if to not in order]
    return tuple(order)


def components(joined: Mask) -> list[list[int]]:
    """The groups of at least two hosts that are joined with each other, directly or through others."""
    left, found = set(range(len(joined))), []
    while left:
        line = [min(left)]
        left.discard(line[0])
        for host in line:
            more = [to for to in np.flatnonzero(joined[host]).tolist() if to in left]
            left.difference_update(more)
            line += more
        if len(line) > 1:
            found.append(sorted(line))
    return found
