"""Receives flows and throws them away without copying: acknowledges each with a byte and counts what came.

Run as `python -I -S -B flow_sink.py SPEC`, a JSON file with

    address   where it listens, and nowhere else
    ports     one process listens on each
    senders   addresses that may connect; a connection from anywhere else is closed and counted
    starters  how many senders wait for each other before they begin

A flow is a header of its identity and its length (two 64-bit numbers, little-endian, the header counts in the length)
and as many bytes more; when all have come it is answered with one byte, and another flow may follow. A header of the
identity START asks for the common start instead: when `starters` of them have come, all are answered at once.

"listening" on standard output says that every port is open. Every tenth of a second each process appends its
cumulative counts to received.PORT.csv: time_ns (this machine's clock), bytes, flows, open, refused. SIGTERM or SIGINT
ends it with 0.
"""

from __future__ import annotations

import errno
import json
import os
import resource
import select
import signal
import socket
import struct
import sys
import time
from typing import TypedDict

HEADER = struct.Struct("<QQ")
START = (1 << 64) - 1
LOW_BYTES = 512 << 10  # of a larger flow: how much must have come before it is looked at
REPORT_S = 0.1
DISCARD_BYTES = 1 << 20
FIRST_BYTES = 2048  # what is read with a header, and copied; the rest is dropped without
BACKLOG = 65535  # the kernel takes what net.core.somaxconn allows
PR_SET_PDEATHSIG = 1


class SinkSpec(TypedDict):
    """The input of `flow_sink.py`: its address and ports, its senders, and how many of them start together."""

    address: str
    ports: list[int]
    senders: list[str]
    starters: int


class Connection:
    """One sender's connection: `left` bytes of its flow are still to come, `head` is an unfinished header.

    `low`: the kernel was told to wait until much of it has come.
    """

    __slots__ = ("head", "left", "low", "socket")

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.head = b""
        self.left = 0
        self.low = False


