"""Decode the headers of packets, also of those in tunnels: the compiled second stage of the capture reader."""

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
_LLC = 4  # stands for every IEEE 802.3 length
_PPPOE, _PBB = 0x8864, 0x88E7
_MOST_TAGS = 8
_MOST_TUNNELS = 8  # within each other
_ANY_LENGTH = 1 << 40

# What is known of an IP packet: nothing, since its header is not there or contradicts itself; its header but not the
# one behind it; its header, of a later fragment that has no other; all headers.
_NOTHING, _CUT, _LATER, _WHOLE = range(4)
_MOST_EXTENSIONS = 16
_MOST_OPTIONS = 40

_Tunnel = tuple[int, int, int, int]

# Kinds of tunnels, each a digit of 16; none; and one whose headers were not captured or are not understood.
(NO_TUNNEL, VXLAN, VXLAN_GPE, GENEVE, GRE, NVGRE, ERSPAN, IP_IN_IP, MPLS, PPPOE, GTP, ETHERNET_IN_IP, PBB) = range(13)
UNREADABLE = -1
TUNNEL_NAMES = {
    VXLAN: "vxlan", VXLAN_GPE: "vxlan-gpe", GENEVE: "geneve", GRE: "gre", NVGRE: "nvgre", ERSPAN: "erspan",
    IP_IN_IP: "ipip", MPLS: "mpls", PPPOE: "pppoe", GTP: "gtp", ETHERNET_IN_IP: "etherip", PBB: "pbb",
}  # fmt: skip

# What a tunnel may be carried in: an IP protocol as it is, a destination port of UDP, an ethertype.
IN_DATAGRAM, IN_LINK = 1 << 16, 1 << 17

BRIDGED = 0x6558  # stands for an Ethernet frame, as in GRE
_IPV4, _IPV6, _MPLS, _MPLS_UPSTREAM, _PPP = 0x0800, 0x86DD, 0x8847, 0x8848, 0x880B
_VXLAN_PORT, _VXLAN_OLD_PORT, _GPE_PORT, _GENEVE_PORT, _GTP_PORT, _MPLS_PORT, _GRE_PORT = (
    4789,
    8472,
    4790,
    6081,
    2152,
    6635,
    4754,
)
_MOST_LABELS = 16
_FIRST_VSID = 0x1000  # those below are reserved (RFC 7637, section 3.2), so that a lower key is no VSID


@stage
def _address_words(data: Bytes, at: int, size: int) -> int:
    """Return a hardware address of up to 6 bytes as a word."""
    value = 0
    for place in range(min(size, 6)):
        value = value << 8 | np.int64(data[at + place])
    return value


@inline
def _behind_tags(data: Bytes, at: int, end: int, kind: int) -> tuple[int, int]:
    """Step over VLAN tags (IEEE 802.1Q, 802.1ad) and SNAP; return the network header's place and its ethertype."""
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
    """Read a link-layer header; return the network header's place (-1: there is none) and its ethertype."""
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
    """Step over IPv6 extension headers (RFC 8200, section 4), as many as the snap length kept.

    Return where they end, what follows them (44: the later part of a fragmented packet), and 1 where a part of them was
    not captured.
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
    """Return the shift of the window scale option (RFC 7323, section 2), -1 where there is none."""
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

    Return _CUT for a packet whose header was not captured, or contradicts itself; it belongs to no port, as with
    tshark.
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
    """Read an IP header and the transport header behind it; return which headers were read.

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
    """Return what an IP packet would carry a tunnel in: its protocol, or its port of UDP."""
    protocol = word >> 32 & 0xFFFF
    return IN_DATAGRAM | word & 0xFFFF if protocol == _UDP else protocol


@stage
def _unwrap(data: Bytes, at: int, end: int, room: int, carrier: int, row: Ints, counts: Ints) -> None:
    """Decode the innermost headers of a packet in a tunnel, once its outer ones are read.

    `at`: where the headers of the tunnel begin that `carrier` (as of `tunnels.opened`) leads to; `room`: bytes on the
    wire from there on. Where what is inside cannot be read, the packet counts by what carries it.
    """
    begin = at - row[LINK_BYTES]  # of the packet, where it has no IP header before the tunnel
    for depth in range(_MOST_TUNNELS + 1):
        tunnel, network, inside, kind = read_tunnel(data, at, end, room, carrier)
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


