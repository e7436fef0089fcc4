"""A folder behind a URL: files read up to a limit, written whole, listed; whatever fails is told with the URL."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.core.errors import StoreError
from orchestrator.store import atomic

CHUNK = 1 << 24  # bytes of one request for a file of a run
_MOST_SHOWN = 200  # characters of what a file system's library says


@dataclass(frozen=True, slots=True)
class Bucket:
    """A folder of a file system of fsspec's; names are paths from the folder."""

    url: str
    system: Any
    root: str

    @classmethod
    def opened(cls, url: str) -> Bucket:
        """Return the folder of a URL; StoreError where no library can reach it."""
        try:
            import fsspec

            more = {"auto_mkdir": True} if url.startswith(("file://", "local://")) else {}
            system, root = fsspec.url_to_fs(url, use_listings_cache=False, skip_instance_cache=True, **more)
        except ImportError as error:
            raise StoreError(f"{url}: {error}", hint="for s3:// pip install 'orch-testbed[s3]'") from None
        except (OSError, ValueError) as error:
            raise StoreError(f"{url}: cannot be read: {_said(error)}") from None
        return cls(url, system, root.rstrip("/"))

    def read(self, name: str, *, most: int) -> bytes | None:
        """Return a file's content; None where there is none, StoreError for one of more than `most` bytes."""
        with self._told("read"):
            try:
                found = bytes(self.system.cat_file(self._path(name), start=0, end=most + 1))
            except FileNotFoundError:
                return None
        if len(found) > most:
            raise StoreError(f"{self.url}/{name}: has more than {most} bytes")
        return found

    def ranges(self, wanted: Sequence[tuple[str, int, int]]) -> list[bytes]:
        """Parts of files, each a name with the first byte and the one after the last, fetched side by side."""
        names, starts, ends = zip(*wanted, strict=True) if wanted else ((), (), ())
        paths = [self._path(name) for name in names]
        with self._told("read"):
            found = self.system.cat_ranges(paths, list(starts), list(ends), on_error="raise")
        for (name, start, end), part in zip(wanted, found, strict=True):
            if len(part) != end - start:
                raise StoreError(f"{self.url}/{name}: is shorter than it should be: {len(part)} bytes at {start}")
        return [bytes(part) for part in found]

    def sizes(self, folder: str) -> dict[str, int]:
        """Return the files below a folder with their bytes, by name."""
        return {name: int(about.get("size") or 0) for name, about in self._found(folder).items()}

    def seen(self, folder: str) -> dict[str, str]:
        """Return a digest of what the file system says of each file below a folder: it tells whether one changed."""
        return {
            name: hashlib.sha256(repr(sorted(about.items(), key=lambda item: str(item[0]))).encode()).hexdigest()[:16]
            for name, about in self._found(folder).items()
        }

    def _found(self, folder: str) -> dict[str, Mapping[str, Any]]:
        with self._told("read"):
            try:
                found = self.system.find(self._path(folder), detail=True)
            except FileNotFoundError:
                return {}
        return {self._name(path): about for path, about in found.items()}

    def sha256(self, name: str, size: int) -> str | None:
        """Return the SHA-256 of a file of this size; None where there is none, or a smaller one."""
        digest = hashlib.sha256()
        try:
            for start in range(0, size, CHUNK):
                (part,) = self.ranges([(name, start, min(start + CHUNK, size))])
                digest.update(part)
        except StoreError:
            if self.sizes(name).get(name, -1) >= size:
                raise
            return None
        return digest.hexdigest()

    def names(self, folder: str) -> list[str]:
        """Return the files in a folder."""
        with self._told("read"):
            try:
                found = self.system.ls(self._path(folder), detail=True)
            except FileNotFoundError:
                return []
        return [self._name(entry["name"]) for entry in found if entry["type"] == "file"]

    def write(self, name: str, content: bytes) -> None:
        """Put a file in place of what is there, whole or not at all."""
        with self._told("written"), self._whole(name) as path:
            self.system.pipe_file(path, content)

    def send(self, source: Path, name: str) -> None:
        """Put a file of this machine in place of what is there, whole or not at all."""
        with self._told("written"), self._whole(name) as path:
            self.system.put_file(str(source), path)

    def remove(self, names: Sequence[str]) -> None:
        """Remove files; one that is gone is no error."""
        with self._told("written"):
            for name in names:
                try:
                    self.system.rm_file(self._path(name))
                except FileNotFoundError:
                    continue

    @contextmanager
    def _whole(self, name: str) -> Iterator[str]:
        """Where to write so that a reader sees the old file or the new one: object stores do that by themselves."""
        path = self._path(name)
        if "file" not in _protocols(self.system):
            yield path
            return
        with atomic.beside(Path(path)) as new:
            yield str(new)

    def _path(self, name: str) -> str:
        return f"{self.root}/{name}"

    def _name(self, path: str) -> str:
        return path.lstrip("/")[len(self.root.lstrip("/")) :].lstrip("/")

    @contextmanager
    def _told(self, what: str) -> Iterator[None]:
        try:
            yield
        except _troubles() as error:
            raise StoreError(f"{self.url}: cannot be {what}: {_said(error)}") from None


def _protocols(system: Any) -> tuple[str, ...]:
    found = system.protocol
    return (found,) if isinstance(found, str) else tuple(found)


def _troubles() -> tuple[type[Exception], ...]:
    """Return what file systems raise where a store cannot be reached; botocore has a tree of its own."""
    library = sys.modules.get("botocore.exceptions")
    return (OSError, ValueError, *((library.BotoCoreError,) if library else ()))


def _said(error: Exception) -> str:
    return (str(error) or type(error).__name__)[:_MOST_SHOWN]
