"""The directions of a capture's conversations as columns, in the order of their first packets, of all shards."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from orchestrator.analysis.capture.binrows import BinRows
from orchestrator.analysis.capture.conversations import Conversations
from orchestrator.analysis.capture.flowtable import FlowTable
from orchestrator.analysis.capture.hostnames import HostNumbers, numbered
from orchestrator.analysis.capture.stages import decoding, segments
from orchestrator.analysis.capture.trace import ETHERTYPE, OVERFLOW, RUNT

Ints = np.ndarray[Any, np.dtype[np.int64]]

_ROW, _REPEATED = 0, 5  # columns of rows of bins
_SUMS = (segments.PACKETS, segments.WIRE, segments.PAYLOAD_SUM)


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
        """Rows in columns as accounting lays them out, of flows in place of the shard's rows; a part at a time."""
        for part in self.rows.parts():
            found = part.copy()
            found[_ROW] = self.flow_of[part[_ROW]]
            found[_REPEATED, self.folded[part[_ROW]] != 0] = 0
            yield found


class Directions:
    """Those that sent anything, as rows of columns; `flows` is how many.

    `with_others`: there is a row for all conversations beyond those that are told apart, even if there are none.
    """

    def __init__(self, table: FlowTable, *, with_others: bool = False) -> None:
        self._shards = table.shards
        ranks = _ranks([shard.column(shard.shared, segments.BORN)[1:] for shard in self._shards])
        self._ranks = [np.concatenate(([0], rank)) for rank in ranks]
        folded = [_folded(rank, table.most) for rank in self._ranks]
        _add_others(self._shards, folded)
        if with_others and not self._shards[0].directions[0, segments.PACKETS]:
            self._shards[0].directions[0, [segments.FIRST, segments.LAST]] = table.tally.first_ns, table.tally.last_ns
        self._rows = [np.flatnonzero(shard.column(shard.directions, segments.PACKETS)) for shard in self._shards]
        if with_others:
            self._rows[0] = np.union1d([0], self._rows[0])
        numbers = [2 * rank[rows // 2] + rows % 2 for rank, rows in zip(self._ranks, self._rows, strict=True)]
        joined = np.concatenate(numbers)
        self._order = np.argsort(joined, kind="stable") if len(numbers) > 1 else None
        self.numbers = self._ordered(joined)  # twice the conversation's, plus one where the higher end sends
        self.flows = len(joined)
        self.spools = [self._spool(*one) for one in zip(self._shards, self._ranks, folded, strict=True)]

    def figures(self, column: int) -> Ints:
        """One of the columns that `segments` keeps of directions."""
        return self._ordered(
            np.concatenate([
                shard.column(shard.directions, column)[rows]
                for shard, rows in zip(self._shards, self._rows, strict=True)
            ])
        )  # fmt: skip

    def shared(self, column: int) -> Ints:
        """One of the columns that both directions of a conversation share."""
        return self._of_conversations([shard.column(shard.shared, column) for shard in self._shards])

    def scaled_windows(self) -> Ints:
        """The widest receive windows, scaled where the SYNs of both directions were seen."""
        found = []
        for shard, rows in zip(self._shards, self._rows, strict=True):
            scales = shard.column(shard.directions, segments.SHIFT)
            both = (scales[rows] >= 0) & (scales[rows ^ 1] >= 0)
            widest = shard.column(shard.directions, segments.MOST_WINDOW)
            found.append(widest[rows] << np.where(both, scales[rows], 0))
        return self._ordered(np.concatenate(found))

    def ends(self, hosts: HostNumbers) -> tuple[Ints, Ints, Ints, Ints, Ints]:
        """Protocol (as of trace.Flows), source, destination (as numbers of `hosts`), and their ports, of each row."""
        high, low, other_high, other_low, word = (
            self._of_conversations([shard.column(shard.keys, column) for shard in self._shards]) for column in range(5)
        )  # fmt: skip
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

    def _of_conversations(self, columns: Sequence[Ints]) -> Ints:
        return self._ordered(
            np.concatenate([column[rows // 2] for column, rows in zip(columns, self._rows, strict=True)])
        )

    def _ordered(self, values: Ints) -> Ints:
        return values if self._order is None else values[self._order]

    def _spool(self, shard: Conversations, ranks: Ints, folded: Any) -> Spool:
        rows = np.arange(len(shard.directions))
        number = np.where(folded[rows // 2], 0, 2 * ranks[rows // 2]) + rows % 2
        place = np.minimum(np.searchsorted(self.numbers, number), max(0, self.flows - 1))
        return Spool(shard.bins, place, folded[rows // 2].astype(np.int64))


def _ranks(born: Sequence[Ints]) -> list[Ints]:
    """Of the conversations of each shard, which ones they are among all, from 1, by their first packets."""
    if len(born) == 1:
        return [np.arange(1, len(born[0]) + 1)]
    rank = np.empty(sum(map(len, born)), np.int64)
    rank[np.argsort(np.concatenate(born), kind="stable")] = np.arange(1, len(rank) + 1)
    return np.split(rank, np.cumsum([len(one) for one in born])[:-1])


def _folded(ranks: Ints, most: int) -> Any:
    """Which conversations of a shard are beyond the most that are told apart, as its row 0 is."""
    found = ranks >= most
    found[0] = True
    return found


def _add_others(shards: Sequence[Conversations], folded: Sequence[Any]) -> None:
    """Take what is folded into rows 0 and 1 of the first shard; TCP is not followed in it."""
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
