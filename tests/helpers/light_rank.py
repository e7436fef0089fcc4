"""A rank without a framework, for runs whose training does not matter: bytes go around a ring of plain sockets.

Arguments: this rank, the addresses of all with commas between, their port, bytes and seconds of each iteration.
"""

import itertools
import socket
import sys
import time

PIECE = 16384  # what two ranks send each other at once fits into their sockets


def reach(address, port):
    """A connection to a rank that may not listen yet."""
    while True:
        try:
            return socket.create_connection((address, port))
        except ConnectionRefusedError:
            time.sleep(0.01)


def main(rank, hosts, port, size, pause_s):
    addresses = hosts.split(",")
    listener = socket.create_server((addresses[rank], port))
    ahead = reach(addresses[(rank + 1) % len(addresses)], port)
    behind, _ = listener.accept()
    for step in itertools.count():
        began = time.perf_counter()
        time.sleep(pause_s)
        left = size
        while left:
            piece = min(PIECE, left)
            ahead.sendall(bytes(piece))
            if len(behind.recv(piece, socket.MSG_WAITALL)) < piece:
                raise SystemExit("the rank before this one is gone")
            left -= piece
        print(f"step {step} took {time.perf_counter() - began:.6f} s")


main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5]))
