"""Captures that are hard to read right, built by hand: name -> the file's bytes."""

from __future__ import annotations

import struct

from tests.helpers.made_packets import (
    ACK,
    FIN,
    ICMP,
    OUTSIDE,
    RST,
    SYN,
    UDP,
    WINDOW_SCALE_7,
    bth,
    cooked,
    cooked2,
    datagram,
    enhanced,
    ethernet,
    extension,
    fragment,
    geneve,
    gre,
    gtp,
    interface,
    ip4,
    ip6,
    labels,
    loopback,
    obsolete,
    patched,
    pcap,
    pppoe,
    reth,
    section,
    simple,
    tcp,
    udp,
    vxlan,
)

RAW_IP = 101


def connection(*, seq=100, sport=1000, size=10, replies=100):
    """SYN, SYN-ACK, ACK, data and its acknowledgement, FIN."""
    back = {"src": "10.9.0.2", "dst": "10.9.0.1"}
    there, here = {"sport": sport, "dport": 5201}, {"sport": 5201, "dport": sport}
    return [
        ip4(tcp(seq=seq, flags=SYN, options=WINDOW_SCALE_7, **there)),
        ip4(tcp(seq=replies, ack=seq + 1, flags=SYN | ACK, options=WINDOW_SCALE_7, **here), **back),
        ip4(tcp(seq=seq + 1, ack=replies + 1, **there)),
        ip4(tcp(b"x" * size, seq=seq + 1, ack=replies + 1, **there)),
        ip4(tcp(seq=replies + 1, ack=seq + 1 + size, **here), **back),
        ip4(tcp(seq=seq + 1 + size, ack=replies + 1, flags=FIN | ACK, **there)),
    ]


def _reused():
    first, again = connection(), connection(seq=5000, replies=7000)
    late = ip4(tcp(b"late", seq=111, ack=101))
    return pcap([ethernet(one) for one in (*first, *again, late, again[0], *connection(seq=9000, replies=9000))])


def _open_from_the_middle():
    back = {"src": "10.9.0.2", "dst": "10.9.0.1"}
    middle = [ip4(tcp(b"abc", seq=50, ack=70)), ip4(tcp(b"abc", sport=5201, dport=1000, seq=70, ack=53), **back)]
    return pcap([ethernet(one) for one in (*middle, *connection(seq=52), *connection(seq=49), *connection(seq=200))])


def _ipv6():
    six = [
        ip6(tcp(b"abc", seq=5)),
        ip6(extension(tcp(b"abcd", seq=8), 6), following=0),
        ip6(extension(extension(udp(b"abcde"), UDP, 1), 60), following=0),
        ip6(fragment(udp(b"x" * 64, length=208), UDP, 0, 1), following=44),
        ip6(fragment(b"x" * 136, UDP, 72, 0), following=44),
        ip6(fragment(tcp(b"whole"), 6), following=44),
    ]
    return pcap([ethernet(one, 0x86DD) for one in six])


def _fragments():
    parts = [
        ip4(udp(b"x" * 64, length=208), protocol=UDP, flags=1),
        ip4(b"x" * 136, protocol=UDP, offset=72),
        ip4(udp(b"tail"), protocol=UDP, number=2),
        ip4(tcp(b"x" * 40, seq=1), flags=1, number=3),
        ip4(b"x" * 40, offset=64, number=3),
    ]
    return pcap([ethernet(one) for one in parts])


def _tags():
    one = ip4(tcp(b"abc"))
    return pcap(
        [
            ethernet(one, tags=((0x8100, 7),)),
            ethernet(one, tags=((0x88A8, 7), (0x8100, 8))),
            ethernet(one, tags=((0x9100, 7), (0x8100, 8))),
            ethernet(ip6(udp(b"abc"), following=UDP), 0x86DD, tags=((0x8100, 9),)),
            ethernet(bytes(46), 0x0806, tags=((0x8100, 7),)),
            ethernet(b"\xaa\xaa\x03\x00\x00\x00\x08\x00" + one, 8 + len(one)),
            ethernet(b"\x42\x42\x03" + bytes(43), 46),
        ]
    )


