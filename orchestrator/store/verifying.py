"""Verify all of a store, here or elsewhere, against every digest in file names, manifests and catalogues.

What it finds is told and left as it is: each problem says what mends it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from orchestrator.core.errors import OrchError, StoreError, UnsafePath
from orchestrator.core.paths import safepath
from orchestrator.store import baselines, digests, retention, rundir, stores, sweeps
from orchestrator.store.compact import catalogue
from orchestrator.store.compact.catalogue import FOLDER, Catalogue
from orchestrator.store.elsewhere import reading
from orchestrator.store.elsewhere.buckets import Bucket
from orchestrator.store.elsewhere.ranges import mend
from orchestrator.store.manifests import manifest as manifests
from orchestrator.store.manifests.records import Manifest
from orchestrator.store.rundir import Entry
from orchestrator.store.stamps import MANIFEST, PARTIAL, stamp_of

_OF_RUN = "restore it from a copy; tables alone: orch reduce RUN"


@dataclass(frozen=True, slots=True)
class File:
    """A file that the store should have: its path, size, SHA-256 or the beginning of one, and the remedy."""

    name: str
    bytes: int
    digest: str
    hint: str


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem of a store, and its remedy."""

    text: str
    hint: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """The result of verifying: numbers of runs, files and bytes that were read, and problems."""

    runs: int
    files: int
    bytes: int
    problems: tuple[Problem, ...]


def verify(
    results: str, wanted: Sequence[str] = (), *, captures: bool = True, tell: Callable[[str], None] = lambda _: None
) -> Verification:
    """Read and check the files of a store, or of these runs of it; StoreError where there is no such store or run."""
    problems: list[Problem] = []
    place = _Bucket.opened(results) if stores.is_elsewhere(results) else _Folder(Path(results))
    files = [] if wanted else list(place.of_the_store(problems))
    runs = 0
    for folder, manifest in place.runs(wanted, problems):
        runs += 1
        left = set() if captures else {one.path for one in retention.captures(Entry(Path(folder), manifest))}
        files += [
            File(f"{folder}/{one.path}", one.bytes, one.sha256, place.mends_run)
            for one in manifest.artifacts
            if one.path not in left
        ]
    with ThreadPoolExecutor(digests.READERS) as pool:
        for number, (file, found) in enumerate(zip(files, pool.map(place.digest, files), strict=True), 1):
            if not (found or "").startswith(file.digest):
                problems.append(Problem(f"{results}/{file.name}: {'is damaged' if found else 'is gone'}", file.hint))
            tell(f"{number} of {len(files)} files")
    return Verification(runs=runs, files=len(files), bytes=sum(file.bytes for file in files), problems=tuple(problems))


