"""TCP connections from some local addresses (inet_diag), and the time-outs of all of the host's, for the sampler.

Arguments: seconds between samples, the folders where procfs is mounted and in which the agent lists the first process
of each launch that runs in a container (run_processes.py), then the local addresses.
"""

# ruff: noqa: PTH208 - importing pathlib would take as long as starting the interpreter

from __future__ import annotations

import os
import socket
import struct
import time

MYPY = False
if MYPY:
    from typing import Any, Iterator
if MYPY or __package__:
    from orchestrator.agents.run_processes import launch_name, leaders, listed, processes
else:  # on a host, where it lies beside this file
    from run_processes import launch_name, leaders, listed, processes

NETLINK_SOCK_DIAG, SOCK_DIAG_BY_FAMILY = 4, 20
NLM_F_REQUEST, NLM_F_DUMP, NLMSG_ERROR, NLMSG_DONE = 1, 0x300, 2, 3
INET_DIAG_INFO, INET_DIAG_CONG = 2, 4
# Established, the two FIN waits, close wait, last ACK, closing: those that can have data under way.
STATES = 1 << 1 | 1 << 4 | 1 << 5 | 1 << 8 | 1 << 9 | 1 << 11
MESSAGE_BYTES = 16 + 72  # nlmsghdr and inet_diag_msg
UNREAD_AT = 16 + 56  # its idiag_rqueue
UNKNOWN = (1 << 32) - 1  # as the least round trip of a connection that has none

# Column, offset and format of what is read of struct tcp_info (linux/tcp.h); older kernels give less of it.
INFO = (
    ("backoff", 4, "B"), ("app_limited", 7, "B"), ("rto_us", 8, "I"), ("mss_bytes", 16, "I"),
    ("unacked_segments", 24, "I"), ("rtt_us", 68, "I"), ("rttvar_us", 72, "I"), ("cwnd_segments", 80, "I"),
    ("retransmits", 100, "I"), ("bytes_acked", 120, "Q"), ("bytes_received", 128, "Q"), ("notsent_bytes", 144, "I"),
    ("min_rtt_us", 148, "I"), ("delivery_rate", 160, "Q"), ("busy_us", 168, "Q"), ("rwnd_limited_us", 176, "Q"),
    ("sndbuf_limited_us", 184, "Q"), ("delivered", 192, "I"), ("delivered_ce", 196, "I"), ("bytes_sent", 200, "Q"),
    ("bytes_retrans", 208, "Q"), ("dsack_dups", 216, "I"), ("reord_seen", 220, "I"), ("snd_wnd_bytes", 228, "I"),
    ("rcv_wnd_bytes", 232, "I"), ("timeouts", 240, "H"), ("total_rto_recoveries", 242, "H"),
    ("total_rto_time_ms", 244, "I"),
)  # fmt: skip
ENDS = [at + struct.calcsize("=" + kind) for _, at, kind in INFO]
LAYOUT = struct.Struct("=" + "".join("%dx%s" % (at - end, kind) for (_, at, kind), end in zip(INFO, [0, *ENDS])))
NAMES = [name for name, _, _ in INFO]
APP_LIMITED, MIN_RTT = NAMES.index("app_limited"), NAMES.index("min_rtt_us")
LEAST_BYTES = 104  # up to tcpi_total_retrans, which Linux 2.6 gives
LOOK_EVERY_S = 1.0  # for the owners of new sockets, at most


