"""Protocol buffers' wire format, as far as execution traces need it: https://protobuf.dev/programming-guides/encoding.

Every function gives the bytes of one field; a message is the fields one after the other.
"""

from __future__ import annotations

from collections.abc import Iterable

_VARINT, _LENGTH = 0, 2


def varint(number: int) -> bytes:
    """A number from -2^63 up to 2^64 - 1 in base 128, least digits first; negative ones as two's complement."""
    left = number & 0xFFFF_FFFF_FFFF_FFFF
    found = bytearray()
    while left > 0x7F:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    found.append(left)
    return bytes(found)


def integer(field: int, number: int) -> bytes:
    """A field of type (u)int32, (u)int64, bool or of an enumeration."""
    return varint(field << 3 | _VARINT) + varint(number)


def data(field: int, content: bytes) -> bytes:
    """A field that is bytes, or a message."""
    return varint(field << 3 | _LENGTH) + varint(len(content)) + content


def text(field: int, content: str) -> bytes:
    """A field of type string."""
    return data(field, content.encode())


def integers(field: int, numbers: Iterable[int]) -> bytes:
    """A repeated field of numbers, packed; nothing where there are none."""
    packed = b"".join(map(varint, numbers))
    return data(field, packed) if packed else b""
