"""Agents that call back: a scheduler starts them, and each connects to this process and proves the run's key.

The other side, with the words that both say, is `agents/call_back.py`.
"""

from __future__ import annotations

import contextlib
import hmac
import ipaddress
import secrets
import selectors
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field
from importlib import resources

from orchestrator.agents.call_back import LET_IN, NAME_BYTES, PROOF_BYTES, RANDOM_BYTES, proof
from orchestrator.core.deadline import Deadline
from orchestrator.core.errors import DeadlineExceeded, TransportError
from orchestrator.remote.transport.bootstrap import agent_modules, packed

PROVE_S = 10.0  # from a connection to the proof on it
CALL_S = 60.0  # for which a host calls again
STRANGERS = 64  # connections without a proof, beyond one for each host that is expected, that are heard at once
_AT_ONCE = 64  # connections that are taken before those that are there are heard again
_LOOK_S = 0.2
_UNACKNOWLEDGED_MS = 60_000  # a peer that acknowledges nothing for so long is gone

Wanted = Generator[int, bytes, str]  # yields how many bytes it waits for, is sent them, and returns the host


@dataclass(slots=True, eq=False)
class _Caller:
    """A connection that has not proved yet that it knows the run's key."""

    connection: socket.socket
    words: Wanted
    wanted: int
    until: float
    source: str
    heard: bytearray = field(default_factory=bytearray)


class Callers:
    """A socket on which hosts, known by name, call back; each host's connection is given out once.

    It listens from its making until every host has called, or `close`; `port` says where, on every address of this
    machine, since which of them leads here is known to the hosts alone. Of `ports` the first free one is taken.
    """

    def __init__(self, hosts: Iterable[str], *, ports: Sequence[int] = (0,)) -> None:
        self._key = secrets.token_bytes(32)
        self._awaited = set(hosts)
        self._arrived: dict[str, socket.socket] = {}
        self._changed = threading.Condition()
        self._failed: TransportError | None = None
        self._listener = _listening(ports)
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._serve, name="calls back", daemon=True).start()

    def program(self) -> bytes:
        """Return the program that a host's interpreter reads: the call back, with port and key, then the agent."""
        text = resources.files("orchestrator.agents").joinpath("call_back.py").read_text(encoding="utf-8")
        return packed(agent_modules(), before=f"{text}\ncall_back({self.port}, {self._key.hex()!r}, {CALL_S})\n")

    def take(self, host: str, deadline: Deadline) -> socket.socket:
        """Wait for the connection of a host and return it; raises the error given to `fail` where it will not call."""
        with self._changed:
            while host not in self._arrived:
                if self._failed is not None:
                    raise self._failed.again()
                if not self._changed.wait(deadline.remaining) and deadline.expired:
                    raise DeadlineExceeded("gave up waiting for its agent to call back", node=host)
            return self._arrived.pop(host)

    def fail(self, error: TransportError) -> None:
        """Set the error for hosts that have not called: nobody will call any more."""
        with self._changed:
            self._failed = self._failed or error
            self._changed.notify_all()

    def close(self) -> None:
        """Stop listening, and close connections that nobody took; a second call does nothing."""
        self.fail(TransportError("nobody listens for agents any more"))
        with self._changed:
            self._awaited.clear()
            left = [self._arrived.pop(name) for name in list(self._arrived)]
        for connection in left:
            connection.close()

    def _serve(self) -> None:
        callers: list[_Caller] = []
        with self._listener, selectors.DefaultSelector() as selector:
            self._listener.setblocking(False)
            selector.register(self._listener, selectors.EVENT_READ)
            while self._awaited:
                ready = selector.select(_LOOK_S)
                for key, _ in ready:
                    if key.data is not None and not self._heard(key.data):
                        _drop(selector, callers, key.data)
                if any(key.data is None for key, _ in ready):
                    self._accept(selector, callers)
                for caller in [one for one in callers if one.until < time.monotonic()]:
                    _drop(selector, callers, caller)
            for caller in callers:
                _drop(selector, callers, caller)

    def _accept(self, selector: selectors.BaseSelector, callers: list[_Caller]) -> None:
        for _ in range(_AT_ONCE):
            try:
                connection, address = self._listener.accept()
            except OSError:
                return  # no connection waits, the caller is gone, or descriptors ran out: others may close
            if len(callers) >= STRANGERS + len(self._awaited):
                self._make_room(selector, callers)
            connection.setblocking(False)
            words = self._words(connection)
            caller = _Caller(connection, words, next(words), time.monotonic() + PROVE_S, _source(address[0]))
            callers.append(caller)
            selector.register(connection, selectors.EVENT_READ, caller)

    def _make_room(self, selector: selectors.BaseSelector, callers: list[_Caller]) -> None:
        """Drop a random caller of the source that has most, so that no source can push out another's callers.

        What it has sent is read first: a proof that has arrived counts.
        """
        crowd, _ = Counter(one.source for one in callers).most_common(1)[0]
        caller = secrets.choice([one for one in callers if one.source == crowd])
        while self._heard(caller):
            if not _says(caller.connection):
                break
        _drop(selector, callers, caller)

    def _heard(self, caller: _Caller) -> bool:
        """Read what a caller sends; return False at its end, or where it is wrong."""
        try:
            data = caller.connection.recv(caller.wanted - len(caller.heard))
            caller.heard += data
            if data and len(caller.heard) < caller.wanted:
                return True
            whole, caller.heard = bytes(caller.heard), bytearray()
            caller.wanted = caller.words.send(whole)
        except BlockingIOError:
            return True
        except StopIteration as end:
            self._let_in(end.value, caller)
            return False
        except OSError:
            return False
        return bool(data)

    def _words(self, connection: socket.socket) -> Wanted:
        theirs = yield RANDOM_BYTES
        own = secrets.token_bytes(RANDOM_BYTES)
        connection.sendall(own + proof(self._key, b"orch controller", theirs, own))
        last = yield NAME_BYTES + PROOF_BYTES
        name, shown = last[:NAME_BYTES], last[NAME_BYTES:]
        known = hmac.compare_digest(shown, proof(self._key, b"orch agent", own, theirs, name))
        return name.rstrip(b"\0").decode(errors="replace") if known else ""

    def _let_in(self, name: str, caller: _Caller) -> None:
        with self._changed:
            if name not in self._awaited:
                return
            try:
                kept = caller.connection.dup()
            except OSError:
                return  # there is no descriptor left: it calls again
            try:
                kept.sendall(LET_IN)
            except OSError:
                kept.close()
                return  # it has gone, and may call again
            self._awaited.discard(name)
            kept.setblocking(True)
            kept.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            kept.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            kept.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNACKNOWLEDGED_MS)
            self._arrived[name] = kept
            self._changed.notify_all()


