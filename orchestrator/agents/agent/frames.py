"""The agent's protocol: reads and writes frames over its channel.

A frame is four bytes (big endian) with the length of a JSON header, the header, and `header["bytes"]` raw bytes.
"""

from __future__ import annotations

import json
import os
import selectors
import struct
import threading
from typing import Generator, Mapping, Tuple

from .steps import Refusal

MAGIC = b"\0orch-agent 1\n"  # tells our frames from whatever a login shell prints before them
HEADER_LIMIT = 1 << 22
PAYLOAD_LIMIT = 1 << 28
BACKLOG = 1 << 20  # bytes waiting for the channel above which nothing more is produced


def refuse(name: str) -> None:
    raise ValueError("%s is no number" % name)


class Wire:
    """A channel of frames over two file descriptors, never blocking; any thread may send, one reads and selects."""

    def __init__(self, selector: selectors.BaseSelector, fds: Tuple[int, int], early: bytes) -> None:
        self.selector = selector
        self.reader, self.writer = fds
        self.received = bytearray(early)
        self.pending = bytearray()
        self.writing = False
        self.sending = threading.Lock()
        self.node = ""
        for fd in fds:
            os.set_blocking(fd, False)

    def read(self) -> bool:
        """Read what has come; False at the end of the stream."""
        try:
            data = os.read(self.reader, 1 << 18)
        except BlockingIOError:
            return True
        except OSError:
            return False
        self.received += data
        return bool(data)

    def frames(self) -> Generator[Tuple[object, bytes], None, None]:
        while len(self.received) >= 4:
            (length,) = struct.unpack_from(">I", self.received)
            if length > HEADER_LIMIT:
                raise Refusal("protocol", "a frame's header of %d bytes" % length)
            if len(self.received) < 4 + length:
                return
            try:
                header = json.loads(self.received[4 : 4 + length].decode(), parse_constant=refuse)
            except (ValueError, RecursionError) as error:
                del self.received[: 4 + length]
                self.send({"id": None, "error": "not JSON: %s" % error, "kind": "bad-request"})
                continue
            size = header.get("bytes", 0) if isinstance(header, dict) else 0
            if not isinstance(size, int) or not 0 <= size <= PAYLOAD_LIMIT:
                raise Refusal("protocol", "a frame of %r bytes" % (size,))
            end = 4 + length + size
            if len(self.received) < end:
                return
            payload = bytes(self.received[4 + length : end])
            del self.received[:end]
            yield header, payload

    def send(self, header: Mapping[str, object], payload: bytes = b"") -> None:
        size = {"bytes": len(payload)} if payload else {}
        text = json.dumps({**header, **size, "node": self.node}).encode()
        with self.sending:
            self.pending += struct.pack(">I", len(text)) + text + payload
            self.write()

    def flush(self) -> None:
        """Write what can be written without blocking; the rest is written when the descriptor takes more."""
        with self.sending:
            self.write()
        if bool(self.pending) != self.writing:
            self.writing = not self.writing
            if self.writing:
                self.selector.register(self.writer, selectors.EVENT_WRITE, self.flush)
            else:
                self.selector.unregister(self.writer)

    def write(self) -> None:
        while self.pending:
            try:
                written = os.write(self.writer, self.pending[: 1 << 18])
            except BlockingIOError:
                return
            except OSError:
                self.pending.clear()  # the reader is gone: the end of the input follows
                return
            del self.pending[:written]
