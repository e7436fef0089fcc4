"""Bring a store's compacted tables up to date: what is new is written beside what there is, and named last.

Files are written under other names and renamed once they are on the disk, then the catalogue is replaced, then what it
no longer names is removed. Whatever ends this early, queries answer by the catalogue that is there and by the run
folders, and the next call takes the files that were finished.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.core.errors import OrchError, StoreError, UnsafePath
from orchestrator.core.paths import safepath
from orchestrator.store import atomic, digests, folder_lock, index, rundir
from orchestrator.store.compact import catalogue, targets
from orchestrator.store.compact.catalogue import FOLDER, RUN_FOLDER, Catalogue, File, Run
from orchestrator.store.compact.targets import BRIEFS, OF_MANIFESTS, Member, Target
from orchestrator.store.manifests import coding
from orchestrator.store.rundir import Listed
from orchestrator.store.stamps import MANIFEST, Stamp, manifest_stamps, stamp_of
from orchestrator.store.tabular import manifest_tables, tables

_FILE = ".parquet"
_LEFT_S = 86_400.0  # what is that old beside the run folders is nobody's any more

if TYPE_CHECKING:
    import pyarrow as pa

_BRIEF = "brief"
_ABOUT = b"orch.compacted"  # in a file's metadata: what it is made of, and its runs, those without rows too
_ROWS_PER_GROUP = 1 << 18
_ROWS: Mapping[str, Callable[[Sequence[Listed]], pa.Table]] = {
    "runs": manifest_tables.runs_table,
    "windows": manifest_tables.windows_table,
    "hosts": manifest_tables.hosts_table,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacted:
    """What a call did: runs and files that there are, files and bytes that it wrote, and what could not be read."""

    runs: int
    files: int
    written: int
    bytes: int
    problems: tuple[str, ...]


Tell = Callable[[int, int, str], None]  # bytes of runs' files that are done, of all that are to be, and the file


def compact(results: Path, *, tell: Tell = lambda *_: None) -> Compacted:
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
        earlier = _earlier(before, found)
        known = {(file.made_of, table): file for table, files in earlier.items() for file, _ in files}
        tables: dict[str, list[File]] = {}
        problems, written = list(listing.problems), []
        wanted = list(_targets(briefs, found))
        _verify(results, wanted, earlier)

        def build(target: Target) -> Built:
            return Builder(results, briefs, earlier).built(target, known.get((target.made_of, target.table)))

        with ThreadPoolExecutor(digests.READERS) as pool:  # pyarrow and hashing let other threads work meanwhile
            done, of = 0, sum(target.bytes for target in wanted)
            for target, built in zip(wanted, pool.map(build, wanted), strict=True):
                tables.setdefault(target.table, []).append(built.file)
                problems += built.problems
                written += [built.file] if built.new else []
                done += target.bytes
                tell(done, of, built.file.name)
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
    with folder_lock.held(folder, f"{results}: another process compacts or pushes it"):
        yield


def _folder(path: Path) -> str:
    return f"{path.parent.name}/{path.name}"


def _found(results: Path, briefs: Mapping[str, Listed], stamps: Mapping[str, Stamp]) -> dict[str, dict[str, Stamp]]:
    """Return the stamp of what each table's rows come from, by table and run folder.

    `stamps` are those of manifests.
    """
    found: dict[str, dict[str, Stamp]] = {table: {} for table in targets.ALL}
    for folder in briefs:
        for table in (*targets.OF_MANIFESTS, targets.BRIEFS):
            found[table][folder] = stamps[folder]
        for table, stamp in tables_of(results / folder):
            found[table][folder] = stamp
    return found


def tables_of(run: Path) -> Iterator[tuple[str, Stamp]]:
    """Yield the tables that a run's folder has, with the stamp of each."""
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
    """Return the day in UTC."""
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
    """Return the files that there are, by table, with the folders whose rows in them still hold."""
    return {
        table: tuple((file, _true(before, file, found.get(table, {}))) for file in files)
        for table, files in before.tables.items()
    }


def _verify(
    results: Path, wanted: Iterable[Target], earlier: Mapping[str, Sequence[tuple[File, frozenset[str]]]]
) -> None:
    """Verify all tables of runs that will be read, at once; reading one that is damaged says so."""
    held = {table: frozenset().union(*(folders for _, folders in files)) for table, files in earlier.items()}
    names = [
        f"{one.folder}/tables/{target.table}{_FILE}"
        for target in wanted
        if target.table in targets.OF_FILES
        for one in target.members
        if one.folder not in held.get(target.table, ())
    ]
    with contextlib.suppress(StoreError):  # a manifest whose list of files is damaged: that, too, reading says
        digests.damaged_tables(results, names)


