"""A rank of `ping-pong`, sent to a host as it stands: Python 3.8 or later and its own library.

Arguments: the rank (0 or 1), the address and the port of rank 0, and the bytes of the message. It prints `ready` when
both ranks are connected, begins with the line `go` on standard input, appends a line an iteration to iterations.jsonl,
and goes on until SIGTERM.
"""

import json
import socket
import sys
import time
from pathlib import Path

LAST_S = 20.0  # the other rank may be ended first; the signal for this one follows


def connected(rank, address, port):
    """The connection between both ranks."""
    if rank == 0:
        listener = socket.create_server((address, port))
        return listener.accept()[0]
    give_up = time.monotonic() + 60.0
    while True:
        try:
            return socket.create_connection((address, port), timeout=60.0)
        except OSError:
            if time.monotonic() > give_up:
                raise
            time.sleep(0.02)


def receive(peer, size):
    """So many bytes; EOFError where the other rank is gone."""
    while size:
        data = peer.recv(min(size, 1 << 16))
        if not data:
            raise EOFError
        size -= len(data)


def rounds(rank, peer, size, log):
    """Send and receive, for ever: rank 0 begins."""
    message = bytes(size)
    iteration = 0
    while True:
        start, began = time.time_ns(), time.monotonic_ns()
        if rank == 0:
            peer.sendall(message)
        receive(peer, size)
        if rank == 1:
            peer.sendall(message)
        row = {
            "iteration": iteration,
            "start_ns": start,
            "end_ns": time.time_ns(),
            "mono_start_ns": began,
            "mono_end_ns": time.monotonic_ns(),
        }
        log.write(json.dumps(row) + "\n")
        iteration += 1


def main(rank, address, port, size):
    peer = connected(rank, address, port)
    peer.settimeout(None)
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    print("ready", flush=True)
    if sys.stdin.readline().strip() != "go":
        raise SystemExit(f"rank {rank}: the run ended before it began")
    with Path("iterations.jsonl").open("a", buffering=1) as log:
        try:
            rounds(rank, peer, size, log)
        except (EOFError, OSError):
            time.sleep(LAST_S)
    raise SystemExit(f"rank {rank}: the other rank is gone")


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
