"""Reads the headers of tunnels: what they carry and where it begins; part of the capture reader."""

# Compiled code takes no keyword-only arguments, a call of a small part costs it time, and for mypy its integers are
# NumPy's.
# ruff: noqa: C901, PLR0911, PLR0912
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from orchestrator.analysis.capture.stages.compiled import inline, stage
from orchestrator.analysis.capture.stages.loads import be16, be32

Bytes = npt.NDArray[np.uint8]
Opened = tuple[int, int, int, int]

# Kinds of tunnels, each a digit of 16; none; and one whose headers were not captured or are not understood.
(NO_TUNNEL, VXLAN, VXLAN_GPE, GENEVE, GRE, NVGRE, ERSPAN, IP_IN_IP, MPLS, PPPOE, GTP, ETHERNET_IN_IP, PBB) = range(13)
UNREADABLE = -1
NAMES = {
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
_MOST_EXTENSIONS = 16
_FIRST_VSID = 0x1000  # those below are reserved (RFC 7637, section 3.2), so that a lower key is no VSID


@stage
def opened(data: Bytes, at: int, end: int, room: int, carrier: int) -> Opened:
    """Read a tunnel's own headers, which begin at `at` with `room` bytes on the wire.

    Gives its kind, what tells its networks apart for both directions alike (a VNI, VSID, key or session; 0: nothing
    does), where what it carries begins, and that one's ethertype. `carrier`: an IP protocol, IN_DATAGRAM | port, or
    IN_LINK | ethertype.
    """
    if carrier >= IN_LINK:
        kind = carrier & 0xFFFF
        if kind in (_MPLS, _MPLS_UPSTREAM):
            return _behind_labels(data, at, end, room)
        if kind == 0x8864:
            return _pppoe(data, at, end)
        if kind == 0x88E7:  # IEEE 802.1ah
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
def _vxlan(data: Bytes, at: int, end: int, generic: bool) -> Opened:
    """VXLAN (RFC 7348), with its group policy, and its generic extension (draft-ietf-nvo3-vxlan-gpe)."""
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
def _geneve(data: Bytes, at: int, end: int) -> Opened:
    """Geneve (RFC 8926)."""
    if at + 8 > end:
        return UNREADABLE, 0, at, 0
    if data[at] >> 6 != 0:
        return NO_TUNNEL, 0, at, 0
    kind = be16(data, at + 2)
    if kind not in (BRIDGED, _IPV4, _IPV6, _MPLS):
        return UNREADABLE, 0, at, 0
    return GENEVE, be32(data, at + 4) >> 8, at + 8 + np.int64(data[at] & 0x3F) * 4, kind


@inline
def _gtp(data: Bytes, at: int, end: int) -> Opened:
    """GTP-U (3GPP TS 29.281), of which each direction has an identifier of its own."""
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
def _gre(data: Bytes, at: int, end: int) -> Opened:
    """GRE (RFC 2784, 2890), also of PPTP (RFC 2637); NVGRE (RFC 7637); ERSPAN (draft-foschiano-erspan)."""
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
def _pppoe(data: Bytes, at: int, end: int) -> Opened:
    """PPP over Ethernet (RFC 2516)."""
    if at + 6 > end:
        return UNREADABLE, 0, at, 0
    if data[at] != 0x11 or data[at + 1] != 0:
        return NO_TUNNEL, 0, at, 0
    return _ppp(data, at + 6, end, PPPOE, be16(data, at + 2))


@stage
def _ppp(data: Bytes, at: int, end: int, tunnel: int, network: int) -> Opened:
    """PPP's header (RFC 1661, 1662), with or without its address and control fields, its protocol in a byte or two."""
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
def _behind_labels(data: Bytes, at: int, end: int, room: int) -> Opened:
    """MPLS (RFC 3032), whose labels each direction has of its own and which does not say what they carry.

    IP where a header of it fits (RFC 4928), else Ethernet with the control word of a pseudowire (RFC 4448) or without.
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
    """Whether a frame's ethertype is one that is known, and agrees with what follows."""
    if at + 15 > end:
        return False
    kind = be16(data, at + 12)
    if kind in (_IPV4, _IPV6):
        return data[at + 14] >> 4 == (4 if kind == _IPV4 else 6)
    return kind in (0x0806, 0x8100, 0x88A8, 0x9100, _MPLS, 0x8864, 0x8863, 0x88CC)
