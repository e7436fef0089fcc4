"""Channels to agents over SSH, and the one place where paramiko's errors become ours."""

from __future__ import annotations

import base64
import binascii
import contextlib
import getpass
import logging
import shlex
import socket
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import paramiko
from fabric import Config, Connection

from orchestrator.deadline import Deadline
from orchestrator.errors import DeadlineExceeded, OrchError, TransportError
from orchestrator.transport import openssh
from orchestrator.transport.bootstrap import agent_command_line, agent_source

KEEPALIVE_S = 15
_UNACKNOWLEDGED_MS = 60_000  # a peer that acknowledges nothing for so long is gone

# What goes wrong is raised; without a handler paramiko's threads would print tracebacks besides.
logging.getLogger("paramiko").addHandler(logging.NullHandler())


@dataclass(frozen=True, slots=True, kw_only=True)
class SshTarget:
    """Where a node answers; what is None comes from the SSH configuration.

    `host` may be an alias of it. `config` is read instead of the user's and the system's file. `jump` is written as for
    `ssh -J`. `name` is the node's, for messages.
    """

    name: str
    host: str
    user: str | None = None
    port: int | None = None
    key: Path | None = None
    config: Path | None = None
    jump: str | None = None

    def by_hand(self, *words: str) -> str:
        """The command that does the same by hand."""
        argv = ["ssh"]
        for option, value in (("-F", self.config), ("-p", self.port), ("-i", self.key), ("-J", self.jump)):
            if value is not None:
                argv += [option, str(value)]
        return shlex.join([*argv, f"{self.user}@{self.host}" if self.user else self.host, *words])


class SshChannel:
    """The standard streams of one command on a node, and the connection that carries nothing else."""

    def __init__(self, target: SshTarget, closing: contextlib.ExitStack, session: paramiko.Channel) -> None:
        self._target = target
        self._closing = closing
        self._session = session
        self._said = b""
        self._asking = threading.Lock()  # whoever writes may ask why at the same time as whoever reads

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
        self._closing.close()

    def diagnosis(self) -> str:
        with self._asking:
            while self._session.recv_stderr_ready():
                self._said = (self._said + self._session.recv_stderr(1 << 16))[-(1 << 16) :]
            return self._said.decode(errors="replace")


class _Reject(paramiko.MissingHostKeyPolicy):
    """Remembers nothing and trusts nobody whom the known_hosts files do not name."""

    def missing_host_key(self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey) -> None:  # noqa: ARG002
        raise _UnknownHostKeyError(hostname, key)


class _UnknownHostKeyError(paramiko.SSHException):
    def __init__(self, hostname: str, key: paramiko.PKey) -> None:
        super().__init__(hostname)
        self.hostname = hostname
        self.key = key


def connect(
    target: SshTarget,
    *,
    python: str = "python3",
    sudo: bool | str = False,
    deadline: Deadline,
    sock: socket.socket | None = None,
    host_key: str | None = None,
) -> SshChannel:
    """Start an agent on a node and give its channel; the first answer tells whether it runs.

    `sock` is a connected socket to the node's SSH server, for a node that no address of this machine leads to.
    `host_key` is the only key that the server may have ("ssh-ed25519 AAAA..."); else the known_hosts files decide.
    """
    with contextlib.ExitStack() as closing, _mapped(target, deadline):
        if sock is not None:
            closing.callback(sock.close)
        connection = _connection(target, sock)
        closing.callback(_close, connection)
        trusted = _public_key(target, host_key) if host_key else None
        _open(connection, target, deadline, closing, sock=sock, trusted=trusted)
        transport = connection.client.get_transport()
        session = transport.open_session(timeout=deadline.remaining)
        session.settimeout(deadline.remaining)
        session.exec_command(agent_command_line(python, sudo=sudo))
        _hand_over(session, agent_source())
        session.settimeout(None)
        return SshChannel(target, closing.pop_all(), session)
    raise AssertionError  # the stack suppresses nothing


def _hand_over(session: paramiko.Channel, source: bytes) -> None:
    """Give the command its input; one that has ended already, without a python say, tells why when it is asked."""
    try:
        session.sendall(source)
    except OSError:
        if not (session.closed and session.get_transport().is_active()):
            raise


def _connection(target: SshTarget, sock: socket.socket | None) -> Connection:
    jump = f"Host {target.host}\n  ProxyJump {target.jump}\n" if target.jump else ""
    text = jump + openssh.configuration(target.config)
    config = Config(lazy=True, ssh_config=paramiko.SSHConfig.from_text(text))
    gateway = False if sock is not None else None
    return Connection(target.host, user=target.user, port=target.port, gateway=gateway, config=config)


