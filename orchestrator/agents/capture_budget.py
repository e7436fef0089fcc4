"""Runs a capture until the captures of this host fill a budget of its disk; then ends it, and waits to be told to end.

Run as `python -I -S -B capture_budget.py BYTES PROGRAM ARGUMENT...` in a folder beside those of the host's other
captures. What counts is all of their files together. When they are larger, PROGRAM is ended as it would be by whoever
started this (SIGINT), and a line on standard error says at what instant (this machine's clock, nanoseconds since the
epoch). The exit status is PROGRAM's. SIGINT and SIGTERM are passed on; SIGTERM comes from the kernel, too, when whoever
started this dies.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

MYPY = False
if MYPY:
    from typing import List

ENDING = (signal.SIGINT, signal.SIGTERM)
SBIN = ("/usr/local/sbin", "/usr/sbin", "/sbin")  # where agents look, too: a user's PATH may lack them
CAPTURES = "*/capture.pcap*"  # below the folder of the run
LOOK_EVERY_S = 0.2
PR_SET_PDEATHSIG = 1


def filled() -> int:
    """Return the bytes of all captures of this host."""
    total = 0
    for path in Path("..").glob(CAPTURES):
        try:
            total += path.stat().st_size
        except OSError:  # it was dropped meanwhile
            continue
    return total


def as_usual() -> None:
    """Restore default signals in the child: a background process ignores SIGINT, and its children inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)  # it dies with this, however this dies


def run(budget: int, argv: List[str]) -> int:
    """Run the capture to its end, then wait to be told to end; return the capture's exit status."""
    program = shutil.which(argv[0], path=os.pathsep.join([os.environ.get("PATH", os.defpath), *SBIN]))
    child = subprocess.Popen(argv, executable=program, preexec_fn=as_usual)  # noqa: PLW1509 - there are no threads here
    asked = over = False
    while child.poll() is None:
        received = signal.sigtimedwait((*ENDING, signal.SIGCHLD), LOOK_EVERY_S)
        if received is not None and received.si_signo in ENDING:
            asked = True
            child.send_signal(received.si_signo)
        elif not (asked or over) and filled() > budget:
            over = True
            print("capture ended at %d: captures fill their budget" % time.time_ns(), file=sys.stderr, flush=True)
            child.send_signal(signal.SIGINT)
    if over and not asked:
        signal.sigwait(ENDING)
    return child.returncode if child.returncode >= 0 else 128 - child.returncode


def main(argv: List[str]) -> int:
    signal.pthread_sigmask(signal.SIG_BLOCK, (*ENDING, signal.SIGCHLD))
    # In the place of the agent's SIGKILL: where PROGRAM has capabilities by its file the kernel forgets what `as_usual`
    # asks for, and this has to end it.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    return run(int(argv[1]), argv[2:])


if __name__ == "__main__":
    sys.exit(main(sys.argv))
