"""Make columns of the directions of a capture's conversations, in the order of their first packets."""

from __future__ import annotations

import ipaddress
import socket
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from orchestrator.analysis.capture.flowtable import BinRows, FlowTable
from orchestrator.analysis.capture.stages import decoding, segments
from orchestrator.analysis.capture.trace import ETHERTYPE, OVERFLOW, RUNT

Ints = np.ndarray[Any, np.dtype[np.int64]]
Addresses = tuple[Ints, Ints, Ints]  # scope (of decoding), and the two words of each

_ROW = 0  # column of rows of bins


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
    """The bins of a capture point: `flow_of` says which flow each row of its directions is."""

    rows: BinRows
    flow_of: Ints

    @property
    def count(self) -> int:
        return self.rows.count

    def parts(self) -> Iterator[Ints]:
        """Yield rows in columns as accounting lays them out, with flows in place of directions' rows, in parts."""
        for part in self.rows.parts():
            found = part.copy()
            found[_ROW] = self.flow_of[part[_ROW]]
            yield found


class Directions:
    """The directions of conversations that sent anything, as rows of columns; `flows` is their number.

    `with_others`: there is a row for all conversations beyond those that are told apart, even if there are none.
    """

    def __init__(self, table: FlowTable, *, with_others: bool = False) -> None:
        self._table = table.conversations
        rows = self._table.directions
        if with_others and not rows[0, segments.PACKETS]:
            rows[0, [segments.FIRST, segments.LAST]] = table.tally.first_ns, table.tally.last_ns
        found = np.flatnonzero(self._table.column(rows, segments.PACKETS))
        if with_others and 0 not in found[:1]:
            found = np.concatenate(([0], found))
        self.numbers = found  # twice the conversation's, plus one where the higher end sends
        self.flows = len(found)
        flow_of = np.zeros(len(rows), np.int64)  # of rows that sent nothing, which have no bins, it does not matter
        flow_of[found] = np.arange(self.flows)
        self.spool = Spool(self._table.bins, flow_of)

    def figures(self, *columns: int) -> Ints:
        """Return columns that `segments` keeps of directions, in one reading, each as a row."""
        return self._table.copied(self._table.directions, columns, self.numbers)

    def shared(self, column: int) -> Ints:
        """Return a column that both directions of a conversation share."""
        found: Ints = self._table.copied(self._table.shared, [column], self.numbers // 2)[0]
        return found

    def scale(self, windows: Ints, scales: Ints) -> None:
        """Scale receive windows where both directions' SYNs were seen; `scales`: the column SHIFT of `figures`."""
        (others,) = self._table.copied(self._table.directions, [segments.SHIFT], self.numbers ^ 1)
        windows <<= np.where((scales >= 0) & (others >= 0), scales, 0)

    def ends(self, hosts: HostNumbers) -> tuple[Ints, Ints, Ints, Ints, Ints]:
        """Return protocol (as of trace.Flows), source and destination (numbers of `hosts`), and ports of each row."""
        high, low, other_high, other_low, word = self._table.copied(self._table.keys, range(5), self.numbers // 2)
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
        (via,) = self._table.copied(self._table.keys, [5], self.numbers // 2)
        return split_via(via)

    def outer(self, hosts: HostNumbers) -> tuple[Ints, Ints]:
        """Return source and destination (numbers of `hosts`) of the outermost headers; -1 outside of tunnels."""
        columns = range(segments.OUTER, segments.OUTER + 5)
        scope, *ends = self._table.copied(self._table.shared, columns, self.numbers // 2)
        inside = np.flatnonzero(scope)
        forth = (self.shared(segments.OPENER) == self.numbers % 2)[inside]
        first, second = ([scope[inside], high[inside], low[inside]] for high, low in (ends[:2], ends[2:]))
        found = np.full((2, self.flows), -1, np.int64)
        if len(inside):
            sources = tuple(np.where(forth, one, other) for one, other in zip(first, second, strict=True))
            targets = tuple(np.where(forth, other, one) for one, other in zip(first, second, strict=True))
            found[:, inside] = numbered(hosts, (sources, targets))
        return found[0], found[1]


def split_via(via: Ints) -> tuple[Ints, Ints]:
    """Return the numbers of interfaces, and tunnels (as of trace.Flows), from decoding's VIA."""
    return via >> decoding.INTERFACE_SHIFT, via & (1 << decoding.INTERFACE_SHIFT) - 1
