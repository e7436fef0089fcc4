"""Order transfers of parameters to a worker by TIC and TAC, from the graph that computes.

After Hashemi, Abdu Jyothi and Campbell, "TicTac: Accelerating Distributed Deep Learning with Communication Scheduling"
(MLSys 2019, arXiv 1803.03288), algorithms 1 to 3. Of a transfer that is outstanding

- M is how long it takes,
- P is how long operations compute that wait for it and for no other outstanding one,
- M+ is the least total M of an operation that waits for it and for others.

TIC (timing-independent) puts those with the least M+ first, where each transfer takes 1 and no operation takes time.
TAC (timing-aware) takes one transfer after the other by measured times: A before B where min(P_B, M_A) is less than
min(P_A, M_B). Of two transfers, each with its own operation, A first takes M_A + max(P_A, M_B) + P_B and B first
M_B + max(P_B, M_A) + P_A; the rule picks the shorter. Where both sides are equal, the lesser M+ goes first.
Where an algorithm leaves a tie, the transfer goes first that an earlier operation waits for.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Op:
    """A computation of a graph, which is a list in which every operation comes after those that it takes results of."""

    after: tuple[int, ...]  # places of the operations whose results it takes
    transfers: frozenset[int]  # what it computes with itself
    seconds: float = 0.0


def chain(passes: Iterable[tuple[Iterable[int], float]]) -> list[Op]:
    """Return operations that compute one after the other, from each one's transfers and seconds."""
    return [
        Op(after=(place - 1,) if place else (), transfers=frozenset(transfers), seconds=seconds)
        for place, (transfers, seconds) in enumerate(passes)
    ]


def tic(graph: Sequence[Op]) -> list[int]:
    """Return the transfers of a graph in the order of algorithm 2."""
    waits = _waits(graph)
    first = _first_needs(waits)
    loads = _loads([(needs, 0.0) for needs in waits], dict.fromkeys(first, 1.0))
    return sorted(first, key=lambda transfer: (loads[transfer].joint, first[transfer], transfer))


def tac(graph: Sequence[Op], seconds: Mapping[int, float]) -> list[int]:
    """Return the transfers of a graph in the order of algorithm 3; `seconds` is how long each takes."""
    waits = _waits(graph)
    first = _first_needs(waits)
    by_need = sorted(first, key=lambda transfer: (first[transfer], transfer))
    open_ops = [(needs, op.seconds) for needs, op in zip(waits, graph, strict=True)]
    order: list[int] = []
    while by_need:
        loads = _loads(open_ops, {transfer: seconds[transfer] for transfer in by_need})
        best = by_need[0]
        for other in by_need[1:]:
            if _precedes(loads[other], loads[best]):
                best = other
        order.append(best)
        by_need.remove(best)
        open_ops = [(needs - {best}, took) for needs, took in open_ops if needs - {best}]
    return order


@dataclass
class _Load:
    """The properties M, P and M+ of an outstanding transfer."""

    takes: float  # M
    alone: float = 0.0  # P
    joint: float = math.inf  # M+


def _precedes(one: _Load, other: _Load) -> bool:
    mine, theirs = min(other.alone, one.takes), min(one.alone, other.takes)
    return mine < theirs if mine != theirs else one.joint < other.joint


def _loads(ops: Sequence[tuple[frozenset[int], float]], takes: Mapping[int, float]) -> dict[int, _Load]:
    """Return the properties of each outstanding transfer (algorithm 1).

    `ops` are outstanding needs and seconds of each.
    """
    loads = {transfer: _Load(took) for transfer, took in takes.items()}
    for needs, seconds in ops:
        if len(needs) == 1:
            (only,) = needs
            loads[only].alone += seconds
        elif needs:
            together = sum(takes[transfer] for transfer in needs)
            for transfer in needs:
                loads[transfer].joint = min(loads[transfer].joint, together)
    return loads


def _waits(graph: Sequence[Op]) -> list[frozenset[int]]:
    """Return all transfers that must have ended before each operation can begin.

    Raise ValueError where a graph is out of order.
    """
    waits: list[frozenset[int]] = []
    for place, op in enumerate(graph):
        if not all(0 <= before < place for before in op.after):
            raise ValueError(f"operation {place} takes results of {op.after}, which do not all come before it")
        waits.append(op.transfers.union(*(waits[before] for before in op.after)))
    return waits


def _first_needs(waits: Sequence[frozenset[int]]) -> dict[int, int]:
    """Return the place of the first operation that waits for each transfer."""
    first: dict[int, int] = {}
    for place, needs in enumerate(waits):
        for transfer in needs:
            first.setdefault(transfer, place)
    return first
