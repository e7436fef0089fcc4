"""Connects to agents over SSH: through jump hosts and proxy commands to a node, where an agent is started."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import re
import signal
import socket
import subprocess
import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import paramiko
from fabric import Config, Connection

from orchestrator.core.deadline import Deadline
from orchestrator.core.errors import TransportError
from orchestrator.parts.protocols import Channel
from orchestrator.remote import transfers
from orchestrator.remote.transport import known_hosts, logins, ssh_config, ssh_errors, ssh_program
from orchestrator.remote.transport.bootstrap import agent_command_line, agent_source
from orchestrator.remote.transport.host_keys import HostKeys, Transport
from orchestrator.remote.transport.identities import Identities
from orchestrator.remote.transport.ssh_config import Hop, SshTarget, route

_PROXY_EXIT_S = 2.0
_DROPPED = re.compile(r"\b(closed|reset)\b")  # what a ProxyCommand that is an ssh says when its server dropped it
KEEPALIVE_S = 15
_UNACKNOWLEDGED_MS = 60_000  # a peer that acknowledges nothing for so long is gone
_FAMILIES = {"inet": socket.AF_INET, "inet6": socket.AF_INET6}

_log = logging.getLogger(__name__)
# What goes wrong is raised; without a handler paramiko's threads would print tracebacks besides.
logging.getLogger("paramiko").addHandler(logging.NullHandler())


def reach(
    target: SshTarget, *, program: bool, python: str = "python3", sudo: bool | str = False, deadline: Deadline
) -> Channel:
    """Start an agent on a node and return its channel, over paramiko or the program ssh.

    It is the program where `program` says so, where the SSH settings want what it alone can do, and where the server
    of the node, or of a jump host, wants more than a key.
    """
    way = route(target, deadline)
    for hop in way:
        if hop.settings.accepts_any:
            _tell("StrictHostKeyChecking no is taken as accept-new: a host whose key has changed is still refused")
    if not program and not ssh_program.needed(way):
        try:
            return connect(target, way=way, python=python, sudo=sudo, deadline=deadline)
        except ssh_errors.MoreThanAKey:
            _log.info("%s: a key does not suffice: the program ssh logs in", target.name)
    return ssh_program.connect(way, python=python, sudo=sudo, deadline=deadline)


@functools.cache
def _tell(note: str) -> None:
    _log.warning("SSH settings: %s", note)


def connect(
    target: SshTarget,
    *,
    python: str = "python3",
    sudo: bool | str = False,
    deadline: Deadline,
    way: list[Hop] | None = None,
    sock: socket.socket | None = None,
    host_key: str | None = None,
) -> SshChannel:
    """Start an agent on a node over paramiko and return its channel; the first answer tells whether it runs.

    `way` is the route to it where that is known already. `sock` is a connected socket to the node's SSH server, for a
    node that no address of this machine leads to. `host_key` is the only key that the server may have
    ("ssh-ed25519 AAAA..."); else the known_hosts files decide.
    """
    with contextlib.ExitStack() as closing, ssh_errors.explained(target, deadline):
        if sock is not None:
            closing.callback(sock.close)
        trusted = _public_key(target, host_key) if host_key else None
        way = route(target, deadline) if way is None else way
        transport = _reached(way if sock is None else way[-1:], sock, trusted, deadline, closing)
        session = transport.open_session(timeout=deadline.remaining)
        session.settimeout(deadline.remaining)
        session.exec_command(agent_command_line(python, sudo=sudo))
        with transfers.turn(deadline, node=target.name):
            _hand_over(session, agent_source())
        session.settimeout(None)
        return SshChannel(
            target,
            closing.pop_all(),
            session,
            way=_through(way) if sock is None else (),
            by_hand=target.by_hand(python, "-V"),
        )
    raise AssertionError  # the stack suppresses nothing


def _through(way: list[Hop]) -> list[str]:
    """Return in words how the last host is reached."""
    proxy = way[0].settings.proxycommand
    return [*([f"ProxyCommand {proxy}"] if proxy is not None else []), *(hop.target.name for hop in way[:-1])]


def _public_key(target: SshTarget, line: str) -> bytes:
    kind, _, rest = line.strip().partition(" ")
    blob = known_hosts.key(kind, rest.partition(" ")[0])
    if blob is None:
        raise TransportError(f"not a public host key: {line!r}", node=target.name)
    return blob


def _hand_over(session: paramiko.Channel, source: bytes) -> None:
    """Write the command's input; one that has ended already, as without a python, is reported by the first request."""
    try:
        session.sendall(source)
    except OSError:
        if not (session.closed and session.get_transport().is_active()):
            raise


