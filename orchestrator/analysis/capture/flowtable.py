"""Read the capture files of one point into tables: conversations, bins, RoCEv2 queue pairs, sightings of packets.

Files are read piece by piece (`pcap`), by one thread: each conversation is followed from its first packet to its last,
and the result is the same wherever files are cut.
"""

from __future__ import annotations

import mmap
import os
import tempfile
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from orchestrator.analysis.capture import pcap
from orchestrator.analysis.capture.oneway import Sightings
from orchestrator.analysis.capture.pcap import FileEnd, Interfaces, Piece
from orchestrator.analysis.capture.stages import accounting, bin_rows, compiled, framing, program, segments
from orchestrator.analysis.capture.stages.decoding import SCOPE_V4
from orchestrator.analysis.capture.stages.queuepairs import KEY_WORDS, OPCODES, SIZE_BINS, STAT_WORDS
from orchestrator.core.errors import CaptureError

Ints = np.ndarray[Any, np.dtype[np.int64]]

_WORD = 8
_STATM = Path("/proc/self/statm")
_FILE_PAGES = 2  # of the words of statm: resident pages that are of files

_BINS_A_CALL = 1 << 13
_FIRST_CONVERSATIONS = 1 << 10
_FIRST_HOLE_WORDS = 1 << 13
_ROWS_AT_ONCE = 1 << 13
_HELD_AT_END = 1 << 24  # bytes of tables that are read once more, from their beginning
_ROW_WORDS = (accounting.KEY_WORDS, segments.CONVERSATION_WORDS, 2 * segments.DIRECTION_WORDS)

_FIRST_ROWS = 1 << 6

MOST_CONVERSATIONS = 1 << 20  # that are told apart; all beyond count together
MEMORY = 256 << 20  # bytes for tables of a capture, beyond which they go on on disk


class GrowingTables:
    """Tables of `words` a row, all with as many rows, on disk beyond `held` bytes; new rows are 0.

    The kernel writes out rows on disk, and those that nobody uses any more, as of flows that ended, take no memory. The
    files have no names (they go with the process, however that ends) and are where TMPDIR says. `most`: rows that there
    can ever be.
    """

    def __init__(self, words: Sequence[int], *, most: int, held: int) -> None:
        self._words = words
        self._most = most
        self._held = held
        self._files: list[_MappedTable] = []
        self._left = 0  # resident bytes of files when these tables were last taken out of memory
        self.arrays: list[Ints] = [np.zeros((0, one), np.int64) for one in words]

    def grow(self, rows: int) -> None:
        """Grow the tables to so many rows; CaptureError where the disk has no room for them."""
        before = self.arrays
        if not self._files and rows * sum(self._words) * _WORD <= self._held:
            self.arrays = [np.zeros((rows, one), np.int64) for one in self._words]
        else:
            try:
                self._map(rows)
            except OSError as error:
                raise no_room("flows", error) from error
        for old, new in zip(before, self.arrays, strict=True):
            if old.base is None:  # what was mapped is in its place
                new[: len(old)] = old

    def hold(self, held: int) -> None:
        """Lower the bytes that may be in memory from now on."""
        self._held = held

    def evict(self) -> None:
        """Release mapped memory beyond what may be held; it is read back when it is used."""
        if not self._files or _resident() - self._left <= self._held:
            return
        for file in self._files:
            file.evict()
        self._left = _resident()

    def _map(self, rows: int) -> None:
        if not self._files:
            self._left = _resident()
            self._files = [_MappedTable(max(self._most, rows), one) for one in self._words]
        self.arrays = [file.rows(rows) for file in self._files]


class _MappedTable:
    def __init__(self, most: int, words: int) -> None:
        self._row_bytes = words * _WORD
        self._file: IO[bytes] = tempfile.TemporaryFile(prefix="orch-flows-")  # noqa: SIM115 - as long as this lives
        os.ftruncate(self._file.fileno(), most * self._row_bytes)
        self._map = mmap.mmap(self._file.fileno(), most * self._row_bytes)
        self._all = np.frombuffer(self._map, np.int64).reshape(most, words)

    def rows(self, count: int) -> Ints:
        # A page for which the disk has no room would end the process when it is written to.
        os.posix_fallocate(self._file.fileno(), 0, count * self._row_bytes)
        found: Ints = self._all[:count]
        return found

    def evict(self) -> None:
        self._map.madvise(mmap.MADV_DONTNEED)


def no_room(what: str, error: OSError) -> CaptureError:
    """Return the error for tables that the disk has no room for."""
    return CaptureError(
        f"{what} cannot wait in {tempfile.gettempdir()}: {error.strerror}",
        hint="set TMPDIR to a folder with room, or allow more --memory",
    )


