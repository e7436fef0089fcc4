"""Read the packets of pcap and pcapng files, compressed or not, in pieces.

Formats: draft-ietf-opsawg-pcap and draft-ietf-opsawg-pcapng, both byte orders, and the pcap of a libpcap that was
patched to keep interfaces' indices. What is odd is counted, told and read on over; only a length that leaves no way to
find the next record ends a file.
"""

from __future__ import annotations

import contextlib
import struct
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from orchestrator.analysis.capture import unpacking
from orchestrator.analysis.capture.stages import compiled, framing, program
from orchestrator.analysis.capture.stages.accounting import PACKET_WORDS
from orchestrator.analysis.capture.stages.decoding import HEADER_WORDS, LINK_TYPES
from orchestrator.analysis.capture.unpacking import Source
from orchestrator.core.errors import CaptureError

_SMALLEST_RECORD = 16  # bytes of a record or block that holds a packet

ETHERNET = 1
UNREADABLE = 0xFFFF  # stands for a link type whose packets are counted and not looked into
_FILE_HEADER_BYTES = 24
PIECE_BYTES = 1 << 20
_LARGEST_SNAP = 8 << 20
_MOST_INTERFACES = 1 << 16
_LONGEST_NAME = 80  # characters of an interface's that are kept

# -> big-endian, nanoseconds a unit of the fraction, bytes of a record's header
_MAGIC: dict[bytes, tuple[bool, int, int]] = {
    b"\xa1\xb2\xc3\xd4": (True, 1000, 16),
    b"\xd4\xc3\xb2\xa1": (False, 1000, 16),
    b"\xa1\xb2\x3c\x4d": (True, 1, 16),
    b"\x4d\x3c\xb2\xa1": (False, 1, 16),
    b"\xa1\xb2\xcd\x34": (True, 1000, 24),
    b"\x34\xcd\xb2\xa1": (False, 1000, 24),
}
_SECTION_MAGIC = b"\x0a\x0d\x0d\x0a"
_SECTION_ORDERS = {b"\x1a\x2b\x3c\x4d": True, b"\x4d\x3c\x2b\x1a": False}
_PACKET_BLOCKS = (2, 3, 6)
_MOST_OFFSET_S = 1 << 31
_LENGTHS_CHANGED = (2, 3)  # the version of pcap of which files have a record's two lengths in either order
_OLD_DG_UX = 543  # a major version that one system's tcpdump wrote, with the lengths of version 2.2
_OTHERS = {
    b"snoo": ("is a snoop file", "convert it: editcap -F pcap IN OUT"),
    b"\xfd7zX": ("is compressed with xz", "unpack it: xz -dk FILE"),
}

_ODD = (  # what framing counts, as said of so many
    "{} blocks are of kinds that are not known, and were stepped over",
    "{} packet blocks contradict themselves and were left out",
    "{} packet blocks name an interface that is not described, and were left out",
    "{} packets have no timestamp, and got that of the packet before",
    "{} packets were kept longer than they are said to be on the wire, and count with what was kept",
    "{} packets have a fraction of a second of a second or more, which was carried over; are those nanoseconds?",
    "{} records are nothing but zeros, and were left out",
    "{} packets have a timestamp more than 146 years from 1970, and count as of then",
)

_LOOK_BYTES = 1 << 12


@dataclass(frozen=True, slots=True)
class Format:
    """The format of a file's records, as it is known where a piece of the file begins."""

    ng: bool
    big: bool
    nanos: int = 1  # nanoseconds a unit of the fraction of a second; of pcap alone, as the next four
    most: int = 0  # bytes that a record can keep
    link: int = 0
    head: int = 16  # bytes of a record's header
    order: int = framing.CAPTURED_FIRST
    interfaces: Any = None  # of pcapng: rows as framing has them, of which `known` are described
    known: int = 0
    offset_ns: int = 0


