"""Where a rank and mpirun's stub for it meet on their host."""

from __future__ import annotations

import hashlib
import os
import socket
import struct


def name_of(rank_name: str) -> bytes:
    """The name of the rank's Unix socket, an abstract one: it is in no folder, so that nothing has to remove it."""
    whole = f"{os.environ.get('ORCH_RUN', '')}/{rank_name}"
    return b"\0" + hashlib.sha256(whole.encode()).hexdigest().encode()


def only_ourselves(peer: socket.socket) -> None:
    """Raise PermissionError unless a process of our own user is at the other end of a Unix socket."""
    form = struct.Struct("3i")
    _, user, _ = form.unpack(peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, form.size))
    if user != os.geteuid():
        raise PermissionError(f"user {user} is at the other end")