def _listening(ports: Sequence[int]) -> socket.socket:
    """Return a socket at the first of these ports that is free, by IPv4 and, where this machine has it, IPv6."""
    both = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both else socket.AF_INET
    for port in ports:
        with contextlib.suppress(OSError):
            return socket.create_server(("", port), family=family, backlog=512, dualstack_ipv6=both)
    reason = f"of the ports {ports[0]} to {ports[-1]} none is free" if ports[-1] else "no port is free"
    raise TransportError(f"cannot listen for agents: {reason}")


def _source(address: str) -> str:
    """Return the source of a call for the limit: its address, its /64 network in IPv6, or this machine."""
    found = ipaddress.ip_address(address.partition("%")[0])
    found = getattr(found, "ipv4_mapped", None) or found
    if found.is_loopback:
        return "here"
    return str(found if found.version == 4 else ipaddress.ip_network((found, 64), strict=False))


def _says(connection: socket.socket) -> bool:
    """Return whether there is something to read on a connection, or its end."""
    try:
        connection.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def _drop(selector: selectors.BaseSelector, callers: list[_Caller], caller: _Caller) -> None:
    """Close a caller's socket; where it was let in, another descriptor keeps its connection open."""
    callers.remove(caller)
    selector.unregister(caller.connection)
    caller.connection.close()


class CalledBack:
    """The connection of an agent that has called back; `said` returns what its host printed so far.

    `ended` is whether the agent has ended it, which it does last, when everything of the run is ended.
    """

    way: Sequence[str] = ()
    by_hand = ""

    def __init__(self, connection: socket.socket, said: Callable[[], str]) -> None:
        self.ended = self._closed = False
        self._connection = connection
        self._said = said

    def read(self, size: int) -> bytes:
        try:
            data = self._connection.recv(size)
        except OSError:
            return b""  # closed here, or reset by an agent that died: the end, either way
        self.ended = self.ended or not (data or self._closed)
        return data

    def write(self, data: bytes) -> None:
        try:
            self._connection.sendall(data)
        except OSError as error:
            raise TransportError(f"the agent does not listen: {error}", tail=self.diagnosis()) from error

    def close(self) -> None:
        """Close the stream, upon which the agent ends everything; a second call does nothing."""
        self._closed = True
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()

    def diagnosis(self) -> str:
        return self._said()
