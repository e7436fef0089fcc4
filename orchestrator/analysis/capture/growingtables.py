"""Tables that grow: in memory up to a bound, beyond it in mapped files, of which unused pages leave memory."""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from orchestrator.core.errors import CaptureError

Ints = np.ndarray[Any, np.dtype[np.int64]]

_WORD = 8
_STATM = Path("/proc/self/statm")
_FILE_PAGES = 2  # of the words of statm: resident pages that are of files


class GrowingTables:
    """Tables of `words` a row, all with as many rows; what is new is 0.

    Beyond `held` bytes they are on disk: rows keep their places, the kernel writes them out, and those that nobody
    uses any more, as those of flows that ended, take no memory. The files have no names (they go with the process,
    however that ends) and are where TMPDIR says. `most`: rows that there can ever be.
    """

    def __init__(self, words: Sequence[int], *, most: int, held: int) -> None:
        self._words = words
        self._most = most
        self._held = held
        self._files: list[_MappedTable] = []
        self._left = 0  # resident bytes of files when these tables were last taken out of memory
        self.arrays: list[Ints] = [np.zeros((0, one), np.int64) for one in words]

    def grow(self, rows: int) -> None:
        """Have so many rows; CaptureError where the disk has no room for them."""
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
        """Hold no more bytes from now on."""
        self._held = held

    def leave(self) -> None:
        """Take out of memory what is mapped, where that is more than may be held; it comes back when it is used."""
        if not self._files or _resident() - self._left <= self._held:
            return
        for file in self._files:
            file.leave()
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

    def leave(self) -> None:
        self._map.madvise(mmap.MADV_DONTNEED)


def no_room(what: str, error: OSError) -> CaptureError:
    """The error of tables that the disk has no room for."""
    return CaptureError(
        f"{what} cannot wait in {tempfile.gettempdir()}: {error.strerror}",
        hint="set TMPDIR to a folder with room, or allow more --memory",
    )


def _resident() -> int:
    """Bytes of files that are in the memory of this process."""
    return int(_STATM.read_bytes().split()[_FILE_PAGES]) * mmap.PAGESIZE
