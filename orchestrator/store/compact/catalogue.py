"""What a compacted store holds: its files, the runs whose rows are in each, and the state that their own files had.

`compacted/catalogue.json` lies beside the run folders. Rows are taken from a compacted file only where the table in the
run's folder still has the time of change, size and inode that it had when it was compacted; so the catalogue cannot be
wrong about a run that changed or vanished, whoever changed it. In the place of a compacted file that is damaged or
missing the run folders answer.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from orchestrator.core.errors import UnsafePath
from orchestrator.core.paths import safepath
from orchestrator.store.manifests import coding
from orchestrator.store.manifests.bounded import Count, Whole
from orchestrator.store.stamps import Stamp

FOLDER = "compacted"
FILE = "catalogue.json"
FORMAT = 1
RUN_FOLDER = "run_folder"  # the column that every compacted file has in front: the run's folder from the store's
MOST_BYTES = 1 << 28  # of a catalogue: a million runs

Stamps = tuple[Stamp, ...]
_NAME = re.compile(r"[a-z_]+/[0-9]{4}-[0-9]{2}(-[0-9]{2})?-[0-9a-f]{16}\.parquet")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A sealed run: its folder from the store's (`experiment/run`), and the SHA-256 of its manifest."""

    folder: str
    manifest: str

    def __post_init__(self) -> None:
        """Refuse a folder that is none of a store (ValueError)."""
        try:
            if safepath.relative(self.folder).count("/") != 1:
                raise ValueError(f"{self.folder!r} is not a run's folder")
        except UnsafePath as error:
            raise ValueError(error.message) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """A Parquet file with the rows of one table over the runs of a day or a month, named by what is in it.

    `runs` are places in the catalogue's. `stamps` has for each the stamp of what the rows came from, as JSON: of twenty
    tables a query needs those of one. In a bucket there are none; a file there may hold rows of `others` too, which do
    not count. `made_of` tells a file from one of the same day that would be made of other runs, or of changed ones.
    """

    name: str
    bytes: Count
    rows: Count
    runs: tuple[Count, ...]
    stamps: msgspec.Raw
    others: bool = False
    made_of: str = ""

    def __post_init__(self) -> None:
        """Refuse a name that is none of a compacted file (ValueError)."""
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"{self.name!r} is not the name of a compacted file")

    def stamped(self) -> dict[int, Stamp]:
        """The stamp of each of its runs; none at all where they are not one each."""
        stamps = coding.decoded(bytes(self.stamps), Stamps)
        return dict(zip(self.runs, stamps, strict=True)) if len(stamps) == len(self.runs) else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalogue:
    """Everything that is compacted: files by table, and the runs in order of their folders.

    `store` names the store among those that were pushed to one place, `made_ns` says when that was.
    """

    format: int = FORMAT
    store: str
    made_ns: Whole = 0
    runs: tuple[Run, ...] = ()
    tables: Mapping[str, tuple[File, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse a store that is none, and places of runs that are not there (ValueError)."""
        if not re.fullmatch("[0-9a-f]{16}", self.store):
            raise ValueError(f"{self.store!r} names no store")
        most = max((max(file.runs, default=0) for files in self.tables.values() for file in files), default=0)
        if most >= max(1, len(self.runs)):
            raise ValueError(f"a file has rows of the run {most}, and there are {len(self.runs)}")

    def names(self) -> set[str]:
        """The name of every file."""
        return {file.name for files in self.tables.values() for file in files}


def is_name(name: str) -> bool:
    """Whether a file could be one of ours, by its name from the folder of compacted files."""
    return _NAME.fullmatch(name) is not None


def decoded(data: bytes) -> Catalogue:
    """A catalogue from JSON; ValueError where it is none, or one of a later version."""
    found = coding.decoded(data, Catalogue)
    if found.format != FORMAT:
        raise ValueError(f"it is of format {found.format}, and this orch reads {FORMAT}")
    return found


def read(results: Path) -> Catalogue:
    """The catalogue of a store; an empty one where there is none that can be read."""
    try:
        return decoded((results / FOLDER / FILE).read_bytes())
    except (OSError, ValueError, RecursionError):
        return Catalogue(store=os.urandom(8).hex())


def intact(results: Path, file: File) -> bool:
    """Whether a file of the catalogue is there, a plain one of its size."""
    try:
        path = safepath.regular(results / FOLDER, file.name)
    except UnsafePath:
        return False
    return path is not None and path.stat().st_size == file.bytes


def path_of(results: Path, file: File) -> Path:
    """Where a file of the catalogue lies."""
    return results / FOLDER / file.name