@stage
def read_tunnel(data: Bytes, at: int, end: int, room: int, carrier: int) -> _Tunnel:
    """Read a tunnel's own headers, which begin at `at` with `room` bytes on the wire.

    Return its kind, what tells its networks apart for both directions alike (a VNI, VSID, key or session; 0: nothing
    does), where what it carries begins, and that one's ethertype. `carrier`: an IP protocol, IN_DATAGRAM | port, or
    IN_LINK | ethertype.
    """
    if carrier >= IN_LINK:
        kind = carrier & 0xFFFF
        if kind in (_MPLS, _MPLS_UPSTREAM):
            return _behind_labels(data, at, end, room)
        if kind == _PPPOE:
            return _pppoe(data, at, end)
        if kind == _PBB:  # IEEE 802.1ah
            return (PBB, be32(data, at) & 0xFFFFFF, at + 4, BRIDGED) if at + 4 <= end else (UNREADABLE, 0, at, 0)
    elif carrier >= IN_DATAGRAM:
        port = carrier & 0xFFFF
        if port in (_VXLAN_PORT, _VXLAN_OLD_PORT, _GPE_PORT):
            return _vxlan(data, at, end, port == _GPE_PORT)
        if port == _GENEVE_PORT:
            return _geneve(data, at, end)
        if port == _GTP_PORT:
            return _gtp(data, at, end)
        if port == _MPLS_PORT:  # RFC 7510
            return _behind_labels(data, at, end, room)
        if port == _GRE_PORT:  # RFC 8086
            return _gre(data, at, end)
    elif carrier == 4:
        return IP_IN_IP, 0, at, _IPV4
    elif carrier == 41:
        return IP_IN_IP, 0, at, _IPV6
    elif carrier == 47:
        return _gre(data, at, end)
    elif carrier == 97:  # RFC 3378
        if at + 2 > end:
            return UNREADABLE, 0, at, 0
        return (ETHERNET_IN_IP, 0, at + 2, BRIDGED) if data[at] >> 4 == 3 else (NO_TUNNEL, 0, at, 0)
    elif carrier == 137:  # RFC 4023
        return _behind_labels(data, at, end, room)
    elif carrier == 143:  # RFC 8986
        return ETHERNET_IN_IP, 0, at, BRIDGED
    return NO_TUNNEL, 0, at, 0


@inline
def _vxlan(data: Bytes, at: int, end: int, generic: bool) -> _Tunnel:
    """Read VXLAN (RFC 7348), with its group policy, or its generic extension (draft-ietf-nvo3-vxlan-gpe)."""
    if at + 8 > end:
        return UNREADABLE, 0, at, 0
    flags = data[at]
    if flags & 0x08 == 0 or (not generic and flags & 0x73):
        return NO_TUNNEL, 0, at, 0
    network = be32(data, at + 4) >> 8
    if not generic and flags & 0x04 == 0:
        return VXLAN, network, at + 8, BRIDGED
    following = data[at + 3] if flags & 0x04 else 3
    kind = 0
    if following == 1:
        kind = _IPV4
    elif following == 2:
        kind = _IPV6
    elif following == 3:
        kind = BRIDGED
    elif following == 5:
        kind = _MPLS
    return (VXLAN_GPE, network, at + 8, kind) if kind else (UNREADABLE, 0, at, 0)


@inline
def _geneve(data: Bytes, at: int, end: int) -> _Tunnel:
    """Read Geneve (RFC 8926)."""
    if at + 8 > end:
        return UNREADABLE, 0, at, 0
    if data[at] >> 6 != 0:
        return NO_TUNNEL, 0, at, 0
    kind = be16(data, at + 2)
    if kind not in (BRIDGED, _IPV4, _IPV6, _MPLS):
        return UNREADABLE, 0, at, 0
    return GENEVE, be32(data, at + 4) >> 8, at + 8 + np.int64(data[at] & 0x3F) * 4, kind


@inline
def _gtp(data: Bytes, at: int, end: int) -> _Tunnel:
    """Read GTP-U (3GPP TS 29.281), of which each direction has an identifier of its own."""
    if at + 8 > end:
        return UNREADABLE, 0, at, 0
    flags = data[at]
    if flags & 0xF0 != 0x30 or data[at + 1] != 255:  # version 1, a packet of a user
        return NO_TUNNEL, 0, at, 0
    at += 8
    if flags & 0x07:
        if at + 4 > end:
            return UNREADABLE, 0, at, 0
        following = data[at + 3] if flags & 0x04 else 0
        at += 4
        for _ in range(_MOST_EXTENSIONS):
            if following == 0:
                break
            size = np.int64(data[at]) * 4 if at < end else 0
            if size == 0 or at + size > end:
                return UNREADABLE, 0, at, 0
            at += size
            following = data[at - 1]
    version = data[at] >> 4 if at < end else 0
    kind = _IPV4 if version == 4 else _IPV6 if version == 6 else 0
    return (GTP, 0, at, kind) if kind else (UNREADABLE, 0, at, 0)


