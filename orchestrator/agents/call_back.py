"""Calls the controller back from a host, and leaves the connection where the agent expects its channel.

Its text goes before the agent's own, on the standard input that a scheduler gives to the same program on every host at
once. Key and port come with it: neither is in an argument list or in an environment, and what runs later inherits none.

    host:       32 random bytes
    controller: 32 random bytes, HMAC-SHA256(key, "orch controller", the host's bytes, its own)
    host:       its name in 64 bytes, HMAC-SHA256(key, "orch agent", the controller's bytes, its own, the name)

Either side ends the connection where the other's proof is wrong. What follows is not encrypted.
"""

from __future__ import annotations

import ctypes
import hmac
import os
import signal
import socket
import sys

RANDOM_BYTES = PROOF_BYTES = 32
NAME_BYTES = 64
PR_SET_PDEATHSIG = 1
# What Slurm says of one task of a step: a rank that reads it would take itself for a task of srun.
OF_A_TASK = ("SLURM_", "SRUN_", "PMI_", "PMIX_", "PMI2_", "SLURMD_")
OF_THE_JOB = ("SLURM_JOB_", "SLURM_CONF", "SLURM_CLUSTER_NAME", "SLURM_SUBMIT_", "SLURMD_NODENAME")


def proof(key: bytes, *parts: bytes) -> bytes:
    return hmac.new(key, b"".join(parts), "sha256").digest()


def received(connection: socket.socket, size: int) -> bytes:
    """So many bytes; fewer where the connection ends before."""
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            break
        data += part
    return data


def called_back(address: str, port: int, key: bytes, name: str, within_s: float) -> socket.socket:
    """A connection to the controller on which both sides have proved that they know the key."""
    connection = socket.create_connection((address, port), timeout=within_s)
    own = os.urandom(RANDOM_BYTES)
    connection.sendall(own)
    theirs, shown = received(connection, RANDOM_BYTES), received(connection, PROOF_BYTES)
    if not hmac.compare_digest(shown, proof(key, b"orch controller", own, theirs)):
        raise OSError("whoever listens at %s port %d does not know the key of the run" % (address, port))
    said = name.encode().ljust(NAME_BYTES, b"\0")
    connection.sendall(said + proof(key, b"orch agent", theirs, own, said))
    connection.settimeout(None)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def forget_the_task() -> None:
    """Leave of the scheduler's variables those of the job."""
    for name in list(os.environ):
        if name.startswith(OF_A_TASK) and not name.startswith(OF_THE_JOB):
            del os.environ[name]


def end_with_parent() -> None:
    """Have the kernel ask this process to end when its parent does: a step that has lost its manager is no step."""
    parent = os.getppid()
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit("its parent has ended")


def call_back(port: int, key: str, within_s: float) -> None:
    """Put a connection to the controller in the place of the standard input and output; exits where there is none.

    The controller is where the step was launched, at the address by which this host's daemon knows it.
    """
    end_with_parent()
    name, address = os.environ["SLURMD_NODENAME"], os.environ["SLURM_LAUNCH_NODE_IPADDR"]
    try:
        connection = called_back(address, port, bytes.fromhex(key), name, within_s)
    except OSError as error:
        sys.exit("cannot call the controller back at %s port %d: %s" % (address, port, error))
    for fd in (0, 1):
        os.dup2(connection.fileno(), fd)
    connection.close()
    forget_the_task()