class Owners:
    """The launches that sockets belong to, by their inodes, as long as a process of the run has them open."""

    def __init__(self, proc: str, agent: int, containers: str) -> None:
        self.proc, self.agent, self.containers = proc, agent, containers
        self.known: dict[int, str] = {}
        self.due = 0.0

    def of(self, inodes: list[int]) -> list[str]:
        """Return the launch of each socket; empty of one that is not the run's, or not looked for yet."""
        now = time.monotonic()
        if now >= self.due and any(inode not in self.known for inode in inodes):
            self.due = now + LOOK_EVERY_S
            self.known = {**dict.fromkeys(inodes, ""), **dict(self.found())}
        return [self.known.get(inode, "") for inode in inodes]

    def found(self) -> Iterator[tuple[int, str]]:
        first = listed(self.containers)
        names: dict[int, str] = dict(first)
        for pid, leader in leaders(processes(self.proc), self.agent, list(first)).items():
            if leader not in names:
                names[leader] = launch_name(self.proc, leader)
            folder = "%s/%d/fd" % (self.proc, pid)
            try:
                descriptors = os.listdir(folder)
            except OSError:  # it ended, or may not be looked at
                continue
            for descriptor in descriptors:
                try:
                    target = os.readlink(folder + "/" + descriptor)
                except OSError:
                    continue
                if target.startswith("socket:["):
                    yield int(target[8:-1]), names[leader]


class Sockets:
    """One dump of inet_diag a sample, for IPv4 and IPv6 sockets (which carry IPv4 as mapped addresses)."""

    name = "tcp"
    columns = ("src", "src_port", "dst", "dst_port", "congestion", "unread_bytes", *NAMES, "process")

    def __init__(self, addresses: list[str], every_s: float, owners: Owners) -> None:
        self.owners = owners
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
        inodes: list[int] = []
        for family, local in self.local.items():
            extensions = 1 << (INET_DIAG_INFO - 1) | 1 << (INET_DIAG_CONG - 1)
            header = struct.pack("=IHHII", 72, SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST | NLM_F_DUMP, 0, 0)
            self.socket.send(header + struct.pack("=BBBxI48x", family, socket.IPPROTO_TCP, extensions, STATES))
            while self.take(rows, inodes, local, self.socket.recv(65536)):
                pass
        return [(*row, owner) for row, owner in zip(rows, self.owners.of(inodes))]

    def take(self, rows: list[tuple[object, ...]], inodes: list[int], local: tuple[bytes, ...], data: bytes) -> bool:
        """Add the sockets in one part of the dump, and their inodes; return False when it was the last."""
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
                inodes.append(struct.unpack_from("=I", data, at + MESSAGE_BYTES - 4)[0])
            at += (length + 3) & ~3
        return True


def readable(family: int, packed: bytes) -> str:
    if family == socket.AF_INET:
        return socket.inet_ntop(family, packed[:4])
    return socket.inet_ntop(family, packed).replace("::ffff:", "", 1)


def parse(message: bytes) -> tuple[object, ...]:
    """Return one inet_diag_msg as the columns of Sockets without the last.

    Its ports and addresses are in network order. What the kernel does not give is empty.
    """
    family = message[16]
    src_port, dst_port = struct.unpack_from(">HH", message, 20)
    src, dst = readable(family, message[24:40]), readable(family, message[40:56])
    congestion, unread = "", struct.unpack_from("=I", message, UNREAD_AT)[0]
    told: list[object] = [""] * len(INFO)
    at = MESSAGE_BYTES
    while at + 4 <= len(message):
        length, kind = struct.unpack_from("=HH", message, at)
        body = message[at + 4 : at + length]
        if kind == INET_DIAG_CONG:
            congestion = body.rstrip(b"\0").decode("ascii", "replace")
        elif kind == INET_DIAG_INFO and len(body) >= LEAST_BYTES:
            told = info(body)
        at += max(4, (length + 3) & ~3)
    return (src, src_port, dst, dst_port, congestion, unread, *told)


def info(body: bytes) -> list[object]:
    """Return the values of INFO in a struct tcp_info; those that this kernel's is too short for are empty."""
    values = LAYOUT.unpack_from(body.ljust(LAYOUT.size, b"\0"))
    found: list[Any] = [value if end <= len(body) else "" for value, end in zip(values, ENDS)]
    found[APP_LIMITED] &= 1
    if found[MIN_RTT] == UNKNOWN:
        found[MIN_RTT] = ""
    return found


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
    owners = Owners(arguments[1], os.getppid(), arguments[2])
    return [Sockets(arguments[3:], every_s, owners), Timeouts(every_s)]
