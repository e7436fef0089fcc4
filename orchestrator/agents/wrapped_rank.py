"""Runs a rank below a program that watches it, and ends with the rank's status, whatever that program's is.

A launch runs `python -I -S -B wrapped_rank.py FOLDER NUMBER PROGRAM ARGUMENT... RANK ARGUMENT...` in the rank's folder,
where the first NUMBER words are the watching program (a prefix, as `time -v` is one). It is started in FOLDER, below
the rank's, where its files are to lie; it starts this file again, and that starts the rank in its own folder:

    this, outside  ->  PROGRAM  ->  this, inside  ->  RANK

Signals by which a launch is asked to end reach the rank alone: the other three do not hear them, and end one after
the other once the rank has. The inside leaves the rank's exit status in a file, and the outside takes it from
there, since programs that watch others often end with a status of their own. Where PROGRAM ends without the rank, the
rank is killed. The rank has the environment and the standard streams that PROGRAM hands on.
"""

# ruff: noqa: PTH100, PTH103, PTH104, PTH109, PTH118, PTH123 - pathlib takes long to import

from __future__ import annotations

import ctypes
import os
import resource
import shutil
import signal
import subprocess
import sys

MYPY = False
if MYPY:
    from typing import Callable, List, Optional

ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
SBIN = ("/usr/local/sbin", "/usr/sbin", "/sbin")  # where agents look, too: a user's PATH may lack them
STATUS_FILE = ".rank_status"
INSIDE = "--inside"
LOOK_EVERY_S = 0.5  # whether PROGRAM still lives
FAILED = 127
PR_SET_PDEATHSIG = 1


def start(argv: List[str], folder: str, prepare: Callable[[], None]) -> subprocess.Popen[bytes]:
    """Start a program, found as agents find them, that dies with this process."""

    def prepared() -> None:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        prepare()

    found = None if "/" in argv[0] else shutil.which(argv[0], path=":".join([os.environ.get("PATH", ""), *SBIN]))
    return subprocess.Popen(argv, executable=found, cwd=folder, preexec_fn=prepared)  # noqa: PLW1509 - one thread


def as_usual() -> None:
    """Restore signals in the child, as a launch finds them."""
    for number in (*ENDING, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def ignore_signals() -> None:
    """Ignore what `main` has blocked, too: programs set handlers for some signals, and shells let all through."""
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)


def let_go_of_input() -> None:
    """Close this process's standard input: the rank alone holds it, so that its writer sees the rank's end."""
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.close(null)


def wait(child: subprocess.Popen[bytes], *, parent: Optional[int]) -> int:
    """Wait for a child and return its status, negative for a signal; it is killed where `parent` is no longer ours."""
    while child.poll() is None:
        signal.sigtimedwait([signal.SIGCHLD], LOOK_EVERY_S)
        if parent is not None and os.getppid() != parent:
            child.kill()
    return child.returncode


def inside(folder: str, status_file: str, argv: List[str]) -> int:
    """Run the rank in its folder and write its status to the file; return it as a shell would give it."""
    parent = os.getppid()
    try:
        rank = start(argv, folder, as_usual)
    except OSError as error:
        print("%s: %s" % (argv[0], error.strerror), file=sys.stderr, flush=True)
        return FAILED
    let_go_of_input()
    status = wait(rank, parent=parent)
    with open(status_file + ".part", "w") as file:
        file.write("%d\n" % status)
    os.rename(status_file + ".part", status_file)
    return status if status >= 0 else 128 - status


def outside(name: str, wrapper: List[str], argv: List[str]) -> int:
    """Run the watching program around the rank; return the rank's status, negative for a signal."""
    folder, own = os.getcwd(), os.path.abspath(name)
    os.makedirs(own, exist_ok=True)
    status_file = os.path.join(own, STATUS_FILE)
    again = [sys.executable, "-I", "-S", "-B", os.path.abspath(__file__), INSIDE, folder, status_file, *argv]
    try:
        program = start([*wrapper, *again], own, ignore_signals)
    except OSError as error:
        print("%s: %s" % (wrapper[0], error.strerror), file=sys.stderr, flush=True)
        return FAILED
    let_go_of_input()
    status = wait(program, parent=None)
    try:
        with open(status_file) as file:
            return int(file.read())
    except (OSError, ValueError):
        print("%s ended with status %d, and the rank did not end" % (wrapper[0], status), file=sys.stderr, flush=True)
        return status or FAILED


def main(argv: List[str]) -> int:
    # SIGCHLD too: `sigtimedwait` takes it.
    signal.pthread_sigmask(signal.SIG_BLOCK, (*ENDING, signal.SIGCHLD))
    if argv[1] == INSIDE:
        return inside(argv[2], argv[3], argv[4:])
    count = int(argv[2])
    status = outside(argv[1], argv[3 : 3 + count], argv[3 + count :])
    if status < 0:  # end by the same signal
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
        if -status not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(-status, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        os.kill(os.getpid(), -status)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv))
