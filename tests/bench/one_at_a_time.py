"""Sends flows one at a time over blocking sockets: the least that a flow takes where nothing else is under way.

    one_at_a_time.py sink ADDRESS PORT
    one_at_a_time.py source ADDRESS PORT FLOWS TOOK kept|new

FLOWS holds a FLOW for each: when it is due, in nanoseconds since the start, and its bytes, with a header that counts in
them. One that is due while another is under way follows it at once. TOOK gets what each took, a TIME, from its start
(with `new`: of its connection) to the byte that answers it. Both ends start quickly, with the standard library alone.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import sys
import time
from pathlib import Path

FLOW, TIME = struct.Struct("<qq"), struct.Struct("<q")
HEADER = struct.Struct("<QQ")
WRITE_BYTES = 512 << 10
DISCARD_BYTES = 1 << 20
ZEROS = memoryview(bytes(WRITE_BYTES))
NO_LINGER = struct.pack("ii", 1, 0)


def serve(address: str, port: int) -> None:
    """Answer every flow of one connection after the other, until this process is ended."""
    discarded = bytearray(DISCARD_BYTES)
    with socket.create_server((address, port)) as listener:
        print("listening", flush=True)
        while True:
            connection, _ = listener.accept()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with connection, contextlib.suppress(ConnectionResetError):
                while head := connection.recv(HEADER.size, socket.MSG_WAITALL):
                    left = HEADER.unpack(head)[1] - HEADER.size
                    while left:
                        left -= connection.recv_into(discarded, min(left, DISCARD_BYTES), socket.MSG_TRUNC)
                    connection.send(b"\x01")


def connected(address: str, port: int) -> socket.socket:
    """A new connection, which ends with a reset, as those of the generator do."""
    connection = socket.create_connection((address, port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)
    return connection


def send(connection: socket.socket, size: int) -> None:
    """One flow, until it is answered."""
    first = max(0, min(size, WRITE_BYTES) - HEADER.size)
    left = max(size, HEADER.size)
    left -= connection.sendmsg((HEADER.pack(0, left), ZEROS[:first]))
    while left:
        left -= connection.send(ZEROS[:left])
    connection.recv(1)


def take_times(address: str, port: int, flows: bytes, *, new: bool) -> bytes:
    """Send each flow when it is due; what each took."""
    took = []
    connection = connected(address, port)
    zero_ns = time.monotonic_ns()
    for due_ns, size in FLOW.iter_unpack(flows):
        time.sleep(max(0, due_ns - (time.monotonic_ns() - zero_ns)) / 1e9)
        start_ns = time.monotonic_ns()
        if new:
            connection.close()
            start_ns = time.monotonic_ns()
            connection = connected(address, port)
        send(connection, size)
        took.append(TIME.pack(time.monotonic_ns() - start_ns))
    connection.close()
    return b"".join(took)


def main(argv: list[str]) -> None:
    """See above."""
    role, address, port, *rest = argv
    if role == "sink":
        serve(address, int(port))
        return
    flows, took, way = rest
    Path(took).write_bytes(take_times(address, int(port), Path(flows).read_bytes(), new=way == "new"))


if __name__ == "__main__":
    main(sys.argv[1:])
