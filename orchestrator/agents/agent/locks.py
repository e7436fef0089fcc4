"""Locks that the kernel frees when the agent dies: abstract sockets, each of which sends its holder's text.

They exclude every user of the host, so every user can take one; the kernel tells who did.
"""

from __future__ import annotations

import json
import os
import pwd
import selectors
import socket
import struct
import time
from typing import Dict, Tuple

from .steps import Refusal, Steps

Holder = Dict[str, object]  # data of the lock's holder, sent to the next one that asks; no agent reads it

TELL_S = 2.0  # for all that a holder says, however it says it
MOST_BYTES = 4096  # of that


class Locks:
    """The locks that this agent holds, and the text that each sends about its holder."""

    def __init__(self, selector: selectors.BaseSelector) -> None:
        self.selector = selector
        self.held: Dict[str, socket.socket] = {}
        self.holder: Holder = {}

    def hold(self, name: str) -> None:
        """Listen on an abstract socket, which the kernel frees with this process; callers get the holder's text."""
        server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        server.setblocking(False)
        try:
            server.bind("\0" + name)
        except OSError as error:
            server.close()
            raise Refusal("locked", "%s is taken: %s" % (name, error.strerror), name=name) from None
        server.listen(16)
        self.held[name] = server
        self.selector.register(server, selectors.EVENT_READ, lambda: self.tell(server))

    def owner(self, name: str) -> int:
        """Return the process that holds a lock, as the kernel knows it.

        0 for none, or one that cannot be seen from here.
        """
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.setblocking(False)
            try:
                client.connect("\0" + name)
                return credentials(client)[0]
            except OSError:
                return 0

    def show(self, name: str) -> None:
        """Hold a lock as a sign for others, which excludes nobody: it is skipped where another user holds its name.

        Refusal where it is held by an agent of this user, or of root.
        """
        try:
            self.hold(name)
        except Refusal:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
                client.setblocking(False)
                try:
                    client.connect("\0" + name)
                    own = is_own(credentials(client)[1])
                except OSError:
                    own = False  # a lock of ours can be connected to
            if own:
                raise

    def tell(self, server: socket.socket) -> None:
        try:
            visitor, _ = server.accept()
        except OSError:
            return
        with visitor:
            try:
                visitor.send(json.dumps(self.holder).encode()[:MOST_BYTES])
            except OSError:
                return

    def lock(self, *, name: str, holder: Holder) -> Steps[None]:
        name = "orch-lock-" + name
        if name in self.held:
            return
        self.holder = holder
        yield from self.take(name)

    def take(self, name: str) -> Steps[None]:
        """Hold a lock; Refusal names who holds it already."""
        try:
            self.hold(name)
        except Refusal as refusal:
            other = yield from self.ask(name)
            raise Refusal("locked", str(refusal), holder=other) from None

    def ask(self, name: str) -> Steps[Holder]:
        """Return the holder of a lock: its text, if that comes within TELL_S, and its user if another one."""
        end = time.monotonic() + TELL_S
        data = b""
        other: Holder = {}
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.setblocking(False)
            try:
                client.connect("\0" + name)
                pid, uid = credentials(client)
                if not is_own(uid):
                    other["stranger"] = "%s (process %d)" % (user(uid), pid)
                while len(data) < MOST_BYTES and time.monotonic() < end:
                    try:
                        part = client.recv(MOST_BYTES - len(data))
                    except BlockingIOError:
                        yield 0.01
                        continue
                    if not part:
                        break
                    data += part
            except OSError:
                data = b""
        try:
            answer = json.loads(data.decode())
        except (ValueError, RecursionError):  # the holder is no agent of ours
            return other
        return dict(answer, **other) if isinstance(answer, dict) else other


def credentials(client: socket.socket) -> Tuple[int, int]:
    """Return the process and user that listen at the other end, as the kernel knows them."""
    pid, uid, _ = struct.unpack("3i", client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return pid, uid


def is_own(uid: int) -> bool:
    """Return whether a user is trusted: this agent's own, and root."""
    return uid in (0, os.geteuid())


def user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