class Sink:
    """A listener on one port."""

    def __init__(self, spec: SinkSpec, listener: socket.socket, port: int) -> None:
        self.listener = listener
        self.senders = frozenset(spec["senders"])
        self.starters = spec["starters"]
        self.waiting: list[Connection] = []
        self.connections: dict[int, Connection] = {}
        self.epoll = select.epoll()
        self.epoll.register(listener.fileno(), select.EPOLLIN)
        self.accepting = True
        self.discarded = bytearray(DISCARD_BYTES)  # never written to: MSG_TRUNC drops what it counts
        self.bytes = self.flows = self.refused = 0
        self.log = os.open("received.%d.csv" % port, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        os.write(self.log, b"time_ns,bytes,flows,open,refused\n")

    def run(self) -> None:
        """Serve until a signal ends the process."""
        poll, listening = self.epoll.poll, self.listener.fileno()
        due = time.monotonic()
        while True:
            now = time.monotonic()
            if now >= due:
                self.report()
                due = now + REPORT_S
            for fd, _ in poll(due - now if due > now else 0, 256):
                if fd == listening:
                    self.accept()
                else:
                    connection = self.connections.get(fd)
                    if connection is not None:
                        self.receive(connection)

    def report(self) -> None:
        """Append the counts."""
        counts = (time.time_ns(), self.bytes, self.flows, len(self.connections), self.refused)
        os.write(self.log, b"%d,%d,%d,%d,%d\n" % counts)

    def accept(self) -> None:
        """Accept waiting connections; when files run out, leave them waiting until one is closed."""
        for _ in range(64):
            try:
                connection, (host, *_) = self.listener.accept()
            except BlockingIOError:
                return
            except ConnectionAbortedError:
                continue
            except OSError as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    raise
                self.epoll.unregister(self.listener.fileno())
                self.accepting = False
                return
            if host not in self.senders:
                self.refused += 1
                connection.close()
                continue
            connection.setblocking(False)
            entry = Connection(connection)
            self.connections[connection.fileno()] = entry
            self.epoll.register(connection.fileno(), select.EPOLLIN)
            self.receive(entry)  # a small flow has often come by now

    def receive(self, entry: Connection) -> None:
        """Count and drop received bytes; answer a flow that is complete."""
        try:
            if (entry.left or self.begin(entry)) and (not entry.left or self.discard(entry)):
                self.flows += 1
                entry.socket.send(b"\x01")
        except BlockingIOError:
            pass
        except OSError:
            self.close(entry)

    def discard(self, entry: Connection) -> bool:
        """Drop received bytes of a flow; return whether those were the rest of it."""
        count = entry.socket.recv_into(self.discarded, min(entry.left, DISCARD_BYTES), socket.MSG_TRUNC)
        if not count:
            self.close(entry)
            return False
        self.bytes += count
        entry.left -= count
        if entry.low and entry.left < LOW_BYTES:
            entry.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, max(1, entry.left))
            entry.low = entry.left > 0
        return not entry.left

    def begin(self, entry: Connection) -> bool:
        """Read a header and the bytes after it; return whether that began a flow."""
        data = entry.socket.recv(FIRST_BYTES)
        if not data:
            self.close(entry)
            return False
        self.bytes += len(data)
        data = entry.head + data
        if len(data) < HEADER.size:
            entry.head = data
            return False
        entry.head = b""
        flow, length = HEADER.unpack_from(data)
        if flow == START:
            self.start(entry)
            return False
        if length < len(data):  # our senders never send that
            self.close(entry)
            return False
        entry.left = length - len(data)
        if entry.left > LOW_BYTES:
            entry.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, LOW_BYTES)
            entry.low = True
        return True

    def start(self, entry: Connection) -> None:
        """Answer all senders, so that they begin together, once the last of them is here."""
        self.bytes -= HEADER.size
        self.waiting = [other for other in self.waiting if other.socket.fileno() >= 0]
        self.waiting.append(entry)
        if len(self.waiting) >= self.starters:
            for other in self.waiting:
                other.socket.send(b"\x01")
            self.waiting = []

    def close(self, entry: Connection) -> None:
        """Forget a connection."""
        del self.connections[entry.socket.fileno()]
        entry.socket.close()
        if not self.accepting:
            self.accepting = True
            self.epoll.register(self.listener.fileno(), select.EPOLLIN)


def listen(address: str, port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((address, port))
    listener.listen(BACKLOG)
    listener.setblocking(False)
    return listener


def raise_file_limit() -> int:
    """Raise the limit of open files to the most that this process may have."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return int(hard)


def die_with_parent() -> None:
    """Have the kernel end this process when its parent ends, however that is."""
    import ctypes

    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def main(argv: list[str]) -> int:
    with open(argv[1], encoding="utf-8") as file:  # noqa: PTH123 - pathlib would take as long as starting Python
        spec: SinkSpec = json.load(file)
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD))
    raise_file_limit()
    try:
        listeners = [(listen(spec["address"], port), port) for port in spec["ports"]]
    except OSError as error:
        print("cannot listen on %s ports %s: %s" % (spec["address"], spec["ports"], error.strerror), file=sys.stderr)
        return 1
    children = {}
    for listener, port in listeners:
        pid = os.fork()
        if not pid:
            die_with_parent()
            signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent tells
            sink = Sink(spec, listener, port)
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            try:
                sink.run()
            finally:
                os._exit(1)
        children[pid] = port
    print("listening", flush=True)
    signal_number = signal.sigwait((signal.SIGTERM, signal.SIGINT, signal.SIGCHLD))
    for pid in children:
        os.kill(pid, signal.SIGTERM)
    for pid, port in children.items():
        _, status = os.waitpid(pid, 0)
        if status:
            print("the process on port %d ended with status %d" % (port, status), file=sys.stderr)
    return 0 if signal_number != signal.SIGCHLD else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv))
