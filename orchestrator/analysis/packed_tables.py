"""The tables of a capture as one small file, by which a host that keeps the capture sends home what is in it.

An archive of numpy's arrays (npz) without pickled objects, since the file is the host's word. Of a column of numbers
either they or their differences are stored, in the narrowest type that holds them; of a column of words each once.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from orchestrator.analysis.capture.captures import Tables
from orchestrator.analysis.capture.oneway import MOST
from orchestrator.analysis.capture.stages.sightings import WORDS
from orchestrator.core.errors import CaptureError
from orchestrator.parts.rows import TABLES

MOST_BYTES = 1 << 32  # of the arrays of a file
_TABLES = tuple(field.name for field in fields(Tables) if field.name not in ("sightings", "problems"))


def save(path: Path, found: Tables) -> None:
    """Write tables to a file that is whole as soon as it is there."""
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
    """Read such a file; CaptureError where it is none, or holds what no capture has."""
    try:
        _refuse_large(path)
        with np.load(path, allow_pickle=False) as arrays:
            return _unpacked({name: arrays[name] for name in arrays.files})
    except Exception as error:  # noqa: BLE001 - the file is the host's word, and its readers raise whatever they like
        reason = str(error).partition("\n")[0][:200]
        raise CaptureError(f"the tables that the host made cannot be read: {reason or type(error).__name__}") from None


def _refuse_large(path: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        if sum(entry.file_size for entry in archive.infolist()) > MOST_BYTES:
            raise ValueError(f"it holds more than {MOST_BYTES} bytes")


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


def _unpacked(arrays: Mapping[str, Any]) -> Tables:
    sightings, problems = arrays["sightings"], arrays["problems"]
    if sightings.dtype != np.int64 or sightings.ndim != 2 or sightings.shape[1] != WORDS or len(sightings) > MOST:
        raise ValueError("its sightings are none")
    found = {table: _table(table, arrays) for table in _TABLES}
    flows = found["flow_packets"]["flow"]
    if len(flows) and not 0 <= flows.min() <= flows.max() < len(found["capture_flows"]["port"]):
        raise ValueError("it has bins of flows that are not there")
    return Tables(**found, sightings=sightings, problems=tuple(_words(problems)))


def _table(table: str, arrays: Mapping[str, Any]) -> dict[str, Any]:
    columns = {name: _column(f"{table}.{name}", kind, arrays) for name, kind in TABLES[table].items()}
    if len({len(column) for column in columns.values()}) > 1:
        raise ValueError(f"its {table} have columns of different lengths")
    return columns


def _column(name: str, kind: str, arrays: Mapping[str, Any]) -> Any:
    if kind == "string":
        words = np.array([*_words(arrays[f"{name}.words"])], object)
        places = _numbers(arrays[f"{name}.places"])
        if len(places) and not 0 <= places.min() <= places.max() < len(words):
            raise ValueError(f"{name} has words that are not there")
        return words[places]
    if (steps := arrays.get(f"{name}.steps")) is not None:
        return np.cumsum(_numbers(steps))
    return _numbers(arrays[f"{name}.numbers"])


def _numbers(column: Any) -> Any:
    if column.ndim != 1 or column.dtype.kind != "i":
        raise ValueError("a column of numbers has none")
    return column.astype(np.int64)


def _words(column: Any) -> Sequence[str]:
    if column.ndim != 1 or column.dtype.kind != "U":
        raise ValueError("a column of words has none")
    found: list[str] = column.tolist()
    "".join(found).encode()  # UnicodeError, a ValueError, for halves of characters
    return found
