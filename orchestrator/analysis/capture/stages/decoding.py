"""Decodes the headers of a batch of packets: the compiled second stage of the capture reader."""

# Compiled code takes no keyword-only arguments, a call of a small part costs it time, and for mypy its integers are
# NumPy's.
# ruff: noqa: C901, PLR0911, PLR0912, PLR0915, PLR0917
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from orchestrator.analysis.capture.stages.compiled import inline, stage
from orchestrator.analysis.capture.stages.framing import BEGIN, END, INDEXED, LINK, WIRE
from orchestrator.analysis.capture.stages.loads import be16, be32, be64, le32
from orchestrator.analysis.capture.stages.tunnels import BRIDGED, IN_DATAGRAM, IN_LINK, NO_TUNNEL, UNREADABLE, opened

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

# One packet's headers. The first six words are who it is from and to: addresses of two words each; WORD, which is
# scope << 48 | IP protocol or ethertype << 32 | source port << 16 | destination port; and VIA, how it came: the number
# of its interface << 44 | the kinds of the tunnels that it is in, a digit of 16 each, the innermost one lowest << 32 |
# what tells networks of the innermost such tunnel apart (0: nothing). Where it is in a tunnel, all else is of the
# innermost headers, but for the IP and link bytes and hardware addresses of what is on the wire.
(
    SRC_HIGH,
    SRC_LOW,
    DST_HIGH,
    DST_LOW,
    WORD,
    VIA,
    PAYLOAD,
    SEQUENCE,
    ACKNOWLEDGED,
    FLAGS,
    WINDOW,
    SCALE,  # FLAGS is -1 where there is no TCP header to read
    IP_BYTES,
    LINK_BYTES,
    SRC_MAC,
    DST_MAC,
    TRANSPORT,  # TRANSPORT: where the transport header is in the buffer
    OUTER_SCOPE,
    OUTER_SRC_HIGH,
    OUTER_SRC_LOW,
    OUTER_DST_HIGH,
    OUTER_DST_LOW,  # of packets in tunnels alone
) = range(22)
HEADER_WORDS = 22
SCOPE_V4, SCOPE_V6, SCOPE_LINK, SCOPE_RUNT = 4, 6, 2, 0
INTERFACE_SHIFT, KIND_SHIFT, KIND_BITS = 44, 32, 4
KINDS_MASK = (1 << INTERFACE_SHIFT - KIND_SHIFT) - 1

# What decode() counts. INNER: packets of tunnels that count by what carries them, since the headers behind cannot be
# read.
UNDECODED, FRAGMENTS, ROCE, INNER = range(4)

LINK_TYPES = {
    0: "loopback (BSD)", 1: "Ethernet", 12: "raw IP", 14: "raw IP", 101: "raw IP", 108: "loopback (OpenBSD)",
    113: "Linux cooked v1", 228: "IPv4", 229: "IPv6", 276: "Linux cooked v2",
}  # fmt: skip

ROCE_PORT = 4791
_TCP, _UDP = 6, 17
_IPV4, _IPV6 = 0x0800, 0x86DD
_LLC = 4  # stands for every IEEE 802.3 length
_MPLS, _MPLS_UPSTREAM, _PPPOE, _PBB = 0x8847, 0x8848, 0x8864, 0x88E7
_MOST_TAGS = 8
_MOST_TUNNELS = 8  # within each other
_ANY_LENGTH = 1 << 40

