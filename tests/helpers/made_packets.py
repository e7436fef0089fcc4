"""Builds frames and capture files by hand, for tests that read them."""

from __future__ import annotations

import ipaddress
import struct

TCP, UDP, ICMP = 6, 17, 1
FIN, SYN, RST, PSH, ACK = 1, 2, 4, 8, 16
WINDOW_SCALE_7 = bytes([1, 3, 3, 7])


def ethernet(body, kind=0x0800, tags=(), src=1, dst=2):
    head = bytes([2, 0, 0, 0, 0, dst, 2, 0, 0, 0, 0, src])
    return head + b"".join(struct.pack(">HH", *tag) for tag in tags) + struct.pack(">H", kind) + body


def cooked(body, kind=0x0800, outgoing=0, arphrd=1):
    return struct.pack(">HHH8sH", 4 * outgoing, arphrd, 6, bytes([2, 0, 0, 0, 0, 1]), kind) + body


def cooked2(body, kind=0x0800, outgoing=0, arphrd=1):
    return struct.pack(">HHIHBB8s", kind, 0, 3, arphrd, 4 * outgoing, 6, bytes([2, 0, 0, 0, 0, 1])) + body


def loopback(body, family=2, order="<"):
    return struct.pack(order + "I", family) + body


def ip4(body, *, src="10.9.0.1", dst="10.9.0.2", protocol=TCP, total=None, flags=0, offset=0, options=b"", number=1):
    size = 20 + len(options) + len(body) if total is None else total
    return (
        struct.pack(
            ">BBHHHBBH4s4s",
            0x40 | (5 + len(options) // 4),
            0,
            size,
            number,
            flags << 13 | offset // 8,
            64,
            protocol,
            0,
            ipaddress.ip_address(src).packed,
            ipaddress.ip_address(dst).packed,
        )
        + options
        + body
    )


def ip6(body, src="fd09::1", dst="fd09::2", following=TCP, length=None):
    size = len(body) if length is None else length
    return (
        struct.pack(">IHBB", 6 << 28, size, following, 64)
        + ipaddress.ip_address(src).packed
        + ipaddress.ip_address(dst).packed
        + body
    )


def extension(body, following, words=0):
    """A hop-by-hop or destination options header."""
    return struct.pack(">BB6s", following, words, b"\x01\x04" + bytes(4)) + bytes(8 * words) + body


def fragment(body, following, offset=0, more=0, number=7):
    return struct.pack(">BBHI", following, 0, offset | more, number) + body


def tcp(payload=b"", *, sport=1000, dport=5201, seq=0, ack=0, flags=ACK, window=500, options=b""):
    head = struct.pack(
        ">HHIIBBHHH", sport, dport, seq % 2**32, ack % 2**32, (5 + len(options) // 4) << 4, flags, window, 0, 0
    )
    return head + options + payload


def udp(payload=b"", *, sport=4000, dport=5301, length=None):
    return struct.pack(">HHHH", sport, dport, 8 + len(payload) if length is None else length, 0) + payload


def bth(opcode, pair, number, payload=b"", extended=b""):
    """A RoCEv2 packet's UDP payload, padded and with room for the invariant CRC."""
    padding = -len(payload) % 4
    head = struct.pack(">BBHII", opcode, padding << 4, 0xFFFF, pair, number)
    return head + extended + payload + bytes(padding) + bytes(4)


def reth(length):
    return struct.pack(">QII", 0, 1, length)


def pcap(frames, *, big=False, nano=True, snap=262144, link=1, start_s=1000, step_ns=1000, wire=None):
    """Bytes of a pcap file; `frames` are bytes, or (nanoseconds, bytes). `wire`: each frame's length as recorded."""
    order = ">" if big else "<"
    parts = [struct.pack(order + "IHHiIII", 0xA1B23C4D if nano else 0xA1B2C3D4, 2, 4, 0, 0, snap, link)]
    for number, frame in enumerate(frames):
        at, body = frame if isinstance(frame, tuple) else (start_s * 10**9 + number * step_ns, frame)
        seconds, fraction = divmod(at, 10**9)
        kept = body[:snap]
        length = len(body) if wire is None else wire
        parts += [struct.pack(order + "IIII", seconds, fraction // (1 if nano else 1000), len(kept), length), kept]
    return b"".join(parts)


def block(kind, body, order="<"):
    body += bytes(-len(body) % 4)
    return struct.pack(order + "II", kind, len(body) + 12) + body + struct.pack(order + "I", len(body) + 12)


def option(code, value, order="<"):
    return struct.pack(order + "HH", code, len(value)) + value + bytes(-len(value) % 4)


def section(order="<"):
    return block(0x0A0D0D0A, struct.pack(order + "IHHq", 0x1A2B3C4D, 1, 0, -1), order)


def interface(link=1, snap=0, order="<", resolution=None, offset_s=None, *, name=""):
    options = option(2, name.encode(), order) if name else b""
    if resolution is not None:
        options += option(9, bytes([resolution]), order)
    if offset_s is not None:
        options += option(14, struct.pack(order + "q", offset_s), order)
    return block(
        1, struct.pack(order + "HHI", link, 0, snap) + options + (option(0, b"", order) if options else b""), order
    )


def enhanced(stamp, frame, number=0, order="<", *, wire=None, options=b""):
    head = struct.pack(
        order + "IIIII", number, stamp >> 32, stamp & 0xFFFFFFFF, len(frame), len(frame) if wire is None else wire
    )
    return block(6, head + frame + bytes(-len(frame) % 4) + options, order)


def obsolete(stamp, frame, number=0, order="<"):
    head = struct.pack(order + "HHIIII", number, 0, stamp >> 32, stamp & 0xFFFFFFFF, len(frame), len(frame))
    return block(2, head + frame, order)


def simple(frame, order="<"):
    return block(3, struct.pack(order + "I", len(frame)) + frame, order)


def vxlan(body, network=42, flags=8, following=0):
    return struct.pack(">BBBBI", flags, 0, 0, following, network << 8) + body


def geneve(body, network=42, kind=0x6558, options=b""):
    return struct.pack(">BBHI", len(options) // 4, 0, kind, network << 8) + options + body


def gre(body, kind=0x0800, *, checksum=False, key=None, number=None, version=0):
    flags = checksum << 15 | (key is not None) << 13 | (number is not None) << 12 | version
    words = [0] * checksum + [one for one in (key, number) if one is not None]
    return struct.pack(">HH", flags, kind) + b"".join(struct.pack(">I", one) for one in words) + body


def labels(body, *numbers):
    """A stack of MPLS labels."""
    last = len(numbers) - 1
    return (
        b"".join(struct.pack(">I", one << 12 | (place == last) << 8 | 64) for place, one in enumerate(numbers)) + body
    )


def pppoe(body, protocol=0x21, session=7):
    return struct.pack(">BBHHH", 0x11, 0, session, len(body) + 2, protocol) + body


def gtp(body, tunnel=7, *, number=None, extensions=b"", message=255):
    """`extensions`: headers with the type of the first one before them, each a multiple of four bytes long."""
    more = b""
    if number is not None or extensions:
        more = struct.pack(">HB", number or 0, 0) + (extensions or b"\0")
    flags = 0x30 | (number is not None) << 1 | bool(extensions) << 2
    return struct.pack(">BBHI", flags, message, len(more) + len(body), tunnel) + more + body


def datagram(body, port, **ends):
    """An Ethernet frame with a UDP datagram to a port of a tunnel."""
    return ethernet(ip4(udp(body, sport=51000, dport=port), protocol=UDP, **(ends or OUTSIDE)))


OUTSIDE = {"src": "192.0.2.1", "dst": "192.0.2.2"}


def patched(frames, *, order="<", index=3):
    """A pcap file of a libpcap that was patched to keep indices of interfaces."""
    head = struct.pack(order + "IHHiIII", 0xA1B2CD34, 2, 4, 0, 0, 262144, 1)
    parts = [
        struct.pack(order + "IIIIIHBB", 1000, number, len(one), len(one), index, 0x0800, 0, 0) + one
        for number, one in enumerate(frames)
    ]
    return head + b"".join(parts)
