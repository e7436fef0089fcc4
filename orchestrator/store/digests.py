"""Verify the SHA-256 digests of a store's files, once for each user and changed file.

What a reader found is remembered in a file of its own user's cache, by device, inode, size and times of change; so a
file is read once more only when it changed. That a disk gave other bytes later, at the same times, is noticed by
`orch store compact` and `orch store verify`, which remember nothing.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import stat
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.core.errors import StoreError
from orchestrator.store import atomic, stamps
from orchestrator.store.manifests import coding
from orchestrator.store.stamps import MANIFEST

READERS = min(4, os.cpu_count() or 1)
_CHUNK = 1 << 20
_SETTLED_NS = 2 * 10**9  # a file that changed just now may change again within the same tick of its clock

Identity = tuple[int, int, int, int, int]  # device, inode, bytes, last change of content and of anything (ns)
Expected = Callable[[str], "str | None"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Remembered:
    """The cache of a folder: the identity of each file that had the right digest, by path from it."""

    folder: str
    files: Mapping[str, Identity] = field(default_factory=dict)


def cache() -> Path | None:
    """Return the folder of orch in this user's cache; None for a user without a home."""
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "orch"
    except RuntimeError:  # a user without a home
        return None


class Verified:
    """The files of a folder that are known to have the right digests."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._real = os.path.realpath(folder).encode(errors="surrogateescape").hex()
        place = cache()
        name = hashlib.sha256(self._real.encode()).hexdigest()[:16]
        self._file = place / "verified" / f"{name}.json" if place else None
        self._known = dict(self._read())

    def _read(self) -> Mapping[str, Identity]:
        """Return what the cache remembers; nothing where that is damaged or of another folder."""
        try:
            found = coding.decoded(self._file.read_bytes(), _Remembered) if self._file else None
        except (OSError, ValueError, RecursionError):
            return {}
        return found.files if found and found.folder == self._real else {}

    def damaged(self, names: Iterable[str], expected: Expected) -> list[str]:
        """Return those of these files whose content has another SHA-256 than expected, or than its known beginning.

        A file of which no digest is expected (None) cannot be told from a right one; one that is gone is not damaged.
        """
        unknown = [name for name in names if self._known.get(name) != (found := self._identity(name)) and found]
        if not unknown:
            return []
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(READERS) as pool:
            right = list(pool.map(lambda name: self._holds(name, expected(name)), unknown))
        fresh = {name: found for name, found in zip(unknown, right, strict=True) if isinstance(found, tuple)}
        self._remember(fresh)
        return [name for name, found in zip(unknown, right, strict=True) if found is False]

    def _identity(self, name: str) -> Identity | None:
        with contextlib.suppress(OSError):
            return identity(os.lstat(f"{self._folder}/{name}"))
        return None

    def _holds(self, name: str, digest: str | None) -> Identity | bool:
        """Return the identity of a file that matches a digest.

        True stands for one that is not to be remembered, False for one that does not match.
        """
        try:
            before, found = read_once(self._folder / name)
        except FileNotFoundError:
            return True
        except OSError:
            return False
        if digest is not None and not found.startswith(digest):
            return False
        settled = time.time_ns() - max(before[3:]) > _SETTLED_NS
        return before if settled and self._identity(name) == before else True

    def _remember(self, fresh: Mapping[str, Identity]) -> None:
        """Write the cache; what cannot be written is verified again the next time."""
        if not fresh or self._file is None:
            return
        known = {**self._read(), **self._known, **fresh}
        self._known = {name: one for name, one in known.items() if name in fresh or self._identity(name) == one}
        with contextlib.suppress(OSError):
            self._file.parent.mkdir(parents=True, exist_ok=True)
            atomic.write(self._file, coding.sealed(_Remembered(folder=self._real, files=self._known)), durable=False)


@functools.cache
def of(folder: Path) -> Verified:
    """Return the verified files of a folder, one object a process."""
    return Verified(folder)


def identity(about: os.stat_result) -> Identity | None:
    """Return the identity of a plain file: device, inode, size and times, which tell when it was changed.

    None for what is no such file.
    """
    if not stat.S_ISREG(about.st_mode):
        return None
    return (about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns)


def read_once(path: Path) -> tuple[Identity, str]:
    """Return a plain file's identity as it was when reading began, and its content's SHA-256. OSError for any other.

    OSError where it is none.
    """
    digest = hashlib.sha256()
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb", buffering=0) as file:
        before = identity(os.fstat(file.fileno()))
        if before is None:
            raise OSError(f"{path} is no file")
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return before, digest.hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Artifact:
    path: str
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Recorded:
    """The list of files in a manifest, parsed alone because the whole manifest takes longer than a query."""

    artifacts: tuple[_Artifact, ...] = ()


def recorded(run: Path) -> Mapping[str, str]:
    """Return the SHA-256 of each file of a run, by its path in the run's folder.

    StoreError for a manifest that is damaged.
    """
    path = run / MANIFEST
    try:
        found = coding.decoded(path.read_bytes(), _Recorded)
    except (OSError, ValueError, RecursionError) as error:
        raise StoreError(f"{path}: cannot be read: {error}", hint=stamps.DAMAGED) from None
    return {one.path: one.sha256 for one in found.artifacts}


def damaged_tables(results: Path, files: Sequence[str]) -> list[str]:
    """Return those tables of sealed runs (EXPERIMENT/RUN/tables/NAME.parquet) that are not as sealed.

    One call for many files is far quicker than a call for each: the cache is written once, a manifest read once.
    StoreError for a manifest that is damaged.
    """
    of_run = functools.cache(recorded)

    def expected(name: str) -> str | None:
        experiment, run, *path = name.split("/")
        return of_run(results / experiment / run).get("/".join(path))

    return of(results).damaged(files, expected)


def check_tables(results: Path, files: Sequence[str]) -> None:
    """Raise StoreError for tables of sealed runs (EXPERIMENT/RUN/tables/NAME.parquet) that are not as sealed."""
    wrong = damaged_tables(results, files)
    if wrong:
        more = f" (and {len(wrong) - 1} more files)" if len(wrong) > 1 else ""
        raise StoreError(f"{results / wrong[0]}: is damaged: it is not what was sealed{more}", hint=MEND_TABLE)


MEND_TABLE = "restore it from a copy, or make the run's tables again: orch reduce RUN; orch store verify lists all"