def _open(
    connection: Connection,
    target: SshTarget,
    deadline: Deadline,
    closing: contextlib.ExitStack,
    *,
    sock: socket.socket | None = None,
    trusted: paramiko.PKey | None = None,
    gateway: bool = False,
) -> None:
    """Open a connection and, before it, the hosts that it jumps through, all with verified keys and in time."""
    deadline.check("the SSH connection", node=target.name)
    if isinstance(connection.gateway, Connection):
        _open(connection.gateway, target, deadline, closing, gateway=True)
    elif isinstance(connection.gateway, str) and connection.gateway.lower() != "none":
        sock = _proxy(connection.gateway, connection, closing)
        connection.gateway = False
    elif connection.gateway:
        connection.gateway = False
    client = connection.client
    client.set_missing_host_key_policy(_Reject())
    if trusted is not None:
        client.get_host_keys().add(_known_name(connection), trusted.get_name(), trusted)
    else:
        for path in openssh.known_hosts(connection.ssh_config.get("userknownhostsfile")):
            client.load_system_host_keys(str(path))
    connection.connect_timeout = None  # fabric would round it to whole seconds
    options: dict[str, Any] = {
        "timeout": deadline.remaining,
        "banner_timeout": deadline.remaining,
        "auth_timeout": deadline.remaining,
        "channel_timeout": deadline.remaining,
    }
    if target.key is not None and not gateway:
        options |= {"key_filename": [str(target.key.expanduser())], "allow_agent": False, "look_for_keys": False}
    connection.connect_kwargs = {**connection.connect_kwargs, **options}
    if sock is not None:
        connection.connect_kwargs["sock"] = sock
    connection.open()
    transport = client.get_transport()
    transport.set_keepalive(KEEPALIVE_S)
    if isinstance(transport.sock, socket.socket) and transport.sock.family != socket.AF_UNIX:
        transport.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        transport.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNACKNOWLEDGED_MS)


def _proxy(command: str, connection: Connection, closing: contextlib.ExitStack) -> socket.socket:
    """Run a ProxyCommand with a socket for its streams: paramiko's own spins when the command ends."""
    line = command.replace("%h", connection.host).replace("%p", str(connection.port)).replace("%r", connection.user)
    near, far = socket.socketpair()
    with far:
        # The user's own configuration is a line for a shell by definition.
        argv = ["/bin/sh", "-c", f"exec {line}"]
        fd = far.fileno()
        process = subprocess.Popen(argv, stdin=fd, stdout=fd, stderr=subprocess.DEVNULL)

    def end() -> None:
        near.close()
        process.terminate()
        try:
            process.wait(2.0)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    closing.callback(end)
    return near


def _close(connection: Connection | None) -> None:
    while isinstance(connection, Connection):
        connection.client.close()
        connection = connection.gateway


def _known_name(connection: Connection) -> str:
    return connection.host if connection.port == 22 else f"[{connection.host}]:{connection.port}"


def _public_key(target: SshTarget, line: str) -> paramiko.PKey:
    kind, _, rest = line.strip().partition(" ")
    try:
        return paramiko.PKey.from_type_string(kind, base64.b64decode(rest.split()[0], validate=True))
    except (binascii.Error, IndexError, ValueError, paramiko.SSHException, paramiko.pkey.UnknownKeyType) as error:
        raise TransportError(f"not a public host key: {line!r}", node=target.name) from error


@contextlib.contextmanager
def _mapped(target: SshTarget, deadline: Deadline) -> Iterator[None]:
    """Turn whatever paramiko and the network raise into an error with the node's name and what would mend it."""
    try:
        yield
    except OrchError:
        raise
    except (OSError, EOFError, ValueError, paramiko.SSHException, paramiko.ConfigParseError) as error:
        raise _explain(error, target, deadline) from error


def _explain(error: Exception, target: SshTarget, deadline: Deadline) -> OrchError:
    by_hand = target.by_hand("true")
    if isinstance(error, _UnknownHostKeyError):
        seen = f"{error.key.get_name()} {error.key.fingerprint}"
        message = f"the host key of {error.hostname} is not known ({seen})"
        return TransportError(message, node=target.name, hint=f"compare it, then accept it with: {by_hand}")
    if isinstance(error, paramiko.BadHostKeyException):
        message = f"the host key of {error.hostname} has changed: now {error.key.get_name()} {error.key.fingerprint}"
        return TransportError(
            message,
            node=target.name,
            hint=f"somebody may be in between; if it was set up anew: ssh-keygen -R {shlex.quote(_named(target))}",
        )
    if isinstance(error, paramiko.AuthenticationException):
        user = target.user or getpass.getuser()
        return TransportError(
            f"SSH login failed: {error}", node=target.name, hint=f"see whether this works, as user {user}: {by_hand}"
        )
    if isinstance(error, TimeoutError) or deadline.expired:
        return DeadlineExceeded("gave up waiting for the SSH connection", node=target.name, hint=f"try: {by_hand}")
    if isinstance(error, socket.gaierror):
        message = f"no address is known for {target.host}"
        return TransportError(message, node=target.name, hint="give its name or address in `ssh`, or an alias")
    text = str(error) or type(error).__name__
    if isinstance(error, paramiko.ssh_exception.NoValidConnectionsError):
        text = "; ".join(sorted({str(one) for one in error.errors.values()}))
    return TransportError(f"cannot connect by SSH: {text}", node=target.name, hint=f"see what this says: {by_hand}")


def _named(target: SshTarget) -> str:
    return f"[{target.host}]:{target.port}" if target.port not in (None, 22) else target.host
