"""What tests share of the machine they run on, and how they take turns at it.

Tests run side by side in several processes, and several people may run them on one machine.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
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
