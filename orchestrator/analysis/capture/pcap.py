"""Reads the packets of pcap and pcapng files, compressed or not, in a stream and in batches.

Formats: draft-ietf-opsawg-pcap and draft-ietf-opsawg-pcapng, both byte orders; gzip (RFC 1952), Zstandard (RFC 8878).
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from orchestrator.analysis.capture import framing, unpacking
from orchestrator.analysis.capture.decoding import LINK_TYPES
from orchestrator.analysis.capture.unpacking import Source
from orchestrator.core.errors import CaptureError

ETHERNET = 1
UNREADABLE = -1  # stands for a link type whose packets are counted and not looked into
_FILE_HEADER_BYTES = 24
_CHUNK_BYTES = 1 << 20
_LARGEST_SNAP = 8 << 20
_MOST_INTERFACES = 1 << 16

_MAGIC: dict[bytes, tuple[bool, int]] = {  # -> big-endian, nanoseconds a unit of the fraction
    b"\xa1\xb2\xc3\xd4": (True, 1000),
    b"\xd4\xc3\xb2\xa1": (False, 1000),
    b"\xa1\xb2\x3c\x4d": (True, 1),
    b"\x4d\x3c\xb2\xa1": (False, 1),
}
_SECTION_MAGIC = b"\x0a\x0d\x0d\x0a"
_SECTION_ORDERS = {b"\x1a\x2b\x3c\x4d": True, b"\x4d\x3c\x2b\x1a": False}
_PACKET_BLOCKS = (2, 3, 6)
_MOST_OFFSET_S = 1 << 31
_OTHERS = {
    b"\xa1\xb2\xcd\x34": ("is a pcap file of a patched libpcap", "convert it: editcap -F pcap IN OUT"),
    b"\x34\xcd\xb2\xa1": ("is a pcap file of a patched libpcap", "convert it: editcap -F pcap IN OUT"),
    b"snoo": ("is a snoop file", "convert it: editcap -F pcap IN OUT"),
    b"\x04\x22\x4d\x18": ("is compressed with lz4", "unpack it: lz4 -d IN OUT"),
    b"\xfd7zX": ("is compressed with xz", "unpack it: xz -dk FILE"),
    b"BZh9": ("is compressed with bzip2", "unpack it: bzip2 -dk FILE"),
}


@dataclass(frozen=True, slots=True)
class Batch:
    """Some packets: rows of `frames` (see framing) that point into `data`. Both change with the next batch."""

    data: Any
    frames: Any
    packets: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FileEnd:
    """How a file was read: its packets, and whether it ended on a record's edge.

    "truncated": the last record is incomplete, as after a kill; all before it is counted. "corrupt": at byte `at` (of
    the file unpacked) stands something that is no record, and nothing behind it was read. `problems`: sentences for
    people about these and all else that was wrong.
    """

    packets: int
    end: Literal["whole", "truncated", "corrupt"]
    at: int
    problems: tuple[str, ...]


class CaptureFile:
    """A capture file that is being read."""

    def __init__(self, path: Path, source: Source, frames: Any, *, offset_ns: int) -> None:
        self.path = path
        self.link_types: set[int] = set()
        self._source = source
        self._frames = frames
        self._offset_ns = offset_ns
        self._memory = memoryview(bytearray(_CHUNK_BYTES + framing.LONGEST_BLOCK))
        self._data = np.frombuffer(self._memory, np.uint8)
        self._held = 0  # bytes in the buffer
        self._at = 0  # of these, how many are done with
        self._passed = 0  # bytes of the file before the buffer
        self._end: Literal["whole", "truncated", "corrupt"] = "whole"
        self._broken = ""  # what unpacking said
        self._unreadable: set[int] = set()
        self._counts = np.zeros(2, np.int64)
        self._big = False
        self._interfaces = np.zeros((16, framing.INTERFACE_WORDS), np.int64)
        self._known = 0  # interfaces of this section

    def batches(self) -> Iterator[Batch]:
        """Batches of packets to the end of the file, or to where it is damaged."""
        self._fill()
        head = bytes(self._memory[: min(self._held, _FILE_HEADER_BYTES)])
        if head[:4] == _SECTION_MAGIC and len(head) >= 12:
            yield from self._pcapng()
        else:
            yield from self._pcap(head)

    def end(self, packets: int) -> FileEnd:
        """How it ended, once its batches were taken; `packets`: how many there were."""
        problems = []
        if self._broken:
            problems.append(f"{self.path.name} cannot be unpacked to its end ({self._broken})")
        if self._end == "truncated":
            problems.append(f"{self.path.name} ends inside a record; the {packets} packets before it count")
        elif self._end == "corrupt":
            at = self._passed + self._at
            problems.append(f"{self.path.name} is damaged at byte {at}; the {packets} packets before it count")
        if damaged := int(self._counts[framing.DAMAGED]):
            problems.append(f"{self.path.name}: {damaged} packet blocks contradict themselves and were left out")
        problems += [
            f"{self.path.name} holds packets of link type {link}, which are counted and not looked into"
            for link in sorted(self._unreadable)
        ]
        return FileEnd(packets=packets, end=self._end, at=self._passed + self._at, problems=tuple(problems))

    def _fill(self) -> bool:
        """Make room and read on; False at the end of the file."""
        rest = self._held - self._at
        if self._at:
            self._data[:rest] = self._data[self._at : self._held].copy()
        self._passed += self._at
        self._held, self._at = rest, 0
        count = 0
        while self._held < len(self._memory) and (count := self._more()):
            self._held += count
            if self._held >= _CHUNK_BYTES // 2:
                break
        return self._held > rest

    def _more(self) -> int:
        try:
            return self._source.readinto(self._memory[self._held :])
        except EOFError as error:
            self._broken = str(error)
            return 0

    def _link(self, link: int) -> int:
        if link in LINK_TYPES:
            self.link_types.add(link)
            return link
        self._unreadable.add(link)
        return UNREADABLE

    def _pcap(self, head: bytes) -> Iterator[Batch]:
        if self._broken and len(head) < _FILE_HEADER_BYTES:
            raise CaptureError(f"{self.path} cannot be unpacked ({self._broken})")
        big, nanos, snap, link = _header(head, self.path)
        most = max(snap, framing.LONGEST_KEPT) if snap < _LARGEST_SNAP else framing.LONGEST_KEPT
        if most > framing.LONGEST_KEPT:
            self._widen(_CHUNK_BYTES + most)
        if link not in LINK_TYPES:
            raise CaptureError(
                f"{self.path} holds frames of link type {link}",
                hint="those that can be read: " + ", ".join(f"{name} ({one})" for one, name in LINK_TYPES.items()),
            )
        self.link_types.add(link)
        self._at = _FILE_HEADER_BYTES
        while True:
            why, self._at, found = framing.pcap_packets(
                self._data, self._at, self._held, big, nanos, most, link, self._offset_ns, self._frames
            )
            if found:
                yield Batch(self._data, self._frames, found)
            if why == framing.CORRUPT:
                self._end = "corrupt"
                return
            if why == framing.MORE and not self._fill():
                self._end = "truncated" if self._held else "whole"
                return

    def _pcapng(self) -> Iterator[Batch]:
        last_ns = 0
        while True:
            why, self._at, found = framing.pcapng_packets(
                self._data, self._at, self._held, self._big, self._interfaces, self._known, self._offset_ns, last_ns,
                self._frames, self._counts,
            )  # fmt: skip
            if found:
                last_ns = int(self._frames[found - 1, framing.STAMP])
                yield Batch(self._data, self._frames, found)
            if why == framing.CORRUPT:
                self._end = "corrupt"
            elif why == framing.BLOCK:
                self._block()
            elif why == framing.MORE and not self._fill():
                self._end = "truncated" if self._held else "whole"
                return
            if self._end != "whole":
                return

    def _block(self) -> None:
        """Learn from the section or interface that stands here, or step over a block that is too long for one."""
        section = self._peek(0, 4) == _SECTION_MAGIC
        order = _SECTION_ORDERS.get(self._peek(8, 4)) if section else self._big
        if order is None:
            self._end = "corrupt"
            return
        kind, length = struct.unpack(">II" if order else "<II", self._peek(0, 8))
        described = kind == framing.INTERFACE and not section
        if length < (28 if section else 20 if described else 12) or length % 4:
            self._end = "corrupt"
            return
        self._counts[framing.DAMAGED] += kind in _PACKET_BLOCKS and not section
        body = self._peek(8, min(length, framing.LONGEST_BLOCK) - 12) if described else b""
        if not self._pass(length):
            self._end = "truncated"
        elif section:
            self._big, self._known = order, 0
        elif described:
            self._describe(body)

    def _pass(self, length: int) -> bool:
        """Step over bytes; False where the file ends before."""
        while length > self._held - self._at:
            length -= self._held - self._at
            self._at = self._held
            if not self._fill():
                return False
        self._at += length
        return True

    def _peek(self, place: int, count: int) -> bytes:
        """Bytes of the block that stands here, fewer at the end of the file."""
        while self._at + place + count > self._held and self._fill():
            pass
        return bytes(self._memory[self._at + place : min(self._held, self._at + place + count)]).ljust(4, b"\0")

    def _describe(self, body: bytes) -> None:
        """Take down an interface from the body of its description (draft-ietf-opsawg-pcapng, section 4.2)."""
        order = ">" if self._big else "<"
        link, snap = struct.unpack_from(order + "HxxI", body.ljust(8, b"\0"))
        power, binary, offset_s, at = 6, False, 0, 8
        while at + 4 <= len(body):
            code, size = struct.unpack_from(order + "HH", body, at)
            value = body[at + 4 : at + 4 + size]
            if code == 0:
                break
            if code == 9 and len(value) == 1:
                power, binary = value[0] & 0x7F, value[0] & 0x80 != 0
            elif code == 14 and len(value) == 8:
                offset_s = struct.unpack(order + "q", value)[0]
            at += 4 + (size + 3) // 4 * 4
        if self._known == len(self._interfaces):
            if self._known >= _MOST_INTERFACES:
                return
            self._interfaces = np.concatenate((self._interfaces, np.zeros_like(self._interfaces)))
        self._interfaces[self._known] = (
            self._link(link), snap, 10 ** max(0, 9 - power), 10 ** min(18, max(0, power - 9)),
            min(power, 62) if binary else -1,
            max(-_MOST_OFFSET_S, min(_MOST_OFFSET_S, offset_s)) * 1_000_000_000,
        )  # fmt: skip
        self._known += 1

    def _widen(self, size: int) -> None:
        memory = memoryview(bytearray(size))
        memory[: self._held] = self._memory[: self._held]
        self._memory, self._data = memory, np.frombuffer(memory, np.uint8)


@contextlib.contextmanager
def packets_of(path: Path, frames: Any, *, offset_ns: int = 0) -> Iterator[CaptureFile]:
    """Open a capture; `frames` (from framing.empty_frames) is what each batch is found into.

    CaptureError when it cannot be read; its batches raise it when it is none, or of a link type that is not known.
    """
    try:
        with path.open("rb", buffering=0) as raw, contextlib.ExitStack() as stack:
            yield CaptureFile(path, stack.enter_context(unpacking.source(raw)), frames, offset_ns=offset_ns)
    except OSError as error:
        raise CaptureError(f"cannot read {path}: {error.strerror or error}") from error


def _header(head: bytes, path: Path) -> tuple[bool, int, int, int]:
    """Byte order, nanoseconds a unit, snap length and link type from a pcap file's head; CaptureError without one."""
    kind = _MAGIC.get(head[:4])
    if kind is None or len(head) < _FILE_HEADER_BYTES:
        what, hint = "is no capture (pcap or pcapng)", "was it cut off before its first block was written?"
        what, hint = ("is empty", hint) if not head else _OTHERS.get(head[:4], (what, hint))
        raise CaptureError(f"{path} {what}", hint=hint)
    big, nanos = kind
    snap, link = struct.unpack((">" if big else "<") + "16xII", head)
    return big, nanos, snap, link & 0xFFFF
