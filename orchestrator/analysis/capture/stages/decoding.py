"""Decodes the headers of a batch of packets: the compiled second stage of the capture reader."""

# Compiled code takes no keyword-only arguments, a call of a small part costs it time, and for mypy its integers are
# NumPy's.
# ruff: noqa: C901, PLR0911, PLR0915, PLR0917
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from orchestrator.analysis.capture.stages.compiled import inline, stage
from orchestrator.analysis.capture.stages.framing import BEGIN, END, LINK, WIRE
from orchestrator.analysis.capture.stages.loads import be16, be32, be64, le32

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

# One packet's headers. The first five words are who it is from and to: addresses of two words each, and WORD, which is
# scope << 48 | IP protocol or ethertype << 32 | source port << 16 | destination port.
(
    SRC_HIGH, SRC_LOW, DST_HIGH, DST_LOW, WORD,
    PAYLOAD, SEQUENCE, ACKNOWLEDGED, FLAGS, WINDOW, SCALE,  # FLAGS is -1 where there is no TCP header to read
    IP_BYTES, LINK_BYTES, SRC_MAC, DST_MAC, TRANSPORT,  # TRANSPORT: where the transport header is in the buffer
) = range(16)  # fmt: skip
HEADER_WORDS = 16
SCOPE_V4, SCOPE_V6, SCOPE_LINK, SCOPE_RUNT = 4, 6, 2, 0

# What decode() counts.
UNDECODED, FRAGMENTS, ROCE = range(3)
DECODE_COUNTS = 3

LINK_TYPES = {
    0: "loopback (BSD)", 1: "Ethernet", 12: "raw IP", 14: "raw IP", 101: "raw IP", 108: "loopback (OpenBSD)",
    113: "Linux cooked v1", 228: "IPv4", 229: "IPv6", 276: "Linux cooked v2",
}  # fmt: skip

ROCE_PORT = 4791
_TCP, _UDP = 6, 17
_IPV4, _IPV6 = 0x0800, 0x86DD
_LLC = 4  # stands for every IEEE 802.3 length
_MOST_TAGS = 8
_MOST_EXTENSIONS = 16
_MOST_OPTIONS = 40


@stage
def _address_words(data: Bytes, at: int, size: int) -> int:
    """A hardware address of up to 6 bytes."""
    value = 0
    for place in range(min(size, 6)):
        value = value << 8 | np.int64(data[at + place])
    return value


@inline
def _behind_tags(data: Bytes, at: int, end: int, kind: int) -> tuple[int, int]:
    """Step over VLAN tags (IEEE 802.1Q, 802.1ad) and SNAP; gives where the network header is, and its ethertype."""
    for _ in range(_MOST_TAGS):
        if kind not in (0x8100, 0x88A8, 0x9100) or at + 4 > end:
            break
        kind = be16(data, at + 2)
        at += 4
    if kind < 1536:
        # LLC with the SNAP header of an ethertype (RFC 1042); any other is told apart no further.
        if at + 8 <= end and be32(data, at) == 0xAAAA0300 and be16(data, at + 4) == 0:
            return at + 8, be16(data, at + 6)
        return at, _LLC
    return at, kind


@inline
def _link(data: Bytes, at: int, end: int, link: int, row: Ints) -> tuple[int, int]:
    """Read a link-layer header; gives where the network header is (-1: there is none) and its ethertype."""
    kind = 0
    if link == 1:
        if at + 14 > end:
            return -1, 0
        row[DST_MAC] = be16(data, at) << 32 | be32(data, at + 2)
        row[SRC_MAC] = be16(data, at + 6) << 32 | be32(data, at + 8)
        kind = be16(data, at + 12)
        at += 14
        return (at, kind) if kind in (_IPV4, _IPV6) else _behind_tags(data, at, end, kind)
    row[SRC_MAC] = 0
    row[DST_MAC] = 0
    if link == 113:  # https://www.tcpdump.org/linktypes/LINKTYPE_LINUX_SLL.html
        if at + 16 > end:
            return -1, 0
        row[SRC_MAC] = _address_words(data, at + 6, be16(data, at + 4))
        kind = be16(data, at + 14) if be16(data, at + 2) != 824 else 0  # netlink's protocols are no ethertypes
        return _behind_tags(data, at + 16, end, kind)
    if link == 276:  # https://www.tcpdump.org/linktypes/LINKTYPE_LINUX_SLL2.html
        if at + 20 > end:
            return -1, 0
        row[SRC_MAC] = _address_words(data, at + 12, np.int64(data[at + 11]))
        kind = be16(data, at) if be16(data, at + 8) != 824 else 0
        return _behind_tags(data, at + 20, end, kind)
    if link in (0, 108):
        if at + 4 > end:
            return -1, 0
        family = be32(data, at)
        if family > 0xFFFF:  # of a machine with the other byte order
            family = le32(data, at)
        kind = _IPV4 if family == 2 else _IPV6 if family in (10, 24, 28, 30) else 0
        return at + 4, kind
    if at >= end:
        return -1, 0
    version = data[at] >> 4
    return at, _IPV4 if version == 4 else _IPV6 if version == 6 else 0


