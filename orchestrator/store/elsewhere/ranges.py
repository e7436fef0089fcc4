"""Compacted files of a bucket as files that DuckDB reads: only the blocks that it asks for, each fetched once.

Neighbours in a file are one request. Blocks are kept in this user's cache under the name of their file, which is made
of its content and so never has another one, and verified whenever a process first reads them. A file is never read
beyond the size that its catalogue says.
"""

from __future__ import annotations

import hashlib
import io
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, TypedDict

from fsspec import AbstractFileSystem

from orchestrator.core.errors import StoreError
from orchestrator.store import atomic
from orchestrator.store.compact import catalogue
from orchestrator.store.compact.catalogue import BLOCK, BLOCK_DIGITS, File
from orchestrator.store.elsewhere.buckets import Bucket

PROTOCOL = "orchstore"
_AT_ONCE = 128  # blocks in one request to the file system's library
_DIGESTS = "digests"  # the name in the cache of those that a catalogue does not give


class Blocks:
    """The files of a bucket's compacted folder, block by block; kept in a folder of the cache.

    Every block has the digest that its catalogue gives, here and there: one that was damaged in the cache is fetched
    again. A file without such digests is fetched whole, and has that of its name. A file of the bucket that is
    damaged gets into `damaged`.
    """

    def __init__(self, bucket: Bucket, folder: str, files: Mapping[str, File], cache: Path) -> None:
        self.sizes = {name: file.bytes for name, file in files.items()}
        self.damaged: set[str] = set()
        self._files = files
        self._digests = {name: file.blocks for name, file in files.items() if file.blocks}
        self._right: set[tuple[str, int]] = set()
        self._bucket = bucket
        self._folder = folder
        self._cache = cache

    def read(self, name: str, start: int, end: int) -> bytes:
        """Bytes of a file, from `start` to before `end`; StoreError where they are damaged there."""
        numbers = range(start // BLOCK, -(-end // BLOCK))
        self._fetch([(name, number) for number in numbers if not self._is_there(name, number)])
        found = b"".join(self._kept(name, number).read_bytes() for number in numbers)
        offset = numbers.start * BLOCK
        return found[start - offset : end - offset]

    def tails(self, names: Iterable[str]) -> None:
        """Fetch the last block of files side by side: what is in a Parquet file stands at its end."""
        last = [(name, (self.sizes[name] - 1) // BLOCK) for name in names if self.sizes[name]]
        self._fetch([block for block in last if not self._is_there(*block)])

    def _is_there(self, name: str, number: int) -> bool:
        """Whether the cache has a block as it should be; read once by each process."""
        if (name, number) not in self._right:
            try:
                content = self._kept(name, number).read_bytes()
            except OSError:
                return False
            if catalogue.block_digest(content) != self._digest(name, number):
                return False
            self._right.add((name, number))
        return True

    def _digest(self, name: str, number: int) -> str:
        if name not in self._digests:
            self._digests[name] = self._remembered(name) or self._learned(name)
        return self._digests[name][number * BLOCK_DIGITS : (number + 1) * BLOCK_DIGITS]

    def _remembered(self, name: str) -> str | None:
        try:
            digests, _, own = (self._cache / name / _DIGESTS).read_text("ascii").partition(" ")
        except (OSError, ValueError):
            return None
        return digests if catalogue.block_digest(digests.encode()) == own else None

    def _learned(self, name: str) -> str:
        """Fetch a file's blocks for their digests, which are right if the digest in the file's name is theirs."""
        whole, digests = hashlib.sha256(), []
        for first in range(0, -(-self.sizes[name] // BLOCK), _AT_ONCE):
            start, end = first * BLOCK, min((first + _AT_ONCE) * BLOCK, self.sizes[name])
            (content,) = self._bucket.ranges([(f"{self._folder}/{name}", start, end)])
            whole.update(content)
            for place in range(0, len(content), BLOCK):
                block = content[place : place + BLOCK]
                digests.append(catalogue.block_digest(block))
                put(self._kept(name, first + place // BLOCK), block)
        if not whole.hexdigest().startswith(self._files[name].digest):
            raise self._trouble(name)
        found = "".join(digests)
        put(self._cache / name / _DIGESTS, f"{found} {catalogue.block_digest(found.encode())}".encode())
        return found

    def _fetch(self, blocks: Sequence[tuple[str, int]]) -> None:
        for first in range(0, len(blocks), _AT_ONCE):
            runs = list(_neighbours(blocks[first : first + _AT_ONCE]))
            wanted = [
                (f"{self._folder}/{name}", numbers.start * BLOCK, min(numbers.stop * BLOCK, self.sizes[name]))
                for name, numbers in runs
            ]
            for (name, numbers), content in zip(runs, self._found(wanted, runs), strict=True):
                for place, number in enumerate(numbers):
                    block = content[place * BLOCK : (place + 1) * BLOCK]
                    if catalogue.block_digest(block) != self._digest(name, number):
                        raise self._trouble(name)
                    put(self._kept(name, number), block)
                    self._right.add((name, number))

    def _found(self, wanted: Sequence[tuple[str, int, int]], runs: Sequence[tuple[str, range]]) -> list[bytes]:
        try:
            return self._bucket.ranges(wanted)
        except StoreError:
            self.damaged |= {name for name, _ in runs if self._is_short(name)}
            raise

    def _is_short(self, name: str) -> bool:
        """Whether a file has another size than its catalogue says, or is gone."""
        return self._bucket.sizes(f"{self._folder}/{name}").get(f"{self._folder}/{name}") != self.sizes[name]

    def _trouble(self, name: str) -> StoreError:
        self.damaged.add(name)
        return StoreError(f"{self._bucket.url}/{self._folder}/{name}: is damaged", hint=mend(self._bucket.url))

    def _kept(self, name: str, number: int) -> Path:
        return self._cache / name / str(number)


def mend(url: str) -> str:
    """Return what sends a damaged file of a bucket again."""
    return f"where the runs lie: orch store push {url}"


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
        """Return the file of this name: no name here is a pattern."""
        return [self.info(path)["name"]]

    def modified(self, _path: str) -> datetime:
        """Return the same instant for all: a file of one name never changes."""
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
