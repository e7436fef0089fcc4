"""Make columns of the directions of a capture's conversations, in the order of their first packets."""

from __future__ import annotations

import ipaddress
import socket
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from orchestrator.analysis.capture.flowtable import BinRows, Conversations, FlowTable
from orchestrator.analysis.capture.stages import decoding, segments
from orchestrator.analysis.capture.trace import ETHERTYPE, OVERFLOW, RUNT

Ints = np.ndarray[Any, np.dtype[np.int64]]
Addresses = tuple[Ints, Ints, Ints]  # scope (of decoding), and the two words of each

_ROW, _REPEATED = 0, 5  # columns of rows of bins
_SUMS = (segments.PACKETS, segments.WIRE, segments.PAYLOAD_SUM)


class HostNumbers:
    """Addresses by number, in the order in which they are met."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._numbers: dict[str, int] = {}

    def number(self, name: str) -> int:
        """Return the number of an address, the next one where it is new."""
        found = self._numbers.setdefault(name, len(self.names))
        if found == len(self.names):
            self.names.append(name)
        return found


def numbered(hosts: HostNumbers, columns: Sequence[Addresses]) -> list[Ints]:
    """Return the numbers of columns of addresses, new ones in their order, column after column."""
    scope, high, low = (np.concatenate(parts) for parts in zip(*columns, strict=True))
    code = _codes(scope, high, low)
    _, first, inverse = np.unique(code, return_index=True, return_inverse=True)
    number = np.zeros(len(first), np.int64)
    for place in np.argsort(first):
        row = int(first[place])
        number[place] = hosts.number(address_text(int(scope[row]), int(high[row]), int(low[row])))
    return np.split(number[inverse.ravel()], np.cumsum([len(column[0]) for column in columns])[:-1])


def _codes(scope: Ints, high: Ints, low: Ints) -> Ints:
    """Return a number for each address, equal for equal addresses."""
    if not np.any(high) and np.all((low >= 0) & (low < 1 << 48)):
        return low | scope << 48
    table = np.ascontiguousarray(np.stack((scope, high, low), axis=1))
    return np.unique(table, axis=0, return_inverse=True)[1].ravel().astype(np.int64)


def address_text(scope: int, high: int, low: int) -> str:
    """Return an address, given as the reader's words, as text; empty where there is none."""
    if scope == decoding.SCOPE_V4:
        return socket.inet_ntoa(struct.pack(">I", low & 0xFFFFFFFF))
    if scope == decoding.SCOPE_V6:
        return str(ipaddress.IPv6Address(((high & (1 << 64) - 1) << 64) | (low & (1 << 64) - 1)))
    return low.to_bytes(6, "big").hex(":") if scope == decoding.SCOPE_LINK else ""


@dataclass(frozen=True, slots=True)
class Spool:
    """The bins of a shard: `flow_of` says which flow each of the shard's rows is, `folded` which count among others."""

    rows: BinRows
    flow_of: Ints
    folded: Ints  # 1 or 0

    @property
    def count(self) -> int:
        return self.rows.count

    def parts(self) -> Iterator[Ints]:
        """Yield rows in columns as accounting lays them out, with flows in place of the shard's rows, in parts."""
        for part in self.rows.parts():
            found = part.copy()
            found[_ROW] = self.flow_of[part[_ROW]]
            found[_REPEATED, self.folded[part[_ROW]] != 0] = 0
            yield found


