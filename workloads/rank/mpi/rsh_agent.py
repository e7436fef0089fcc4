"""Replace ssh for mpirun: `rsh_agent.py HOST COMMAND...` sends the command to our daemon program on that host.

MPI_HOSTS has the address of each host by what mpirun calls it, as JSON. That program waits at MPI_DAEMON_PORT, or will
within MPI_MEET_S seconds, and wants proof that we know MPI_RUN_KEY.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import socket
import sys
import time

AGAIN_S = 0.05
TALK_S = 10.0
LINE = 1000  # bytes of what it says


def proof(key: str, *, address: str, once: str, text: bytes) -> str:
    """Return the proof (HMAC) of a text by the run's key, for an address with its port, and a nonce.

    The address is part of it, so that what was said at one host cannot be handed on to another.
    """
    return hmac.new(key.encode(), f"{address}\n{once}\n".encode() + text, hashlib.sha256).hexdigest()


def answer_of(address: str, port: int, *, key: str, command: str) -> str:
    """Send the command to the program on that host; return its answer: "ok", "no", or nothing, when it dropped us.

    OSError where it does not listen, or is gone.
    """
    with socket.create_connection((address, port), timeout=TALK_S) as host, host.makefile("rwb") as stream:
        once = stream.readline(LINE).decode(errors="replace").strip()
        text = json.dumps(command).encode()
        stream.write(proof(key, address=f"{address}:{port}", once=once, text=text).encode() + b" " + text + b"\n")
        stream.flush()
        return stream.readline(LINE).decode(errors="replace").strip()


def main() -> None:
    address, command = json.loads(os.environ["MPI_HOSTS"])[sys.argv[1]], " ".join(sys.argv[2:])
    port, key = int(os.environ["MPI_DAEMON_PORT"]), os.environ["MPI_RUN_KEY"]
    ends = time.monotonic() + float(os.environ["MPI_MEET_S"])
    while True:
        try:
            answer, why = answer_of(address, port, key=key, command=command), "it says nothing"
        except OSError as error:
            answer, why = "", str(error)
        if answer == "ok":
            return
        if answer == "no":
            sys.exit(f"{address}:{port} turned mpirun's daemon away")
        if time.monotonic() > ends:
            sys.exit(f"{address}:{port} does not answer, which is to start Open MPI's daemon there: {why}")
        time.sleep(AGAIN_S)
