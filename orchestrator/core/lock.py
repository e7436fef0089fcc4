"""A lock of this machine that the kernel frees when its holder dies, and that tells who holds it."""

from __future__ import annotations

import errno
import json
import os
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TypedDict

from orchestrator.core.errors import LockedError

ANSWER_S = 2.0
OTHER_TESTBED = "ORCH_TESTBED_LOCK"


class Holder(TypedDict, total=False):
    """Who holds a lock; `since` is local time in words."""

    user: str
    host: str
    pid: int
    run: str
    since: str


def local_testbed() -> str:
    """The lock of a local testbed: one for the machine, or two would measure each other.

    ORCH_TESTBED_LOCK names another one, for tests of behaviour that run side by side: no figure of theirs counts.
    """
    other = os.environ.get(OTHER_TESTBED, "")
    return f"local-testbed-{other}" if other else "local-testbed"


@contextmanager
def machine(name: str, holder: Holder) -> Iterator[None]:
    """Hold the lock `name`; LockedError names the holder. It is an abstract socket: no file, nothing to go stale."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(f"\0orch-lock-{name}")
    except OSError as error:
        listener.close()
        if error.errno != errno.EADDRINUSE:
            raise
        raise LockedError(
            f"the {name.replace('-', ' ')} of this machine is taken by {holder_text(_holder_of(name))}",
            hint="wait for it, or let `orch run --wait 10min` do so",
        ) from None
    listener.listen(8)
    answer = json.dumps(dict(holder)).encode()
    server = threading.Thread(target=_serve, args=(listener, answer), name="lock", daemon=True)
    server.start()
    try:
        yield
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        server.join(2 * ANSWER_S)  # while it accepts, the name is taken even if the socket is closed
        listener.close()


def _serve(listener: socket.socket, answer: bytes) -> None:
    while True:
        try:
            peer, _ = listener.accept()
        except OSError:
            return  # closed: the lock is given back
        with peer, suppress(OSError):  # who asked may have gone
            peer.settimeout(ANSWER_S)
            peer.sendall(answer)


def _holder_of(name: str) -> Mapping[str, object]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
        peer.settimeout(ANSWER_S)
        try:
            peer.connect(f"\0orch-lock-{name}")
            with peer.makefile("rb") as file:
                found = json.loads(file.read())
        except (OSError, ValueError, RecursionError):
            return {}
    return found if isinstance(found, dict) else {}


def holder_text(holder: Mapping[str, object]) -> str:
    """A holder in words."""
    if not holder:
        return "another orch, which does not say who it is"
    who = f"{holder.get('user', '?')}@{holder.get('host', '?')}"
    return f"{who}, process {holder.get('pid', '?')}, run {holder.get('run', '?')}, since {holder.get('since', '?')}"
