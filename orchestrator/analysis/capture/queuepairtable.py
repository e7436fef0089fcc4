"""The table of RoCEv2 queue pairs that a capture is read into."""

from __future__ import annotations

from typing import Any

import numpy as np

from orchestrator.analysis.capture.files.pieces import Piece
from orchestrator.analysis.capture.stages import compiled, program
from orchestrator.analysis.capture.stages.decoding import SCOPE_V4
from orchestrator.analysis.capture.stages.queuepairs import KEY_WORDS, OPCODES, SIZE_BINS, STAT_WORDS

_FIRST_ROWS = 1 << 6


class QueuePairTable:
    """Every queue pair seen so far, and what its packets and messages were."""

    def __init__(self) -> None:
        self.counts = np.zeros(2, np.int64)
        self._key = np.zeros(KEY_WORDS, np.int64)
        self._words = program.layout(program.PAIR_WORDS)
        self._allocate(_FIRST_ROWS)

    @property
    def rows(self) -> int:
        return int(self._words[program.Q_PAIRS])

    def add(self, piece: Piece) -> None:
        """Take the RoCEv2 packets of a piece."""
        words, from_ = self._words, piece.words
        words[program.Q_DATA : program.Q_FOUND + 1] = (
            from_[program.DATA],
            from_[program.HELD],
            from_[program.FRAMES],
            from_[program.HEADERS],
            from_[program.ROWS],
            0,
            piece.packets,
        )
        while words[program.Q_PLACE] < piece.packets:
            compiled.program()["account_pairs"](program.where(words))
            if words[program.Q_PLACE] < piece.packets:
                self._grow()

    def _allocate(self, rows: int) -> None:
        self._slots = np.zeros(2 * rows, np.int64)
        self.keys = np.zeros((rows, KEY_WORDS), np.int64)
        self.stats = np.zeros((rows, STAT_WORDS), np.int64)
        self.opcodes = np.zeros((rows, OPCODES), np.int64)
        self.sizes = np.zeros((rows, SIZE_BINS), np.int64)
        arrays = (self._slots, self.keys, self.stats, self.opcodes, self.sizes)
        self._words[program.Q_SLOTS : program.Q_CAPACITY + 1] = (*map(program.where, arrays), rows)
        self._words[[program.Q_COUNTS, program.Q_KEY]] = program.where(self.counts), program.where(self._key)

    def _grow(self) -> None:
        before = (self.keys, self.stats, self.opcodes, self.sizes)
        self._allocate(2 * len(self.keys))
        for old, new in zip(before, (self.keys, self.stats, self.opcodes, self.sizes), strict=True):
            new[: len(old)] = old
        compiled.program()["rehash_pairs"](program.where(self._words))

    @property
    def via(self) -> Any:
        """How the packets of each came, as decoding's VIA."""
        return self.keys[: self.rows, 5]

    def ends(self, row: int) -> tuple[bool, tuple[int, int], tuple[int, int], int]:
        """Whether it is IPv6, source and destination as two words each, and the queue pair at the destination."""
        high, low, to_high, to_low, word = (int(value) for value in self.keys[row, :5])
        return word >> 32 != SCOPE_V4, (high, low), (to_high, to_low), word & 0xFFFFFF
