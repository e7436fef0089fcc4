"""Reads classic pcap files in a stream: flows a 5-tuple and direction, and what each carried in bins of time.

Format: draft-ietf-opsawg-pcap. Both byte orders, microsecond and nanosecond stamps, Ethernet with VLAN tags, IPv4,
IPv6, TCP and UDP; every other frame is kept as a flow between hardware addresses, so that bytes always add up.
"""

from __future__ import annotations

import ipaddress
import struct
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from orchestrator.analysis import packets as core
from orchestrator.errors import CaptureError

FILE_HEADER_BYTES = 24
ETHERNET = 1
_CHUNK_BYTES = 8 << 20
_LARGEST_RECORD = 262_144  # what libpcap itself writes at most
_BINS_A_WALK = 1 << 16
_FIRST_FLOWS = 1 << 10
_FIRST_HOLES = 1 << 6

_MAGIC: dict[bytes, tuple[bool, int]] = {  # -> big-endian, nanoseconds a unit of the fraction
    b"\xa1\xb2\xc3\xd4": (True, 1000),
    b"\xd4\xc3\xb2\xa1": (False, 1000),
    b"\xa1\xb2\x3c\x4d": (True, 1),
    b"\x4d\x3c\xb2\xa1": (False, 1),
}
_PROTOCOLS = {1: "icmp", 2: "igmp", 6: "tcp", 17: "udp", 47: "gre", 58: "icmp6", 132: "sctp"}
_ETHERTYPES = {0x0800: "ipv4", 0x0806: "arp", 0x86DD: "ipv6", 0x88CC: "lldp", 0x8808: "pause", 0x8915: "roce1"}

Bins = np.ndarray[Any, np.dtype[np.int64]]
OnBins = Callable[["FlowTable", Bins], None]


@dataclass(frozen=True, slots=True)
class Header:
    """What the head of a pcap file says."""

    big_endian: bool
    nanos: int  # nanoseconds in a unit of a record's fraction
    snap_length: int
    link_type: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FileEnd:
    """How a file was read: its packets, and whether it ended on a record's edge.

    "truncated": the last record is incomplete, as after a kill; all before it is counted. "corrupt": at byte `at`
    stands something that is no record, and nothing behind it was read.
    """

    packets: int
    end: Literal["whole", "truncated", "corrupt"]
    at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PacketFlow:
    """One direction of a conversation; addresses are hardware addresses where the frame is no IP."""

    protocol: str
    src: str
    src_port: int
    dst: str
    dst_port: int
    src_mac: int
    dst_mac: int