def _reached(
    way: list[Hop], sock: socket.socket | None, trusted: bytes | None, deadline: Deadline, closing: contextlib.ExitStack
) -> paramiko.Transport:
    """Connect to the last host, through the jump hosts before it, each with a verified key and in time."""
    jump: Jump | None = None
    for hop in way:
        login = _Login(hop, jump, sock, trusted if hop is way[-1] else None, deadline)
        with ssh_errors.explained(hop.target, deadline):
            transport = logins.patiently(hop, functools.partial(login.attempt, closing), deadline)
        jump = Jump(hop, transport)
    return transport


@dataclass(frozen=True, slots=True)
class _Stream:
    """A byte stream to a server, and the last output of a ProxyCommand that carries it, once that has ended."""

    sock: socket.socket | paramiko.Channel
    said: Callable[[], str] | None = None


@dataclass(frozen=True, slots=True)
class _Login:
    """A login at one host of the route: over `sock`, through a jump host, by a ProxyCommand, or straight."""

    hop: Hop
    jump: Jump | None
    sock: socket.socket | None
    trusted: bytes | None
    deadline: Deadline

    def attempt(self, closing: contextlib.ExitStack) -> paramiko.Transport:
        """Log in; DroppedError where the other side closes the connection before its SSH version."""
        self.deadline.check("the SSH connection", node=self.hop.target.name)
        keys, identities = HostKeys(self.hop, self.trusted), Identities(self.hop, self.deadline)
        with contextlib.ExitStack() as mine:
            stream = self._stream(mine)
            connection = self._connection(stream, keys, identities)
            mine.callback(connection.client.close)
            try:
                with contextlib.closing(identities):
                    connection.open()
            except paramiko.AuthenticationException as error:
                raise self._refused(identities, connection.client.get_transport()) from error
            except (OSError, EOFError, paramiko.SSHException) as error:
                started = connection.client.get_transport()
                mine.close()  # a ProxyCommand has said all then
                if started is not None and (unlike := started.unlike()):
                    raise ssh_errors.incompatible(self.hop, *unlike) from error
                if started is not None and started.said and not started.remote_version:
                    raise ssh_errors.strange(self.hop, started.said) from error
                if self.deadline.expired or (started is not None and started.remote_version):
                    raise
                raise self._unheard(stream, error) from error
            transport: Transport = connection.client.get_transport()
            if not transport.is_authenticated():
                raise ssh_errors.half(self.hop, identities)
            watch_peer(transport)
            closing.push(mine.pop_all())
        return transport

    def _stream(self, closing: contextlib.ExitStack) -> _Stream:
        hop, timeout = self.hop, self.hop.settings.connecttimeout
        deadline = self.deadline if timeout is None else self.deadline.sooner(timeout)
        if self.sock is not None:
            return _Stream(self.sock)
        if self.jump is not None:
            channel = self.jump.opened(hop, deadline)
            closing.callback(channel.close)
            return _Stream(channel)
        if hop.settings.proxycommand is not None:
            return _proxy(hop.settings.proxycommand, hop, closing)
        sock = straight(hop, deadline)
        closing.callback(sock.close)
        return _Stream(sock)

    def _connection(self, stream: _Stream, keys: HostKeys, identities: Identities) -> Connection:
        """Return a connection of fabric with an empty configuration, since every setting has been resolved."""
        settings, left = self.hop.settings, self.deadline.remaining
        options: dict[str, object] = {
            "sock": stream.sock,
            "timeout": left,
            "banner_timeout": left,
            "auth_timeout": left,
            "channel_timeout": left,
            "compress": settings.compression,
            "transport_factory": keys.transport,
            "auth_strategy": identities,
        }
        config = Config(lazy=True, ssh_config=paramiko.SSHConfig())
        connection = Connection(
            settings.hostname, user=settings.user, port=settings.port, config=config, connect_kwargs=options
        )
        connection.connect_timeout = None  # fabric would round it to whole seconds
        connection.client.set_missing_host_key_policy(keys)
        return connection

    def _refused(self, identities: Identities, transport: Transport | None) -> Exception:
        banner = transport.get_banner() if transport is not None else None
        return TimeoutError() if self.deadline.expired else ssh_errors.refused(self.hop, identities, banner or b"")

    def _unheard(self, stream: _Stream, error: Exception) -> Exception:
        """Return the error of a connection that ended, or never began, before the server sent anything."""
        dropped = logins.DroppedError("the server closed the connection before it said who it is")
        if stream.said is None:
            return dropped if self.sock is None else error
        said = stream.said()
        if _DROPPED.search(said):
            return dropped
        text = f"cannot connect by SSH: its ProxyCommand ended: {said or 'without a word'}"
        by_hand = self.hop.target.by_hand("true")
        return TransportError(text, node=self.hop.target.name, hint=f"see the output of: {by_hand}")


