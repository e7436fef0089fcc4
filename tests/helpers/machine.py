"""What tests share of the machine they run on, and how they take turns at it.

Tests run side by side in several processes, and several people may run them on one machine.
"""

from __future__ import annotations

import fcntl
import os
import random
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PATIENCE_S = 60.0  # for what is certain to come, however busy the machine is


@contextmanager
def held(what: str, *, shared: bool = False) -> Iterator[None]:
    """Hold `what` of this machine against this user's other test processes; wait for it as long as it takes.

    The kernel frees it when the holder dies. The file stays: whoever removed it would split those who wait.
    """
    with Path(tempfile.gettempdir(), f"orch-tests-{os.geteuid()}.{what}").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
        yield


def free_port() -> int:
    """A TCP port of this machine that nobody uses, above those that the kernel gives to connections.

    One of these may be given away before a test's server listens on it, more often the more tests run side by side.
    """
    _, highest = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    for port in random.sample(range(highest + 1, 1 << 16), k=min(100, (1 << 16) - 1 - highest)):
        with suppress(OSError), socket.create_server(("", port)):
            return port
    with socket.create_server(("", 0)) as probe:
        return int(probe.getsockname()[1])


def gone(pid: int) -> bool:
    """Whether a process has ended with all that it held.

    A process of several threads is shown as a zombie as soon as its first thread has ended; the others may hold its
    files and locks for a moment longer.
    """
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state in "ZX" and len(list(Path(f"/proc/{pid}/task").iterdir())) <= 1
    except OSError:
        return True