def _odd_headers():
    data = tcp(b"abcdef", seq=9)
    short = struct.pack(">HHIIBBHHH", 7, 8, 9, 10, 4 << 4, ACK, 1, 0, 0)
    return pcap(
        [
            ethernet(ip4(data, options=bytes(8))),
            ethernet(ip4(data) + bytes(20)),
            ethernet(ip4(udp(b"abc", length=4), protocol=UDP)),
            ethernet(ip4(udp(b"abc", length=0), protocol=UDP)),
            ethernet(ip4(udp(b"abc", length=900), protocol=UDP)),
            ethernet(ip4(short)),
            ethernet(ip4(data, total=0)),
            ethernet(ip4(data, total=12)),
            ethernet(ip4(data, total=1400)),
            ethernet(ip4(b"\x08\x00" + bytes(30), protocol=ICMP)),
            ethernet(ip4(b"\x03\x03\x00\x00\x00\x00\x00\x00" + ip4(udp(b"abc"), protocol=UDP), protocol=ICMP)),
            ethernet(ip4(b"\x03\x03\x00\x00\x00\x00\x00\x00" + ip4(data)[:28], protocol=ICMP)),
            ethernet(b""),
            b"",
            bytes(13),
            ethernet(b"\x45"),
            ethernet(b"\x65" + bytes(60)),
            ethernet(ip4(tcp(sport=0, dport=9, flags=RST))),
        ]
    )


def _roce():
    port = {"sport": 50_000, "dport": 4791}
    packets = [
        bth(0x06, 0x11, 10, bytes(1024), reth(2500)),
        bth(0x07, 0x11, 11, bytes(1024)),
        bth(0x08, 0x11, 12, bytes(452)),
        bth(0x04, 0x11, 13, bytes(33)),
        bth(0x0A, 0x11, 15, bytes(64), reth(64)),
        bth(0x11, 0x12, 15, b"", bytes(4)),
        bth(0x11, 0x12, 15, b"", b"\x60\0\0\0"),
        bth(0x81, 0x12, 0, bytes(16)),
    ]
    return pcap([ethernet(ip4(udp(one, **port), protocol=UDP)) for one in packets])


def _sections(order, other):
    frame = ethernet(ip4(tcp(b"abc", seq=1)))
    first = section(order) + interface(order=order, resolution=9, offset_s=-5) + interface(RAW_IP, order=order)
    first += enhanced(2 * 10**9, frame, 0, order) + enhanced(3 * 10**6, ip4(udp(b"raw"), protocol=UDP), 1, order)
    first += obsolete(4 * 10**9, frame, 0, order) + simple(frame, order) + interface(1, order=order, resolution=0x94)
    first += enhanced(5 << 20, frame, 2, order, options=struct.pack(order + "HHIHH", 2, 4, 1, 0, 0))
    return first + section(other) + interface(113, order=other) + enhanced(6 * 10**6, cooked(frame[14:]), 0, other)


NASTY = {
    "reused.pcap": _reused(),
    "middle.pcap": _open_from_the_middle(),
    "ipv6.pcap": _ipv6(),
    "fragments.pcap": _fragments(),
    "tags.pcap": _tags(),
    "odd.pcap": _odd_headers(),
    "roce.pcap": _roce(),
    "cooked.pcap": pcap([cooked(one) for one in connection()], link=113),
    "cooked2.pcap": pcap([cooked2(one) for one in connection()] + [cooked2(ip6(tcp(b"six")), 0x86DD)], link=276),
    "null.pcap": pcap([loopback(one) for one in connection()] + [loopback(ip6(tcp(b"x")), 30, ">")], link=0),
    "loop.pcap": pcap([loopback(one, 2, ">") for one in connection()] + [loopback(ip6(tcp()), 24, ">")], link=108),
    "raw.pcap": pcap([*connection(), ip6(tcp(b"six"))], link=RAW_IP),
    "ipv4.pcap": pcap(connection(), link=228),
    "micro-big.pcap": pcap([ethernet(one) for one in connection()], big=True, nano=False),
    "snap.pcap": pcap([ethernet(one) for one in connection(size=1400)], snap=60),
    "sections.pcapng": _sections("<", ">"),
    "sections-big.pcapng": _sections(">", "<"),
}  # fmt: skip


def _six(packets):
    """The same segments between addresses of IPv6."""
    return [ip6(one[20:], *(("fd09::1", "fd09::2") if one[15] == 1 else ("fd09::2", "fd09::1"))) for one in packets]


