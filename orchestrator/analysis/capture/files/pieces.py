"""Pieces of a capture file with the packets that are in them, found and decoded; and who looks at them ahead."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from typing import Any

import numpy as np

from orchestrator.analysis.capture.stages import compiled, framing, program
from orchestrator.analysis.capture.stages.dealing import DEALT_WORDS
from orchestrator.analysis.capture.stages.decoding import HEADER_WORDS

_SMALLEST_RECORD = 16  # bytes of a record or block that holds a packet


@dataclass(frozen=True, slots=True)
class Format:
    """What is known of a file where a piece of it begins: how its records are to be read.

    `age` counts what was learned while it was read (sections and interfaces of pcapng); pieces that were surveyed by an
    older format are surveyed again.
    """

    ng: bool
    big: bool
    nanos: int = 1  # nanoseconds a unit of the fraction of a second; of pcap alone, as the next five
    most: int = 0  # bytes that a record can keep
    link: int = 0
    head: int = 16  # bytes of a record's header
    order: int = framing.CAPTURED_FIRST
    near_s: int = 0  # the instant of its first record
    interfaces: Any = None  # of pcapng: rows as framing has them, of which `known` are described
    known: int = 0
    offset_ns: int = 0
    age: int = 0


class Piece:
    """Bytes of a file and the packets in them: rows of `frames` (see framing) and of `headers` (see decoding).

    For each shard there are those that it was dealt (see dealing), with bins of `bin_ns`.
    """

    def __init__(self, size: int, *, shards: int, bin_ns: int, home: deque[Piece]) -> None:
        self.memory = np.empty(size, np.uint8)
        self.view = self.memory.data
        rows = size // _SMALLEST_RECORD + 1
        self.frames = np.empty((rows, framing.FRAME_WORDS), np.int64)
        self.headers = np.empty((rows, HEADER_WORDS), np.int64)
        self.words = program.layout(program.PIECE_WORDS)
        self.words[program.DATA] = program.where(self.memory)
        self._dealt = np.empty((shards, rows, DEALT_WORDS), np.int64)
        self._counts = program.layout(shards)
        self.words[program.FRAMES : program.WHY] = (
            program.where(self.frames),
            rows,
            program.where(self.headers),
            program.where(self._dealt),
            program.where(self._counts),
            shards,
            bin_ns,
        )
        self.home = home  # where it waits when nobody looks at it any more
        self.place = 0  # of its first byte in the file
        self.whole = True  # whether the file goes on behind it
        self.age = 0
        self.base = 0  # packets before it

    def survey(self, form: Format, *, place: int, held: int, at: int, limit: int, before_ns: int) -> None:
        """Find the packets of `held` bytes that are in `memory` and stand at `place` of the file.

        `at`: where the first record begins among them, -1 where that is not known; `limit`: where those begin that are
        another piece's. `before_ns`: the stamp of the packet before, or framing.UNKNOWN_NS.
        """
        words, interfaces = self.words, form.interfaces
        words[program.HELD : program.BEFORE_NS + 1] = (
            held,
            at,
            limit,
            form.ng,
            form.big,
            form.nanos,
            form.most,
            form.link,
            form.head,
            form.order,
            form.offset_ns,
            0 if interfaces is None else program.where(interfaces),
            0 if interfaces is None else len(interfaces),
            form.known,
            form.near_s,
            before_ns,
        )
        self.place, self.age = place, form.age
        self.whole = held == len(self.memory)
        compiled.program()["survey"](program.where(words))

    def said(self, word: int) -> int:
        """One of `program`'s words of this piece."""
        return int(self.words[word])

    def dealt(self, shard: int) -> tuple[int, int]:
        """The address of the rows that a shard was dealt, and how many there are."""
        return program.where(self._dealt[shard]), int(self._counts[shard])

    @property
    def packets(self) -> int:
        return int(self.words[program.FOUND])

    @property
    def begin(self) -> int:
        """Where in the file its first record begins; -1: none was found."""
        return self.place + self.said(program.BEGIN) if self.said(program.BEGIN) >= 0 else -1

    @property
    def end(self) -> int:
        """Where in the file its walk ended."""
        return self.place + self.said(program.END)


class Stock:
    """Pieces that nobody looks at any more, for others.

    Their memory is warm: new memory would cost about as much again as looking through it does. So each goes back to the
    thread that took it. Packets are dealt to `shards`, with bins of `bin_ns`.
    """

    def __init__(self, *, shards: int = 1, bin_ns: int = 1) -> None:
        self._of_thread = threading.local()
        self._shards, self._bin_ns = shards, bin_ns

    def take(self, size: int) -> Piece:
        """A piece with room for so many bytes."""
        free: deque[Piece] = self._of_thread.__dict__.setdefault("free", deque())
        while free:
            piece = free.pop()
            if len(piece.memory) == size:
                return piece
        return Piece(size, shards=self._shards, bin_ns=self._bin_ns, home=free)

    @staticmethod
    def give(piece: Piece) -> None:
        """Take a piece back."""
        piece.home.append(piece)


class Ahead:
    """Pieces that other threads survey before it is known where the first record of each begins.

    A file is cut at multiples of `size`, and each thread in turn looks for the first record behind its cut; the piece
    before decides whether that was right.
    """

    def __init__(
        self,
        threads: Sequence[Executor],
        read: Callable[[int, memoryview], int],
        *,
        size: int,
        depth: int,
        stock: Stock,
    ) -> None:
        self._threads, self._read, self._stock = threads, read, stock
        self._size, self._depth = size, depth
        self._pending: deque[tuple[int, Future[Piece]]] = deque()
        self._next = 0

    def piece(self, place: int, form: Format, end: int) -> Piece | None:
        """The piece whose first record begins at `place` of the file, which is `end` long; None where none fits."""
        number = place // self._size
        while self._pending and self._pending[0][0] < number:
            self._stock.give(self._pending.popleft()[1].result())
        self._next = max(self._next, number)
        while len(self._pending) < self._depth and self._next * self._size < end:
            thread = self._threads[self._next % len(self._threads)]
            self._pending.append((self._next, thread.submit(self._survey, self._next * self._size, form)))
            self._next += 1
        if not self._pending or self._pending[0][0] != number:
            return None
        found = self._pending.popleft()[1].result()
        fits = found.begin == place and found.age == form.age and found.said(program.WHY) != framing.UNSTAMPED
        if not fits:
            self._stock.give(found)
        return found if fits else None

    def close(self) -> None:
        """Wait for those under way, which read a file that is to be closed."""
        for _, one in self._pending:
            if not one.cancel():
                one.exception()
        self._pending.clear()

    def _survey(self, place: int, form: Format) -> Piece:
        piece = self._stock.take(self._size + min(form.most + _SMALLEST_RECORD, self._size // 8))
        held = self._read(place, piece.view)
        piece.survey(form, place=place, held=held, at=-1, limit=self._size, before_ns=framing.UNKNOWN_NS)
        return piece
