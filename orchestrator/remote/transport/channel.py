"""The standard streams of one command on a node, over SSH."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence

import paramiko

from orchestrator.core.errors import TransportError
from orchestrator.remote.transport.target import SshTarget


class SshChannel:
    """The standard streams of one command on a node, and the connection that carries nothing else."""

    def __init__(
        self,
        target: SshTarget,
        closing: contextlib.ExitStack,
        session: paramiko.Channel,
        *,
        way: Sequence[str] = (),
        by_hand: str = "",
    ) -> None:
        self.way = way
        self.by_hand = by_hand
        self._target = target
        self._closing = closing
        self._session = session
        self._said = b""
        self._asking = threading.Lock()  # whoever writes may ask why at the same time as whoever reads
        self._taking = threading.Lock()  # and both may close it

    def read(self, size: int) -> bytes:
        try:
            return self._session.recv(size)
        except (OSError, EOFError, paramiko.SSHException):
            return b""

    def write(self, data: bytes) -> None:
        try:
            self._session.sendall(data)
        except (OSError, EOFError, paramiko.SSHException) as error:
            raise TransportError(
                "the SSH channel is closed", node=self._target.name, tail=self.diagnosis(), hint=str(error) or None
            ) from error

    def close(self) -> None:
        """Close the stream to the node, then those to the hosts before it; whoever comes second leaves it to the first.

        A stream through a host that has gone cannot say so there: it is closed all the same.
        """
        with self._taking:
            closing = self._closing.pop_all()
        with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
            closing.close()

    def diagnosis(self) -> str:
        with self._asking:
            while self._session.recv_stderr_ready():
                self._said = (self._said + self._session.recv_stderr(1 << 16))[-(1 << 16) :]
            return self._said.decode(errors="replace")
