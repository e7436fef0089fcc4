"""Read the bytes of a capture file by their place, decompressed: gzip, Zstandard, LZ4, bzip2.

gzip (RFC 1952), Zstandard (RFC 8878), the frames of LZ4 (its own specification 1.6), and bzip2.
"""

from __future__ import annotations

import contextlib
import os
import stat
import zlib
from collections.abc import Callable, Iterator
from typing import Any, Protocol

_COMPRESSIONS = {
    b"\x1f\x8b": "gzip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\x04\x22\x4d\x18": "lz4",
    b"BZh": "bz2",
    # A skippable frame, of which lz4 has some too: pzstd begins its files with one.
    **{bytes([0x50 + number]) + b"\x2a\x4d\x18": "zstd" for number in range(16)},
}
_GZIP_BITS = 31  # zlib's word for a header and trailer of gzip, with any window
_PACKED_BYTES = 1 << 16
_SLICE_BYTES = 4096  # what is unpacked at once, so that little is lost where a compressed file is cut off


class Source(Protocol):
    """Bytes that are read by their place, never from before the last place that was read."""

    size: int | None  # None: not known before the end
    broken: str  # what unpacking said of where it ended

    def read_at(self, place: int, into: memoryview, /) -> int:
        """Fill `into` with the bytes at `place`; return how many there are, fewer only at the end."""
        ...


@contextlib.contextmanager
def source(raw: Any) -> Iterator[Source]:
    """Return the content of a file that is open unbuffered and need not be seekable.

    Its first bytes say how it is compressed.
    """
    head = raw.read(4)
    kind = next((name for magic, name in _COMPRESSIONS.items() if head.startswith(magic)), None)
    found = os.fstat(raw.fileno())
    if kind == "gzip":
        yield _Stream(_Slices(_Members(_Plain(raw, head)).unpack).readinto)
    elif kind is not None:
        with _Unpacked(_Plain(raw, head), kind) as unpacked:
            yield _Stream(_Slices(unpacked.unpack).readinto)
    elif stat.S_ISREG(found.st_mode):
        yield _File(raw, found.st_size)
    else:
        yield _Stream(_Plain(raw, head).readinto)


class _File:
    """A plain file."""

    def __init__(self, raw: Any, size: int) -> None:
        self._file = raw.fileno()
        self.size: int | None = size
        self.broken = ""

    def read_at(self, place: int, into: memoryview) -> int:
        done = 0
        while done < len(into) and (count := os.preadv(self._file, [into[done:]], place + done)):
            done += count
        return done


class _Stream:
    """Bytes of a sequential stream, buffered from the last place that was read on."""

    def __init__(self, readinto: Callable[[memoryview], int]) -> None:
        self._readinto = readinto
        self._kept = b""
        self._at = 0  # place of what is kept
        self.size: int | None = None
        self.broken = ""

    def read_at(self, place: int, into: memoryview) -> int:
        while place - self._at > len(self._kept):  # a block that nobody wants to see
            passed = memoryview(bytearray(min(1 << 16, place - self._at - len(self._kept))))
            self._at += len(self._kept)
            self._kept = b""
            count = self._more(passed)
            if not count:
                return 0
            self._at += count
        rest = self._kept[place - self._at :]
        done = min(len(rest), len(into))
        into[:done] = rest[:done]
        while done < len(into) and (count := self._more(into[done:])):
            done += count
        self._at, self._kept = place, rest if len(rest) >= done else bytes(into[:done])
        return done

    def _more(self, into: memoryview) -> int:
        try:
            return self._readinto(into)
        except EOFError as error:
            self.broken = str(error)
            return 0


class _Plain:
    """A file whose first bytes were read already; it need not be seekable, so that a pipe will do."""

    def __init__(self, raw: Any, head: bytes) -> None:
        self._raw = raw
        self._head = head
        self.closed = False

    def readinto(self, into: memoryview) -> int:
        if self._head:
            count = min(len(self._head), len(into))
            into[:count] = self._head[:count]
            self._head = self._head[count:]
            return count
        return self._raw.readinto(into) or 0

    def read(self, size: int) -> bytes:
        """Read as a file, for the library that unpacks."""
        buffer = bytearray(size)
        return bytes(buffer[: self.readinto(memoryview(buffer))])

    def close(self) -> None:
        self.closed = True


class _Slices:
    """Data unpacked slice by slice, so that of a damaged file all whole slices come."""

    def __init__(self, unpack: Callable[[], bytes]) -> None:
        self._unpack = unpack
        self._ready = b""

    def readinto(self, into: memoryview) -> int:
        self._ready = self._ready or self._unpack()
        count = min(len(into), len(self._ready))
        into[:count] = self._ready[:count]
        self._ready = self._ready[count:]
        return count


class _Members:
    """The members of a gzip file, unpacked; EOFError where one is cut off or damaged, or not followed by zeros.

    Zeros behind the last one are padding, as gzip itself takes them.
    """

    def __init__(self, packed: _Plain) -> None:
        self._packed = packed
        self._member = zlib.decompressobj(_GZIP_BITS)
        self._left = b""  # packed bytes that were read and not unpacked

    def unpack(self) -> bytes:
        """Return the next slice; nothing at the end."""
        while True:
            if self._member.eof:
                self._left = self._left.lstrip(b"\0")
                if self._left:
                    self._member = zlib.decompressobj(_GZIP_BITS)
            self._left = self._left or self._packed.read(_PACKED_BYTES)
            if not self._left and self._member.eof:
                return b""
            if not self._left:
                raise EOFError("it is cut off")
            if self._member.eof:
                continue
            try:
                found = self._member.decompress(self._left, _SLICE_BYTES)
            except zlib.error as error:
                raise EOFError(str(error)) from error
            self._left = self._member.unused_data if self._member.eof else self._member.unconsumed_tail
            if found:
                return found


class _Unpacked:
    """A compressed file, unpacked as it is read; EOFError where it is cut off or damaged."""

    def __init__(self, packed: _Plain, kind: str) -> None:
        import pyarrow as pa

        self._stream = pa.CompressedInputStream(pa.PythonFile(packed, mode="r"), kind)
        self._slice = memoryview(bytearray(_SLICE_BYTES))

    def __enter__(self) -> _Unpacked:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()

    def unpack(self) -> bytes:
        """Return the next slice; nothing at the end."""
        try:
            return bytes(self._slice[: self._stream.readinto(self._slice)])
        except OSError as error:
            raise EOFError(str(error)) from error