class _Folder:
    """A results folder as `verify` reads it."""

    mends_run = _OF_RUN

    def __init__(self, results: Path) -> None:
        if not results.is_dir():
            raise StoreError(f"{results}: no such folder", hint="--results DIR")
        self._results = results
        self._compacted = Catalogue(store="0" * 16)

    def of_the_store(self, problems: list[Problem]) -> Iterator[File]:
        """Yield the files made of all runs: compacted files, baselines, plans of sweeps."""
        path = self._results / FOLDER / catalogue.FILE
        try:
            content = safepath.content(path)
            self._compacted = self._compacted if content is None else catalogue.decoded(content)
        except (OSError, UnsafePath, ValueError, RecursionError) as error:
            problems.append(Problem(f"{path}: {error}", catalogue.MEND))
        yield from _of_catalogue(self._compacted, catalogue.MEND)
        for path in sorted((self._results / baselines.FOLDER).glob("*.json")):
            try:
                baselines.entries(self._results, path.stem)
            except OrchError as error:
                problems.append(Problem(error.message, error.hint))
        known = {sweep.path / sweeps.FILE for sweep in sweeps.sweeps(self._results)}
        there = sorted((self._results / sweeps.FOLDER).glob(f"*/*/{sweeps.FILE}"))
        torn = [path for path in there if path not in known]
        problems.extend(Problem(f"{path}: is damaged", "restore it from a copy") for path in torn)

    def runs(self, wanted: Sequence[str], problems: list[Problem]) -> Iterator[tuple[str, Manifest]]:
        """Yield the folder and manifest of each sealed run, or of those that are named."""
        chosen = [rundir.find(self._results, name).path for name in wanted]
        of_manifests = {run.folder: run.manifest for run in self._compacted.runs}
        known = dict(catalogue.stamps_of_manifests(self._compacted))
        for path in chosen or rundir.folders(self._results):
            if path.name.endswith(PARTIAL):
                continue
            folder = f"{path.parent.name}/{path.name}"
            try:
                manifest = retention.checked(rundir.opened(path)).manifest
            except OrchError as error:
                problems.append(Problem(f"{folder}: {error.message}", error.hint))
                continue
            as_it_was = known.get(folder) == stamp_of(path / MANIFEST)
            if as_it_was and rundir.sha256(path / MANIFEST) != of_manifests[folder]:
                problems.append(Problem(f"{path / MANIFEST}: is damaged", _OF_RUN))
            yield folder, manifest

    def digest(self, file: File) -> str | None:
        """Return the SHA-256 of a file; None for one that is gone."""
        try:
            path = safepath.regular(self._results, file.name)
            return None if path is None else digests.read_once(path)[1]
        except UnsafePath:
            return None
        except OSError:
            return "unreadable"


class _Bucket:
    """A store behind a URL as `verify` reads it."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket
        self.mends_run = f"{mend(bucket.url)} --verify"
        self._known: list[Catalogue] = []

    @classmethod
    def opened(cls, url: str) -> _Bucket:
        return cls(Bucket.opened(url.rstrip("/")))

    def of_the_store(self, problems: list[Problem]) -> Iterator[File]:
        """Yield the compacted files of its catalogues."""
        for name in reading.names(self._bucket):
            try:
                found = reading.read(self._bucket, name)
            except StoreError as error:
                problems.append(Problem(error.message, error.hint))
                continue
            self._known.append(found)
            yield from _of_catalogue(found, mend(self._bucket.url))

    def runs(self, wanted: Sequence[str], problems: list[Problem]) -> Iterator[tuple[str, Manifest]]:
        """Yield the folder and manifest of each run that a catalogue names, or of those that are named."""
        if wanted:
            store = reading.Elsewhere.opened(self._bucket.url)
            for name in wanted:
                entry = store.find(name)
                yield f"{entry.path.parent.name}/{entry.path.name}", entry.manifest
            return
        if not self._known and not problems:
            raise StoreError(
                f"{self._bucket.url}: no store was pushed there", hint=f"orch store push {self._bucket.url}"
            )
        newest = sorted(self._known, key=lambda one: one.made_ns, reverse=True)
        owned = {run.folder: run.manifest for one in reversed(newest) for run in one.runs}
        for folder, digest in sorted(owned.items()):
            key = f"{folder}/{MANIFEST}"
            try:
                content = self._bucket.read(key, most=reading.MOST_MANIFEST_BYTES) or b""
                if hashlib.sha256(content).hexdigest() != digest:
                    raise StoreError(f"{self._bucket.url}/{key}: is gone, or not what its catalogue says")
                manifest = manifests.decoded(content, f"{self._bucket.url}/{key}")
            except OrchError as error:
                problems.append(Problem(error.message, self.mends_run))
            else:
                yield folder, manifest

    def digest(self, file: File) -> str | None:
        """Return the SHA-256 of a file; None for one that is gone, or shorter."""
        return self._bucket.sha256(file.name, file.bytes)


def _of_catalogue(found: Catalogue, hint: str) -> Iterable[File]:
    return [
        File(f"{FOLDER}/{file.name}", file.bytes, file.digest, hint)
        for files in found.tables.values()
        for file in files
    ]
