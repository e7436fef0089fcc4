"""Where the rows of a table lie: compacted files as far as they still hold, and the folders of all other runs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.store import verified
from orchestrator.store.compact import catalogue
from orchestrator.store.compact.catalogue import Catalogue, File
from orchestrator.store.stamps import MANIFEST, Stamp, stamp_of


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


def of_table(results: Path, known: Catalogue, table: str, folders: Iterable[str]) -> Sources:
    """Where a table's rows of the sealed runs in these folders (from the store's) lie; nowhere for a run without it.

    StoreError where one of their files is not what was sealed.
    """
    origin = f"tables/{table}.parquet"
    found = _sources(results, known, table, folders, origin)
    verified.check_tables(results, [f"{folder}/{origin}" for folder in found.folders])
    return found


def of_manifests(results: Path, known: Catalogue, table: str, folders: Iterable[str]) -> Sources:
    """The same for what is made of manifests."""
    return _sources(results, known, table, folders, MANIFEST)


def _sources(results: Path, known: Catalogue, table: str, folders: Iterable[str], origin: str) -> Sources:
    files = catalogue.usable(results, known.tables.get(table, ()), verified.of(results))
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
        path = str(catalogue.path_of(results, file))
        if len(kept[file.name]) == len(file.runs):
            found.whole.append(path)
        elif kept[file.name]:
            found.partly[path] = kept[file.name]
    return found


def _held(known: Catalogue, files: Iterable[File]) -> dict[str, tuple[str, Stamp]]:
    """In which file the rows of each run folder are, and the stamp of what they came from."""
    return {known.runs[place].folder: (file.name, stamp) for file in files for place, stamp in file.stamped().items()}
