"""Pack the tables of a capture into one small file (npz), which a host sends home in place of the capture.

An archive of numpy's arrays (npz) without pickled objects, since the file is the host's word. Of a column of numbers
either they or their differences are stored, in the narrowest type that holds them; of a column of words each once.
What a column comes to when it is read is counted, by what its head says, ahead of reading it.
"""

from __future__ import annotations

import math
import os
import struct
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy

from orchestrator.analysis.capture.captures import Tables
from orchestrator.analysis.capture.oneway import MOST
from orchestrator.analysis.capture.stages.sightings import WORDS
from orchestrator.core.errors import CaptureError
from orchestrator.parts.rows import DESCRIBED, TABLES

MOST_BYTES = 1 << 31  # that tables come to in memory
ALWAYS_BYTES = 1 << 26  # that they may come to however small the file is
MOST_TIMES = 2000  # as much as a larger one has bytes; tables of real traffic come to less than 100 times
MOST_HEADS = 1 << 20  # bytes of what a file says of its arrays
_END = struct.Struct("<4s4H2LH")  # of a zip archive: its sixth field is the size of all heads together
_WORD_BYTES = 64  # of a word, beside its characters
_TABLES = tuple(field.name for field in fields(Tables) if field.name not in ("sightings", "problems"))


def save(path: Path, found: Tables) -> None:
    """Write tables to a file atomically."""
    arrays: dict[str, Any] = {"sightings": found.sightings, "problems": np.array(found.problems, str)}
    for table in _TABLES:
        for column, values in getattr(found, table).items():
            arrays.update(_packed(f"{table}.{column}", values))
    unfinished = path.with_name(f".{path.name}.new.npz")
    with unfinished.open("wb") as file:
        np.savez_compressed(file, **arrays)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)


def load(path: Path) -> Tables:
    """Read such a file; CaptureError for an invalid one, or values that no capture has."""
    try:
        with _Archive(path) as arrays:
            return _unpacked(arrays)
    except Exception as error:  # noqa: BLE001 - the file is the host's word, and its readers raise whatever they like
        reason = str(error).partition("\n")[0][:200]
        raise CaptureError(f"the tables that the host made cannot be read: {reason or type(error).__name__}") from None


class _Archive:
    """The arrays of a file, read on demand and within a limit of memory."""

    def __init__(self, path: Path) -> None:
        size = path.stat().st_size
        self._left = min(MOST_BYTES, max(ALWAYS_BYTES, MOST_TIMES * size))
        with path.open("rb") as file:
            file.seek(max(0, size - _END.size))
            end = file.read(_END.size)
        if not end.startswith(b"PK\5\6") or len(end) < _END.size or _END.unpack(end)[5] > MOST_HEADS:
            raise ValueError("it is no archive of arrays")
        self._zip = zipfile.ZipFile(path)

    def __enter__(self) -> _Archive:
        return self

    def __exit__(self, *_: object) -> None:
        self._zip.close()

    def __contains__(self, name: str) -> bool:
        return f"{name}.npy" in self._zip.NameToInfo

    def array(self, name: str, kind: str, *, ndim: int = 1) -> Any:
        """Read an array of whole numbers (kind "i", as int64) or of words ("U"); ValueError for another kind."""
        about = self._zip.getinfo(f"{name}.npy")
        if about.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise ValueError(f"{name} is compressed as no host compresses it")
        with self._zip.open(about) as file:
            if npy.read_magic(file) != (1, 0):  # of others the head may be as large as it likes
                raise ValueError(f"{name} is no array of ours")
            shape, by_columns, dtype = npy.read_array_header_1_0(file)
            if len(shape) != ndim or min(shape) < 0 or dtype.kind != kind or (by_columns and ndim > 1):
                raise ValueError(f"{name} has no column of this kind")
            count = math.prod(shape)
            self.take(count * (8 if kind == "i" else _WORD_BYTES + 2 * dtype.itemsize))
            data = file.read(count * dtype.itemsize)
            if len(data) < count * dtype.itemsize or file.read(1):  # at its end the checksum is looked at
                raise ValueError(f"{name} is cut off")
        found: Any = np.ndarray(shape, dtype, data)
        return found.astype(np.int64) if kind == "i" else found

    def take(self, size: int) -> None:
        """Count memory that will be used; ValueError beyond the limit."""
        self._left -= size
        if self._left < 0:
            raise ValueError("it comes to more in memory than tables of a capture do")


def _packed(name: str, values: Any) -> Mapping[str, Any]:
    column = np.asarray(values)
    if column.dtype.kind in "iu":
        steps = np.diff(column.astype(np.int64), prepend=0)
        plain, stepped = _narrow(column), _narrow(steps)
        return {f"{name}.steps": stepped} if stepped.itemsize < plain.itemsize else {f"{name}.numbers": plain}
    words, place = np.unique(column.astype(str), return_inverse=True)
    return {f"{name}.words": words, f"{name}.places": _narrow(place.ravel())}


def _narrow(column: Any) -> Any:
    low, high = (int(column.min()), int(column.max())) if len(column) else (0, 0)
    kinds = (np.int8, np.int16, np.int32, np.int64)
    return column.astype(next(kind for kind in kinds if np.iinfo(kind).min <= low <= high <= np.iinfo(kind).max))


def _unpacked(arrays: _Archive) -> Tables:
    sightings = arrays.array("sightings", "i", ndim=2)
    if sightings.shape[1] != WORDS or len(sightings) > MOST:
        raise ValueError("its sightings are none")
    found = {table: _table(table, arrays) for table in _TABLES}
    flows = found["flow_packets"]["flow"]
    if len(flows) and not 0 <= flows.min() <= flows.max() < len(found["capture_flows"]["port"]):
        raise ValueError("it has bins of flows that are not there")
    return Tables(**found, sightings=sightings, problems=tuple(_words("problems", arrays)))


def _table(table: str, arrays: _Archive) -> dict[str, Any]:
    columns = {
        name: _column(f"{table}.{name}", kind, arrays)
        for name, kind in TABLES[table].items()
        if name in DESCRIBED[table].required or _is_there(f"{table}.{name}", arrays)
    }
    if len({len(column) for column in columns.values()}) > 1:
        raise ValueError(f"its {table} have columns of different lengths")
    return columns


def _is_there(name: str, arrays: _Archive) -> bool:
    """Return whether a file has a column, which one that was written under an older schema may lack."""
    return any(f"{name}.{form}" in arrays for form in ("words", "numbers", "steps"))


def _column(name: str, kind: str, arrays: _Archive) -> Any:
    if kind == "string":
        words = np.array([*_words(f"{name}.words", arrays)], object)
        places = arrays.array(f"{name}.places", "i")
        if len(places) and not 0 <= places.min() <= places.max() < len(words):
            raise ValueError(f"{name} has words that are not there")
        return words[places]
    if f"{name}.steps" in arrays:
        return np.cumsum(arrays.array(f"{name}.steps", "i"))
    return arrays.array(f"{name}.numbers", "i")


def _words(name: str, arrays: _Archive) -> Sequence[str]:
    found: list[str] = arrays.array(name, "U").tolist()
    "".join(found).encode()  # UnicodeError, a ValueError, for halves of characters
    return found
