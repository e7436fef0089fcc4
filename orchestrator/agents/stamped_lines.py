"""Runs a command for each of some processes, and writes each line that it prints with a timestamp.

Run as `python -I -S -B stamped_lines.py NAME=PID... -- PROGRAM ARGUMENT...`. Among the arguments {pid} stands for a
process id, and what PROGRAM prints for the process NAME goes to NAME.csv: the instant (this machine's clock,
nanoseconds since the epoch), a comma, the line. "started" on standard output says that each has printed a line. SIGINT
or SIGTERM asks all of them to end (SIGINT), and then this ends with 0; with 1 when all have ended by themselves.
"""

from __future__ import annotations

import ctypes
import os
import select
import shutil
import signal
import subprocess
import sys
import time

MYPY = False
if MYPY:
    from typing import Dict, List

ENDING = (signal.SIGINT, signal.SIGTERM)
SBIN = ("/usr/local/sbin", "/usr/sbin", "/sbin")  # where agents look, too: a user's PATH may lack them
LOOK_EVERY_S = 0.2  # for a signal
MOST_BYTES = 1 << 16
PR_SET_PDEATHSIG = 1


def as_usual() -> None:
    """Restore default signals in the child, and have it end with this process."""
    for number in ENDING:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


class Stamped:
    """One command and the file of its timestamped lines."""

    def __init__(self, name: str, argv: List[str]) -> None:
        program = shutil.which(argv[0], path=":".join([os.environ.get("PATH", ""), *SBIN]))
        self.process = subprocess.Popen(
            argv,
            executable=program,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            preexec_fn=as_usual,  # noqa: PLW1509 - there is one thread
        )
        self.fd = self.process.stdout.fileno() if self.process.stdout else -1
        self.file = os.open(name + ".csv", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self.rest = b""
        self.begun = False

    def take(self) -> bool:
        """Write the lines that have come; return False when there will be no more."""
        data = os.read(self.fd, MOST_BYTES)
        *lines, self.rest = (self.rest + data).split(b"\n")
        stamp = b"%d," % time.time_ns()
        out = b"".join(stamp + line + b"\n" for line in lines)
        while out:
            out = out[os.write(self.file, out) :]
        self.begun = self.begun or bool(lines)
        return bool(data)


def run(commands: List[Stamped]) -> int:
    """Run the commands until all have ended; return the exit status."""
    poll = select.poll()
    living: Dict[int, Stamped] = {one.fd: one for one in commands}
    for fd in living:
        poll.register(fd, select.POLLIN)
    asked = announced = False
    while living:
        for fd, _ in poll.poll(LOOK_EVERY_S * 1000):
            if not living[fd].take():
                poll.unregister(fd)
                living.pop(fd).process.wait()
        if not announced and all(one.begun for one in commands):
            announced = True
            print("started", flush=True)
        if signal.sigtimedwait(ENDING, 0) is not None:
            asked = True
            for one in living.values():
                one.process.send_signal(signal.SIGINT)
    return 0 if asked else 1


def main(argv: List[str]) -> int:
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    middle = argv.index("--")
    command = argv[middle + 1 :]
    commands: List[Stamped] = []
    try:
        for word in argv[1:middle]:
            name, _, pid = word.partition("=")
            commands.append(Stamped(name, [part.replace("{pid}", pid) for part in command]))
    except OSError as error:
        print("%s: %s" % (command[0], error.strerror), file=sys.stderr, flush=True)
        return 1
    return run(commands)


if __name__ == "__main__":
    sys.exit(main(sys.argv))
