"""A connection that can be cut without a word, as a network is: both ends stay, and nothing arrives."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Sequence

from orchestrator.remote.transport.local import LocalChannel

PIECE = 1 << 14


class Cuttable:
    """A channel to an agent on this machine, through two threads that pass bytes on while it is not cut.

    Closed while it is cut, it leaves the agent without the news; `end` ends that one. `slowest` is how many bytes a
    second it carries each way; as many as it likes if 0.
    """

    slowest = 0.0

    def __init__(self, *, way: Sequence[str] = ()) -> None:
        self.way = way
        self.agent = LocalChannel(sys.executable)
        self._whole = threading.Event()
        self._whole.set()
        self._near, self._far = socket.socketpair()
        for source, sink in ((self._far, self.agent._socket), (self.agent._socket, self._far)):
            threading.Thread(target=self._carry, args=(source, sink), daemon=True).start()

    def cut(self) -> None:
        self._whole.clear()

    def heal(self) -> None:
        self._whole.set()

    def _carry(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):  # reset by an agent that ended with input unread: the end, too
            while data := source.recv(PIECE):
                self._whole.wait()
                if self.slowest:
                    time.sleep(len(data) / self.slowest)
                sink.sendall(data)
        self._whole.wait()
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)

    by_hand = ""

    def read(self, size: int) -> bytes:
        try:
            return self._near.recv(size)
        except OSError:
            return b""

    def write(self, data: bytes) -> None:
        self._near.sendall(data)

    def close(self) -> None:
        with contextlib.suppress(OSError):  # it was closed before
            self._near.shutdown(socket.SHUT_RDWR)

    def diagnosis(self) -> str:
        return self.agent.diagnosis()

    def end(self) -> None:
        """Let the agent put everything down, also one that is stopped, and see that it is gone."""
        self.heal()
        if self.agent._process.poll() is None:
            os.kill(self.agent.pid, signal.SIGCONT)
        self.agent.close()
