"""Says of flows whose they are, by what was launched, and whether they leave or reach the node that captured them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from orchestrator.parts.launch import Flow

Ints = np.ndarray[Any, np.dtype[np.int64]]
Mask = np.ndarray[Any, np.dtype[np.bool_]]

SSH_PORT = 22
_SSH = Flow(kind="control", name="ssh", port=SSH_PORT)
_NOBODY = Flow(kind="other", name="")
_TCP, _UDP = 6, 17


@dataclass(frozen=True, slots=True, kw_only=True)
class Ends:
    """Columns of flows: protocol (as of trace.Flows), ends as numbers of `hosts`, ports, hardware address sent from.

    `outer_src` and `outer_dst`: ends of the outermost headers of what came in a tunnel, -1 elsewhere.
    """

    hosts: Sequence[str]
    protocol: Ints
    src: Ints
    dst: Ints
    src_port: Ints
    dst_port: Ints
    outer_src: Ints
    outer_dst: Ints
    src_mac: Ints


def rules_of(ends: Ends, flows: Iterable[Flow]) -> tuple[Ints, list[Flow]]:
    """Which rule each flow is of, and the rules: the first that matches in either direction.

    What matches none is control where it is SSH, and else "other" without a name.
    """
    rules = [*flows, _SSH, _NOBODY]
    number = {name: place for place, name in enumerate(ends.hosts)}
    open_ = np.isin(ends.protocol, (_TCP, _UDP))
    found = np.full(len(ends.src), len(rules) - 1)
    for place, rule in enumerate(rules[:-1]):
        mine = open_.copy()
        if rule.port is not None:
            mine &= (ends.src_port == rule.port) | (ends.dst_port == rule.port)
        mine &= _between(ends.src, ends.dst, rule, number) | _between(ends.dst, ends.src, rule, number)
        found[mine] = place
        open_ &= ~mine
    return found, rules


def _between(one: Ints, other: Ints, rule: Flow, number: dict[str, int]) -> Any:
    """Where both ends are the rule's, in this direction; an address that nobody has matches nothing."""
    return (rule.src is None or one == number.get(rule.src, -1)) & (
        rule.dst is None or other == number.get(rule.dst, -1)
    )


def leaving(ends: Ends, *, own: Collection[str], peers: Collection[str]) -> Mask:
    """Whether each flow leaves the node with these addresses, or the switch at whose port these are the host's.

    By its source or destination address, else by those of the outermost headers of its tunnel, else by its hardware
    addresses, which are learned from flows whose address told; else it reaches the node.
    """
    # Behind all hosts the one that is none, which -1 stands for.
    mine = np.array([*(name in own for name in ends.hosts), False], np.bool_)
    theirs = np.array([*(name in peers for name in ends.hosts), False], np.bool_)
    out = mine[ends.src] | theirs[ends.dst]
    known = out | mine[ends.dst] | theirs[ends.src]
    out |= ~known & (mine[ends.outer_src] | theirs[ends.outer_dst])
    known |= out | mine[ends.outer_dst] | theirs[ends.outer_src]
    found: Mask = out | (~known & np.isin(ends.src_mac, np.unique(ends.src_mac[out])))
    return found