@stage
def _gre(data: Bytes, at: int, end: int) -> _Tunnel:
    """Read GRE (RFC 2784, 2890), also of PPTP (RFC 2637); NVGRE (RFC 7637); ERSPAN (draft-foschiano-erspan)."""
    if at + 4 > end:
        return UNREADABLE, 0, at, 0
    flags, kind = be16(data, at), be16(data, at + 2)
    begin = at
    at += 4
    if flags & 7 == 1:
        at += 4 + (4 if flags & 0x1000 else 0) + (4 if flags & 0x0080 else 0)
        if flags & 0x1000 == 0:  # an acknowledgement
            return NO_TUNNEL, 0, begin, 0
        return _ppp(data, at, end, GRE, 0) if kind == _PPP else (NO_TUNNEL, 0, begin, 0)
    if flags & 7 or flags & 0x4000:  # of a version that nobody knows, or with routes (RFC 1701)
        return UNREADABLE, 0, at, 0
    network = 0
    at += 4 if flags & 0x8000 else 0
    if flags & 0x2000:
        if at + 4 > end:
            return UNREADABLE, 0, at, 0
        network = be32(data, at)
        at += 4
    at += 4 if flags & 0x1000 else 0
    if kind == BRIDGED and flags & 0xB000 == 0x2000 and network >> 8 >= _FIRST_VSID:
        return NVGRE, network >> 8, at, BRIDGED
    if kind == 0x88BE:  # type I has no header of its own
        if flags & 0x1000 == 0:
            return ERSPAN, 0, at, BRIDGED
        if at + 8 > end:
            return UNREADABLE, 0, at, 0
        return ERSPAN, be16(data, at + 2) & 0x3FF, at + 8, BRIDGED
    if kind == 0x22EB:
        if at + 12 > end:
            return UNREADABLE, 0, at, 0
        behind = at + 12 + (8 if data[at + 11] & 1 else 0)
        frame = data[at + 10] >> 2 & 0x1F  # what was mirrored: Ethernet, or an IP packet
        if frame not in (0, 2):
            return UNREADABLE, 0, at, 0
        version = data[behind] >> 4 if behind < end else 0
        carried = BRIDGED if frame == 0 else _IPV4 if version == 4 else _IPV6
        return ERSPAN, be16(data, at + 2) & 0x3FF, behind, carried
    if kind == _PPP:
        return _ppp(data, at, end, GRE, network)
    if kind in (_IPV4, _IPV6, BRIDGED, _MPLS, _MPLS_UPSTREAM):
        return GRE, network, at, kind
    return NO_TUNNEL, 0, begin, 0


@inline
def _pppoe(data: Bytes, at: int, end: int) -> _Tunnel:
    """Read PPP over Ethernet (RFC 2516)."""
    if at + 6 > end:
        return UNREADABLE, 0, at, 0
    if data[at] != 0x11 or data[at + 1] != 0:
        return NO_TUNNEL, 0, at, 0
    return _ppp(data, at + 6, end, PPPOE, be16(data, at + 2))


@stage
def _ppp(data: Bytes, at: int, end: int, tunnel: int, network: int) -> _Tunnel:
    """Read PPP's header (RFC 1661, 1662), with or without address and control fields, its protocol in 1 or 2 bytes."""
    if at + 4 <= end and be16(data, at) == 0xFF03:
        at += 2
    if at + 2 > end:
        return UNREADABLE, 0, at, 0
    protocol = np.int64(data[at])
    at += 1
    if protocol & 1 == 0:
        protocol = protocol << 8 | np.int64(data[at])
        at += 1
    if protocol == 0x21:
        return tunnel, network, at, _IPV4
    if protocol == 0x57:
        return tunnel, network, at, _IPV6
    if protocol in (0x281, 0x283):
        return tunnel, network, at, _MPLS
    return NO_TUNNEL, 0, at, 0  # PPP's own talk, and what is compressed or encrypted


@stage
def _behind_labels(data: Bytes, at: int, end: int, room: int) -> _Tunnel:
    """Step over MPLS labels (RFC 3032), which each direction has of its own and which do not name their payload.

    It is taken for IP where a header of it fits (RFC 4928), else Ethernet with the control word of a pseudowire (RFC
    4448) or without.
    """
    labels = 0
    while labels < _MOST_LABELS and at + 4 <= end and data[at + 2] & 1 == 0:
        at, room, labels = at + 4, room - 4, labels + 1
    if labels == _MOST_LABELS or at + 5 > end:
        return UNREADABLE, 0, at, 0
    at, room = at + 4, room - 4
    first = data[at] >> 4
    if first == 4 and at + 4 <= end:
        total = be16(data, at + 2)
        if data[at] & 15 >= 5 and total <= room and (total == 0 or total >= np.int64(data[at] & 15) * 4):
            return MPLS, 0, at, _IPV4
    if first == 6 and at + 6 <= end and be16(data, at + 4) + 40 <= room:
        return MPLS, 0, at, _IPV6
    if first == 0 and _is_ethernet(data, at + 4, end):
        return MPLS, 0, at + 4, BRIDGED
    if _is_ethernet(data, at, end):
        return MPLS, 0, at, BRIDGED
    return UNREADABLE, 0, at, 0


@inline
def _is_ethernet(data: Bytes, at: int, end: int) -> bool:
    """Return whether an Ethernet header lies here: its ethertype is known, and agrees with what follows."""
    if at + 15 > end:
        return False
    kind = be16(data, at + 12)
    if kind in (_IPV4, _IPV6):
        return data[at + 14] >> 4 == (4 if kind == _IPV4 else 6)
    return kind in (0x0806, 0x8100, 0x88A8, 0x9100, _MPLS, 0x8864, 0x8863, 0x88CC)
