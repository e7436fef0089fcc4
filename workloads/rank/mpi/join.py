"""Join a rank started by an agent to a launcher's job: mpirun, say, registers it by a stub that it starts."""

from __future__ import annotations

import json
import os
import socket
import threading

from ..lifecycle import PEER_GRACE_S, fail, first_line
from .stub import require_own_user, socket_name

LONGEST = 1 << 20  # bytes of the stub's message


def join(within_s: float, launcher: str = "mpirun") -> None:
    """Wait until the launcher's stub has sent this process, MPI_NAME, its environment in the job.

    MPI may be initialized afterwards. What was in the environment before wins over what the stub tells. When the job
    ends before this process does, it fails.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        try:
            listener.bind(socket_name(os.environ["MPI_NAME"]))
            listener.listen()
            listener.settimeout(within_s)
            stub, _ = listener.accept()
            stub.settimeout(within_s)
            require_own_user(stub)
            with stub.makefile("rb") as stream:
                variables = json.loads(stream.readline(LONGEST))
        except TimeoutError:
            fail(f"{launcher} did not register this rank within {within_s:g} s")
        except (OSError, ValueError) as error:
            fail(f"{launcher} could not register this rank: {first_line(error)}")
    for name, value in variables.items():
        os.environ.setdefault(name, value)
    stub.settimeout(None)
    threading.Thread(target=_stay, args=(stub, launcher), name="stub", daemon=True).start()


def _stay(stub: socket.socket, launcher: str) -> None:
    stub.recv(1)
    threading.Event().wait(PEER_GRACE_S)
    if launcher == "mpirun":
        fail("the MPI job has ended: mpirun, its daemon on this host or another rank is gone")
    fail(f"the job of {launcher} has ended: {launcher} or another rank is gone")
