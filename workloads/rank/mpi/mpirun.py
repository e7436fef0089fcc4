"""Runs mpirun, whose ranks are stubs for processes that stand already, and whose daemons are asked for by our agent.

Its arguments are the lowest and the highest port that mpirun may listen on, and mpirun's command. Of the environment
it needs what `rsh_agent.py` and `stub.py` do.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys

from .open_mpi import environment, keep


def free_port(lowest: int, highest: int, family: int = socket.AF_INET) -> int:
    """A port that mpirun can have: not that of a run whose connections ended a moment ago.

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
