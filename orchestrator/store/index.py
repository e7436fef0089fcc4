"""Index all runs of a store: the brief form of each manifest, cached and read again where the manifest changed.

The index is a cache and nothing more. A run is taken from it only if its manifest has the very size and time of change
that it had when it was read, so that it cannot be wrong about what is there; it is written anew beside the old one and
renamed, so that several controllers, also over NFS, need no lock: the last one wins, and what it did not know is read
again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.core.errors import StoreError, UnsafePath
from orchestrator.core.paths import safepath
from orchestrator.store import atomic
from orchestrator.store.manifests import coding
from orchestrator.store.manifests import manifest as manifests
from orchestrator.store.manifests.summaries import Summary
from orchestrator.store.rundir import Listed
from orchestrator.store.stamps import MANIFEST, PARTIAL, Stamp, manifest_stamps

FILE = ".index.json"
FORMAT = 3
READERS = 8  # a store on a network answers several at once


@dataclass(frozen=True, slots=True)
class IndexedRun:
    """A run in the index: its manifest in brief, or why that cannot be read."""

    stamp: Stamp
    manifest: Summary | None
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Index:
    format: int
    runs: Mapping[str, IndexedRun]  # by path from the store's folder


@dataclass(frozen=True, slots=True)
class Listing:
    """Every run of a store in order of path, and what is wrong with those that cannot be read."""

    entries: list[Listed]
    problems: list[str]


def entries(results: Path) -> list[Listed]:
    """Return every run of the store in order of path; those that cannot be read are passed over."""
    return listing(results).entries


def listing(results: Path) -> Listing:
    """Return every run of the store, with the brief form of its manifest."""
    known = _read(results)
    found = dict(manifest_stamps(results))
    stale = [path for path, stamp in found.items() if path not in known or known[path].stamp != stamp]
    fresh = _briefs(results, found, stale) if stale else {}
    runs = {path: fresh.get(path) or known[path] for path in sorted(found)}
    if fresh or len(runs) != len(known):
        _write(results, {path: kept for path, kept in runs.items() if not path.endswith(PARTIAL)})
    return Listing(
        [Listed(results / path, kept.manifest) for path, kept in runs.items() if kept.manifest is not None],
        [kept.problem for kept in runs.values() if kept.problem],
    )


def _briefs(results: Path, stamps: Mapping[str, Stamp], folders: Sequence[str]) -> dict[str, IndexedRun]:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(READERS) as pool:
        found = pool.map(lambda path: _brief(results / path, stamps[path]), folders)
        return dict(zip(folders, found, strict=True))


def _brief(folder: Path, stamp: Stamp) -> IndexedRun:
    try:
        return IndexedRun(stamp, manifests.summary(folder / MANIFEST))
    except StoreError as error:
        return IndexedRun(stamp, None, error.message)


def _read(results: Path) -> Mapping[str, IndexedRun]:
    """Return the cached index; nothing where another user owns it, as in a store that was copied from elsewhere."""
    try:
        found = coding.decoded(safepath.content(results / FILE) or b"", _Index)
    except (OSError, UnsafePath, ValueError, RecursionError):
        return {}
    return found.runs if found.format == FORMAT else {}


def _write(results: Path, runs: Mapping[str, IndexedRun]) -> None:
    """Write the index; a store that may only be read is listed without it."""
    with contextlib.suppress(OSError):
        atomic.write(results / FILE, coding.sealed(_Index(format=FORMAT, runs=runs)), durable=False)
