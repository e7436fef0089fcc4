"""Reads a store that was pushed to a bucket: by its catalogues, with calls in proportion to days and not to runs.

Others may write into a bucket. Keys are made of names that the catalogues and manifests give, each checked before it is
used; nothing is read beyond the size that they say, a manifest counts only with the digest that its catalogue gives,
and a file of a run only with the digest that its manifest gives. Rows are shown as they are.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.core.errors import StoreError
from orchestrator.core.paths import safepath
from orchestrator.core.units import bytes_text
from orchestrator.store import atomic, rundir
from orchestrator.store.compact import catalogue
from orchestrator.store.compact.catalogue import FOLDER, RUN_FOLDER, Catalogue
from orchestrator.store.compact.sources import Sources
from orchestrator.store.compact.targets import BRIEFS
from orchestrator.store.elsewhere.buckets import Bucket
from orchestrator.store.elsewhere.ranges import PROTOCOL, Blocks, Ranges, put
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
CHUNK = 1 << 24
READERS = 8
_CATALOGUE = re.compile(rf"{FOLDER}/catalogue-[0-9a-f]{{16}}\.json")


def catalogues(bucket: Bucket) -> dict[str, Catalogue]:
    """The catalogue of every store that was pushed there, by name; the one that was written last comes first."""
    names = sorted(name for name in bucket.names(FOLDER) if _CATALOGUE.fullmatch(name))
    if len(names) > MOST_CATALOGUES:
        raise StoreError(f"{bucket.url}: has {len(names)} catalogues, more than {MOST_CATALOGUES}")
    with ThreadPoolExecutor(READERS) as pool:
        found = dict(zip(names, pool.map(lambda name: read(bucket, name), names), strict=True))
    return dict(sorted(found.items(), key=lambda item: item[1].made_ns, reverse=True))


def read(bucket: Bucket, name: str) -> Catalogue:
    """A catalogue of a bucket; StoreError for one that is damaged."""
    data = bucket.read(name, most=MOST_CATALOGUE_BYTES)
    try:
        return catalogue.decoded(data or b"")
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{bucket.url}/{name}: {error}", hint="orch store push URL writes it anew") from None


@dataclass(frozen=True)
class Elsewhere:
    """What was pushed to a place; `known` are the catalogues that lie there, `cache` a folder of this user's."""

    bucket: Bucket
    known: Sequence[Catalogue]
    cache: Path

    @classmethod
    def opened(cls, url: str) -> Elsewhere:
        """The store behind a URL; StoreError where none was pushed."""
        bucket = Bucket.opened(url.rstrip("/"))
        known = list(catalogues(bucket).values())
        if not known:
            raise StoreError(f"{url}: no store was pushed there", hint=f"orch store push {url}")
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "orch"
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

    def listing(self) -> Listing:
        return self._listing

    def renewed(self) -> Elsewhere | None:
        now = Elsewhere.opened(self.bucket.url)
        return now if list(now.known) != list(self.known) else None

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
        """A run with its whole manifest, which is kept in the cache."""
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
                name = f"{PROTOCOL}://{file.name}"
                if len(kept) == len(mine) and not file.others:
                    found.whole.append(name)
                elif kept:
                    found.partly[name] = kept
        self._blocks.tails(name.removeprefix(f"{PROTOCOL}://") for name in (*found.whole, *found.partly))
        return found

    @cached_property
    def _blocks(self) -> Blocks:
        sizes = {file.name: file.bytes for one in self.known for files in one.tables.values() for file in files}
        return Blocks(self.bucket, FOLDER, sizes, self.cache / FOLDER)

    def connected(self) -> duckdb.DuckDBPyConnection:
        import duckdb

        connection = duckdb.connect(":memory:")
        connection.register_filesystem(Ranges(self._blocks))
        return connection

    def brought(self, entry: Listed, *, want: Callable[[str], bool] | None = None) -> Path:
        """The folder of a run in the cache, with the files that are wanted; StoreError for one that was changed."""
        found = self._opened(f"{entry.path.parent.name}/{entry.path.name}")
        wanted = [one for one in found.manifest.artifacts if (want or _is_figure)(one.path)]
        missing = [one for one in wanted if not self._is_there(found.path, one)]
        total, free = sum(one.bytes for one in missing), shutil.disk_usage(found.path).free
        if total > free:
            raise StoreError(f"{found.run}: its files take {bytes_text(total)}, more than {self.cache} has free")
        with ThreadPoolExecutor(READERS) as pool:
            list(pool.map(lambda one: self._fetch(found.path, one), missing))
        return found.path

    def _is_there(self, run: Path, one: Artifact) -> bool:
        path = safepath.regular(run, one.path)
        return path is not None and path.stat().st_size == one.bytes

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
                raise StoreError(f"{self.root}/{key}: is not what was sealed")


def _is_figure(path: str) -> bool:
    return path.startswith("tables/") or path.endswith("/before.json")
