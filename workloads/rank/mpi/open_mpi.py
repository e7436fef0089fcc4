"""Keeps what Open MPI runs on a host, mpirun or a daemon of its, while the job lives, and cleans up after it."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import NoReturn

from ..base.lifecycle import PEER_GRACE_S

SESSION = Path("session")  # where Open MPI keeps the files of its session


def environment() -> dict[str, str]:
    """This process's own, without the run's key, and where on this host Open MPI finds our stub."""
    here = Path.cwd()
    return {
        **{name: value for name, value in os.environ.items() if name != "MPI_RUN_KEY"},
        "TMPDIR": str(here / SESSION),
        "PMIX_MCA_gds": "hash",  # memory instead of shared files: few processes have little to ask
        "MPI_PYTHON": sys.executable,
        "MPI_PROGRAMS": str(here / sys.argv[0]),
    }


class _Asked(Exception):
    """This process was asked to end."""


def keep(argv: list[str], env: dict[str, str]) -> NoReturn:
    """Run it until this process is asked to end, which ends with status 0; should it end by itself, with another one.

    Nothing in it has to end in order: the ranks are processes of their own. When it ends by itself a rank or a host
    may have failed, and that one's own reason is to be heard first.
    """
    SESSION.mkdir(exist_ok=True)
    child, asked = None, False

    def ask(_number: int, _frame: object) -> None:
        nonlocal asked
        asked = True
        if child is not None:  # or it would be started, and nobody would know of it
            raise _Asked

    try:
        signal.signal(signal.SIGTERM, ask)
        signal.signal(signal.SIGINT, ask)
        child = subprocess.Popen(argv, env=env, stdin=subprocess.DEVNULL, start_new_session=True)
        if asked:
            raise _Asked  # noqa: TRY301 - as the handler does from here on
        status = child.wait()
        threading.Event().wait(PEER_GRACE_S)
    except _Asked:
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