def _proxy(command: str, hop: Hop, closing: contextlib.ExitStack) -> _Stream:
    """Run a ProxyCommand with a socket for its streams: paramiko's own spins when the command ends.

    It has a session of its own, so that Ctrl-C on the terminal does not end it while things are put back.
    """
    near, far = socket.socketpair()
    stderr = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the command
    closing.callback(stderr.close)
    said = bytearray()
    with far:
        # The user's own configuration is a line for a shell by definition.
        argv = ["/bin/sh", "-c", f"exec {ssh_config.expanded(command, hop)}"]
        fd = far.fileno()
        process = subprocess.Popen(argv, stdin=fd, stdout=fd, stderr=stderr, start_new_session=True)

    def end() -> None:
        near.close()
        _signal(process, signal.SIGTERM)
        try:
            process.wait(_PROXY_EXIT_S)
        except subprocess.TimeoutExpired:
            _signal(process, signal.SIGKILL)
            process.wait()
        said.extend(os.pread(stderr.fileno(), 1 << 16, 0))

    closing.callback(end)
    return _Stream(near, lambda: said.decode(errors="replace").strip().rpartition("\n")[2])


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    """Signal a ProxyCommand and what it has started; what sudo has started ends with its input."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


class SshChannel:
    """The standard streams of one command on a node, over an SSH connection of its own."""

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
        self._asking = threading.Lock()  # the writing and the reading thread may both ask for the error
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
        """Close the stream to the node, then those to the jump hosts; a second call does nothing.

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


@dataclass(frozen=True, slots=True)
class Jump:
    """A jump host that this machine is logged in to."""

    hop: Hop
    transport: paramiko.Transport

    def opened(self, hop: Hop, deadline: Deadline) -> paramiko.Channel:
        """Open a stream from there to the server of `hop`."""
        there = (hop.settings.hostname, hop.settings.port)
        try:
            return self.transport.open_channel("direct-tcpip", there, ("", 0), timeout=deadline.remaining)
        except paramiko.ChannelException as error:
            raise ssh_errors.unopened(error, hop, self.hop) from error


def straight(hop: Hop, deadline: Deadline) -> socket.socket:
    """Connect from this machine to the first address of the host that answers; raises the last one's OSError.

    TransportError where its name has no address.
    """
    settings = hop.settings
    family = _FAMILIES.get(settings.addressfamily, socket.AF_UNSPEC)
    refusal: OSError | None = None
    try:
        addresses = socket.getaddrinfo(settings.hostname, settings.port, family, socket.SOCK_STREAM)
    except (socket.gaierror, UnicodeError) as error:  # the latter of a name that no name server could be asked for
        raise ssh_errors.unknown(hop) from error
    for found in addresses:
        sock = socket.socket(*found[:3])
        try:
            sock.settimeout(max(deadline.remaining, 0.001))
            if settings.bindaddress is not None:
                sock.bind(socket.getaddrinfo(settings.bindaddress, 0, found[0], socket.SOCK_STREAM)[0][4])
            sock.connect(found[4])
        except OSError as error:
            sock.close()
            refusal = error
        else:
            return sock
    raise refusal or ssh_errors.unknown(hop)


def watch_peer(transport: paramiko.Transport) -> None:
    """Set TCP keep-alive, so that a dead peer is noticed, and no delay for small messages."""
    transport.set_keepalive(KEEPALIVE_S)
    sock = transport.sock
    if isinstance(sock, socket.socket) and sock.family != socket.AF_UNIX:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNACKNOWLEDGED_MS)
