"""Encode records as JSON and decode them: what is read is of the type that its record says, or it is refused."""

from __future__ import annotations

import functools
import hashlib
import re
import threading
from collections.abc import Hashable
from typing import Annotated, Any, TypeVar, cast

import msgspec
from msgspec import Meta

# As it was written and in no other form: a file that another program wrote anew has a digest that says nothing.
_SEAL = re.compile(rb'\{(?:\n +"digest": |"digest":)"([0-9a-f]{64})",')
_LEARNING = threading.Lock()

# A manifest may be somebody else's: whole numbers fit the tables, and sums and products of others are numbers still.
Whole = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
Count = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
Real = Annotated[float, Meta(gt=-1e300, lt=1e300)]

T = TypeVar("T")


def encoded(value: object, *, indent: int = 0) -> bytes:
    """Return records as JSON; numbers of numpy too."""
    plain = msgspec.json.encode(value, enc_hook=_plain)
    return msgspec.json.format(plain, indent=indent) if indent else plain


def sealed(value: object, *, indent: int = 0) -> bytes:
    """Return the same, an object and a line end, with the SHA-256 of all that follows as its first field, `digest`.

    Whatever reads it by `decoded` is told when anything of it is not as it was written.
    """
    rest = encoded(value, indent=indent)[1:] + b"\n"
    before, after = (b"\n" + b" " * indent, b" ") if indent else (b"", b"")
    return b'{%b"digest":%b"%b",%b' % (before, after, hashlib.sha256(rest).hexdigest().encode(), rest)


def raw(value: object) -> msgspec.Raw:
    """Return the same as a part of other records that is read only where it is needed."""
    return msgspec.Raw(encoded(value))


def decoded(data: bytes, kind: type[T]) -> T:
    """Return records from JSON; ValueError, with the field, where they are none, or are not as `sealed` wrote them."""
    check(data)
    return learned(kind).decode(data)


def check(data: bytes) -> None:
    """ValueError for JSON that is not as `sealed` wrote it; other JSON has nothing that could be checked."""
    seal = _SEAL.match(data)
    if seal and hashlib.sha256(memoryview(data)[seal.end() :]).hexdigest().encode() != seal[1]:
        raise ValueError("it was changed since it was written: its digest is another")


def learned(kind: type[T]) -> msgspec.json.Decoder[T]:
    """Return what decodes records of a type, made by one thread: msgspec crashes where several learn a type at once."""
    with _LEARNING:
        return _made_decoder(cast("Hashable", kind))


@functools.cache
def _made_decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)


def _plain(value: Any) -> Any:
    """Return a number of numpy as one of Python."""
    try:
        return value.item()
    except AttributeError:
        raise TypeError(f"{type(value).__name__} cannot be written into a manifest") from None