def _whole(results: Path, before: Catalogue) -> Catalogue:
    """Return a catalogue with those of its files that are as they were written, by reading each anew."""
    files = [file for of_table in before.tables.values() for file in of_table]
    with ThreadPoolExecutor(digests.READERS) as pool:
        found = dict(
            zip((file.name for file in files), pool.map(lambda file: _read(results, file), files), strict=True)
        )
    tables = {table: tuple(filter(None, (found[one.name] for one in files))) for table, files in before.tables.items()}
    return replace(before, tables=tables)


def _read(results: Path, file: File) -> File | None:
    """Return a file with the digests of its blocks; None for one that is not as it was written."""
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
    of_manifests = {run.folder: run.manifest for run in before.runs}
    same = {folder for file in before.tables.get(targets.BRIEFS, ()) for folder in _true(before, file, now)}
    for folder in sorted(briefs):
        known = of_manifests[folder] if folder in same else None
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


@dataclass(frozen=True, slots=True)
class Built:
    """A file of the catalogue to come, whether it is new to it, and what is wrong with runs that could not be read."""

    file: File
    new: bool
    problems: tuple[str, ...]


@dataclass(slots=True)
class Builder:
    """Writes one file of a store's compacted tables: `briefs` are its runs by folder."""

    results: Path
    briefs: Mapping[str, Listed]
    earlier: Mapping[str, Sequence[tuple[File, frozenset[str]]]]  # by table: files, with the folders that hold in them
    problems: list[str] = field(default_factory=list)

    def built(self, target: Target, known: File | None) -> Built:
        """Return a target's file: the one that is known, one that an interrupted call finished, or one written now.

        `known` is of the same runs, with places of its own; the folders in it are those of `earlier`.
        """
        self.problems = []
        if known is not None:
            held = next(set(found) for file, found in self.earlier[target.table] if file is known)
            return self._told(target, known, held, new=False)
        made_of = target.made_of
        name, blocks, held = self._finished(target, made_of) or self._write(target, made_of)
        path = self.results / FOLDER / name
        import pyarrow.parquet as pq

        rows = pq.read_metadata(path).num_rows
        file = File(
            name=name,
            bytes=path.stat().st_size,
            rows=rows,
            runs=(),
            stamps=coding.raw([]),
            made_of=made_of,
            blocks=blocks,
        )
        return self._told(target, file, held, new=True)

    def _told(self, target: Target, file: File, held: Set[str], *, new: bool) -> Built:
        members = [one for one in target.members if one.folder in held]
        stamps = coding.raw([one.stamp for one in members])
        file = replace(file, runs=tuple(one.place for one in members), stamps=stamps)
        return Built(file, new, tuple(self.problems))

    def _finished(self, target: Target, made_of: str) -> tuple[str, str, set[str]] | None:
        """Return a file with a target's rows that no catalogue names yet, as `_write` does."""
        for path in sorted((self.results / FOLDER / target.table).glob(f"{target.partition}-*.parquet")):
            about = _about(path) if stamp_of(path) else None
            if about is None or about[0] != made_of:
                continue
            digest, blocks = catalogue.digested(path)
            if digest.startswith(path.stem[-16:]):
                return f"{target.table}/{path.name}", blocks, about[1]
        return None

    def _write(self, target: Target, made_of: str) -> tuple[str, str, set[str]]:
        """Write a file, whole or not at all; gives its name, the digests of its blocks, and the folders of its runs."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        folder = self.results / FOLDER / target.table
        folder.mkdir(parents=True, exist_ok=True)
        new = folder / f".{target.partition}-{made_of}.parquet.new"
        held: set[str] = set()
        schema = _schema(target.table)
        coded = tables.coded(schema)
        with safepath.fresh(new) as file:
            # Readers see text, not that it came from dictionaries: the schema that says so is left out (store_schema).
            options = {"compression": "lz4", "store_schema": False, **tables.encodings(schema)}
            with pq.ParquetWriter(file, coded, **options) as writer:
                waiting, count = [coded.empty_table()], 0
                for rows in self._rows(target, held):
                    waiting.append(rows)
                    count += rows.num_rows
                    if count >= _ROWS_PER_GROUP:
                        writer.write_table(pa.concat_tables(waiting).unify_dictionaries())
                        waiting, count = [], 0
                if waiting:
                    writer.write_table(pa.concat_tables(waiting).unify_dictionaries())
                about = json.dumps({"made_of": made_of, "run_folders": sorted(held)})
                writer.add_key_value_metadata({_ABOUT: about.encode()})
            file.flush()
            os.fsync(file.fileno())
        digest, blocks = catalogue.digested(new)
        name = f"{target.table}/{target.partition}-{digest[:16]}.parquet"
        new.replace(self.results / FOLDER / name)
        return name, blocks, held

    def _rows(self, target: Target, held: set[str]) -> Iterator[pa.Table]:
        """Give the rows of a target's runs; the folders of those that could be read go into `held`."""
        import pyarrow as pa
        import pyarrow.compute as pc
        import pyarrow.parquet as pq

        wanted = {one.folder for one in target.members}
        for file, true in self.earlier.get(target.table, ()):
            if not (mine := true & wanted - held):
                continue
            schema = _schema(target.table)
            path = self.results / FOLDER / file.name
            about = pq.read_metadata(path)
            if about.schema.to_arrow_schema().remove_metadata() != schema:
                continue  # of an older version of the tables
            with pq.ParquetFile(path, metadata=about, read_dictionary=tables.text_columns(schema)) as parquet:
                for group in range(parquet.num_row_groups):
                    rows = parquet.read_row_group(group).replace_schema_metadata(None)
                    folders = rows[RUN_FOLDER].cast(pa.string())
                    yield rows.filter(pc.is_in(folders, value_set=_strings(sorted(mine))))
            held |= mine
        for member in target.members:
            if member.folder not in held and (found := self._of_run(target.table, member.folder)) is not None:
                held.add(member.folder)
                yield from found

    def _of_run(self, table: str, folder: str) -> list[pa.Table] | None:
        """Return the rows of one run; None, with a problem, where they cannot be read."""
        try:
            schema = tables.coded(_schema(table))
            return [_in_front(folder, rows).cast(schema) for rows in self._read(table, folder)]
        except (OrchError, OSError) as error:
            self.problems.append(error.message if isinstance(error, OrchError) else f"{folder}: {error}")
            return None

    def _read(self, table: str, folder: str) -> Iterator[pa.Table]:
        import pyarrow as pa

        if table == BRIEFS:
            text = coding.encoded(self.briefs[folder].manifest).decode()
            yield pa.table({_BRIEF: _strings([text])})
        elif table in OF_MANIFESTS:
            path = self.results / folder if table == "hosts" else Path(folder)  # the store may be put elsewhere
            yield _ROWS[table]([Listed(path, self.briefs[folder].manifest)])
        else:
            file = safepath.regular(self.results / folder, f"tables/{table}.parquet")
            if file is None:
                raise StoreError(f"{folder}: its table {table} is gone")
            yield from tables.groups(file.parent, table, as_coded=True)


