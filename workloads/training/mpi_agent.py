"""What mpirun calls in place of ssh: `mpi_agent.py ADDRESS COMMAND...` hands the command to our program on that host.

That program waits at MPI_DOOR_PORT, or will within MPI_MEET_S seconds, and wants proof that we know MPI_RUN_KEY.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time

from mpi_proof import proof

AGAIN_S = 0.05
TALK_S = 10.0


def called(address: str, port: int, *, within_s: float) -> socket.socket:
    """A connection to the program on that host, which may not have started yet."""
    ends = time.monotonic() + within_s
    while True:
        try:
            return socket.create_connection((address, port), timeout=TALK_S)
        except OSError as error:
            if time.monotonic() > ends:
                sys.exit(f"{address}:{port} does not answer, which is to start Open MPI's daemon there: {error}")
            time.sleep(AGAIN_S)


def main() -> None:
    address, command = sys.argv[1], " ".join(sys.argv[2:])
    port, within_s = int(os.environ["MPI_DOOR_PORT"]), float(os.environ["MPI_MEET_S"])
    with called(address, port, within_s=within_s) as host, host.makefile("rwb") as stream:
        once = stream.readline().decode().strip()
        said = {"command": command, "proof": proof(os.environ["MPI_RUN_KEY"], once, command)}
        stream.write(json.dumps(said).encode() + b"\n")
        stream.flush()
        if stream.readline() != b"ok\n":
            sys.exit(f"{address}:{port} turned mpirun's daemon away")


if __name__ == "__main__":
    main()