class Piece:
    """Bytes of a file and the packets in them, as rows that framing, decoding and accounting have of each.

    One is used again and again, since its memory is warm: new memory would cost about as much as surveying it does.
    """

    def __init__(self, size: int = PIECE_BYTES) -> None:
        self.memory = np.empty(size, np.uint8)
        self.view = self.memory.data
        rows = size // _SMALLEST_RECORD + 1
        self.frames = np.empty((rows, framing.FRAME_WORDS), np.int64)
        self.headers = np.empty((rows, HEADER_WORDS), np.int64)
        self.words = program.layout(program.PIECE_WORDS)
        self.words[program.DATA] = program.address_of(self.memory)
        self._packets = np.empty((rows, PACKET_WORDS), np.int64)
        self.words[program.FRAMES : program.WHY] = (
            program.address_of(self.frames),
            rows,
            program.address_of(self.headers),
            program.address_of(self._packets),
        )

    def survey(self, form: Format, *, held: int, before_ns: int) -> None:
        """Find the packets of `held` bytes in `memory`, which begin with a record; `before_ns`: the stamp before it."""
        words, interfaces = self.words, form.interfaces
        words[program.HELD : program.BEFORE_NS + 1] = (
            held,
            form.ng,
            form.big,
            form.nanos,
            form.most,
            form.link,
            form.head,
            form.order,
            form.offset_ns,
            0 if interfaces is None else program.address_of(interfaces),
            0 if interfaces is None else len(interfaces),
            form.known,
            before_ns,
        )
        compiled.program()["survey"](program.address_of(words))

    def word(self, number: int) -> int:
        """Return one of `program`'s words of this piece."""
        return int(self.words[number])

    @property
    def packets(self) -> int:
        return int(self.words[program.FOUND])


class Interfaces:
    """Numbers for the interfaces of a capture point's files.

    Those of one name are one, in whatever section or file; of those without a name, the first ones of all sections are,
    the second ones, and so on. Number 0 is the first one without a name, as that of every classic pcap.
    """

    def __init__(self) -> None:
        self._numbers = {("", 0): 0}

    def number(self, name: str, place: int) -> int:
        """Return the number of the interface that is the `place`-th of its name in its section, from 0.

        Those beyond the most that are told apart share one.
        """
        if len(self._numbers) >= _MOST_INTERFACES:
            return self._numbers.get((name, place), _MOST_INTERFACES)
        return self._numbers.setdefault((name, place), len(self._numbers))

    def names(self) -> dict[int, str]:
        """Return each interface's name by its number; empty where a file gives none."""
        found = {_MOST_INTERFACES: "others"}
        for (name, place), number in self._numbers.items():
            text = name or ("" if len(self._numbers) == 1 else "interface")
            found[number] = f"{text} {place + 1}" if text and (place or not name) else text
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class FileEnd:
    """The number of packets read from a file, and whether it ended at the edge of a record.

    "truncated": the last record is incomplete, as after a kill; all before it is counted. "corrupt": at byte `at` (of
    the file unpacked) stands something that is no record, and nothing behind it was read. `problems`: sentences for
    people about these and all else that was wrong.
    """

    packets: int
    end: Literal["whole", "truncated", "corrupt"]
    at: int
    problems: tuple[str, ...]


