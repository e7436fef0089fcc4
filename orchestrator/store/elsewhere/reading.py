"""Read a store that was pushed to a bucket: by its catalogues, with calls in proportion to days and not to runs.

Others may write into a bucket. Keys are made of names that the catalogues and manifests give, each checked before it is
used; nothing is read beyond the size that they say, a manifest counts only with the digest that its catalogue gives,
and a file of a run only with the digest that its manifest gives. Rows are shown as they are.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.core.errors import StoreError
from orchestrator.core.paths import safepath
from orchestrator.core.screen import console
from orchestrator.core.units import bytes_text
from orchestrator.store import atomic, digests, rundir
from orchestrator.store.compact import catalogue
from orchestrator.store.compact.catalogue import FOLDER, RUN_FOLDER, Catalogue, Sources
from orchestrator.store.compact.targets import BRIEFS, OF_MANIFESTS
from orchestrator.store.elsewhere.buckets import CHUNK, Bucket
from orchestrator.store.elsewhere.ranges import PROTOCOL, Blocks, Ranges, mend, put
from orchestrator.store.index import Listing
from orchestrator.store.manifests import manifest as manifests
from orchestrator.store.manifests.records import Artifact
from orchestrator.store.picked import Picked
from orchestrator.store.rundir import Entry, Listed
from orchestrator.store.stamps import MANIFEST

if TYPE_CHECKING:
    import duckdb

MOST_CATALOGUES = 64
MOST_CATALOGUE_BYTES = 1 << 26  # some 400,000 runs
MOST_MANIFEST_BYTES = 1 << 26
READERS = 8
_CATALOGUE = re.compile(rf"{FOLDER}/catalogue-[0-9a-f]{{16}}\.json")


def catalogues(bucket: Bucket) -> dict[str, Catalogue]:
    """Return the catalogue of every store that was pushed there, by name; the one that was written last comes first."""
    there = names(bucket)
    with ThreadPoolExecutor(READERS) as pool:
        found = dict(zip(there, pool.map(lambda name: read(bucket, name), there), strict=True))
    return dict(sorted(found.items(), key=lambda item: item[1].made_ns, reverse=True))


def names(bucket: Bucket) -> list[str]:
    """Return the names of the catalogues that lie in a bucket."""
    found = sorted(name for name in bucket.names(FOLDER) if _CATALOGUE.fullmatch(name))
    if len(found) > MOST_CATALOGUES:
        raise StoreError(f"{bucket.url}: has {len(found)} catalogues, more than {MOST_CATALOGUES}")
    return found


def read(bucket: Bucket, name: str) -> Catalogue:
    """Return a catalogue of a bucket; StoreError for one that is damaged."""
    data = bucket.read(name, most=MOST_CATALOGUE_BYTES)
    try:
        return catalogue.decoded(data or b"")
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{bucket.url}/{name}: {error}", hint="orch store push URL writes it anew") from None


@dataclass(frozen=True)
class Elsewhere:
    """What was pushed to a place; `known` are the catalogues that lie there, `cache` a folder of this user's.

    `without` are compacted files that are damaged there: in their place the files of runs are fetched.
    """

    bucket: Bucket
    known: Sequence[Catalogue]
    cache: Path
    without: frozenset[str] = frozenset()

    @classmethod
    def opened(cls, url: str) -> Elsewhere:
        """Return the store behind a URL; StoreError where none was pushed."""
        bucket = Bucket.opened(url.rstrip("/"))
        known = list(catalogues(bucket).values())
        if not known:
            raise StoreError(f"{url}: no store was pushed there", hint=f"orch store push {url}")
        base = digests.cache()
        if base is None:
            raise StoreError(f"{url}: there is no place to keep what is read", hint="set HOME or XDG_CACHE_HOME")
        return cls(bucket, known, base / hashlib.sha256(bucket.url.encode()).hexdigest()[:16])

    @property
    def root(self) -> str:
        return self.bucket.url

    @cached_property
    def _owners(self) -> Mapping[str, tuple[int, str]]:
        """Of each run the catalogue that counts for it, and the digest of its manifest there."""
        found: dict[str, tuple[int, str]] = {}
        for place, one in enumerate(self.known):
            for run in one.runs:
                found.setdefault(run.folder, (place, run.manifest))
        return dict(sorted(found.items()))

    @cached_property
    def _listing(self) -> Listing:
        try:
            return self._listed()
        except StoreError:
            newer = self.renewed()
            if newer is None:
                raise
        return newer.listing()

    def _listed(self) -> Listing:
        entries, problems = [], []
        for folder, brief in self._briefs():
            try:
                entries.append(Listed(self.cache / "runs" / folder, manifests.brief(brief.encode())))
            except ValueError as error:
                problems.append(f"{self.root}/{folder}: {error}")
        return Listing(sorted(entries, key=lambda entry: entry.path), problems)

    def _briefs(self) -> Iterator[tuple[str, str]]:
        """Every run's manifest in brief, as JSON."""
        import duckdb

        found = self.sources(BRIEFS, list(self._owners))
        sql = f"select {RUN_FOLDER}, brief from read_parquet(?)"  # noqa: S608 - names of ours
        try:
            with self.connected() as connection:
                for file in (*found.whole, *found.partly):
                    wanted = set(found.partly.get(file, self._owners))
                    for folder, brief in connection.execute(sql, [file]).fetchall():
                        if folder in wanted:
                            yield folder, brief
        except duckdb.Error as error:
            raise StoreError(f"{self.root}: cannot be read: {error}") from None
        for folder in found.folders:
            yield folder, (self._opened(folder).path / MANIFEST).read_text("utf-8")

    def listing(self) -> Listing:
        return self._listing

    def renewed(self) -> Elsewhere | None:
        now = Elsewhere.opened(self.bucket.url)
        if list(now.known) != list(self.known):
            return now
        damaged = self._blocks.damaged - self.without
        return replace(self, without=self.without | damaged) if damaged else None

    def every(self) -> Picked:
        def entries(folders: Sequence[str]) -> list[Listed]:
            wanted = {self.cache / "runs" / folder for folder in folders}
            return [entry for entry in self._listing.entries if entry.path in wanted]

        return Picked(list(self._owners), [], entries)

    def find(self, wanted: str) -> Entry:
        names = {folder: folder.rpartition("/")[2] for folder in self._owners}
        if wanted == "last" and names:
            return self._opened(max(names, key=lambda folder: names[folder]))
        alike = [one for one in names if wanted and (names[one].startswith(wanted) or names[one].endswith(wanted))]
        if len(alike) > 1:
            raise StoreError(f"{wanted}: {len(alike)} runs match: {', '.join(alike[:5])}")
        if not alike:
            raise StoreError(f"{wanted}: no such run in {self.root}", hint=f"orch ls --results {self.root}")
        return self._opened(alike[0])

    def _opened(self, folder: str) -> Entry:
        """Return a run with its whole manifest, which is kept in the cache."""
        path = safepath.under(self.cache / "runs", f"{folder}/{MANIFEST}")
        _, digest = self._owners[folder]
        if not path.exists() or rundir.sha256(path) != digest:
            key = f"{folder}/{MANIFEST}"
            content = self.bucket.read(key, most=MOST_MANIFEST_BYTES)
            if content is None or hashlib.sha256(content).hexdigest() != digest:
                raise StoreError(
                    f"{self.root}/{key}: is gone, or not what its catalogue says",
                    hint="if it is just being pushed, ask again; else orch store push",
                )
            put(path, content)
        return rundir.opened(path.parent)

    def sources(self, table: str, folders: Sequence[str]) -> Sources:
        wanted, found = set(folders), Sources(str(self.cache / "runs"))
        for place, one in enumerate(self.known):
            for file in one.tables.get(table, ()):
                mine = [one.runs[run].folder for run in file.runs]
                kept = [folder for folder in mine if folder in wanted and self._owners[folder][0] == place]
                if file.name in self.without:
                    console.note(
                        f"{self.root}/{FOLDER}/{file.name}: is damaged; "
                        f"the files of {len(kept)} runs are fetched in its place",
                        hint=mend(self.root),
                    )
                    found.folders.extend(kept)
                    continue
                name = f"{PROTOCOL}://{file.name}"
                if len(kept) == len(mine) and not file.others:
                    found.whole.append(name)
                elif kept:
                    found.partly[name] = kept
        self._blocks.tails(name.removeprefix(f"{PROTOCOL}://") for name in found.compacted)
        if found.folders and table != BRIEFS:
            with ThreadPoolExecutor(READERS) as pool:
                there = list(pool.map(lambda folder: self._table(folder, table), found.folders))
            found.folders[:] = [folder for folder, has in zip(found.folders, there, strict=True) if has]
        return found

    def _table(self, folder: str, table: str) -> bool:
        """Bring what a table's rows of a run are made from; False for a run without it."""
        entry = self._opened(folder)
        name = f"tables/{table}.parquet"
        if table not in OF_MANIFESTS:
            self.brought(entry, want=lambda path: path == name)
        return table in OF_MANIFESTS or any(one.path == name for one in entry.manifest.artifacts)

    @cached_property
    def _blocks(self) -> Blocks:
        files = {file.name: file for one in self.known for files in one.tables.values() for file in files}
        return Blocks(self.bucket, FOLDER, files, self.cache / FOLDER)

    def connected(self) -> duckdb.DuckDBPyConnection:
        import duckdb

        connection = duckdb.connect(":memory:")
        connection.register_filesystem(Ranges(self._blocks))
        return connection

    def brought(self, entry: Listed, *, want: Callable[[str], bool] | None = None) -> Path:
        """Return the folder of a run in the cache, with the files that are wanted.

        StoreError for one that was changed.
        """
        found = self._opened(f"{entry.path.parent.name}/{entry.path.name}")
        wanted = [one for one in found.manifest.artifacts if (want or _is_figure)(one.path)]
        missing = self._missing(found.path, wanted)
        total, free = sum(one.bytes for one in missing), shutil.disk_usage(found.path).free
        if total > free:
            raise StoreError(f"{found.run}: its files take {bytes_text(total)}, more than {self.cache} has free")
        with ThreadPoolExecutor(READERS) as pool:
            list(pool.map(lambda one: self._fetch(found.path, one), missing))
        return found.path

    def _missing(self, run: Path, wanted: Sequence[Artifact]) -> list[Artifact]:
        """Those of these files that the cache has not, or not as they were sealed."""
        runs = self.cache / "runs"
        there = {
            f"{run.relative_to(runs)}/{one.path}": one for one in wanted if safepath.regular(run, one.path) is not None
        }
        damaged = digests.of(runs).damaged(there, lambda name: there[name].sha256)
        right = {one.path for name, one in there.items() if name not in set(damaged)}
        return [one for one in wanted if one.path not in right]

    def _fetch(self, run: Path, one: Artifact) -> None:
        """Bring a file of a run, chunk by chunk; it gets its name once it is the one that was sealed."""
        key = f"{run.parent.name}/{run.name}/{one.path}"
        path = safepath.under(run, one.path)
        path.parent.mkdir(parents=True, exist_ok=True)
        digest = hashlib.sha256()
        with atomic.replacing(path, durable=False) as file:
            for start in range(0, one.bytes, CHUNK):
                (part,) = self.bucket.ranges([(key, start, min(start + CHUNK, one.bytes))])
                digest.update(part)
                file.write(part)
            if digest.hexdigest() != one.sha256:
                raise StoreError(f"{self.root}/{key}: is not what was sealed", hint=f"{mend(self.root)} --verify")


def _is_figure(path: str) -> bool:
    return path.startswith("tables/") or path.endswith("/before.json")