class Directions:
    """The directions of conversations that sent anything, as rows of columns; `flows` is their number.

    `with_others`: there is a row for all conversations beyond those that are told apart, even if there are none.
    """

    def __init__(self, table: FlowTable, *, with_others: bool = False) -> None:
        self._shards = table.shards
        self._ranks = [np.concatenate(([0], rank)) for rank in _ranks(self._shards)]
        folded = [_folded(rank, table.most) for rank in self._ranks]
        _add_others(self._shards, folded)
        if with_others and not self._shards[0].directions[0, segments.PACKETS]:
            self._shards[0].directions[0, [segments.FIRST, segments.LAST]] = table.tally.first_ns, table.tally.last_ns
        self._rows = [np.flatnonzero(shard.column(shard.directions, segments.PACKETS)) for shard in self._shards]
        if with_others and 0 not in self._rows[0][:1]:
            self._rows[0] = np.concatenate(([0], self._rows[0]))
        numbers = [2 * rank[rows // 2] + rows % 2 for rank, rows in zip(self._ranks, self._rows, strict=True)]
        joined = np.concatenate(numbers)
        order = np.argsort(joined, kind="stable")  # each shard's are in order, so this only merges
        self.numbers = joined[order]  # twice the conversation's, plus one where the higher end sends
        self.flows = len(joined)
        self._places = np.split(_places(order), np.cumsum([len(one) for one in numbers])[:-1])
        self.spools = [self._spool(*one) for one in zip(self._shards, self._rows, self._places, folded, strict=True)]

    def figures(self, *columns: int) -> Ints:
        """Return columns that `segments` keeps of directions, in one reading, each as a row."""
        return self._copied(lambda shard: shard.directions, columns, self._rows)

    def shared(self, column: int) -> Ints:
        """Return a column that both directions of a conversation share."""
        found: Ints = self._copied(lambda shard: shard.shared, [column], [rows // 2 for rows in self._rows])[0]
        return found

    def scale(self, windows: Ints, scales: Ints) -> None:
        """Scale receive windows where both directions' SYNs were seen; `scales`: the column SHIFT of `figures`."""
        opposite = [rows ^ 1 for rows in self._rows]
        (others,) = self._copied(lambda shard: shard.directions, [segments.SHIFT], opposite)
        windows <<= np.where((scales >= 0) & (others >= 0), scales, 0)

    def ends(self, hosts: HostNumbers) -> tuple[Ints, Ints, Ints, Ints, Ints]:
        """Return protocol (as of trace.Flows), source and destination (numbers of `hosts`), and ports of each row."""
        conversations = [rows // 2 for rows in self._rows]
        high, low, other_high, other_low, word = self._copied(lambda shard: shard.keys, range(5), conversations)
        turned = self.numbers % 2 == 1
        scope, number = word >> 48, (word >> 32) & 0xFFFF
        ports = ((word >> 16) & 0xFFFF, word & 0xFFFF)
        protocol = np.select(
            [self.numbers < 2, scope == decoding.SCOPE_LINK, scope == decoding.SCOPE_RUNT],
            [OVERFLOW, ETHERTYPE + number, RUNT],
            number,
        )
        sources = (scope, np.where(turned, other_high, high), np.where(turned, other_low, low))
        targets = (scope, np.where(turned, high, other_high), np.where(turned, low, other_low))
        src, dst = numbered(hosts, (sources, targets))
        return protocol, src, dst, np.where(turned, ports[1], ports[0]), np.where(turned, ports[0], ports[1])

    def came_by(self) -> tuple[Ints, Ints]:
        """Return the number of the interface of each row, and its tunnel (as of trace.Flows)."""
        (via,) = self._copied(lambda shard: shard.keys, [5], [rows // 2 for rows in self._rows])
        return split_via(via)

    def outer(self, hosts: HostNumbers) -> tuple[Ints, Ints]:
        """Return source and destination (numbers of `hosts`) of the outermost headers; -1 outside of tunnels."""
        conversations = [rows // 2 for rows in self._rows]
        columns = range(segments.OUTER, segments.OUTER + 5)
        scope, *ends = self._copied(lambda shard: shard.shared, columns, conversations)
        inside = np.flatnonzero(scope)
        forth = (self.shared(segments.OPENER) == self.numbers % 2)[inside]
        first, second = ([scope[inside], high[inside], low[inside]] for high, low in (ends[:2], ends[2:]))
        found = np.full((2, self.flows), -1, np.int64)
        if len(inside):
            sources = tuple(np.where(forth, one, other) for one, other in zip(first, second, strict=True))
            targets = tuple(np.where(forth, other, one) for one, other in zip(first, second, strict=True))
            found[:, inside] = numbered(hosts, (sources, targets))
        return found[0], found[1]

    def _copied(self, table: Callable[[Conversations], Ints], columns: Sequence[int], rows: Sequence[Ints]) -> Ints:
        """Copy columns of a table from each shard, for the rows of its directions."""
        found = np.empty((len(columns), self.flows), np.int64)
        for shard, some, places in zip(self._shards, rows, self._places, strict=True):
            shard.copy(table(shard), columns, some, into=found, places=places)
        return found

    def _spool(self, shard: Conversations, rows: Ints, places: Ints, folded: Any) -> Spool:
        """Return the spool of a shard.

        Rows that sent nothing have no bins, so it does not matter which flow they are.
        """
        flow_of = np.zeros(len(shard.directions), np.int64)
        flow_of[rows] = places
        others = np.minimum(np.searchsorted(self.numbers, (0, 1)), max(0, self.flows - 1))
        flow_of.reshape(-1, 2)[folded] = others
        return Spool(shard.bins, flow_of, np.repeat(folded, 2).astype(np.int64))


def split_via(via: Ints) -> tuple[Ints, Ints]:
    """Return the numbers of interfaces, and tunnels (as of trace.Flows), from decoding's VIA."""
    return via >> decoding.INTERFACE_SHIFT, via & (1 << decoding.INTERFACE_SHIFT) - 1


def _ranks(shards: Sequence[Conversations]) -> list[Ints]:
    """Return for the conversations of each shard their ranks among all, from 1, by their first packets."""
    if len(shards) == 1:
        return [np.arange(1, shards[0].count)]
    born = [shard.column(shard.shared, segments.BORN)[1:] for shard in shards]
    rank = 1 + _places(np.argsort(np.concatenate(born), kind="stable"))
    return np.split(rank, np.cumsum([len(one) for one in born])[:-1])


def _places(order: Ints) -> Ints:
    """Return the inverse of a permutation: the place of each element in an order."""
    found = np.empty(len(order), np.int64)
    found[order] = np.arange(len(order))
    return found


def _folded(ranks: Ints, most: int) -> Any:
    """Return a mask of a shard's conversations beyond the most that are told apart, which count as its row 0."""
    found = ranks >= most
    found[0] = True
    return found


def _add_others(shards: Sequence[Conversations], folded: Sequence[Any]) -> None:
    """Add the folded conversations to rows 0 and 1 of the first shard; TCP is not followed in these rows."""
    if len(shards) == 1:
        return
    for turned in range(2):
        rows = [
            (shard.directions, 2 * row + turned)
            for shard, some in zip(shards, folded, strict=True)
            for row in np.flatnonzero(some)
            if shard.directions[2 * row + turned, segments.PACKETS]
        ]
        found = [stats[row].copy() for stats, row in rows]
        for stats, row in rows:
            stats[row] = 0
        if not found:
            continue
        earliest = min(found, key=lambda stat: int(stat[segments.FIRST]))
        into = shards[0].directions[turned]
        into[:] = 0
        into[segments.SHIFT] = -1
        for column in _SUMS:
            into[column] = sum(int(stat[column]) for stat in found)
        into[segments.FIRST] = earliest[segments.FIRST]
        into[segments.LAST] = max(int(stat[segments.LAST]) for stat in found)
        into[[segments.FROM_MAC, segments.TO_MAC]] = earliest[[segments.FROM_MAC, segments.TO_MAC]]
