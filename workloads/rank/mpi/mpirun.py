"""Run mpirun, whose ranks are stubs for running processes, and whose daemons are started through our rsh agent.

Its arguments are the lowest and the highest port that mpirun may listen on, and mpirun's command. Of the environment
it needs what `rsh_agent.py` and `stub.py` do.

Of Open MPI's programs on a host, mpirun and its daemons, each is kept while the job lives, and cleaned up after.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import NoReturn

from ..lifecycle import PEER_GRACE_S

SESSION = Path("session")  # where Open MPI keeps the files of its session


def environment() -> dict[str, str]:
    """Return this process's environment, without the run's key, with the path of our stub for Open MPI."""
    here = Path.cwd()
    return {
        **{name: value for name, value in os.environ.items() if name != "MPI_RUN_KEY"},
        "TMPDIR": str(here / SESSION),
        "PMIX_MCA_gds": "hash",  # memory instead of shared files: few processes have little to ask
        "MPI_PYTHON": sys.executable,
        "MPI_PROGRAMS": str(here / sys.argv[0]),
    }


class _EndRequested(Exception):
    """This process was asked to end."""


def keep(argv: list[str], env: dict[str, str]) -> NoReturn:
    """Run a program until this process is asked to end, and exit with 0; should it end by itself, with another status.

    Nothing in it has to end in order: the ranks are processes of their own. When it ends by itself a rank or a host
    may have failed, and that one's own reason is to be heard first.
    """
    SESSION.mkdir(exist_ok=True)
    child, asked = None, False

    def ask(_number: int, _frame: object) -> None:
        nonlocal asked
        asked = True
        if child is not None:  # or it would be started, and nobody would know of it
            raise _EndRequested

    try:
        signal.signal(signal.SIGTERM, ask)
        signal.signal(signal.SIGINT, ask)
        child = subprocess.Popen(argv, env=env, stdin=subprocess.DEVNULL, start_new_session=True)
        if asked:
            raise _EndRequested  # noqa: TRY301 - as the handler does from here on
        status = child.wait()
        threading.Event().wait(PEER_GRACE_S)
    except _EndRequested:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        if child is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        sys.exit(0)
    finally:
        shutil.rmtree(SESSION, ignore_errors=True)
    sys.exit(f"{Path(argv[0]).name} ended by itself with status {status}")


def free_port(lowest: int, highest: int, family: int = socket.AF_INET) -> int:
    """Return a port on which mpirun can listen: not that of a run whose connections ended a moment ago.

    Given several, mpirun would listen on each; given one that it cannot have it listens on none, and says nothing.
    """
    for port in range(lowest, highest + 1):
        try:
            probe = socket.socket(family)
        except OSError:
            return port  # this kernel has none of the family: nobody holds it
        with probe, contextlib.suppress(OSError):
            if family == socket.AF_INET6:
                probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            probe.bind(("", port))  # without SO_REUSEADDR, as mpirun does
            return port
    sys.exit(f"every port from {lowest} to {highest} is taken, or was less than a minute ago: mpirun needs one of them")


def main() -> None:
    agent = f"{sys.executable} {sys.argv[0]} mpi.rsh_agent"
    lowest, highest, program, *rest = sys.argv[1:]
    port = free_port(int(lowest), int(highest) - 1)
    # It and its daemons listen by IPv6 too, whatever they are told to connect by, else at a port of their own choice.
    ports = {4: port, 6: free_port(port + 1, int(highest), socket.AF_INET6)}
    settings = (
        word for version in ports for word in ("--mca", f"oob_tcp_dynamic_ipv{version}_ports", str(ports[version]))
    )
    command = [program, *settings, *rest]
    keep(command, {**environment(), "MPI_RUN_KEY": os.environ["MPI_RUN_KEY"], "OMPI_MCA_plm_rsh_agent": agent})
