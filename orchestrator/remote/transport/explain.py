"""What paramiko and the network raise, as an error with the host's name and what would mend it."""

from __future__ import annotations

import contextlib
import shlex
import socket
from collections.abc import Iterator

import paramiko

from orchestrator.core.deadline import Deadline
from orchestrator.core.errors import DeadlineExceeded, OrchError, TransportError
from orchestrator.remote.transport.logins import DroppedError
from orchestrator.remote.transport.openssh.identities import Identities
from orchestrator.remote.transport.openssh.settings import Hop
from orchestrator.remote.transport.target import SshTarget

_PROHIBITED, _CONNECT_FAILED = 1, 2  # RFC 4254, 5.1


@contextlib.contextmanager
def explained(target: SshTarget, deadline: Deadline) -> Iterator[None]:
    """Turn whatever is raised inside into an error of ours about `target`."""
    try:
        yield
    except OrchError:
        raise
    except (OSError, EOFError, ValueError, DroppedError, paramiko.SSHException) as error:
        raise _translated(error, target, deadline) from error


def _translated(error: Exception, target: SshTarget, deadline: Deadline) -> OrchError:
    by_hand = target.by_hand("true")
    if isinstance(error, DroppedError):
        return TransportError(
            f"cannot connect by SSH: {error}",
            node=target.name,
            hint=f"see the output of: {by_hand}; where it works, raise MaxStartups in its sshd_config",
        )
    if isinstance(error, TimeoutError) or deadline.expired:
        return DeadlineExceeded("gave up waiting for the SSH connection", node=target.name, hint=f"try: {by_hand}")
    if isinstance(error, socket.gaierror):
        message = f"no address is known for {target.host}"
        return TransportError(message, node=target.name, hint="give its name or address in `ssh`, or an alias")
    text = str(error) or type(error).__name__
    return TransportError(f"cannot connect by SSH: {text}", node=target.name, hint=f"see the output of: {by_hand}")


def refused(hop: Hop, identities: Identities) -> TransportError:
    """That the server lets none of the keys in."""
    settings, target = hop.settings, hop.target
    tried = [*identities.tried] or ["no key was found"]
    if settings.gssapiauthentication:
        tried.append("GSSAPI: not used by orch")
    return TransportError(
        f"SSH login failed as {settings.user}: {'; '.join(tried)}",
        node=target.name,
        hint=f"see whether this works without asking: {target.by_hand('true')}",
    )


def unopened(error: paramiko.ChannelException, hop: Hop, jump: Hop) -> TransportError:
    """That a jump host leads no further."""
    there = f"{hop.settings.hostname}:{hop.settings.port}"
    if error.code == _PROHIBITED:
        return TransportError(
            "lets no connection through to other hosts",
            node=jump.target.name,
            hint=f"its sshd_config needs AllowTcpForwarding yes, and a PermitOpen, if any, that allows {there}",
        )
    if error.code == _CONNECT_FAILED:
        by_hand = jump.target.by_hand(*shlex.split(f"nc -z {hop.settings.hostname} {hop.settings.port}"))
        text = f"cannot be reached from {jump.target.name}, at {there}: {error.text or 'no connection'}"
        return TransportError(text, node=hop.target.name, hint=f"try: {by_hand}")
    return TransportError(f"opens no connection to {there}: {error}", node=jump.target.name)
