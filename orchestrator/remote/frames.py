"""Encodes and decodes frames of an agent's channel: four bytes with the length of a JSON header, the header, raw bytes.

An agent is a program on somebody's machine: whatever comes, decoding gives whole frames or a BadAnswer, and holds no
more than one frame of the largest size.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping
from typing import NoReturn

from orchestrator.core.errors import BadAnswer

# What agents keep to (agents/agent/files.py, frames.py): the longest answer is many small files as escaped text.
HEADER_LIMIT = 1 << 25
PAYLOAD_LIMIT = 1 << 20
_SHOWN = 80  # bytes of what is none
JsonObject = Mapping[str, object]  # whose fields `replies.py` reads, each as its type


class Frames:
    """Cuts a stream of received bytes into frames."""

    def __init__(self) -> None:
        self._received = bytearray()
        self._header: JsonObject | None = None  # of a frame whose payload has not come yet

    def feed(self, data: bytes) -> Iterator[tuple[JsonObject, bytes]]:
        """Yield the frames that are complete with these bytes; BadAnswer where they cannot be decoded."""
        self._received += data
        while True:
            if self._header is None and (text := self._cut_header()) is not None:
                self._header = _decoded(text)
            if self._header is None:
                return
            size = _payload_size(self._header)
            if len(self._received) < size:
                return
            header, payload = self._header, bytes(self._received[:size])
            del self._received[:size]
            self._header = None
            yield header, payload

    def _cut_header(self) -> bytes | None:
        if len(self._received) < 4:
            return None
        (length,) = struct.unpack_from(">I", self._received)
        if length > HEADER_LIMIT:
            begins = ascii(bytes(self._received[:_SHOWN]))[1:]
            raise BadAnswer(f"what came is no frame: {begins}; does a start-up file leave a program that prints?")
        if len(self._received) < 4 + length:
            return None
        text = bytes(self._received[4 : 4 + length])
        del self._received[: 4 + length]
        return text


def _decoded(text: bytes) -> JsonObject:
    try:
        header = json.loads(text.decode(), parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise BadAnswer(f"a frame's header is no JSON: {str(error)[:100]}") from None
    if not isinstance(header, dict):
        raise BadAnswer(f"a frame's header is a {type(header).__name__}, not an object")
    return header


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


def _payload_size(header: Mapping[str, object]) -> int:
    size = header.get("bytes", 0)
    if type(size) is not int or not 0 <= size <= PAYLOAD_LIMIT:
        raise BadAnswer(f"a frame of {str(size)[:30]} bytes; accepted: at most {PAYLOAD_LIMIT}")
    return size


def frame(header: Mapping[str, object], payload: bytes = b"") -> bytes:
    """Encode a frame."""
    text = json.dumps(header).encode()
    return struct.pack(">I", len(text)) + text + payload
