"""Reads the capture files of one point, all tables at once: conversations, bins, queue pairs, sightings of packets.

Files are read piece by piece (`pcap`). With several workers each looks for the packets of another piece, and then each
accounts for the conversations of its own shard in all pieces, in their order: so every conversation is followed by one
of them from its first packet to its last, and the result is the same whatever the number of workers.
"""

from __future__ import annotations

import stat
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from orchestrator.analysis.capture.binrows import BinRows
from orchestrator.analysis.capture.conversations import Conversations
from orchestrator.analysis.capture.files import pcap
from orchestrator.analysis.capture.files.pcap import FileEnd, Interfaces
from orchestrator.analysis.capture.files.pieces import Piece, Stock
from orchestrator.analysis.capture.oneway import Sightings
from orchestrator.analysis.capture.queuepairtable import QueuePairTable
from orchestrator.analysis.capture.stages import compiled, framing, program

MOST_CONVERSATIONS = 1 << 20  # that are told apart; all beyond count together
MEMORY = 256 << 20  # bytes for tables of a capture, beyond which they go on on disk
_BYTES_A_THREAD = 1 << 29
_MOST_THREADS = 8  # of a capture, since each has pieces of its own in memory


@dataclass(slots=True)
class Tally:
    """What a capture point's packets add up to; instants in nanoseconds, 0 where there is no packet."""

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
        """Take the packets of the next piece."""
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
    """Everything that is read of one file or a rotated set; a context manager, complete once `finish` was called.

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
        workers: int = 1,
        sightings: Sightings | None = None,
        most: int = MOST_CONVERSATIONS,
        memory: int = MEMORY,
        piece_bytes: int | None = None,
        stop: threading.Event | None = None,
    ) -> None:
        self.bin_ns = bin_ns
        self.tally = Tally()
        self.link_types: set[int] = set()
        self.interfaces = Interfaces()
        self.queue_pairs = QueuePairTable()
        self.most = most
        self.shards = [
            Conversations(
                shard=number,
                bin_ns=bin_ns,
                segment=segment or 0,
                most=most,
                held=memory // 2 // workers,
                bins=BinRows(held=memory // 8 // workers),
            )
            for number in range(workers)
        ]
        self._offset_ns = offset_ns
        self._sightings = sightings
        self._stop = stop or threading.Event()
        self._stock = Stock(shards=workers, bin_ns=bin_ns)
        # What a thread works on is in the caches of its processor: so a shard has one of its own, and keeps it.
        self._threads = [ThreadPoolExecutor(1) for _ in self.shards] if workers > 1 else []
        self._size = piece_bytes or pcap.PIECE_BYTES
        self._pending: list[Future[None]] = []
        self._looked_at: list[Piece] = []

    def __enter__(self) -> FlowTable:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for thread in self._threads:
            thread.shutdown(cancel_futures=True)

    def add(self, path: Path) -> FileEnd:
        """Read a file to its end. CaptureError when it is no capture, or of a link type that cannot be read."""
        before = self.tally.packets
        settings = {
            "offset_ns": self._offset_ns,
            "piece_bytes": self._size,
            "stock": self._stock,
            "interfaces": self.interfaces,
        }
        with pcap.opened(path, threads=self._threads, **settings) as file:
            group: list[Piece] = []
            for piece in file.pieces():
                if self._stop.is_set():
                    break
                piece.base = self.tally.packets
                self.tally.add(piece)
                group.append(piece)
                if len(group) == len(self.shards):
                    self._take(group)
                    group = []
            self._take(group)
            self.link_types |= file.link_types
            return file.end(self.tally.packets - before)

    def interface_names(self, numbers: Sequence[int]) -> list[str]:
        """What people call interfaces by their numbers; empty where the files tell none apart."""
        names = self.interfaces.names()
        return [
            f"index {number & framing.INDEXED - 1}" if number & framing.INDEXED else names.get(number, "")
            for number in numbers
        ]

    def finish(self) -> None:
        """Close the bins that are open."""
        self._settle()
        for shard in self.shards:
            shard.finish()

    def _take(self, group: list[Piece]) -> None:
        """Account for pieces, one shard beside the other, once those before are accounted for."""
        self._settle()
        works: list[list[Callable[[Piece], None]]] = [[shard.add] for shard in self.shards]
        works[0].append(self._pairs)
        if self._sightings is not None:
            works[-1].append(self._sightings.add)
        if not self._threads:
            _each(works[0], group)
            self._give(group)
            return
        self._looked_at = group
        self._pending = [thread.submit(_each, some, group) for thread, some in zip(self._threads, works, strict=True)]

    def _settle(self) -> None:
        for one in self._pending:
            one.result()
        self._pending = []
        self._give(self._looked_at)
        self._looked_at = []

    def _give(self, group: Sequence[Piece]) -> None:
        for piece in group:
            self._stock.give(piece)

    def _pairs(self, piece: Piece) -> None:
        if piece.said(program.ROCE):
            self.queue_pairs.add(piece)


def _each(works: Sequence[Callable[[Piece], None]], group: Sequence[Piece]) -> None:
    for piece in group:
        for work in works:
            work(piece)


def threads(files: Sequence[Path], most: int) -> int:
    """How many threads are worth their start for these files."""
    size = sum(map(_size, files))
    return max(1, min(most, size // _BYTES_A_THREAD, _MOST_THREADS))


def _size(file: Path) -> int:
    """Bytes of a regular file; 0 of anything else, or where nobody can tell."""
    try:
        found = file.stat()
    except OSError:
        return 0
    return found.st_size if stat.S_ISREG(found.st_mode) else 0


def warm() -> None:
    """Compile the reader now where that was never done, and load it, so that no run waits for it."""
    compiled.program()