@stage
def _extensions(data: Bytes, at: int, end: int, kind: int) -> tuple[int, int, int]:
    """Step over IPv6's extension headers (RFC 8200, section 4), as many as the snap length kept.

    Gives where they end, what follows them (44: the later part of a fragmented packet), and 1 where a part of
    them was not captured.
    """
    for _ in range(_MOST_EXTENSIONS):
        if kind not in (0, 43, 44, 51, 60, 135, 139, 140):
            break
        if at + 8 > end:
            return at, kind, 1
        if kind == 44:
            if be16(data, at + 2) >> 3 != 0:
                return at + 8, 44, 0
            size = 8
        elif kind == 51:
            size = (np.int64(data[at + 1]) + 2) * 4
        else:
            size = (np.int64(data[at + 1]) + 1) * 8
        kind = np.int64(data[at])
        at += size
    return at, kind, 0


@stage
def _window_scale(data: Bytes, at: int, end: int) -> int:
    """The shift of the window scale option (RFC 7323, section 2), -1 where there is none."""
    for _ in range(_MOST_OPTIONS):
        if at >= end or data[at] == 0:
            break
        if data[at] == 1:
            at += 1
            continue
        if at + 2 > end or data[at + 1] < 2:
            break
        if data[at] == 3 and at + 3 <= end:
            return min(np.int64(data[at + 2]), 14)
        at += np.int64(data[at + 1])
    return -1


@inline
def _transport(data: Bytes, at: int, end: int, kind: int, row: Ints, counts: Ints) -> None:
    """Read ports, and of TCP sequence numbers; `row[PAYLOAD]` holds the bytes from this header on.

    A packet whose header was not captured, or contradicts itself, belongs to no port, as with tshark.
    """
    if kind == _UDP and at + 8 <= end and be16(data, at + 4) >= 8:
        row[WORD] |= be32(data, at)
        row[PAYLOAD] = max(0, row[PAYLOAD] - 8)
        counts[ROCE] += be16(data, at + 2) == ROCE_PORT
        return
    if kind != _TCP or at + 20 > end or data[at + 12] < 0x50:
        counts[UNDECODED] += kind in (_TCP, _UDP)
        return
    header = np.int64(data[at + 12] >> 4) * 4
    row[WORD] |= be32(data, at)
    row[PAYLOAD] = max(0, row[PAYLOAD] - header)
    row[SEQUENCE] = be32(data, at + 4)
    row[ACKNOWLEDGED] = be32(data, at + 8)
    row[FLAGS] = np.int64(data[at + 13])
    row[WINDOW] = be16(data, at + 14)
    if data[at + 13] & 2:
        row[SCALE] = _window_scale(data, at + 20, min(end, at + header))


@stage
def decode(data: Bytes, frames: Ints, found: int, headers: Ints, counts: Ints) -> None:
    """Fill a row of `headers` for each of the `found` packets."""
    for number in range(found):
        row = headers[number]
        begin, end = frames[number, BEGIN], frames[number, END]
        row[FLAGS] = -1
        row[PAYLOAD] = 0
        row[IP_BYTES] = 0
        at, kind = _link(data, begin, end, frames[number, LINK], row)
        row[LINK_BYTES] = at - begin
        room = frames[number, WIRE] - (at - begin)
        if kind == _IPV4 and at >= 0 and at + 20 <= end and data[at] >> 4 == 4:
            header = np.int64(data[at] & 15) * 4
            total = be16(data, at + 2)
            # Segmentation offload can leave the total at zero for packets over 64 kB (BIG TCP).
            total = total if total > 0 else room
            if header >= 20 and total >= header:
                protocol = np.int64(data[at + 9])
                row[SRC_HIGH] = 0
                row[SRC_LOW] = be32(data, at + 12)
                row[DST_HIGH] = 0
                row[DST_LOW] = be32(data, at + 16)
                row[WORD] = SCOPE_V4 << 48 | protocol << 32
                row[IP_BYTES] = total
                row[PAYLOAD] = total - header
                row[TRANSPORT] = at + header
                if be16(data, at + 6) & 0x1FFF != 0:
                    counts[FRAGMENTS] += 1
                else:
                    _transport(data, at + header, end, protocol, row, counts)
                continue
        elif kind == _IPV6 and at >= 0 and at + 40 <= end and data[at] >> 4 == 6:
            total = be16(data, at + 4)
            total = total + 40 if total > 0 else room
            if total >= 40:
                behind, protocol, cut = _extensions(data, at + 40, end, np.int64(data[at + 6]))
                row[SRC_HIGH] = be64(data, at + 8)
                row[SRC_LOW] = be64(data, at + 16)
                row[DST_HIGH] = be64(data, at + 24)
                row[DST_LOW] = be64(data, at + 32)
                later = protocol == 44 and cut == 0
                if later:
                    protocol = np.int64(data[behind - 8])
                row[WORD] = SCOPE_V6 << 48 | protocol << 32
                row[IP_BYTES] = total
                row[PAYLOAD] = max(0, total - (behind - at))
                row[TRANSPORT] = behind
                counts[UNDECODED] += cut
                if later:
                    counts[FRAGMENTS] += 1
                elif cut == 0:
                    _transport(data, behind, end, protocol, row, counts)
                continue
        row[SRC_HIGH] = 0
        row[DST_HIGH] = 0
        row[SRC_LOW] = row[SRC_MAC] if at >= 0 else 0
        row[DST_LOW] = row[DST_MAC] if at >= 0 else 0
        row[WORD] = SCOPE_LINK << 48 | kind << 32 if at >= 0 else SCOPE_RUNT << 48
        if at < 0:
            row[SRC_MAC] = 0
            row[DST_MAC] = 0
        counts[UNDECODED] += at < 0 or kind in (_IPV4, _IPV6)
