"""Locks that the kernel frees when the agent dies: abstract sockets, each of which tells who holds it."""

from __future__ import annotations

import json
import selectors
import socket
import struct
import time
from typing import TYPE_CHECKING, Dict

from .steps import Refusal, Steps

if TYPE_CHECKING:
    from .messages.answers import Nothing
    from .messages.requests import Holder

TELL_S = 2.0


class Locks:
    """What this agent holds, and for whom."""

    def __init__(self, selector: selectors.BaseSelector) -> None:
        self.selector = selector
        self.held: Dict[str, socket.socket] = {}
        self.holder: Holder = {}

    def hold(self, name: str) -> None:
        """Listen on an abstract socket, which the kernel frees when this process dies, and tell who holds it."""
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
        """The process that holds a lock, as the kernel knows it; 0 for none, or one that cannot be seen from here."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.setblocking(False)
            try:
                client.connect("\0" + name)
                pid, _, _ = struct.unpack("3i", client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
            except OSError:
                return 0
        return int(pid)

    def tell(self, server: socket.socket) -> None:
        try:
            visitor, _ = server.accept()
        except OSError:
            return
        with visitor:
            try:
                visitor.send(json.dumps(self.holder).encode())
            except OSError:
                return

    def lock(self, *, name: str, holder: Holder) -> Steps[Nothing]:
        name = "orch-lock-" + name
        if name in self.held:
            return {}
        self.holder = holder
        yield from self.take(name)
        return {}

    def take(self, name: str) -> Steps[None]:
        """Hold a lock; Refusal names who holds it already."""
        try:
            self.hold(name)
        except Refusal as refusal:
            other = yield from self.ask(name)
            raise Refusal("locked", str(refusal), holder=other) from None

    def ask(self, name: str) -> Steps[Holder]:
        """Who holds a lock, as far as its agent answers in time."""
        end = time.monotonic() + TELL_S
        data = b""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.setblocking(False)
            try:
                client.connect("\0" + name)
                while time.monotonic() < end:
                    try:
                        part = client.recv(4096)
                    except BlockingIOError:
                        yield 0.01
                        continue
                    if not part:
                        break
                    data += part
            except OSError:
                return {}
        try:
            answer = json.loads(data.decode())
        except (ValueError, RecursionError):  # whoever it is, it is no agent of ours
            return {}
        return answer if isinstance(answer, dict) else {}