def _in_front(folder: str, rows: pa.Table) -> pa.Table:
    import pyarrow as pa

    places = pa.repeat(pa.scalar(0, pa.int32()), rows.num_rows)
    same = pa.DictionaryArray.from_arrays(places, _strings([folder]))
    return rows.replace_schema_metadata(None).add_column(0, RUN_FOLDER, same)


def _strings(values: Sequence[str]) -> pa.Array:
    import pyarrow as pa

    return pa.array(values, pa.string())


def _schema(table: str) -> pa.Schema:
    """Return the columns of a compacted file: the run's folder, then those that queries see."""
    import pyarrow as pa

    if table == BRIEFS:
        of_table = pa.schema([(_BRIEF, pa.string())])
    elif table in OF_MANIFESTS:
        of_table = manifest_tables.arrow_schema(OF_MANIFESTS[table].columns)
    else:
        of_table = tables.schema(table).remove_metadata()
    return of_table.insert(0, pa.field(RUN_FOLDER, pa.string()))


def _about(path: Path) -> tuple[str, set[str]] | None:
    """Return what a compacted file is made of, and the folders of the runs in it; None for one that is not ours."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        found = json.loads((pq.read_metadata(path).metadata or {})[_ABOUT])
        return str(found["made_of"]), set(found["run_folders"])
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError):
        return None