def _resident() -> int:
    """Return the bytes of files that are in the memory of this process."""
    return int(_STATM.read_bytes().split()[_FILE_PAGES]) * mmap.PAGESIZE


class BinRows:
    """Bin rows in columns as accounting lays them out, in order of arrival; `held` bytes of them in memory.

    The others are on disk, in a file that has no name (it goes with the process, however that ends) and is where TMPDIR
    says.
    """

    def __init__(self, *, held: int) -> None:
        self._most = held
        self._held: list[bytes] = []
        self._file: IO[bytes] | None = None
        self._in_memory = self._on_disk = 0  # bytes
        self._parts: list[tuple[int, int]] = []  # rows of each part, and the bytes that they take
        self._packed = np.empty(0, np.uint8)
        self.count = 0

    def add(self, columns: Ints, rows: int) -> None:
        """Append the first rows of columns, which are copied; CaptureError where the disk has no room."""
        if not rows:
            return
        room = bin_rows.packed_room(rows, accounting.BIN_WORDS)
        if len(self._packed) < room:
            self._packed = np.empty(room, np.uint8)
        size = _called("pack", columns, rows, self._packed)
        if self._file is None and self._in_memory + size <= self._most:
            self._held.append(self._packed[:size].tobytes())
            self._in_memory += size
        else:
            self._write(self._packed[:size].data)
        self._parts.append((rows, size))
        self.count += rows

    def _write(self, data: memoryview) -> None:
        """Append data to the file on disk; a part written when there was no room is ignored."""
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(prefix="orch-bins-", buffering=0)  # noqa: SIM115 - as long as this
            done = 0
            while done < len(data):
                done += os.pwrite(self._file.fileno(), data[done:], self._on_disk + done)
        except OSError as error:
            raise no_room("bins", error) from error
        self._on_disk += len(data)

    def parts(self, *, wanted: int = accounting.BIN_WORDS) -> Iterator[Ints]:
        """Yield all rows in columns, in order, a part at a time; a part changes with the next one.

        Only the first `wanted` columns are filled.
        """
        columns = np.empty((accounting.BIN_WORDS, max((rows for rows, _ in self._parts), default=0)), np.int64)
        packed = np.empty(max((size for _, size in self._parts), default=0), np.uint8)
        place = 0
        for number, (rows, size) in enumerate(self._parts):
            if number < len(self._held):
                data = np.frombuffer(self._held[number], np.uint8)
            else:
                data = packed[:size]
                self._read(data.data, place)
                place += size
            _called("unpack", columns, rows, data, wanted)
            yield columns[:, :rows]

    def _read(self, into: memoryview, place: int) -> None:
        done = 0
        while self._file is not None and done < len(into):
            count = os.preadv(self._file.fileno(), [into[done:]], place + done)
            if not count:
                raise CaptureError("bins that waited on disk have been cut off")
            done += count


def _called(name: str, columns: Ints, rows: int, packed: Any, wanted: int = accounting.BIN_WORDS) -> int:
    words = program.layout(program.PACK_WORDS)
    words[:] = program.address_of(columns), columns.shape[1], rows, program.address_of(packed), len(packed), wanted
    return compiled.program()[name](program.address_of(words))