class FlowTable:
    """Every flow seen so far, over one file or a rotated set: TCP's sequence numbers go on from file to file.

    `bins` of `bin_ns` nanoseconds are handed to `on_bins` as rows of (flow, bin, packets, wire bytes, payload bytes,
    repeated bytes); the same flow and bin may come in several rows. Instants are the file's plus `offset_ns`.
    `segment`: the MTU of a device that cuts longer packets after they are captured; wire bytes are then of its frames.
    """

    def __init__(self, *, offset_ns: int = 0, bin_ns: int, segment: int | None = None, on_bins: OnBins) -> None:
        self.offset_ns = offset_ns
        self.bin_ns = bin_ns
        self.segment = segment
        self.flows = 0
        self._on_bins = on_bins
        self._slots, self._keys, self._stats = core.empty_table(_FIRST_FLOWS)
        self._holes = core.more_holes(np.zeros((0, 2 * (core.MOST_HOLES + 1)), np.int64), _FIRST_HOLES)
        self._out = np.zeros((_BINS_A_WALK, core.BIN_WORDS), np.int64)

    def figures(self, column: int) -> Bins:
        """One of `packets.PACKETS`, WIRE, PAYLOAD, REPEATED, UNSURE, FIRST, LAST of all flows."""
        figures: Bins = self._stats[: self.flows, column]
        return figures

    def flow(self, row: int) -> PacketFlow:
        """Who the flow in a row is."""
        high_src, low_src, high_dst, low_dst, word = (int(value) for value in self._keys[row])
        scope, number = word >> 48, (word >> 32) & 0xFFFF
        src_mac, dst_mac = (int(value) for value in self._stats[row, [core.SRC_MAC, core.DST_MAC]])
        if scope == core.SCOPE_LINK:
            protocol = _ETHERTYPES.get(number, f"0x{number:04x}")
            src, dst = mac_text(src_mac), mac_text(dst_mac)
        elif scope in (core.SCOPE_V4, core.SCOPE_V6):
            protocol = _PROTOCOLS.get(number, f"ip-{number}")
            src, dst = _address(scope, high_src, low_src), _address(scope, high_dst, low_dst)
        else:
            protocol, src, dst = "runt", "", ""
        return PacketFlow(
            protocol=protocol, src=src, src_port=(word >> 16) & 0xFFFF, dst=dst, dst_port=word & 0xFFFF,
            src_mac=src_mac, dst_mac=dst_mac,
        )  # fmt: skip

    def add(self, path: Path) -> FileEnd:
        """Read a file to its end. CaptureError when it is no pcap file, or of a link type that cannot be read."""
        try:
            with path.open("rb", buffering=0) as file:
                header = read_header(file.read(FILE_HEADER_BYTES), path)
                if header.link_type != ETHERNET:
                    raise CaptureError(
                        f"{path} holds frames of link type {header.link_type}, not Ethernet",
                        hint="capture on an Ethernet device, not on 'any'",
                    )
                end = self._stream(file, header)
        except OSError as error:
            raise CaptureError(f"cannot read {path}: {error.strerror}") from error
        rest = np.zeros((self.flows, core.BIN_WORDS), np.int64)
        self._on_bins(self, rest[: core.close_bins(self._stats, self.flows, rest)])
        return end

    def _stream(self, file: Any, header: Header) -> FileEnd:
        memory = memoryview(bytearray(_CHUNK_BYTES + _LARGEST_RECORD))
        buffer = np.frombuffer(memory, np.uint8)
        most = max(header.snap_length, _LARGEST_RECORD) if header.snap_length < _CHUNK_BYTES else _LARGEST_RECORD
        held, packets, at = 0, 0, FILE_HEADER_BYTES
        while count := file.readinto(memory[held:]):
            size, begin, why = held + count, 0, core.TABLE_FULL
            while why in (core.TABLE_FULL, core.BINS_FULL, core.HOLES_FULL):
                why, used, more, self.flows, bins = core.walk(
                    buffer[begin:], size - begin, header.big_endian, header.nanos, most, self.offset_ns, self.bin_ns,
                    self.segment or 0, self._slots, self._keys, self._stats, self._holes, self.flows, self._out,
                )  # fmt: skip
                begin += used
                packets += more
                self._on_bins(self, self._out[:bins])
                if why == core.TABLE_FULL:
                    self._grow()
                elif why == core.HOLES_FULL:
                    self._holes = core.more_holes(self._holes, len(self._holes))
            at += begin
            if why == core.CORRUPT:
                return FileEnd(packets=packets, end="corrupt", at=at)
            held = size - begin
            buffer[:held] = buffer[begin:size].copy()
        return FileEnd(packets=packets, end="truncated" if held else "whole", at=at)

    def _grow(self) -> None:
        slots, keys, stats = core.empty_table(2 * len(self._keys))
        keys[: self.flows] = self._keys[: self.flows]
        stats[: self.flows] = self._stats[: self.flows]
        core.rehash(slots, keys, self.flows)
        self._slots, self._keys, self._stats = slots, keys, stats


def read_header(data: bytes, path: Path) -> Header:
    """The head of a pcap file from its first 24 bytes; CaptureError, with what it is instead, when it is none."""
    kind = _MAGIC.get(data[:4])
    if kind is None or len(data) < FILE_HEADER_BYTES:
        what, hint = "is no pcap file", "was it cut off before its first block was written?"
        if data[:4] == b"\x0a\x0d\x0d\x0a":
            what, hint = "is pcapng, not pcap", "convert it: editcap -F pcap IN OUT"
        elif data[:2] == b"\x1f\x8b" or data[:4] == b"\x28\xb5\x2f\xfd":
            what, hint = "is compressed", "unpack it first"
        elif not data:
            what = "is empty"
        raise CaptureError(f"{path} {what}", hint=hint)
    big, nanos = kind
    snap, link = struct.unpack((">" if big else "<") + "16xII", data)
    return Header(big_endian=big, nanos=nanos, snap_length=snap, link_type=link & 0xFFFF)


def first_stamp(path: Path) -> int | None:
    """When the first packet of a file was captured, in nanoseconds; None when the file holds no packet."""
    try:
        with path.open("rb") as file:
            header = read_header(file.read(FILE_HEADER_BYTES), path)
            data = file.read(8)
    except OSError as error:
        raise CaptureError(f"cannot read {path}: {error.strerror}") from error
    if len(data) < 8:
        return None
    seconds, fraction = struct.unpack(">II" if header.big_endian else "<II", data)
    return int(seconds) * 1_000_000_000 + int(fraction) * header.nanos


def mac_text(mac: int) -> str:
    """A hardware address as people write it."""
    return mac.to_bytes(6, "big").hex(":")


def warm() -> None:
    """Compile the reader now, so that no run waits for it: the compiled code is kept beside this package."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "one.pcap")
        frame = bytes(60)
        head = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 96, ETHERNET)
        path.write_bytes(head + struct.pack("<IIII", 0, 0, len(frame), len(frame)) + frame)
        table = FlowTable(bin_ns=1_000_000, on_bins=lambda _table, _bins: None)
        table.add(path)
        core.rehash(*core.empty_table(2)[:2], 0)


def _address(scope: int, high: int, low: int) -> str:
    if scope == core.SCOPE_V4:
        return str(ipaddress.IPv4Address(low & 0xFFFFFFFF))
    return str(ipaddress.IPv6Address(((high & (1 << 64) - 1) << 64) | (low & (1 << 64) - 1)))
