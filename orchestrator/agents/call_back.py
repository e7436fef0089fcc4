"""Calls the controller back from a host, and leaves the connection where the agent expects its channel.

Its text goes before the agent's own, on the standard input that a scheduler gives to the same program on every host at
once. Key and port come with it: neither is in an argument list or in an environment, and what runs later inherits none.

    host:       32 random bytes
    controller: 32 random bytes, HMAC-SHA256(key, "orch controller", the host's bytes, its own)
    host:       its name in 64 bytes, HMAC-SHA256(key, "orch agent", the controller's bytes, its own, the name)
    controller: one byte, LET_IN

Either side ends the connection where the other's proof is wrong. What follows is not encrypted. A controller that many
strangers call may end a connection before it has heard the proof on it: the host calls again.
"""

from __future__ import annotations

import ctypes
import hmac
import os
import secrets
import signal
import socket
import sys
import time

RANDOM_BYTES = PROOF_BYTES = 32
NAME_BYTES = 64
LET_IN = b"\x01"
TRY_S = 10.0  # for one call, on a network that drops what it should refuse
AGAIN_S = 0.2  # at most, until the next one: at random, so that hosts do not call all at once
PR_SET_PDEATHSIG = 1
# What Slurm says of one task of a step: a rank that reads it would take itself for a task of srun.
OF_A_TASK = ("SLURM_", "SRUN_", "PMI_", "PMIX_", "PMI2_", "SLURMD_")
OF_THE_JOB = ("SLURM_JOB_", "SLURM_CONF", "SLURM_CLUSTER_NAME", "SLURM_SUBMIT_", "SLURMD_NODENAME")


def proof(key: bytes, *parts: bytes) -> bytes:
    return hmac.new(key, b"".join(parts), "sha256").digest()


def received(connection: socket.socket, size: int) -> bytes:
    """Receive so many bytes; fewer where the connection ends before."""
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            break
        data += part
    return data


class Impostor(OSError):
    """The listener answered, but does not know the key: calling again would not help."""


def called_back(address: str, port: int, key: bytes, name: str, within_s: float) -> socket.socket:
    """Return a connection to the controller on which both sides have proved that they know the key.

    Raise OSError without one. It calls again for so many seconds, unless nobody listens there, or somebody who does not
    know the key.
    """
    end = time.monotonic() + within_s
    while True:
        try:
            return called_once(address, port, key, name, max(0.1, min(TRY_S, end - time.monotonic())))
        except (ConnectionRefusedError, Impostor):
            raise
        except OSError:
            if time.monotonic() >= end:
                raise
        time.sleep(secrets.SystemRandom().uniform(0, AGAIN_S))


def called_once(address: str, port: int, key: bytes, name: str, within_s: float) -> socket.socket:
    """Connect once, with the same proofs."""
    connection = socket.create_connection((address, port), timeout=within_s)
    try:
        proved(connection, "whoever listens at %s port %d" % (address, port), key, name)
        connection.settimeout(None)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except BaseException:
        connection.close()
        raise
    return connection


def proved(connection: socket.socket, who: str, key: bytes, name: str) -> None:
    """Have the other side prove the key, prove it to them, and be let in; OSError where one of these fails."""
    own = os.urandom(RANDOM_BYTES)
    connection.sendall(own)
    theirs, shown = received(connection, RANDOM_BYTES), received(connection, PROOF_BYTES)
    if len(shown) < PROOF_BYTES:
        raise ConnectionError("%s ends each call" % who)
    if not hmac.compare_digest(shown, proof(key, b"orch controller", own, theirs)):
        raise Impostor("%s does not know the key of the run" % who)
    said = name.encode().ljust(NAME_BYTES, b"\0")
    connection.sendall(said + proof(key, b"orch agent", theirs, own, said))
    if received(connection, len(LET_IN)) != LET_IN:
        raise ConnectionError("%s does not let %s in" % (who, name))


def forget_the_task() -> None:
    """Remove the scheduler's variables from the environment, but those of the job."""
    for name in list(os.environ):
        if name.startswith(OF_A_TASK) and not name.startswith(OF_THE_JOB):
            del os.environ[name]


def end_with_parent() -> None:
    """Have the kernel ask this process to end when its parent does: a step does not outlive its manager."""
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