def _over(protocol):
    """Packets as what IP of both versions carries as a protocol."""
    return [
        lambda one: ethernet(ip4(one, protocol=protocol, **OUTSIDE)),
        lambda one: ethernet(ip6(one, "2001:db8::1", "2001:db8::2", following=protocol), 0x86DD),
    ]


def _deep(packet, count):
    """A packet within as many headers of IP."""
    for _ in range(count):
        packet = ip4(packet, protocol=4, **OUTSIDE)
    return packet


_FOUR = connection()
_SIX = _six(_FOUR)
_FRAMES = [ethernet(one) for one in _FOUR]
_ODD_OPTIONS = b"\x01\x02\x80\x01\0\0\0\0"
_PDU = b"\x85" + b"\x01\x10\x09\x85" + b"\x02\0\0\0\0\0\0\0"  # two extension headers, of 4 and of 8 bytes

# What is in tunnels: name -> frames, all of one connection.
TUNNELED = {
    "vxlan": [datagram(vxlan(one), 4789) for one in _FRAMES],
    "vxlan-8472": [datagram(vxlan(one, flags=0x88), 8472) for one in _FRAMES],
    "vxlan-gpe": [datagram(vxlan(one, flags=0x0C, following=1), 4790) for one in _FOUR],
    "vxlan-gpe6": [datagram(vxlan(one, flags=0x0C, following=2), 4790) for one in _SIX],
    "vxlan-tagged": [datagram(vxlan(ethernet(one, tags=((0x88A8, 5), (0x8100, 6)))), 4789) for one in _FOUR],
    "geneve": [datagram(geneve(one, options=_ODD_OPTIONS), 6081) for one in _FRAMES],
    "geneve-ip": [datagram(geneve(one, kind=0x0800), 6081) for one in _FOUR],
    "gre": [ethernet(ip4(gre(one), protocol=47, **OUTSIDE)) for one in _FOUR],
    "gre-flags": [_over(47)[1](gre(one, checksum=True, key=9, number=3)) for one in _FOUR],
    "gre6": [_over(47)[0](gre(one, 0x86DD, key=9)) for one in _SIX],
    "gre-frames": [_over(47)[0](gre(one, 0x6558)) for one in _FRAMES],
    "nvgre": [_over(47)[0](gre(one, 0x6558, key=0x4242 << 8 | 7)) for one in _FRAMES],
    "gre-mpls": [_over(47)[0](gre(labels(one, 16, 17), 0x8847)) for one in _FOUR],
    "erspan2": [_over(47)[0](gre(b"\x10\0\0\x05\0\0\0\0" + one, 0x88BE, number=1)) for one in _FRAMES],
    "erspan3": [_over(47)[0](gre(b"\x20\0\0\x05" + bytes(8) + one, 0x22EB, number=1)) for one in _FRAMES],
    "4in4": [_over(4)[0](one) for one in _FOUR],
    "6in4": [_over(41)[0](one) for one in _SIX],
    "4in6": [_over(4)[1](one) for one in _FOUR],
    "6in6": [_over(41)[1](one) for one in _SIX],
    "etherip": [_over(97)[0](b"\x30\0" + one) for one in _FRAMES],
    "mpls": [ethernet(labels(one, 100, 200, 300), 0x8847) for one in _FOUR],
    "mpls6": [ethernet(labels(one, 100), 0x8847, tags=((0x8100, 4),)) for one in _SIX],
    "mpls-word": [ethernet(labels(bytes(4) + one, 100), 0x8847) for one in _FRAMES],
    "pppoe": [ethernet(pppoe(one), 0x8864) for one in _FOUR],
    "pppoe6": [ethernet(pppoe(one, 0x57), 0x8864, tags=((0x8100, 4), (0x8100, 5))) for one in _SIX],
    "gtp": [datagram(gtp(one), 2152) for one in _FOUR],
    "gtp-extended": [datagram(gtp(one, number=5, extensions=_PDU), 2152) for one in _SIX],
    "pbb": [ethernet(struct.pack(">I", 77) + one, 0x88E7, tags=((0x88A8, 3),)) for one in _FRAMES],
    "stacked": [ethernet(labels(_over(4)[0](ip4(gre(one), protocol=47))[14:], 9), 0x8847) for one in _FOUR],
    "tpids": [
        ethernet(one, tags=tuple((0x9100 if n % 2 else 0x88A8, n) for n in range(6))) for one in _FOUR
    ],
}  # fmt: skip
NASTY |= {f"tunnel-{name}.pcap": pcap(frames) for name, frames in TUNNELED.items()}

