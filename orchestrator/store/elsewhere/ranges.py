"""Compacted files of a bucket as files that DuckDB reads: only the blocks that it asks for, each fetched once.

Neighbours in a file are one request. Blocks are kept in this user's cache under the name of their file, which is made
of its content and so never has another one. A file is never read beyond the size that its catalogue says.
"""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, TypedDict

from fsspec import AbstractFileSystem

from orchestrator.store import atomic
from orchestrator.store.elsewhere.buckets import Bucket

PROTOCOL = "orchstore"
BLOCK = 1 << 18
_AT_ONCE = 128  # blocks in one request to the file system's library


class Blocks:
    """The files of a bucket's compacted folder, of these sizes, block by block; kept in a folder of the cache."""

    def __init__(self, bucket: Bucket, folder: str, sizes: Mapping[str, int], cache: Path) -> None:
        self.sizes = sizes
        self._bucket = bucket
        self._folder = folder
        self._cache = cache

    def read(self, name: str, start: int, end: int) -> bytes:
        """Bytes of a file, from `start` to before `end`."""
        numbers = range(start // BLOCK, -(-end // BLOCK))
        self._fetch([(name, number) for number in numbers if not self._kept(name, number).exists()])
        found = b"".join(self._kept(name, number).read_bytes() for number in numbers)
        offset = numbers.start * BLOCK
        return found[start - offset : end - offset]

    def tails(self, names: Iterable[str]) -> None:
        """Fetch the last block of files side by side: what is in a Parquet file stands at its end."""
        last = [(name, (self.sizes[name] - 1) // BLOCK) for name in names if self.sizes[name]]
        self._fetch([block for block in last if not self._kept(*block).exists()])

    def _fetch(self, blocks: Sequence[tuple[str, int]]) -> None:
        for first in range(0, len(blocks), _AT_ONCE):
            runs = list(_neighbours(blocks[first : first + _AT_ONCE]))
            wanted = [
                (f"{self._folder}/{name}", numbers.start * BLOCK, min(numbers.stop * BLOCK, self.sizes[name]))
                for name, numbers in runs
            ]
            for (name, numbers), content in zip(runs, self._bucket.ranges(wanted), strict=True):
                for place, number in enumerate(numbers):
                    put(self._kept(name, number), content[place * BLOCK : (place + 1) * BLOCK])

    def _kept(self, name: str, number: int) -> Path:
        return self._cache / name / str(number)


def _neighbours(blocks: Iterable[tuple[str, int]]) -> Iterator[tuple[str, range]]:
    """Blocks that follow one another in a file, together: a request each."""
    for name, found in itertools.groupby(sorted(blocks), key=lambda block: block[0]):
        numbers = [number for _, number in found]
        starts = [place for place, number in enumerate(numbers) if not place or number != numbers[place - 1] + 1]
        for start, end in itertools.pairwise([*starts, len(numbers)]):
            yield name, range(numbers[start], numbers[end - 1] + 1)


def put(path: Path, content: bytes) -> None:
    """Write a file of the cache, whole or not at all, also when another `orch` does the same."""
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic.write(path, content, durable=False)


class FileInfo(TypedDict):
    """What fsspec asks of a file; bytes."""

    name: str
    size: int
    type: str


class Ranges(AbstractFileSystem):  # type: ignore[misc]  # fsspec has no types
    """A file system with these files and no others, for reading."""

    protocol = PROTOCOL
    cachable = False

    def __init__(self, blocks: Blocks) -> None:
        super().__init__()
        self._blocks = blocks

    def info(self, path: str, **_: Any) -> FileInfo:
        name = self._strip_protocol(path)
        if name not in self._blocks.sizes:
            raise FileNotFoundError(path)
        return {"name": name, "size": self._blocks.sizes[name], "type": "file"}

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        found = self.info(path)
        return [found if detail else found["name"]]

    def glob(self, path: str, **_: Any) -> list[str]:
        """The file of this name: no name here is a pattern."""
        return [self.info(path)["name"]]

    def modified(self, _path: str) -> datetime:
        """The same instant for all: a file of one name never changes."""
        return datetime.fromtimestamp(0, tz=timezone.utc)

    def _open(self, path: str, mode: str = "rb", **_: Any) -> _File:
        if mode != "rb":
            raise PermissionError(path)
        name = self.info(path)["name"]
        return _File(self._blocks, name)


class _File(io.RawIOBase):
    def __init__(self, blocks: Blocks, name: str) -> None:
        super().__init__()
        self._blocks, self._name, self._at = blocks, name, 0
        self.size = blocks.sizes[name]

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self.size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        end = self.size if size is None or size < 0 else min(self._at + size, self.size)
        found = self._blocks.read(self._name, self._at, end) if end > self._at else b""
        self._at += len(found)
        return found

    def readinto(self, buffer: Any) -> int:
        found = self.read(len(buffer))
        buffer[: len(found)] = found
        return len(found)