class Conversations:
    """Every conversation that was seen so far.

    Row 2 n and 2 n + 1 are the directions of conversation n; one that sent nothing has no packets, and rows 0 and 1
    are all conversations beyond `most`. Bins of `bin_ns` go to `bins`, a direction and bin once, bin after bin, unless
    packets' stamps went back. `held`: bytes of the tables, beyond which rows of which nothing comes leave memory.
    """

    def __init__(self, *, bin_ns: int, segment: int, most: int, held: int, bins: BinRows) -> None:
        self.bins = bins
        self._tables = GrowingTables(_ROW_WORDS, most=1 << (most - 1).bit_length(), held=held)
        self._call = compiled.program()
        self._state = program.layout(accounting.STATE_WORDS)
        self._state[accounting.CONVERSATIONS], self._state[accounting.BIN_BEGIN] = 1, -(1 << 62)
        self._out = np.zeros((accounting.BIN_WORDS, _BINS_A_CALL), np.int64)
        self._words = program.layout(program.ACCOUNT_WORDS)
        self._words[program.A_BIN_NS : program.A_MOST + 1] = bin_ns, segment, most
        self._words[[program.A_STATE, program.A_OUT, program.A_OUT_ROWS]] = (
            program.address_of(self._state),
            program.address_of(self._out),
            _BINS_A_CALL,
        )
        self._allocate(_FIRST_CONVERSATIONS)
        self._holes = segments.hole_arena(_FIRST_HOLE_WORDS)
        self._set_holes()

    @property
    def count(self) -> int:
        """Conversations, with row 0 for all beyond the most."""
        return int(self._state[accounting.CONVERSATIONS])

    @property
    def back_bins(self) -> int:
        """The number of times that packets' stamps went back to an earlier bin."""
        return int(self._state[accounting.BACK_BINS])

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
        words[program.A_PACKETS : program.A_PLACE + 1] = (
            piece.words[program.PACKETS],
            piece.packets,
            piece.words[program.HEADERS],
            piece.words[program.ROWS],
            0,
        )
        why = -1
        while why != accounting.DONE:
            why = self._call["account"](program.address_of(words))
            if why == accounting.TABLE_FULL:
                self._grow()
            elif why == accounting.HOLES_FULL:
                self._holes = segments.hole_arena(2 * len(self._holes), self._holes)
                self._set_holes()
            elif why == accounting.BINS_FULL:
                self._hand_on()
        self._tables.evict()

    def column(self, table: Ints, number: int) -> Ints:
        """Return a column of one of the tables; what is on disk of a table is never in memory as a whole."""
        found = np.empty(len(table), np.int64)
        for part in self._parts(len(table)):
            found[part] = table[part, number]
        return found

    def copied(self, table: Ints, numbers: Sequence[int], rows: Ints) -> Ints:
        """Return columns of some rows of one of the tables, each as a row, in one reading."""
        found = np.empty((len(numbers), len(rows)), np.int64)
        for part in self._parts(len(rows)):
            found[:, part] = table[rows[part]].T[list(numbers)]
        return found

    def _parts(self, rows: int) -> Iterator[slice]:
        for begin in range(0, rows, _ROWS_AT_ONCE):
            yield slice(begin, begin + _ROWS_AT_ONCE)
            self._tables.evict()

    def finish(self) -> None:
        """Hand out the bins that are open; no packet may be added afterwards."""
        self._tables.hold(_HELD_AT_END)
        while self._call["close_bins"](program.address_of(self._words)):
            self._hand_on()
        self._hand_on()

    def release(self) -> None:
        """Free the tables; the bins stay."""
        self._tables = GrowingTables(_ROW_WORDS, most=1, held=1 << 20)
        self._allocate(1)

    def _hand_on(self) -> None:
        used = int(self._state[accounting.HANDED_OUT])
        self._state[accounting.HANDED_OUT] = 0
        self.bins.add(self._out, used)

    def _allocate(self, rows: int) -> None:
        """Allocate tables for so many conversations (a power of two); unused rows take no memory.

        Slots are twice as many, so that probes stay short.
        """
        self._tables.grow(rows)
        self._keys, self._shared, both = self._tables.arrays
        self._directions = both.reshape(2 * rows, segments.DIRECTION_WORDS)
        self._slots = np.zeros(2 * rows, np.int64)
        self._active = np.zeros(2 * rows, np.int64)
        address_of = program.address_of
        self._words[program.A_SLOTS : program.A_CONVERSATIONS + 1] = (
            address_of(self._slots),
            len(self._slots),
            address_of(self._keys),
            address_of(self._shared),
            address_of(self._directions),
            rows,
        )
        self._words[program.A_ACTIVE] = address_of(self._active)

    def _grow(self) -> None:
        active = self._active
        self._allocate(2 * len(self._keys))
        self._active[: len(active)] = active
        self._call["rehash"](program.address_of(self._words))

    def _set_holes(self) -> None:
        self._words[[program.A_HOLES, program.A_HOLE_WORDS]] = program.address_of(self._holes), len(self._holes)


class QueuePairTable:
    """Every RoCEv2 queue pair seen so far, with counts of its packets and messages."""

    def __init__(self) -> None:
        self.counts = np.zeros(2, np.int64)
        self._key = np.zeros(KEY_WORDS, np.int64)
        self._words = program.layout(program.PAIR_WORDS)
        self._allocate(_FIRST_ROWS)

    @property
    def rows(self) -> int:
        return int(self._words[program.Q_PAIRS])

    def add(self, piece: Piece) -> None:
        """Account for the RoCEv2 packets of a piece."""
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
            compiled.program()["account_pairs"](program.address_of(words))
            if words[program.Q_PLACE] < piece.packets:
                self._grow()

    def _allocate(self, rows: int) -> None:
        self._slots = np.zeros(2 * rows, np.int64)
        self.keys = np.zeros((rows, KEY_WORDS), np.int64)
        self.stats = np.zeros((rows, STAT_WORDS), np.int64)
        self.opcodes = np.zeros((rows, OPCODES), np.int64)
        self.sizes = np.zeros((rows, SIZE_BINS), np.int64)
        arrays = (self._slots, self.keys, self.stats, self.opcodes, self.sizes)
        self._words[program.Q_SLOTS : program.Q_CAPACITY + 1] = (*map(program.address_of, arrays), rows)
        self._words[[program.Q_COUNTS, program.Q_KEY]] = program.address_of(self.counts), program.address_of(self._key)

    def _grow(self) -> None:
        before = (self.keys, self.stats, self.opcodes, self.sizes)
        self._allocate(2 * len(self.keys))
        for old, new in zip(before, (self.keys, self.stats, self.opcodes, self.sizes), strict=True):
            new[: len(old)] = old
        compiled.program()["rehash_pairs"](program.address_of(self._words))

    @property
    def via(self) -> Any:
        """Interface and tunnel of each, as decoding's VIA."""
        return self.keys[: self.rows, 5]

    def ends(self, row: int) -> tuple[bool, tuple[int, int], tuple[int, int], int]:
        """Return whether it is IPv6, source and destination as two words each, and the destination queue pair."""
        high, low, to_high, to_low, word = (int(value) for value in self.keys[row, :5])
        return word >> 32 != SCOPE_V4, (high, low), (to_high, to_low), word & 0xFFFFFF


