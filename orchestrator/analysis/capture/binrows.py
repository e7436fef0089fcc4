"""Rows of bins as the reader hands them out: in memory, and on disk from where a bound of memory is reached."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import IO, Any

import numpy as np

from orchestrator.analysis.capture.growingtables import no_room
from orchestrator.analysis.capture.stages import accounting

Ints = np.ndarray[Any, np.dtype[np.int64]]

ROW_BYTES = 8 * accounting.BIN_WORDS
_READ_ROWS = 1 << 15


class BinRows:
    """Rows as accounting lays them out, in the order in which they came; `held` of them in memory, the rest on disk.

    The file has no name (it goes with the process, however that ends) and is where TMPDIR says.
    """

    def __init__(self, *, held: int) -> None:
        self._most = held
        self._held: list[Ints] = []
        self._file: IO[bytes] | None = None
        self._in_memory = 0
        self.count = 0

    def add(self, rows: Ints) -> None:
        """Take rows, which may change afterwards; CaptureError where the disk has no room for them."""
        self.count += len(rows)
        if self._file is None and self._in_memory + len(rows) <= self._most:
            self._held.append(rows.copy())
            self._in_memory += len(rows)
            return
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(prefix="orch-bins-")  # noqa: SIM115 - as long as this lives
            self._file.write(rows.data)
        except OSError as error:
            raise no_room("bins", error) from error

    def parts(self) -> Iterator[Ints]:
        """All rows, in order, a part at a time; a part may change with the next one."""
        yield from self._held
        if self._file is None:
            return
        self._file.seek(0)
        part = np.empty((_READ_ROWS, accounting.BIN_WORDS), np.int64)
        while count := self._file.readinto(part):  # type: ignore[attr-defined]
            yield part[: count // ROW_BYTES]
