"""Locks that the kernel frees when their holder dies, and that tell who holds them.

Of this machine, for what only one of its users may do at a time: an abstract socket. Whatever excludes every user can
be taken by every user; of a socket the kernel tells whose it is, and no file of it is left or lies where others write.
Of a folder of results, for what only those do who may write there: a file that nobody else can open.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import struct
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypedDict

from orchestrator.core.errors import LockedError, StoreError
from orchestrator.core.machines import users
from orchestrator.core.paths import safepath
from orchestrator.core.screen import terminal

ANSWER_S = 2.0  # for all that a holder says, however it says it
MOST_BYTES = 4096  # of that
OTHER_TESTBED = "ORCH_TESTBED_LOCK"
_MOST_WORD = 150  # characters
_WORDS = ("user", "host", "pid", "run", "since")


class Holder(TypedDict, total=False):
    """Who holds a lock; `since` is local time in words. `stranger` is another user, as the kernel knows it."""

    user: str
    host: str
    pid: int
    run: str
    since: str
    stranger: str


def local_testbed() -> str:
    """Return the lock of a local testbed: one for the machine, or two would measure each other.

    ORCH_TESTBED_LOCK names another one, for tests of behaviour that run side by side: no figure of theirs counts.
    """
    other = os.environ.get(OTHER_TESTBED, "")
    return f"local-testbed-{other}" if other else "local-testbed"


@contextmanager
def machine(name: str, holder: Holder) -> Iterator[None]:
    """Hold the lock `name` of this machine; LockedError names the holder, of another user as the kernel knows it."""
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
    server = threading.Thread(target=_serve, args=(listener, _told(holder)), name="lock", daemon=True)
    server.start()
    try:
        yield
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        server.join(2 * ANSWER_S)  # while it accepts, the name is taken even if the socket is closed
        listener.close()


@contextmanager
def within(folder: Path, name: str, holder: Holder) -> Iterator[None]:
    """Hold the lock `name` of a folder of results; LockedError names the holder.

    Whoever may not write in the folder cannot hold it. StoreError where it cannot be locked.
    """
    path = folder / safepath.segment(f".{name}.lock")
    try:
        descriptor = _locked(path)
        if descriptor is None:
            who = holder_text(_said_in(path))
            raise LockedError(f"the {name.replace('-', ' ')} is taken by {who}", hint="wait until it is done")
    except OSError as error:
        raise StoreError(f"{path}: cannot be locked: {error.strerror}") from None
    try:
        with suppress(OSError):  # a full disk: it is held all the same
            os.pwrite(descriptor, _told(holder), 0)
        yield
    finally:
        with suppress(OSError):
            path.unlink()  # while it is held: whoever has opened it sees that it is gone
        os.close(descriptor)


def said_within(folder: Path, name: str) -> Mapping[str, object] | None:
    """Return what the holder of a lock of a folder says of itself; None where there is none.

    Nothing where it may not be read. One that was killed has left what it said: whether it lives has to be looked up.
    """
    path = folder / safepath.segment(f".{name}.lock")
    return _said_in(path) if path.exists() else None


def _locked(path: Path) -> int | None:
    """Return a descriptor that locks a new file made for it; None where another process has it locked."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
        held = False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with suppress(FileNotFoundError):  # whoever held it has just given it back: another try
                held = os.path.samestat(os.fstat(descriptor), path.lstat())
            if held:
                may_write = path.parent.stat().st_mode & 0o022
                with suppress(PermissionError):  # it is that of another user, who was killed
                    os.fchmod(descriptor, 0o600 | may_write | may_write << 1)
                return descriptor
        except BlockingIOError:
            return None
        finally:
            if not held:
                os.close(descriptor)


def _told(holder: Holder) -> bytes:
    """Return what a lock tells others of its holder; it fits what they read, and a socket's buffer."""
    words = {key: str(value)[:_MOST_WORD] for key, value in holder.items() if key in _WORDS}
    return json.dumps(words, ensure_ascii=False).encode(errors="replace")


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
    """Return the holder of a lock of this machine.

    It is what the holder says within ANSWER_S, and the owner as the kernel knows it where that is another user.
    """
    end = time.monotonic() + ANSWER_S
    said = b""
    stranger: dict[str, object] = {}
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
        peer.settimeout(ANSWER_S)
        try:
            peer.connect(f"\0orch-lock-{name}")
            pid, uid, _ = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
            if uid not in (0, os.geteuid()):
                stranger = {"stranger": f"{users.name(uid)} (process {pid})"}
            while len(said) < MOST_BYTES and (left := end - time.monotonic()) > 0:
                peer.settimeout(left)
                part = peer.recv(MOST_BYTES - len(said))
                if not part:
                    break
                said += part
        except OSError:
            said = b""
    return {**_words_of(said), **stranger}


def _said_in(path: Path) -> Mapping[str, object]:
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            return _words_of(file.read(MOST_BYTES))
    except OSError:
        return {}


def _words_of(said: bytes) -> Mapping[str, object]:
    try:
        found = json.loads(said)
    except (ValueError, RecursionError):
        return {}
    return {key: found[key] for key in _WORDS if key in found} if isinstance(found, dict) else {}


def holder_text(holder: Mapping[str, object]) -> str:
    """Return a holder in words, on one line; of another user what the kernel knows comes first."""
    words = {key: terminal.line(str(value))[:_MOST_WORD] for key, value in holder.items()}
    says = [f"{words.get('user', '?')}@{words.get('host', '?')}"]
    says += [f"process {words.get('pid', '?')}", f"run {words.get('run', '?')}", f"since {words.get('since', '?')}"]
    text = ", ".join(says) if words.keys() & set(_WORDS) else ""
    if "stranger" in words:
        return f"user {words['stranger']}, who is not you" + (f"; it says that it is {text}" if text else "")
    return text or "another orch, which does not say who it is"
