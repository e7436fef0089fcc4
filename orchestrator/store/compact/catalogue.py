"""Catalogue a compacted store: its files, the runs whose rows are in each, and the state of the originals.

`compacted/catalogue.json` lies beside the run folders. Rows are taken from a compacted file only where the table in the
run's folder still has the time of change, size and inode that it had when it was compacted; so the catalogue cannot be
wrong about a run that changed or vanished, whoever changed it. In the place of a compacted file that is damaged or
missing the run folders answer: a file's name ends in the beginning of its SHA-256, and the catalogue has its own.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from orchestrator.core.errors import UnsafePath
from orchestrator.core.paths import safepath
from orchestrator.core.screen import console
from orchestrator.store import digests
from orchestrator.store.digests import Verified
from orchestrator.store.manifests import coding
from orchestrator.store.manifests.coding import Count, Whole
from orchestrator.store.stamps import MANIFEST, Stamp, stamp_of

FOLDER = "compacted"
FILE = "catalogue.json"
FORMAT = 1
MEND = "orch store compact"
RUN_FOLDER = "run_folder"  # the column that every compacted file has in front: the run's folder from the store's
MOST_BYTES = 1 << 28  # of a catalogue: a million runs

BLOCK = 1 << 18
BLOCK_DIGITS = 16  # hexadecimal ones, of the digest of a block

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
    `blocks` has a digest of each block of the file, one after the other, so that a part of it can be verified;
    `seen` is what the file system of a bucket said of the file when it was last known to be right there.
    """

    name: str
    bytes: Count
    rows: Count
    runs: tuple[Count, ...]
    stamps: msgspec.Raw
    others: bool = False
    made_of: str = ""
    blocks: str = ""
    seen: str = ""

    def __post_init__(self) -> None:
        """Refuse a name that is none of a compacted file, and digests that are not one a block (ValueError)."""
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"{self.name!r} is not the name of a compacted file")
        if self.blocks and len(self.blocks) != -(-self.bytes // BLOCK) * BLOCK_DIGITS:
            raise ValueError(f"{self.name} has not one digest for each of its blocks")

    @property
    def digest(self) -> str:
        """The beginning of the SHA-256 of its content."""
        return self.name.rpartition("-")[2].partition(".")[0]

    def stamped(self) -> dict[int, Stamp]:
        """Return the stamp of each of its runs; none at all where they are not one each."""
        stamps = coding.decoded(bytes(self.stamps), Stamps)
        return dict(zip(self.runs, stamps, strict=True)) if len(stamps) == len(self.runs) else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalogue:
    """Everything that is compacted: files by table, and the runs in order of their folders.

    `store` names the store among those that were pushed to one place, `made_ns` says when that was. `lacking` are the
    runs of which a file could not be pushed.
    """

    format: int = FORMAT
    store: str
    made_ns: Whole = 0
    runs: tuple[Run, ...] = ()
    lacking: tuple[str, ...] = ()
    tables: Mapping[str, tuple[File, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse a store that is none, and places of runs that are not there (ValueError)."""
        if not re.fullmatch("[0-9a-f]{16}", self.store):
            raise ValueError(f"{self.store!r} names no store")
        most = max((max(file.runs, default=0) for files in self.tables.values() for file in files), default=0)
        if most >= max(1, len(self.runs)):
            raise ValueError(f"a file has rows of the run {most}, and there are {len(self.runs)}")

    def names(self) -> set[str]:
        """Return the name of every file."""
        return {file.name for files in self.tables.values() for file in files}


def is_name(name: str) -> bool:
    """Return whether a file could be one of ours, by its name from the folder of compacted files."""
    return _NAME.fullmatch(name) is not None


def decoded(data: bytes) -> Catalogue:
    """Return a catalogue from JSON; ValueError where it is none, or one of a later version."""
    found = coding.decoded(data, Catalogue)
    if found.format != FORMAT:
        raise ValueError(f"it is of format {found.format}, and this orch reads {FORMAT}")
    return found


def read(results: Path) -> Catalogue:
    """Return the catalogue of a store.

    An empty one where there is none that can be read, and a note where it is damaged.
    """
    path = results / FOLDER / FILE
    try:
        if (content := safepath.content(path)) is not None:
            return decoded(content)
    except (OSError, UnsafePath, ValueError, RecursionError) as error:
        console.note(f"{path}: is left out, and the run folders answer: {error}", hint=MEND)
    return Catalogue(store=os.urandom(8).hex())


def stamps_of_manifests(known: Catalogue, files: Iterable[File] | None = None) -> Iterator[tuple[str, Stamp]]:
    """Yield the stamp of each manifest when the store was compacted, by run folder, of `briefs` or some files of it."""
    for file in known.tables.get("briefs", ()) if files is None else files:
        for place, stamp in file.stamped().items():
            yield known.runs[place].folder, stamp


def usable(results: Path, files: Iterable[File], known: Verified) -> list[File]:
    """Return those of these files that are there as they were written; a note says which are damaged.

    One that is gone is no damage: it may have been replaced meanwhile.
    """
    there = {}
    for file in files:
        with suppress(UnsafePath):
            if (path := safepath.regular(results / FOLDER, file.name)) is not None:
                there[f"{FOLDER}/{file.name}"] = (file, path)
    wrong = {name for name, (file, path) in there.items() if path.stat().st_size != file.bytes}
    wrong |= set(known.damaged([name for name in there if name not in wrong], lambda name: there[name][0].digest))
    for name in sorted(wrong):
        console.note(f"{results / name}: is damaged, and the run folders answer in its place", hint=MEND)
    return [file for name, (file, _) in there.items() if name not in wrong]


def digested(path: Path) -> tuple[str, str]:
    """Return the SHA-256 of a file, and the digests of its blocks (`File.blocks`); OSError where it cannot be read."""
    whole, blocks = hashlib.sha256(), []
    with path.open("rb", buffering=0) as file:
        while block := file.read(BLOCK):
            whole.update(block)
            blocks.append(block_digest(block))
    return whole.hexdigest(), "".join(blocks)


def block_digest(block: bytes) -> str:
    """Return the digest of a block."""
    return hashlib.sha256(block).hexdigest()[:BLOCK_DIGITS]


def path_of(results: Path, file: File) -> Path:
    """Return where a file of the catalogue lies."""
    return results / FOLDER / file.name


@dataclass(frozen=True, slots=True)
class Sources:
    """Files of which every row counts, files of which the rows of some run folders do, and folders of other runs.

    `root` is the folder in which these folders are.
    """

    root: str
    whole: list[str] = field(default_factory=list)
    partly: dict[str, list[str]] = field(default_factory=dict)
    folders: list[str] = field(default_factory=list)

    @property
    def compacted(self) -> list[str]:
        return [*self.whole, *self.partly]


def sources_of_table(results: Path, known: Catalogue, table: str, folders: Iterable[str]) -> Sources:
    """Return where a table's rows of the sealed runs in these folders (from the store's) lie.

    Nowhere for a run without it.

    StoreError where one of their files is not what was sealed.
    """
    origin = f"tables/{table}.parquet"
    found = _sources(results, known, table, folders, origin)
    digests.check_tables(results, [f"{folder}/{origin}" for folder in found.folders])
    return found


def sources_of_manifests(results: Path, known: Catalogue, table: str, folders: Iterable[str]) -> Sources:
    """Return the same for what is made of manifests."""
    return _sources(results, known, table, folders, MANIFEST)


def _sources(results: Path, known: Catalogue, table: str, folders: Iterable[str], origin: str) -> Sources:
    files = usable(results, known.tables.get(table, ()), digests.of(results))
    held = _held(known, files)
    found = Sources(str(results))
    kept: dict[str, list[str]] = {file.name: [] for file in files}
    for folder in folders:
        stamp = stamp_of(f"{results}/{folder}/{origin}")
        if stamp is None:
            continue
        name, compacted = held.get(folder, ("", None))
        if stamp == compacted:
            kept[name].append(folder)
        else:
            found.folders.append(folder)
    for file in files:
        path = str(path_of(results, file))
        if len(kept[file.name]) == len(file.runs):
            found.whole.append(path)
        elif kept[file.name]:
            found.partly[path] = kept[file.name]
    return found


def _held(known: Catalogue, files: Iterable[File]) -> dict[str, tuple[str, Stamp]]:
    """In which file the rows of each run folder are, and the stamp of what they came from."""
    return {known.runs[place].folder: (file.name, stamp) for file in files for place, stamp in file.stamped().items()}
