"""A terminal for a command, and its other end."""

from __future__ import annotations

import fcntl
import os
import pty
import subprocess
import termios
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any


class Terminal:
    """The other end of a terminal; what is printed there goes to a file, so that the printing one never waits."""

    def __init__(self, master: int, log: Path) -> None:
        self.master = master
        self._open = True
        self._log = log.open("wb")
        self._reader = threading.Thread(target=self._read, name="terminal", daemon=True)
        self._reader.start()

    def _read(self) -> None:
        with suppress(OSError):  # the last process that had it has ended, or it was closed
            while data := os.read(self.master, 1 << 16):
                self._log.write(data)
                self._log.flush()

    def close(self) -> None:
        """Hang up."""
        if self._open:
            self._open = False
            os.close(self.master)


@contextmanager
def on_a_terminal(argv: Sequence[str], log: Path, **more: Any) -> Iterator[tuple[subprocess.Popen[str], Terminal]]:
    """A command as the leader of a terminal's session, and the terminal's other end."""
    master, slave = pty.openpty()
    process = subprocess.Popen(
        argv,
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
        text=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509 - nothing else starts meanwhile
        **more,
    )
    os.close(slave)
    terminal = Terminal(master, log)
    try:
        yield process, terminal
    finally:
        process.kill()
        process.wait()
        terminal.close()
