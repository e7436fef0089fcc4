"""One shard of the conversations of a capture: the tables that its packets are accounted for in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from orchestrator.analysis.capture.binrows import BinRows
from orchestrator.analysis.capture.files.pieces import Piece
from orchestrator.analysis.capture.growingtables import GrowingTables
from orchestrator.analysis.capture.stages import accounting, closing, compiled, program, segments
from orchestrator.analysis.capture.stages import holes as gaps

Ints = np.ndarray[Any, np.dtype[np.int64]]

_BINS_A_CALL = 1 << 13
_FIRST_CONVERSATIONS = 1 << 10
_FIRST_HOLE_WORDS = 1 << 13
_ROWS_AT_ONCE = 1 << 13
_HELD_AT_END = 1 << 24  # bytes of tables that are read once more, from their beginning
_ROW_WORDS = (accounting.KEY_WORDS, segments.CONVERSATION_WORDS, 2 * segments.DIRECTION_WORDS)


class Conversations:
    """Every conversation of a shard that was seen so far.

    Row 2 n and 2 n + 1 are the directions of conversation n; one that sent nothing has no packets, and rows 0 and 1
    are all conversations beyond `most`. Bins of `bin_ns` go to `bins`, a direction and bin once, bin after bin, unless
    packets' stamps went back. `held`: bytes of the tables, beyond which rows of which nothing comes leave memory.
    """

    def __init__(self, *, shard: int, bin_ns: int, segment: int, most: int, held: int, bins: BinRows) -> None:
        self.bins = bins
        self._shard = shard
        self._tables = GrowingTables(_ROW_WORDS, most=1 << (most - 1).bit_length(), held=held)
        self._call = compiled.program()
        self._state = program.layout(closing.STATE_WORDS)
        self._state[closing.CONVERSATIONS], self._state[closing.BIN_BEGIN] = 1, -(1 << 62)
        self._out = np.zeros((closing.BIN_WORDS, _BINS_A_CALL), np.int64)
        self._words = program.layout(program.ACCOUNT_WORDS)
        self._words[program.A_BIN_NS : program.A_MOST + 1] = bin_ns, segment, most
        self._words[[program.A_STATE, program.A_OUT, program.A_OUT_ROWS]] = (
            program.where(self._state),
            program.where(self._out),
            _BINS_A_CALL,
        )
        self._allocate(_FIRST_CONVERSATIONS)
        self._holes = gaps.arena(_FIRST_HOLE_WORDS)
        self._set_holes()

    @property
    def count(self) -> int:
        """Conversations, with row 0 for all beyond the most."""
        return int(self._state[closing.CONVERSATIONS])

    @property
    def back_bins(self) -> int:
        """How often packets' stamps went back to an earlier bin."""
        return int(self._state[closing.BACK_BINS])

    @property
    def keys(self) -> Ints:
        return self._keys[: self.count]

    @property
    def shared(self) -> Ints:
        """Columns that both directions of a conversation share, as `segments` has them."""
        return self._shared[: self.count]

    @property
    def directions(self) -> Ints:
        """Columns of directions, as `segments` has them."""
        return self._directions[: 2 * self.count]

    def add(self, piece: Piece) -> None:
        """Account for the packets of a piece."""
        words = self._words
        words[program.A_DEALT : program.A_BASE + 1] = (
            *piece.dealt(self._shard),
            piece.words[program.HEADERS],
            piece.words[program.ROWS],
            0,
            piece.base,
        )
        why = -1
        while why != accounting.DONE:
            why = self._call["account"](program.where(words))
            if why == accounting.TABLE_FULL:
                self._grow()
            elif why == accounting.HOLES_FULL:
                self._holes = gaps.arena(2 * len(self._holes), self._holes)
                self._set_holes()
            elif why == accounting.BINS_FULL:
                self._hand_on()
        self._tables.leave()

    def column(self, table: Ints, number: int) -> Ints:
        """A column of one of the tables; what is on disk of a table is never in memory as a whole."""
        found = np.empty(len(table), np.int64)
        for part in self._parts(len(table)):
            found[part] = table[part, number]
        return found

    def copy(self, table: Ints, numbers: Sequence[int], rows: Ints, *, into: Ints, places: Ints) -> None:
        """Copy columns of some rows of one of the tables to these places of the rows of `into`, in one reading."""
        for part in self._parts(len(rows)):
            into[:, places[part]] = table[rows[part]].T[list(numbers)]

    def _parts(self, rows: int) -> Iterator[slice]:
        for begin in range(0, rows, _ROWS_AT_ONCE):
            yield slice(begin, begin + _ROWS_AT_ONCE)
            self._tables.leave()

    def finish(self) -> None:
        """Hand out the bins that are open; nothing is added any more."""
        self._tables.hold(_HELD_AT_END)
        while self._call["close_bins"](program.where(self._words)):
            self._hand_on()
        self._hand_on()

    def release(self) -> None:
        """Give up the tables; the bins stay."""
        self._tables = GrowingTables(_ROW_WORDS, most=1, held=1 << 20)
        self._allocate(1)

    def _hand_on(self) -> None:
        used = int(self._state[closing.HANDED_OUT])
        self._state[closing.HANDED_OUT] = 0
        self.bins.add(self._out, used)

    def _allocate(self, rows: int) -> None:
        """Have tables for so many conversations (a power of two); what is not used yet takes no memory.

        Slots are twice as many, so that probes stay short.
        """
        self._tables.grow(rows)
        self._keys, self._shared, both = self._tables.arrays
        self._directions = both.reshape(2 * rows, segments.DIRECTION_WORDS)
        self._slots = np.zeros(2 * rows, np.int64)
        self._active = np.zeros(2 * rows, np.int64)
        where = program.where
        self._words[program.A_SLOTS : program.A_CONVERSATIONS + 1] = (
            where(self._slots),
            len(self._slots),
            where(self._keys),
            where(self._shared),
            where(self._directions),
            rows,
        )
        self._words[program.A_ACTIVE] = where(self._active)

    def _grow(self) -> None:
        active = self._active
        self._allocate(2 * len(self._keys))
        self._active[: len(active)] = active
        self._call["rehash"](program.where(self._words))

    def _set_holes(self) -> None:
        self._words[[program.A_HOLES, program.A_HOLE_WORDS]] = program.where(self._holes), len(self._holes)
