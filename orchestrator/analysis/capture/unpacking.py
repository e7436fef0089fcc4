"""The bytes of a capture file in a stream, unpacked where it is compressed: gzip (RFC 1952), Zstandard (RFC 8878)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Protocol

_COMPRESSIONS = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
_SLICE_BYTES = 4096  # what is unpacked at once, so that little is lost where a compressed file is cut off


class Source(Protocol):
    """Bytes in a row."""

    def readinto(self, into: memoryview, /) -> int: ...


@contextlib.contextmanager
def source(raw: Any) -> Iterator[Source]:
    """What a file holds that is open unbuffered and need not be seekable; its first bytes say how it is compressed."""
    head = raw.read(4)
    kind = next((name for magic, name in _COMPRESSIONS.items() if head.startswith(magic)), None)
    if kind is None:
        yield _Plain(raw, head)
    else:
        with _Unpacked(_Plain(raw, head), kind) as unpacked:
            yield unpacked


class _Plain:
    """A file of which the first bytes were read already; it need not be seekable, so that a pipe will do."""

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
        """For the library that unpacks."""
        buffer = bytearray(size)
        return bytes(buffer[: self.readinto(memoryview(buffer))])

    def close(self) -> None:
        self.closed = True


class _Unpacked:
    """What a compressed file holds, unpacked as it is read; EOFError where it is cut off or damaged."""

    def __init__(self, packed: _Plain, kind: str) -> None:
        import pyarrow as pa

        self._stream = pa.CompressedInputStream(pa.PythonFile(packed, mode="r"), kind)

    def __enter__(self) -> _Unpacked:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()

    def readinto(self, into: memoryview) -> int:
        try:
            return int(self._stream.readinto(into[:_SLICE_BYTES]))
        except OSError as error:
            raise EOFError(str(error)) from error
