"""Waits for the command line of mpirun's daemon on this host, and runs it.

Its arguments are the address and the port at which `mpi_agent.py` calls. A command is taken from nobody who does not
know the key of the run, MPI_RUN_KEY. Of the environment it needs what `mpi_stub.py` does, too.
"""

from __future__ import annotations

import hmac
import json
import os
import secrets
import socket
import sys

from mpi_keep import environment, keep
from mpi_proof import proof

TALK_S = 10.0  # for one who has called to say what it wants
LONGEST = 1 << 20  # bytes of what it says


def command_for(address: str, port: int, key: str) -> str:
    """The command line that the first caller has who knows the key."""
    with socket.create_server((address, port)) as door:
        while True:
            caller, where = door.accept()
            with caller:
                caller.settimeout(TALK_S)
                try:
                    command = _asked_of(caller, key)
                    caller.sendall(b"ok\n")
                except (OSError, ValueError, KeyError, TypeError) as error:
                    print(f"a caller from {where[0]} was turned away: {error}", file=sys.stderr, flush=True)
                    continue
                return command


def _asked_of(caller: socket.socket, key: str) -> str:
    once = secrets.token_hex(16)
    caller.sendall(once.encode() + b"\n")
    with caller.makefile("rb") as stream:
        said = json.loads(stream.readline(LONGEST))
    command = str(said["command"])
    if not hmac.compare_digest(str(said["proof"]), proof(key, once, command)):
        raise ValueError("it does not know the key of the run")
    return command


def main() -> None:
    address, port = sys.argv[1], int(sys.argv[2])
    try:
        command = command_for(address, port, os.environ["MPI_RUN_KEY"])
    except OSError as error:
        sys.exit(f"{address}:{port}: {error.strerror}; mpirun asks there for its daemon")
    keep(["/bin/sh", "-c", command], environment())  # mpirun made it for a remote shell


if __name__ == "__main__":
    main()
