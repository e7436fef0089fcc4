"""Rows of bins as the reader hands them out, packed: in memory, and on disk from where a bound of memory is reached."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from typing import IO, Any

import numpy as np

from orchestrator.analysis.capture.growingtables import no_room
from orchestrator.analysis.capture.stages import closing, compiled, packing, program
from orchestrator.core.errors import CaptureError

Ints = np.ndarray[Any, np.dtype[np.int64]]


class BinRows:
    """Rows in columns as accounting lays them out, in the order in which they came; `held` bytes of them in memory.

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
        """Take the first rows of columns, which may change afterwards; CaptureError where the disk has no room."""
        if not rows:
            return
        room = packing.room(rows, closing.BIN_WORDS)
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
        """Put data behind what is on disk; what was written of it when there is no room counts for nothing."""
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(prefix="orch-bins-", buffering=0)  # noqa: SIM115 - as long as this
            done = 0
            while done < len(data):
                done += os.pwrite(self._file.fileno(), data[done:], self._on_disk + done)
        except OSError as error:
            raise no_room("bins", error) from error
        self._on_disk += len(data)

    def parts(self, *, wanted: int = closing.BIN_WORDS) -> Iterator[Ints]:
        """All rows in columns, in order, a part at a time; a part changes with the next one.

        Only the first `wanted` columns are filled.
        """
        columns = np.empty((closing.BIN_WORDS, max((rows for rows, _ in self._parts), default=0)), np.int64)
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


def _called(name: str, columns: Ints, rows: int, packed: Any, wanted: int = closing.BIN_WORDS) -> int:
    words = program.layout(program.PACK_WORDS)
    words[:] = program.where(columns), columns.shape[1], rows, program.where(packed), len(packed), wanted
    return compiled.program()[name](program.where(words))
