"""Byte streams to an SSH server: a socket of this machine, or one that a jump host opens."""

from __future__ import annotations

import socket
from dataclasses import dataclass

import paramiko

from orchestrator.core.deadline import Deadline
from orchestrator.remote.transport import explain
from orchestrator.remote.transport.openssh.settings import Hop

KEEPALIVE_S = 15
_UNACKNOWLEDGED_MS = 60_000  # a peer that acknowledges nothing for so long is gone
_FAMILIES = {"inet": socket.AF_INET, "inet6": socket.AF_INET6}


@dataclass(frozen=True, slots=True)
class Jump:
    """A host that this machine is logged in to, on the way to another one."""

    hop: Hop
    transport: paramiko.Transport

    def opened(self, hop: Hop, deadline: Deadline) -> paramiko.Channel:
        """A stream from there to the server of `hop`."""
        there = (hop.settings.hostname, hop.settings.port)
        try:
            return self.transport.open_channel("direct-tcpip", there, ("", 0), timeout=deadline.remaining)
        except paramiko.ChannelException as error:
            raise explain.unopened(error, hop, self.hop) from error


def straight(hop: Hop, deadline: Deadline) -> socket.socket:
    """A connection from this machine, to the first address of the host that answers; raises the last one's OSError.

    TransportError where its name has no address.
    """
    settings = hop.settings
    family = _FAMILIES.get(settings.addressfamily, socket.AF_UNSPEC)
    refusal: OSError | None = None
    try:
        addresses = socket.getaddrinfo(settings.hostname, settings.port, family, socket.SOCK_STREAM)
    except (socket.gaierror, UnicodeError) as error:  # the latter of a name that no name server could be asked for
        raise explain.unknown(hop) from error
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
    raise refusal or explain.unknown(hop)


def watch(transport: paramiko.Transport) -> None:
    """See that a peer that has gone is noticed, and that small messages do not wait."""
    transport.set_keepalive(KEEPALIVE_S)
    sock = transport.sock
    if isinstance(sock, socket.socket) and sock.family != socket.AF_UNIX:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNACKNOWLEDGED_MS)