_SEEN_TWICE = [frame for one in _FOUR for frame in (cooked2(one), cooked2(one)[:4] + b"\0\0\0\x09" + cooked2(one)[8:])]
_TWO = section() + interface(name="eth0") + interface(name="eth1", resolution=9)
_MICROS = pcap(_FRAMES, nano=False)
_ZERO = struct.pack("<IIII", 0, 0, 0, 0)

# What is odd about a file and is read on over.
ODD = {
    "any.pcap": pcap(_SEEN_TWICE, link=276),
    "two.pcapng": _TWO
    + b"".join(enhanced(n, one) + enhanced(1000 * n + 400, one, 1) for n, one in enumerate(_FRAMES, 10**6)),
    "overlay.pcapng": _TWO
    + b"".join(
        enhanced(n, one) + enhanced(1000 * n, datagram(vxlan(one), 4789), 1) for n, one in enumerate(_FRAMES, 10**6)
    ),
    "longer.pcap": pcap(_FRAMES, wire=20),
    "nanos-in-micros.pcap": _MICROS[:28] + struct.pack("<I", 999_999_999) + _MICROS[32:],
    "zeros.pcap": pcap(_FRAMES) + 5 * _ZERO,
    "zeros.pcapng": _TWO + enhanced(7, _FRAMES[0]) + bytes(80),
    "patched.pcap": patched(_FRAMES),
    "patched-big.pcap": patched(_FRAMES, order=">"),
    "old.pcap": _MICROS[:6] + b"\x02\0" + _MICROS[8:],
    "cut.pcap": pcap(_FRAMES)[:-5],
    "one.pcap": pcap(_FRAMES[:1]),
    "one-instant.pcap": pcap(_FRAMES, step_ns=0),
    "none.pcap": pcap([]),
    "section.pcapng": section(),
    "sections-empty.pcapng": section() + section(">") + interface(order=">") + section(),
    "simple.pcapng": section() + interface() + simple(_FRAMES[0]) + simple(_FRAMES[3]),
    "backwards.pcap": pcap([(10**12 - n * 10**9, one) for n, one in enumerate(_FRAMES)]),
    "epoch.pcap": pcap(_FRAMES, start_s=0),
    "before-1970.pcapng": section() + interface(offset_s=-(10**9)) + enhanced(5, _FRAMES[0]) + enhanced(9, _FRAMES[3]),
    "beyond-2116.pcapng": section() + interface(offset_s=2**31) + interface(offset_s=-(2**31), resolution=0)
    + enhanced(2**62, _FRAMES[0]) + enhanced(2**63 - 1, _FRAMES[3], 1) + enhanced(5, _FRAMES[0], 1),
    "year-1-and-2106.pcap": pcap([(0, _FRAMES[0]), ((2**32 - 1) * 10**9, _FRAMES[3])]),
    "undeclared.pcapng": section() + enhanced(5, _FRAMES[0]) + interface() + enhanced(5, _FRAMES[0]),
    "resolutions.pcapng": section()
    + b"".join(interface(resolution=one) for one in (0, 3, 9, 30, 0x80, 0x94, 0xBF, 0xFF))
    + b"".join(enhanced(7, _FRAMES[0], number) for number in range(8)),
    "bad-options.pcapng": section()
    + interface()[:-4].replace(b"\x14\0\0\0", b"\x18\0\0\0") + b"\x09\0\xff\xff" + struct.pack("<I", 24)
    + enhanced(5, _FRAMES[0]) + enhanced(6, _FRAMES[3], options=b"\x01\0\xff\x7f"),
    "unknown-blocks.pcapng": section() + interface() + struct.pack("<III", 0x99, 12, 12) + enhanced(5, _FRAMES[0]),
    "snapped-tunnel.pcap": pcap([datagram(vxlan(one), 4789) for one in _FRAMES], snap=96),
    "nested.pcap": pcap([ethernet(_deep(one, 9)) for one in _FOUR]),
}  # fmt: skip