# What is known of an IP packet: nothing, since its header is not there or contradicts itself; its header but not the
# one behind it; its header, of a later fragment that has no other; all headers.
_NOTHING, _CUT, _LATER, _WHOLE = range(4)
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
        if kind not in (0x8100, 0x88A8, 0x9100, 0x9200, 0x9300) or at + 4 > end:
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
        row[VIA] = (INDEXED | be32(data, at + 4) & (INDEXED - 1)) << INTERFACE_SHIFT
        return _behind_tags(data, at + 20, end, kind)
    if link in (0, 108):
        if at + 4 > end:
            return -1, 0
        family = be32(data, at)
        if family > 0xFFFF:  # of a machine with the other byte order
            family = le32(data, at)
        kind = _IPV4 if family == 2 else _IPV6 if family in (10, 24, 28, 30) else 0
        return at + 4, kind
    if link == 0xFFFF:
        return at, 0
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
def _transport(data: Bytes, at: int, end: int, kind: int, row: Ints, counts: Ints) -> int:
    """Read ports, and of TCP sequence numbers; `row[PAYLOAD]` holds the bytes from this header on.

    Gives _CUT for a packet whose header was not captured, or contradicts itself; it belongs to no port, as with tshark.
    """
    if kind == _UDP and at + 8 <= end and be16(data, at + 4) >= 8:
        row[WORD] |= be32(data, at)
        row[PAYLOAD] = max(0, row[PAYLOAD] - 8)
        counts[ROCE] += be16(data, at + 2) == ROCE_PORT
        return _WHOLE
    if kind != _TCP or at + 20 > end or data[at + 12] < 0x50:
        return _CUT if kind in (_TCP, _UDP) else _WHOLE
    header = np.int64(data[at + 12] >> 4) * 4
    row[WORD] |= be32(data, at)
    row[PAYLOAD] = max(0, row[PAYLOAD] - header)
    row[SEQUENCE] = be32(data, at + 4)
    row[ACKNOWLEDGED] = be32(data, at + 8)
    row[FLAGS] = np.int64(data[at + 13])
    row[WINDOW] = be16(data, at + 14)
    if data[at + 13] & 2:
        row[SCALE] = _window_scale(data, at + 20, min(end, at + header))
    return _WHOLE


@inline
def _network(data: Bytes, at: int, end: int, kind: int, room: int, most: int, row: Ints, counts: Ints) -> int:
    """Read an IP header and the transport header behind it; gives what is known.

    `room`: bytes on the wire from there on; `most`: of what is said of them by the header, how many are believed.
    """
    if kind == _IPV4 and at + 20 <= end and data[at] >> 4 == 4:
        header = np.int64(data[at] & 15) * 4
        total = be16(data, at + 2)
        # Segmentation offload can leave the total at zero for packets over 64 kB (BIG TCP).
        total = min(total, most) if total > 0 else room
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
                return _LATER
            return _transport(data, at + header, end, protocol, row, counts)
    elif kind == _IPV6 and at + 40 <= end and data[at] >> 4 == 6:
        total = be16(data, at + 4)
        total = min(total + 40, most) if total > 0 else room
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
            if later:
                return _LATER
            return _CUT if cut else _transport(data, behind, end, protocol, row, counts)
    return _NOTHING


@inline
def _carrier(word: int) -> int:
    """What an IP packet would carry a tunnel in: its protocol, or where it goes by UDP."""
    protocol = word >> 32 & 0xFFFF
    return IN_DATAGRAM | word & 0xFFFF if protocol == _UDP else protocol