@dataclass(slots=True)
class Tally:
    """Totals over a capture point's packets; instants in nanoseconds, 0 where there is no packet."""

    packets: int = 0
    wire_bytes: int = 0
    kept_bytes: int = 0
    snapped: int = 0  # packets of which less was kept than was on the wire
    backwards: int = 0  # packets with an earlier stamp than the one before
    first_ns: int = 0
    last_ns: int = 0
    undecoded: int = 0
    fragments: int = 0
    inner: int = 0  # packets of tunnels whose inner headers could not be read
    closing_ns: int = 0  # of the last packet in the file

    def add(self, piece: Piece) -> None:
        """Account for the packets of the next piece."""
        said = piece.words[program.UNDECODED : program.MOST_NS + 1].tolist()
        undecoded, fragments, _, inner, wire, kept, snapped, backwards, opening, closing, least, most = said
        self.backwards += backwards + (self.packets > 0 and opening < self.closing_ns)
        self.first_ns = min(self.first_ns, least) if self.packets else least
        self.last_ns = max(self.last_ns, most) if self.packets else most
        self.closing_ns = closing
        self.packets += piece.packets
        self.wire_bytes += wire
        self.kept_bytes += kept
        self.snapped += snapped
        self.undecoded += undecoded
        self.fragments += fragments
        self.inner += inner


class FlowTable:
    """The tables of one capture point, filled file by file, complete once `finish` was called.

    TCP's sequence numbers go on from file to file. Instants are the file's plus `offset_ns`. `segment`: the MTU of a
    device that cuts longer packets after they are captured; wire bytes are then of its frames. `memory`: bytes for
    tables, half of them for conversations and an eighth for bins; what is beyond is on disk. Once another thread sets
    `stop`, nothing is read.
    """

    def __init__(
        self,
        *,
        offset_ns: int = 0,
        bin_ns: int,
        segment: int | None = None,
        sightings: Sightings | None = None,
        most: int = MOST_CONVERSATIONS,
        memory: int = MEMORY,
        piece_bytes: int = pcap.PIECE_BYTES,
        stop: threading.Event | None = None,
    ) -> None:
        self.bin_ns = bin_ns
        self.tally = Tally()
        self.link_types: set[int] = set()
        self.interfaces = Interfaces()
        self.queue_pairs = QueuePairTable()
        self.most = most
        bins = BinRows(held=memory // 8)
        self.conversations = Conversations(bin_ns=bin_ns, segment=segment or 0, most=most, held=memory // 2, bins=bins)
        self._offset_ns = offset_ns
        self._sightings = sightings
        self._stop = stop or threading.Event()
        self._piece = Piece(piece_bytes)

    def add(self, path: Path) -> FileEnd:
        """Read a file to its end. CaptureError when it is no capture, or of a link type that cannot be read."""
        before = self.tally.packets
        with pcap.opened(path, offset_ns=self._offset_ns, piece=self._piece, interfaces=self.interfaces) as file:
            for piece in file.pieces():
                if self._stop.is_set():
                    break
                self.tally.add(piece)
                self.conversations.add(piece)
                if piece.word(program.ROCE):
                    self.queue_pairs.add(piece)
                if self._sightings is not None:
                    self._sightings.add(piece)
            self.link_types |= file.link_types
            return file.end(self.tally.packets - before)

    def interface_names(self, numbers: Sequence[int]) -> list[str]:
        """Return the names of interfaces by their numbers; empty where the files have a single one."""
        names = self.interfaces.names()
        return [
            f"index {number & framing.INDEXED - 1}" if number & framing.INDEXED else names.get(number, "")
            for number in numbers
        ]

    def finish(self) -> None:
        """Close the bins that are open."""
        self.conversations.finish()


def warm() -> None:
    """Compile the reader where that was never done on this machine, and load it, so that no run waits for it."""
    compiled.program()
