"""Stub that a launcher starts in a rank's place: passes the launcher's environment to the rank, and ends with it.

The rank's name is MPI_RANK and its number; it waits, or will within MPI_MEET_S seconds, at the socket of that name. The
argument is the launcher, mpirun where there is none.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import struct
import sys
import time

AGAIN_S = 0.02
# For each launcher: the variable with the rank's number, and prefixes of variables that are passed to the rank.
VARIABLES = {
    "mpirun": ("PMIX_RANK", ("OMPI_", "PMIX_", "ORTE_")),
    "srun": ("SLURM_PROCID", ("SLURM_", "PMI_", "PMI2_", "PMIX_", "OMPI_")),
    "torchrun": (
        "RANK",
        ("RANK", "LOCAL_", "WORLD_SIZE", "GROUP_", "ROLE_", "MASTER_", "TORCHELASTIC_", "TORCH_", "OMP_NUM_THREADS"),
    ),
}


def socket_name(rank_name: str) -> bytes:
    """Return the name of the rank's Unix socket, an abstract one: it is in no folder, and needs no removal."""
    whole = f"{os.environ.get('ORCH_RUN', '')}/{rank_name}"
    return b"\0" + hashlib.sha256(whole.encode()).hexdigest().encode()


def require_own_user(peer: socket.socket) -> None:
    """Raise PermissionError unless a process of our own user is at the other end of a Unix socket."""
    form = struct.Struct("3i")
    _, user, _ = form.unpack(peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, form.size))
    if user != os.geteuid():
        raise PermissionError(f"user {user} is at the other end")


def called(rank_name: str, *, within_s: float) -> socket.socket:
    """Connect to the rank, which may not have started yet."""
    ends = time.monotonic() + within_s
    while True:
        rank = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            rank.connect(socket_name(rank_name))
            require_own_user(rank)
        except OSError as error:
            rank.close()
            if time.monotonic() > ends:
                sys.exit(f"{rank_name} did not come to be registered: {error}")
            time.sleep(AGAIN_S)
        else:
            return rank


def main() -> None:
    variable, beginnings = VARIABLES[sys.argv[1] if len(sys.argv) > 1 else "mpirun"]
    number = os.environ[variable]
    variables = {name: value for name, value in os.environ.items() if name.startswith(beginnings)}
    with called(os.environ["MPI_RANK"] + number, within_s=float(os.environ["MPI_MEET_S"])) as rank:
        rank.sendall(json.dumps(variables).encode() + b"\n")
        print(f"rank {number} joined", flush=True)
        rank.recv(1)  # returns when the rank has ended