class CaptureFile:
    """A capture file that is read piece by piece, into `piece`; into larger ones where a record has no room in it."""

    def __init__(
        self,
        path: Path,
        source: Source,
        *,
        offset_ns: int = 0,
        piece: Piece | None = None,
        interfaces: Interfaces | None = None,
    ) -> None:
        self.path = path
        self.link_types: set[int] = set()
        self._interfaces = interfaces or Interfaces()
        self._named: Counter[str] = Counter()  # interfaces of this section by name
        self._source = source
        self._piece = piece or Piece()
        self._form = Format(ng=False, big=False, offset_ns=offset_ns)
        self._at = 0  # of the file, how many bytes are done with
        self._end: Literal["whole", "truncated", "corrupt"] = "whole"
        self._unreadable: set[int] = set()
        self._odd = np.zeros(framing.ODDITIES, np.int64)
        self._before_ns = 0

    def pieces(self) -> Iterator[Piece]:
        """Yield pieces with packets to the end of the file, or to where it is damaged; each ends with the next one."""
        head = self._peek(0, _FILE_HEADER_BYTES)
        if head[:4] == _SECTION_MAGIC and len(head) >= 12:
            self._form = replace(self._form, ng=True, interfaces=_no_interfaces(), most=framing.LONGEST_BLOCK)
        else:
            self._pcap(head)
        piece = self._piece
        while self._end == "whole":
            held = self._source.read_at(self._at, piece.view)
            piece.survey(self._form, held=held, before_ns=self._before_ns)
            why, walked = piece.word(program.WHY), piece.word(program.END)
            self._at += walked
            self._odd += piece.words[program.ODD :]
            if piece.packets:
                self._before_ns = piece.word(program.CLOSING_NS)
                yield piece
            if why == framing.CORRUPT:
                self._end = "corrupt"
            elif why == framing.BLOCK:
                self._block()
            elif held < len(piece.memory):
                self._end = "truncated" if walked < held else "whole"
                return
            no_room = why == framing.MORE and not walked
            piece = Piece(2 * len(piece.memory)) if no_room else self._piece

    def end(self, packets: int) -> FileEnd:
        """Return how the file ended, once its pieces were read; `packets`: how many there were."""
        problems = []
        if self._source.broken:
            problems.append(f"{self.path.name} cannot be unpacked to its end ({self._source.broken})")
        if self._end == "truncated":
            problems.append(f"{self.path.name} ends inside a record; the {packets} packets before it count")
        elif self._end == "corrupt":
            problems.append(self._damage(packets))
        problems += [
            f"{self.path.name}: {said.format(f'{count:,}')}"
            for said, count in zip(_ODD, self._odd.tolist(), strict=True)
            if count
        ]
        problems += [
            f"{self.path.name} holds packets of link type {link}, which are counted and not looked into"
            for link in sorted(self._unreadable)
        ]
        return FileEnd(packets=packets, end=self._end, at=self._at, problems=tuple(problems))

    def _damage(self, packets: int) -> str:
        """Describe the damage of a file that was not read to its end."""
        size = self._source.size
        behind = "" if size is None else f"; the {size - self._at:,} bytes from there on were not read"
        zeros = not any(self._peek(0, 16))
        what = f"has zeros from byte {self._at} on" if zeros else f"is damaged at byte {self._at}"
        return f"{self.path.name} {what}; the {packets} packets before it count{behind}"

    def _link(self, link: int) -> int:
        if link in LINK_TYPES:
            self.link_types.add(link)
            return link
        self._unreadable.add(link)
        return UNREADABLE

    def _pcap(self, head: bytes) -> None:
        """Read the file header of classic pcap."""
        if self._source.broken and len(head) < _FILE_HEADER_BYTES:
            raise CaptureError(f"{self.path} cannot be unpacked ({self._source.broken})")
        big, nanos, record, order, snap, link = _header(head, self.path)
        if link not in LINK_TYPES:
            raise CaptureError(
                f"{self.path} holds frames of link type {link}",
                hint="those that can be read: " + ", ".join(f"{name} ({one})" for one, name in LINK_TYPES.items()),
            )
        self.link_types.add(link)
        most = max(snap, framing.LONGEST_KEPT) if snap < _LARGEST_SNAP else framing.LONGEST_KEPT
        self._at = _FILE_HEADER_BYTES
        self._form = replace(self._form, big=big, nanos=nanos, most=most, link=link, head=record, order=order)

    def _block(self) -> None:
        """Read the section or interface block at the current place, or skip a block that is too long for one."""
        head = self._peek(0, 12).ljust(12, b"\0")
        section = head[:4] == _SECTION_MAGIC
        order = _SECTION_ORDERS.get(head[8:]) if section else self._form.big
        if order is None:
            self._end = "corrupt"
            return
        kind, length = struct.unpack(">II" if order else "<II", head[:8])
        described = kind == framing.INTERFACE and not section
        if length < (28 if section else 20 if described else 12) or length % 4:
            self._end = "corrupt"
            return
        self._odd[framing.DAMAGED] += kind in _PACKET_BLOCKS and not section
        body = self._peek(8, min(length, framing.LONGEST_BLOCK) - 12) if described else b""
        if not self._peek(length - 1, 1):
            self._end = "truncated"
            return
        self._at += length
        if section:
            self._named.clear()
            self._form = replace(self._form, big=order, interfaces=_no_interfaces(), known=0)
        elif described:
            self._describe(body)

    def _peek(self, place: int, count: int) -> bytes:
        """Return bytes behind the current place, fewer at the end of the file."""
        into = memoryview(bytearray(count))
        return bytes(into[: self._source.read_at(self._at + place, into)])

    def _describe(self, body: bytes) -> None:
        """Add an interface from the body of its description block (draft-ietf-opsawg-pcapng, section 4.2)."""
        order = ">" if self._form.big else "<"
        link, snap = struct.unpack_from(order + "HxxI", body.ljust(8, b"\0"))
        power, binary, offset_s, name, at = 6, False, 0, "", 8
        while at + 4 <= len(body):
            code, size = struct.unpack_from(order + "HH", body, at)
            value = body[at + 4 : at + 4 + size]
            if code == 0:
                break
            if code == 2:
                name = value.rstrip(b"\0").decode(errors="replace")[:_LONGEST_NAME]
            elif code == 9 and len(value) == 1:
                power, binary = value[0] & 0x7F, value[0] & 0x80 != 0
            elif code == 14 and len(value) == 8:
                offset_s = struct.unpack(order + "q", value)[0]
            at += 4 + (size + 3) // 4 * 4
        number = self._interfaces.number(name, self._named[name])
        self._named[name] += 1
        rows, known = self._form.interfaces, self._form.known
        if known == len(rows):
            if known >= _MOST_INTERFACES:
                return
            rows = np.concatenate((rows, np.zeros_like(rows)))
        rows[known] = (
            self._link(link) | number << 16,
            snap,
            10 ** max(0, 9 - power),
            10 ** min(18, max(0, power - 9)),
            min(power, 62) if binary else -1,
            max(-_MOST_OFFSET_S, min(_MOST_OFFSET_S, offset_s)) * 1_000_000_000,
        )
        self._form = replace(self._form, interfaces=rows, known=known + 1)