@stage
def _unwrap(data: Bytes, at: int, end: int, room: int, carrier: int, row: Ints, counts: Ints) -> None:
    """Go on to the innermost headers of a packet whose outer ones are read, where it is in a tunnel.

    `at`: where the headers of the tunnel begin that `carrier` (as of `tunnels.opened`) leads to; `room`: bytes on the
    wire from there on. Where what is inside cannot be read, the packet counts by what carries it.
    """
    begin = at - row[LINK_BYTES]  # of the packet, where it has no IP header before the tunnel
    for depth in range(_MOST_TUNNELS + 1):
        tunnel, network, inside, kind = opened(data, at, end, room, carrier)
        if tunnel == NO_TUNNEL:
            return
        if tunnel == UNREADABLE or depth == _MOST_TUNNELS:
            break
        row_via, outer_bytes = row[VIA], row[IP_BYTES]
        kinds = (row_via >> KIND_SHIFT << KIND_BITS | tunnel) & KINDS_MASK
        via = row_via >> INTERFACE_SHIFT << INTERFACE_SHIFT | kinds << KIND_SHIFT | row_via & 0xFFFFFFFF
        if network != 0:
            via = via >> KIND_SHIFT << KIND_SHIFT | network
        room -= inside - at
        at = inside
        src_mac, dst_mac = np.int64(0), np.int64(0)
        if kind == BRIDGED:
            if at + 14 > end:
                break
            dst_mac = be16(data, at) << 32 | be32(data, at + 2)
            src_mac = be16(data, at + 6) << 32 | be32(data, at + 8)
            inside, kind = _behind_tags(data, at + 14, end, be16(data, at + 12))
            room -= inside - at
            at = inside
        src_high, src_low, dst_high, dst_low = row[SRC_HIGH], row[SRC_LOW], row[DST_HIGH], row[DST_LOW]
        word, payload, transport = row[WORD], row[PAYLOAD], row[TRANSPORT]
        known = _NOTHING
        if kind in (_IPV4, _IPV6):
            known = _network(data, at, end, kind, room, room, row, counts)
            if known <= _CUT:
                row[SRC_HIGH], row[SRC_LOW], row[DST_HIGH], row[DST_LOW] = src_high, src_low, dst_high, dst_low
                row[WORD], row[PAYLOAD], row[TRANSPORT], row[IP_BYTES] = word, payload, transport, outer_bytes
                break
            counts[FRAGMENTS] += known == _LATER
        else:
            row[SRC_HIGH], row[SRC_LOW], row[DST_HIGH], row[DST_LOW] = 0, src_mac, 0, dst_mac
            row[WORD] = SCOPE_LINK << 48 | kind << 32
            row[PAYLOAD] = 0
        row[VIA] = via
        if row_via & (KINDS_MASK << KIND_SHIFT) == 0:
            row[OUTER_SCOPE] = word >> 48
            row[OUTER_SRC_HIGH], row[OUTER_SRC_LOW] = src_high, src_low
            row[OUTER_DST_HIGH], row[OUTER_DST_LOW] = dst_high, dst_low
        if outer_bytes > 0:
            row[IP_BYTES] = outer_bytes
        elif known != _NOTHING:
            row[LINK_BYTES] = at - begin
        if known == _WHOLE:
            carrier = _carrier(row[WORD])
            at = row[TRANSPORT] + (8 if carrier >= IN_DATAGRAM else 0)
            room = row[PAYLOAD]
        elif known == _NOTHING:
            carrier = IN_LINK | kind
        else:
            return
    counts[INNER] += 1


@stage
def decode(data: Bytes, frames: Ints, found: int, headers: Ints, counts: Ints) -> None:
    """Fill a row of `headers` for each of the `found` packets."""
    for number in range(found):
        row = headers[number]
        begin, end, link = frames[number, BEGIN], frames[number, END], frames[number, LINK]
        row[FLAGS] = -1
        row[PAYLOAD] = 0
        row[IP_BYTES] = 0
        row[VIA] = link >> 16 << INTERFACE_SHIFT
        at, kind = _link(data, begin, end, link & 0xFFFF, row)
        row[LINK_BYTES] = at - begin
        room = frames[number, WIRE] - (at - begin)
        known = _NOTHING
        if at >= 0:
            known = _network(data, at, end, kind, room, _ANY_LENGTH, row, counts)
        if known == _WHOLE:
            word = row[WORD]
            if word >> 32 & 0xFFFF != _TCP:
                carrier = _carrier(word)
                if carrier >= IN_DATAGRAM:
                    _unwrap(data, row[TRANSPORT] + 8, end, row[PAYLOAD], carrier, row, counts)
                else:
                    _unwrap(data, row[TRANSPORT], end, row[PAYLOAD], carrier, row, counts)
            continue
        if known == _CUT:
            counts[UNDECODED] += 1
            continue
        if known == _LATER:
            counts[FRAGMENTS] += 1
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
        if kind in (_MPLS, _MPLS_UPSTREAM, _PPPOE, _PBB) and at >= 0:
            _unwrap(data, at, end, room, IN_LINK | kind, row, counts)
