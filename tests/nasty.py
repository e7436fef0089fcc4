"""Captures that are hard to read right, built by hand: name -> the file's bytes."""

from __future__ import annotations

import struct

from tests.craft import (
    ACK,
    FIN,
    ICMP,
    RST,
    SYN,
    UDP,
    WINDOW_SCALE_7,
    bth,
    cooked,
    cooked2,
    enhanced,
    ethernet,
    extension,
    fragment,
    interface,
    ip4,
    ip6,
    loopback,
    obsolete,
    pcap,
    reth,
    section,
    simple,
    tcp,
    udp,
)  # fmt: skip

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