def _no_interfaces() -> Any:
    return np.zeros((16, framing.INTERFACE_WORDS), np.int64)


@contextlib.contextmanager
def opened(path: Path, **settings: Any) -> Iterator[CaptureFile]:
    """Open a capture; `settings` as of CaptureFile.

    CaptureError when it cannot be read; its pieces raise it when it is none, or of a link type that is not known.
    """
    try:
        with path.open("rb", buffering=0) as raw, contextlib.ExitStack() as stack:
            yield CaptureFile(path, stack.enter_context(unpacking.source(raw)), **settings)
    except IsADirectoryError:
        raise CaptureError(f"cannot read {path}: it is a folder without files that can be read") from None
    except OSError as error:
        raise CaptureError(f"cannot read {path}: {error.strerror or error}") from error


def _header(head: bytes, path: Path) -> tuple[bool, int, int, int, int, int]:
    """Parse a pcap file header; CaptureError without one.

    Return whether it is big-endian, nanoseconds a unit, bytes of a record's header, the order of its two lengths (see
    framing), snap length and link type.
    """
    kind = _MAGIC.get(head[:4])
    if kind is None or len(head) < _FILE_HEADER_BYTES:
        what, hint = "is no capture (pcap or pcapng)", "was it cut off before its first block was written?"
        what, hint = ("is empty", hint) if not head else _OTHERS.get(head[:4], (what, hint))
        raise CaptureError(f"{path} {what}", hint=hint)
    big, nanos, record = kind
    major, minor, snap, link = struct.unpack((">" if big else "<") + "4xHH8xII", head)
    order = framing.CAPTURED_FIRST
    if (major, minor) < _LENGTHS_CHANGED or major == _OLD_DG_UX:
        order = framing.ORIGINAL_FIRST
    elif (major, minor) == _LENGTHS_CHANGED:
        order = framing.EITHER
    return big, nanos, record, order, snap, link & 0xFFFF


def first_stamp(path: Path) -> int | None:
    """Return when the first packet of a file was captured, in nanoseconds; None when there is none.

    CaptureError when it cannot be read.
    """
    with opened(path, piece=Piece(_LOOK_BYTES)) as file:
        for piece in file.pieces():
            return piece.word(program.OPENING_NS)
    return None


def in_order(files: Sequence[Path]) -> tuple[list[Path], list[str]]:
    """Return the readable files by the instant of their first packet, since a ring of files wraps its names.

    Those without a packet come last. With it, what kept the others from being read. One file alone is not looked into,
    so that it may be a pipe.
    """
    if len(files) == 1:
        return list(files), []
    problems, stamped, without = [], [], []
    for file in files:
        try:
            stamp = first_stamp(file)
        except CaptureError as error:
            problems.append(error.message)
        else:
            if stamp is None:
                without.append(file)
            else:
                stamped.append((stamp, file))
    return [file for _, file in sorted(stamped)] + without, problems
