"""Starts agents behind a process of this machine: the agent itself, or a program that leads to it."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence

from orchestrator.core.errors import TransportError
from orchestrator.remote.transport.bootstrap import agent_argv, agent_source

_EXIT_S = 20.0  # an agent may have a change to make whole, and then everything to put down


class ProcessChannel:
    """A socket to the agent that is, or is behind, a process started here; it is handed the agent's source.

    The process may take `exit_s` to end once its input has; then it is killed.
    """

    def __init__(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        way: Sequence[str] = (),
        by_hand: str = "",
        exit_s: float = _EXIT_S,
    ) -> None:
        self.way = way
        self.by_hand = by_hand
        self._exit_s = exit_s
        try:
            self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the channel
        except OSError as error:
            raise TransportError(
                f"cannot start an agent: {error}", hint="set TMPDIR to a folder with room that this user may write"
            ) from error
        self._socket, far = socket.socketpair()
        fd = far.fileno()
        with far:
            try:
                # A session of its own: Ctrl-C is for the controller, which needs its agents to put things back.
                self._process = subprocess.Popen(
                    argv, stdin=fd, stdout=fd, stderr=self._stderr, start_new_session=True, env=env
                )
            except OSError as error:
                self._socket.close()
                self._stderr.close()
                raise TransportError(f"cannot start an agent: {error}", argv=argv) from error
        with contextlib.suppress(OSError):  # one that has ended already tells why when it is asked
            self._socket.sendall(agent_source())

    @property
    def pid(self) -> int:
        """The process that was started: the agent, sudo, or what leads to the agent."""
        return int(self._process.pid)

    def read(self, size: int) -> bytes:
        try:
            return self._socket.recv(size)
        except OSError:
            return b""  # closed here, or reset by an agent that died with input unread: the end, either way

    def write(self, data: bytes) -> None:
        try:
            self._socket.sendall(data)
        except OSError as error:
            raise TransportError(f"the agent does not listen: {error}", tail=self.diagnosis()) from error

    def close(self) -> None:
        """Close the stream and wait until the process, which ends upon that, is gone."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        try:
            self._process.wait(self._exit_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def diagnosis(self) -> str:
        size = os.fstat(self._stderr.fileno()).st_size
        return os.pread(self._stderr.fileno(), 1 << 16, max(0, size - (1 << 16))).decode(errors="replace")


class LocalChannel(ProcessChannel):
    """A socket to an agent that runs on this machine."""

    def __init__(
        self, python: str = sys.executable, *, sudo: bool = False, env: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(agent_argv(python, sudo=sudo), env=env)


def connect() -> LocalChannel:
    """Start an agent on this machine, with this process's rights and interpreter."""
    return LocalChannel()
