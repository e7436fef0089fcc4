"""Brings a store's compacted tables up to date: what is new is written beside what there is, and named last.

Files are written under other names and renamed once they are on the disk, then the catalogue is replaced, then what it
no longer names is removed. Whatever ends this early, queries answer by the catalogue that is there and by the run
folders, and the next call takes the files that were finished.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path

from orchestrator.core.errors import StoreError, UnsafePath
from orchestrator.core.paths import safepath
from orchestrator.store import atomic, index, locked, rundir, verified
from orchestrator.store.compact import catalogue, targets
from orchestrator.store.compact.building import Builder
from orchestrator.store.compact.catalogue import FOLDER, Catalogue, File, Run
from orchestrator.store.compact.targets import Member, Target
from orchestrator.store.manifests import coding
from orchestrator.store.rundir import Listed
from orchestrator.store.stamps import MANIFEST, Stamp, manifest_stamps, stamp_of

_FILE = ".parquet"
_LEFT_S = 86_400.0  # what is that old beside the run folders is nobody's any more


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacted:
    """What a call did: runs and files that there are, files and bytes that it wrote, and what could not be read."""

    runs: int
    files: int
    written: int
    bytes: int
    problems: tuple[str, ...]


def compact(results: Path, *, tell: Callable[[str], None] = lambda _: None) -> Compacted:
    """Bring the compacted tables of a store up to date with its sealed runs; StoreError while another process does."""
    if not results.is_dir():
        raise StoreError(f"{results}: no such folder", hint="--results DIR")
    with alone(results):
        before = _whole(results, catalogue.read(results))
        # First: a manifest that changes while it is read is read again by the next call, since it has another stamp.
        stamps = {
            folder: stamp for folder, _ in manifest_stamps(results) if (stamp := stamp_of(results / folder / MANIFEST))
        }
        listing = index.listing(results)
        briefs = {folder: one for one in listing.entries if one.sealed and (folder := _folder(one.path)) in stamps}
        found = _found(results, briefs, stamps)
        builder = Builder(results, briefs, _earlier(before, found))
        known = {(file.made_of, table): file for table, files in builder.earlier.items() for file, _ in files}
        tables: dict[str, list[File]] = {}
        problems, written = list(listing.problems), []
        wanted = list(_targets(briefs, found))
        for number, target in enumerate(wanted, 1):
            built = builder.built(target, known.get((target.made_of, target.table)))
            tables.setdefault(target.table, []).append(built.file)
            problems += built.problems
            if built.new:
                written.append(built.file)
                tell(f"{number} of {len(wanted)} files: {built.file.name}, {built.file.rows} rows")
        runs = tuple(_runs(results, before, briefs, found[targets.BRIEFS]))
        _commit(results, Catalogue(store=before.store, runs=runs, tables={key: tuple(tables[key]) for key in tables}))
        return Compacted(
            runs=len(briefs),
            files=len(wanted),
            written=len(written),
            bytes=sum(file.bytes for file in written),
            problems=tuple(dict.fromkeys(problems)),
        )


@contextlib.contextmanager
def alone(results: Path) -> Iterator[None]:
    """Hold the compacted store; the kernel lets go of it when its holder dies."""
    folder = results / FOLDER
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise StoreError(f"{folder}: cannot be written: {error.strerror}") from None
    if folder.is_symlink():
        raise StoreError(f"{folder}: is a symbolic link", hint="remove it")
    with locked.held(folder, f"{results}: another process compacts or pushes it"):
        yield


def _folder(path: Path) -> str:
    return f"{path.parent.name}/{path.name}"


def _found(results: Path, briefs: Mapping[str, Listed], stamps: Mapping[str, Stamp]) -> dict[str, dict[str, Stamp]]:
    """The stamp of what each table's rows come from, by table and run folder; `stamps` are those of manifests."""
    found: dict[str, dict[str, Stamp]] = {table: {} for table in targets.ALL}
    for folder in briefs:
        for table in (*targets.OF_MANIFESTS, targets.BRIEFS):
            found[table][folder] = stamps[folder]
        for table, stamp in tables_of(results / folder):
            found[table][folder] = stamp
    return found


