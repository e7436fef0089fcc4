"""Infer the communication pattern of a training (ring, tree, star, ...) from a traffic matrix, with a score."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

Shape = Literal[
    "pair", "ring", "ring both ways", "chain", "star", "tree", "parameter servers", "full mesh", "none", "unknown"
]

FITS = 0.7  # the least score of a pattern that is named
CLEAR = 0.1  # by which it must be ahead of every other one
TAKES_PART = 0.05  # of what the busiest host both sends and receives
BACKGROUND = 0.1  # of a typical edge: less is no part of a pattern, and does not speak against one
EVEN = 0.25  # the weakest edge against the typical one, from which on edges count as equal

IN_ORDER = "in launch order: each rank sends to the next one"
AGAINST_ORDER = "against launch order: each rank sends to the one before it"

Matrix = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
_MOST_STEPS = 3_000  # of the search for a cycle


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """The communication pattern inferred from a matrix of bytes.

    `hosts` are indices into the matrix: for rings in the order of sending, from the lowest index on; for chains from
    end to end; for the others roots, hub or servers first, `heads` of them. `score` is from 0 to 1: the share of the
    bytes that lie on the pattern's edges, one strong edge counting no more than two typical ones, lowered when an edge
    is missing or weak. `same_as` names patterns with exactly these edges: bytes cannot tell them apart. `share` is the
    plain share of all bytes on the edges.
    """

    shape: Shape
    hosts: tuple[int, ...]
    heads: int = 0
    score: float
    same_as: tuple[str, ...] = ()
    runner_up: str = ""
    runner_up_score: float = 0.0
    share: float = 0.0
    edges: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidate:
    shape: Shape
    hosts: tuple[int, ...]
    heads: int
    edges: Mask
    same_as: tuple[str, ...] = ()


def infer(matrix: npt.ArrayLike) -> Pattern:
    """Return the pattern of an (n, n) matrix of bytes from row to column; payload is best, since it holds no ACKs.

    Every shape's edges are looked for in the matrix and scored; the best one is named when its score is at least
    `FITS` and `CLEAR` ahead of the next. Else the shape is "unknown", with the best two in `same_as` and `runner_up`.
    After Zerwas et al., figure 4, and Farhat and Ghobadi, who read patterns off such matrices by eye.
    """
    whole = np.array(matrix, np.float64)
    np.fill_diagonal(whole, 0.0)
    total = float(whole.sum())
    members = _members(whole)
    if total <= 0 or len(members) < 2:
        return Pattern(shape="none", hosts=tuple(members), score=0.0)
    inner = whole[np.ix_(members, members)]
    scored = sorted(((_score(inner, found.edges), found) for found in _candidates(inner)), key=lambda one: -one[0])
    best_score, best = scored[0]
    other_score, other = scored[1] if len(scored) > 1 else (0.0, None)
    clear = best_score >= FITS and best_score - other_score >= CLEAR
    places = np.argwhere(best.edges).tolist() if clear else []
    edges = tuple((members[row], members[column]) for row, column in places)
    return Pattern(
        shape=best.shape if clear else "unknown",
        hosts=tuple(members[host] for host in best.hosts) if clear else tuple(members),
        heads=best.heads if clear else 0,
        score=best_score,
        same_as=best.same_as if clear else (best.shape,),
        runner_up=other.shape if other else "",
        runner_up_score=other_score,
        share=float(inner[best.edges].sum()) / total,
        edges=edges,
    )


def infer_groups(matrix: npt.ArrayLike) -> list[Pattern]:
    """Return the pattern of every group of hosts that talk among themselves alone, the group with most bytes first."""
    whole = np.array(matrix, np.float64)
    np.fill_diagonal(whole, 0.0)
    strong = np.maximum(whole, whole.T) >= BACKGROUND * _typical_maximum(whole)
    groups = components(strong & (whole + whole.T > 0))
    found = []
    for group in groups:
        alone = np.zeros_like(whole)
        alone[np.ix_(group, group)] = whole[np.ix_(group, group)]
        found.append((float(alone.sum()), infer(alone)))
    return [pattern for _, pattern in sorted(found, key=lambda one: -one[0]) if pattern.shape != "none"]


def order_among(pattern: Pattern, ranks: Sequence[int]) -> str:
    """Return how a ring runs against the order in which its hosts were launched (`ranks`: host indices in order)."""
    if pattern.shape not in ("ring", "ring both ways") or set(pattern.hosts) != set(ranks):
        return ""
    place = [ranks.index(host) for host in pattern.hosts]
    steps = {(after - before) % len(place) for before, after in zip(place, [*place[1:], place[0]], strict=True)}
    if steps == {1}:
        return IN_ORDER
    if steps == {len(place) - 1}:
        return AGAINST_ORDER
    return "not in launch order"


def _members(matrix: Matrix) -> list[int]:
    """Return the hosts that both send and receive about as much as the others.

    A mere receiver of cross traffic is none of them.
    """
    both = np.minimum(matrix.sum(axis=0), matrix.sum(axis=1))
    most = float(both.max(initial=0.0))
    return [int(host) for host in np.flatnonzero(both >= TAKES_PART * most)] if most > 0 else []


def _score(matrix: Matrix, edges: Mask) -> float:
    """Score how well edges explain a matrix of members, from 0 to 1.

    A typical edge is the strongest one of a median host.
    """
    on = matrix[edges]
    typical = float(np.median(np.concatenate((matrix.max(axis=0), matrix.max(axis=1)))))
    if typical <= 0:
        return 0.0
    heard = np.where(matrix >= BACKGROUND * typical, np.minimum(matrix, 2 * typical), 0.0)
    return float(heard[edges].sum() / heard.sum()) * min(1.0, float(on.min()) / typical / EVEN)


def _candidates(matrix: Matrix) -> Iterator[_Candidate]:
    """Return every shape's best edges in a matrix of members.

    Of shapes with equal edges it is the plainest one, with the others in `same_as`.
    """
    count = len(matrix)
    everyone = ~np.eye(count, dtype=bool)
    if count == 2:
        yield _Candidate(shape="pair", hosts=(0, 1), heads=0, edges=everyone, same_as=("ring", "star", "full mesh"))
        return
    both = np.minimum(matrix, matrix.T)
    ring = cycle(matrix)
    if ring:
        yield _Candidate(shape="ring", hosts=ring, heads=0, edges=_edges_of(ring, count))
    around = cycle(both) if count > 3 else None
    if around:
        edges = _edges_of(around, count)
        yield _Candidate(
            shape="ring both ways",
            hosts=around,
            heads=0,
            edges=edges | edges.T,
            same_as=("parameter servers",) * (count == 4),
        )
    yield _tree(both)
    if servers := _servers(both):
        yield servers
    same = ("all-to-all", "clique", *(("ring both ways",) if count == 3 else ()))
    yield _Candidate(shape="full mesh", hosts=tuple(range(count)), heads=0, edges=everyone, same_as=same)


def _edges_of(order: Sequence[int], count: int) -> Mask:
    edges = np.zeros((count, count), bool)
    edges[list(order), [*order[1:], order[0]]] = True
    return edges


def _tree(both: Matrix) -> _Candidate:
    """Return the maximum spanning tree (Prim), both ways on every edge; by its degrees a star, chain or other tree."""
    count = len(both)
    edges = np.zeros((count, count), bool)
    outside = np.ones(count, bool)
    best, nearest = np.full(count, -1.0), np.zeros(count, np.int64)
    host = 0
    for _ in range(count - 1):
        outside[host] = False
        closer = outside & (both[host] > best)
        best[closer], nearest[closer] = both[host, closer], host
        host = int(np.argmax(np.where(outside, best, -2.0)))
        edges[host, nearest[host]] = edges[nearest[host], host] = True
    degree = edges.sum(axis=0)
    hub = int(degree.argmax())
    if degree[hub] == count - 1:
        rest = tuple(host for host in range(count) if host != hub)
        same = ("one parameter server", *(("chain",) if count == 3 else ()))
        return _Candidate(shape="star", hosts=(hub, *rest), heads=1, edges=edges, same_as=same)
    if degree.max() == 2:
        return _Candidate(shape="chain", hosts=walk(edges, int(np.flatnonzero(degree == 1)[0])), heads=0, edges=edges)
    root = _root(edges, both)
    return _Candidate(shape="tree", hosts=walk(edges, root), heads=1, edges=edges)


def _root(edges: Mask, both: Matrix) -> int:
    """Return the host in the middle of a tree; of two the busier one."""
    depth = [max(depths(edges, host)) for host in range(len(edges))]
    carried = np.where(edges, both, 0.0).sum(axis=1)
    return min(range(len(edges)), key=lambda host: (depth[host], -carried[host]))


def _servers(both: Matrix) -> _Candidate | None:
    """Return two groups, each of two hosts or more, that talk across and not within; the smaller are the servers."""
    count = len(both)
    strong = both >= EVEN * float(np.median(both[both >= BACKGROUND * both.max()])) if both.max() > 0 else both > 0
    side = {0: 0}
    line = [0]
    for host in line:
        for to in np.flatnonzero(strong[host]).tolist():
            if to == host:
                continue
            if side.setdefault(to, 1 - side[host]) == side[host]:
                return None
            if to not in line:
                line.append(to)
    groups = [[host for host in sorted(side) if side[host] == which] for which in (0, 1)]
    few, many = sorted(groups, key=len)
    # Two by two is a ring both ways, which says so.
    if len(side) < count or len(few) < 2 or count == 4:
        return None
    edges = np.zeros((count, count), bool)
    edges[np.ix_(few, many)] = edges[np.ix_(many, few)] = True
    return _Candidate(shape="parameter servers", hosts=(*few, *many), heads=len(few), edges=edges)


def _typical_maximum(matrix: Matrix) -> float:
    """Return the median over hosts of their strongest edge, over those that have one."""
    strongest = np.maximum(matrix, matrix.T).max(axis=1, initial=0.0)
    return float(np.median(strongest[strongest > 0])) if (strongest > 0).any() else 0.0


def cycle(matrix: Matrix) -> tuple[int, ...] | None:
    """Return a Hamiltonian cycle from host 0 whose weakest edge is about the strongest possible.

    No cycle's weakest edge exceeds the strongest threshold over which every host can be given a successor of its own (a
    bottleneck assignment). Over edges about as strong as that there are few cycles; this is one of them.
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
    """Return whether every row can have a column of its own among those allowed (Kuhn's augmenting paths)."""
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
    """Return a cycle through all hosts over allowed edges, strong ones first; None when none is found soon."""
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
    """Return how many edges each host of a tree is away from `root`."""
    depth = {root: 0}
    line = [root]
    for host in line:
        for to in np.flatnonzero(edges[host]).tolist():
            if to not in depth:
                depth[to] = depth[host] + 1
                line.append(to)
    return [depth[host] for host in sorted(depth)]


def walk(edges: Mask, start: int) -> tuple[int, ...]:
    """Yield the hosts of a tree from `start` on, nearer ones first."""
    order = [start]
    for host in order:
        order += [to for to in np.flatnonzero(edges[host]).tolist() if to not in order]
    return tuple(order)


def components(joined: Mask) -> list[list[int]]:
    """Return the groups of at least two hosts that are joined with each other, directly or through others."""
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
