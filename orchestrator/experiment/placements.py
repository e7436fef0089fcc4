"""Place ranks of jobs on hosts by an order, `packed`, `spread` or `random`; pure."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import ClassVar, Literal

from pydantic import Field

from orchestrator.core.fields import OrWord
from orchestrator.parts.topology import Topology


class Placement(OrWord):
    """Where the ranks of a job run, in place of its workload's `hosts`."""

    WORD: ClassVar[str] = "order"

    order: Literal["packed", "spread", "random"]
    """`packed`: a leaf switch is filled before the next, and a host before the next one of that switch. `spread`: each
    rank goes to another leaf, as far as there are some. `random`: in an order that `seed` of the experiment draws.
    Hosts without ranks of the jobs before it come first. Where there is one switch, each host counts as a leaf."""
    ranks: int | None = Field(default=None, ge=1)
    """How many ranks; default: one for each host, or as many as an inventory has slots."""


def hosts(placement: Placement, topology: Topology, taken: Sequence[str], seed: int) -> list[str]:
    """Return the host of each rank; `taken` has the host of each rank of the jobs before. ValueError for too few."""
    leaves = _leaves(topology)
    count = len(topology.placed) if placement.ranks is None else placement.ranks
    slots = (
        _in_turn(map(_in_turn, leaves))
        if placement.order == "spread"
        else [slot for leaf in leaves for host in leaf for slot in host]
    )
    if placement.order == "random":
        random.Random(seed).shuffle(slots)  # noqa: S311 - a design, no secret
    if count > len(slots):
        raise ValueError(f"{count} ranks on {len(slots)} slots of hosts")
    used = Counter(taken)
    return sorted(slots, key=lambda host: used[host] > 0)[:count]


def _leaves(topology: Topology) -> list[list[list[str]]]:
    """Return the slots of each host of each leaf, which is the switch of a first rail; of one switch each host is one.

    The slots of a host are its name as often as it has ranks.
    """
    leaves: dict[str, list[list[str]]] = {}
    for host in topology.hosts:
        links = topology.links_of(host.name)
        leaves.setdefault(links[0].switch if links else "", []).append([host.name] * host.slots)
    return list(leaves.values()) if len(leaves) > 1 else [[host] for hosts in leaves.values() for host in hosts]


def _in_turn(groups: Iterable[Iterable[str]]) -> list[str]:
    """Return the first of each group, then the second of each, and so on."""
    return [one for turn in zip_longest(*groups) for one in turn if one is not None]