def tables_of(run: Path) -> Iterator[tuple[str, Stamp]]:
    """The tables that a run's folder has, with the stamp of each."""
    try:
        with os.scandir(run / "tables") as entries:
            names = sorted(entry.name for entry in entries)
    except OSError:
        return
    for name in names:
        table = name.removesuffix(_FILE)
        if name.endswith(_FILE) and table in targets.OF_FILES:
            stamp = stamp_of(run / "tables" / name)
            if stamp is not None:
                yield table, stamp


def today() -> str:
    """The day in UTC."""
    return datetime.now(tz=timezone.utc).date().isoformat()


def _targets(briefs: Mapping[str, Listed], found: Mapping[str, Mapping[str, Stamp]]) -> Iterator[Target]:
    places = {folder: place for place, folder in enumerate(sorted(briefs))}
    days = {folder: targets.day_of(entry.manifest.began_ns) for folder, entry in briefs.items()}
    for table, stamps in found.items():
        members = [
            Member(place=places[folder], folder=folder, day=days[folder], stamp=stamp)
            for folder, stamp in stamps.items()
        ]
        yield from targets.targets(table, members, today=today())


def _earlier(
    before: Catalogue, found: Mapping[str, Mapping[str, Stamp]]
) -> dict[str, tuple[tuple[File, frozenset[str]], ...]]:
    """The files that there are, by table, with the folders whose rows in them still hold."""
    return {
        table: tuple((file, _true(before, file, found.get(table, {}))) for file in files)
        for table, files in before.tables.items()
    }


def _whole(results: Path, before: Catalogue) -> Catalogue:
    """A catalogue with those of its files that are as they were written, each read anew whoever read it before."""
    files = [file for of_table in before.tables.values() for file in of_table]
    with ThreadPoolExecutor(verified.READERS) as pool:
        found = dict(
            zip((file.name for file in files), pool.map(lambda file: _read(results, file), files), strict=True)
        )
    tables = {table: tuple(filter(None, (found[one.name] for one in files))) for table, files in before.tables.items()}
    return replace(before, tables=tables)


def _read(results: Path, file: File) -> File | None:
    """A file with the digests of its blocks; None for one that is not as it was written."""
    try:
        path = safepath.regular(results / FOLDER, file.name)
        digest, blocks = catalogue.digested(path) if path else ("", "")
    except (UnsafePath, OSError):
        return None
    return replace(file, blocks=blocks) if digest.startswith(file.digest) else None


def _true(before: Catalogue, file: File, now: Mapping[str, Stamp]) -> frozenset[str]:
    stamped = ((before.runs[place].folder, stamp) for place, stamp in file.stamped().items())
    return frozenset(folder for folder, stamp in stamped if now.get(folder) == stamp)


def _runs(results: Path, before: Catalogue, briefs: Iterable[str], now: Mapping[str, Stamp]) -> Iterator[Run]:
    """Every run with the digest of its manifest, which is read only where it changed."""
    digests = {run.folder: run.manifest for run in before.runs}
    same = {folder for file in before.tables.get(targets.BRIEFS, ()) for folder in _true(before, file, now)}
    for folder in sorted(briefs):
        known = digests[folder] if folder in same else None
        yield Run(folder=folder, manifest=known or rundir.sha256(results / folder / MANIFEST))


def _commit(results: Path, after: Catalogue) -> None:
    """Put the new catalogue in place, and remove what it does not name."""
    atomic.write(results / FOLDER / catalogue.FILE, coding.sealed(after))
    _clean(results, after.names())


def _clean(results: Path, named: Iterable[str]) -> None:
    """Remove compacted files that the catalogue does not name, and what an interrupted call left unfinished."""
    folder, kept = results / FOLDER, set(named)
    atomic.clear(folder)
    atomic.clear(results, older_s=_LEFT_S)
    for path in folder.glob("*/*"):
        name = path.relative_to(folder).as_posix()
        unfinished = path.name.startswith(".") and path.name.endswith(".new")
        finished = name if not unfinished else f"{path.parent.name}/{path.name[1:].removesuffix('.new')}"
        if catalogue.is_name(finished) and (unfinished or name not in kept):
            path.unlink(missing_ok=True)
