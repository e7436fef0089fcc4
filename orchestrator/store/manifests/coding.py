"""Records as JSON, and back: whatever is read is of the type that its record says, or refused with the field."""

from __future__ import annotations

import functools
import threading
from collections.abc import Hashable
from typing import Any, TypeVar, cast

import msgspec

_LEARNING = threading.Lock()

T = TypeVar("T")


def encoded(value: object, *, indent: int = 0) -> bytes:
    """Records as JSON; numbers of numpy too."""
    plain = msgspec.json.encode(value, enc_hook=_plain)
    return msgspec.json.format(plain, indent=indent) if indent else plain


def raw(value: object) -> msgspec.Raw:
    """The same as a part of other records that is read only where it is needed."""
    return msgspec.Raw(encoded(value))


def decoded(data: bytes, kind: type[T]) -> T:
    """Records from JSON; ValueError, with the field, where they are none."""
    return learned(kind).decode(data)


def learned(kind: type[T]) -> msgspec.json.Decoder[T]:
    """What decodes records of a type, made by one thread: msgspec crashes where several learn a type at once."""
    with _LEARNING:
        return _made_decoder(cast("Hashable", kind))


@functools.cache
def _made_decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)


def _plain(value: Any) -> Any:
    """A number of numpy as one of Python."""
    try:
        return value.item()
    except AttributeError:
        raise TypeError(f"{type(value).__name__} cannot be written into a manifest") from None
