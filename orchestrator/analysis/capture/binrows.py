"""Rows of bins as the reader hands them out, packed: in memory, and on disk from where a bound of memory is reached."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import IO, Any

import numpy as np

from orchestrator.analysis.capture.growingtables import no_room
from orchestrator.analysis.capture.stages import closing, compiled, packing, program

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
        self._in_memory = 0
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
        self.count += rows
        self._parts.append((rows, size))
        if self._file is None and self._in_memory + size <= self._most:
            self._held.append(self._packed[:size].tobytes())
            self._in_memory += size
            return
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(prefix="orch-bins-")  # noqa: SIM115 - as long as this lives
            self._file.write(self._packed[:size].data)
        except OSError as error:
            raise no_room("bins", error) from error

    def parts(self, *, wanted: int = closing.BIN_WORDS) -> Iterator[Ints]:
        """All rows in columns, in order, a part at a time; a part changes with the next one.

        Only the first `wanted` columns are filled.
        """
        columns = np.empty((closing.BIN_WORDS, max((rows for rows, _ in self._parts), default=0)), np.int64)
        packed = np.empty(max((size for _, size in self._parts), default=0), np.uint8)
        if self._file is not None:
            self._file.seek(0)
        for number, (rows, size) in enumerate(self._parts):
            data = packed[:size]
            if number < len(self._held):
                data = np.frombuffer(self._held[number], np.uint8)
            elif self._file is not None:
                self._file.readinto(data)  # type: ignore[attr-defined]
            _called("unpack", columns, rows, data, wanted)
            yield columns[:, :rows]


def _called(name: str, columns: Ints, rows: int, packed: Any, wanted: int = closing.BIN_WORDS) -> int:
    words = program.layout(program.PACK_WORDS)
    words[:] = program.where(columns), columns.shape[1], rows, program.where(packed), len(packed), wanted
    return compiled.program()[name](program.where(words))
