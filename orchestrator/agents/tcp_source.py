"""TCP connections from some local addresses (inet_diag), and the time-outs of all of the host's, for the sampler.

Arguments: seconds between samples, then the local addresses.
"""

from __future__ import annotations

import os
import socket
import struct

NETLINK_SOCK_DIAG, SOCK_DIAG_BY_FAMILY = 4, 20
NLM_F_REQUEST, NLM_F_DUMP, NLMSG_ERROR, NLMSG_DONE = 1, 0x300, 2, 3
INET_DIAG_INFO, INET_DIAG_CONG = 2, 4
# Established, the two FIN waits, close wait, last ACK, closing: those that can have data under way.
STATES = 1 << 1 | 1 << 4 | 1 << 5 | 1 << 8 | 1 << 9 | 1 << 11
MESSAGE_BYTES = 16 + 72  # nlmsghdr and inet_diag_msg


class Sockets:
    """One dump of inet_diag a sample, for IPv4 and IPv6 sockets (which carry IPv4 as mapped addresses)."""

    name = "tcp"
    columns = (
        "src", "src_port", "dst", "dst_port", "congestion", "rtt_us", "cwnd_segments", "retransmits", "bytes_acked",
        "unacked_segments", "timeouts", "backoff", "rto_us",
    )  # fmt: skip

    def __init__(self, addresses: list[str], every_s: float) -> None:
        self.every_s = every_s
        self.local: dict[int, tuple[bytes, ...]] = {}
        for address in addresses:
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            packed = socket.inet_pton(family, address)
            self.local[family] = (*self.local.get(family, ()), packed)
            if family == socket.AF_INET:
                mapped = bytes(10) + b"\xff\xff" + packed
                self.local[socket.AF_INET6] = (*self.local.get(socket.AF_INET6, ()), mapped)
        self.socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG)
        self.socket.settimeout(1.0)

    def rows(self) -> list[tuple[object, ...]]:
        rows: list[tuple[object, ...]] = []
        for family, local in self.local.items():
            extensions = 1 << (INET_DIAG_INFO - 1) | 1 << (INET_DIAG_CONG - 1)
            header = struct.pack("=IHHII", 72, SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST | NLM_F_DUMP, 0, 0)
            self.socket.send(header + struct.pack("=BBBxI48x", family, socket.IPPROTO_TCP, extensions, STATES))
            while self.take(rows, local, self.socket.recv(65536)):
                pass
        return rows

    def take(self, rows: list[tuple[object, ...]], local: tuple[bytes, ...], data: bytes) -> bool:
        """Add the sockets in one part of the dump; return False when it was the last."""
        at = 0
        while at + 16 <= len(data):
            length, kind = struct.unpack_from("=IH", data, at)
            if kind == NLMSG_DONE:
                return False
            if kind == NLMSG_ERROR:
                code = -struct.unpack_from("=i", data, at + 16)[0]
                raise OSError(code, os.strerror(code))
            if data[at + 24 : at + 24 + len(local[0])] in local:
                rows.append(parse(data[at : at + length]))
            at += (length + 3) & ~3
        return True


def readable(family: int, packed: bytes) -> str:
    if family == socket.AF_INET:
        return socket.inet_ntop(family, packed[:4])
    return socket.inet_ntop(family, packed).replace("::ffff:", "", 1)


def parse(message: bytes) -> tuple[object, ...]:
    """Return one inet_diag_msg as the columns of Sockets; the ports and addresses in it are in network order."""
    family = message[16]
    src_port, dst_port = struct.unpack_from(">HH", message, 20)
    src, dst = readable(family, message[24:40]), readable(family, message[40:56])
    congestion, rtt_us, cwnd, total, acked, unacked, timeouts, backoff, rto_us = ("",) * 9
    at = MESSAGE_BYTES
    while at + 4 <= len(message):
        length, kind = struct.unpack_from("=HH", message, at)
        body = message[at + 4 : at + length]
        if kind == INET_DIAG_CONG:
            congestion = body.rstrip(b"\0").decode("ascii", "replace")
        elif kind == INET_DIAG_INFO and len(body) >= 128:  # struct tcp_info up to tcpi_bytes_acked
            unacked, rtt_us, cwnd, total = (str(struct.unpack_from("=I", body, o)[0]) for o in (24, 68, 80, 100))
            acked = str(struct.unpack_from("=Q", body, 120)[0])
            backoff, rto_us = str(body[4]), str(struct.unpack_from("=I", body, 8)[0])
            if len(body) >= 242:  # up to tcpi_total_rto, from Linux 6.7 on
                timeouts = str(struct.unpack_from("=H", body, 240)[0])
        at += max(4, (length + 3) & ~3)
    return (src, src_port, dst, dst_port, congestion, rtt_us, cwnd, total, acked, unacked, timeouts, backoff, rto_us)


class Timeouts:
    """Retransmission time-outs of all connections of this network namespace, those that end between samples too."""

    name = "netstat"
    columns = ("|tcp.timeouts",)

    def __init__(self, every_s: float, path: str = "/proc/self/net/netstat") -> None:
        self.every_s, self.path = every_s, path

    def rows(self) -> list[tuple[object, ...]]:
        with open(self.path) as file:  # noqa: PTH123 - importing pathlib would take as long as starting the interpreter
            lines = [line.split() for line in file if line.startswith("TcpExt:")]
        counts = dict(zip(*lines[:2])) if len(lines) >= 2 else {}
        return [(counts.get("TCPTimeouts", ""),)]


def open_streams(arguments: list[str]) -> list[object]:
    every_s = float(arguments[0])
    return [Sockets(arguments[1:], every_s), Timeouts(every_s)]
