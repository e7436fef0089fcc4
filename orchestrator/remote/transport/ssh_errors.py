"""Turns exceptions of paramiko and the network into errors with the name of the host and a remedy."""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Iterator, Sequence

import paramiko

from orchestrator.core.deadline import Deadline
from orchestrator.core.errors import DeadlineExceeded, OrchError, TransportError, last_lines
from orchestrator.core.machines.remedies import remedy
from orchestrator.remote.transport.identities import Identities
from orchestrator.remote.transport.logins import DroppedError
from orchestrator.remote.transport.ssh_config import Hop, SshTarget

_BUSY = re.compile(r"MaxStartups|too many", re.IGNORECASE)  # said instead of a version by a server that is busy
_PROHIBITED, _CONNECT_FAILED = 1, 2  # RFC 4254, 5.1


class MoreThanAKey(TransportError):
    """A server took the key, and wants another proof besides."""


@contextlib.contextmanager
def explained(target: SshTarget, deadline: Deadline) -> Iterator[None]:
    """Turn exceptions raised inside into a TransportError about `target`."""
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
    text = str(error) or type(error).__name__
    return TransportError(f"cannot connect by SSH: {text}", node=target.name, hint=f"see the output of: {by_hand}")


def incompatible(hop: Hop, option: str, theirs: Sequence[str], ours: Sequence[str]) -> TransportError:
    """Return the error that the two sides have no algorithm in common for an `option` of sshd_config."""
    return TransportError(
        f"no algorithm in common with its SSH server: its {option} {', '.join(theirs)}; ours {', '.join(ours)}",
        node=hop.target.name,
        hint=f"add one of ours to {option} in its sshd_config, or to {option} of the SSH settings here if they limit it"
        f" (`ssh -G {shlex.quote(hop.target.host)}` shows them); where ssh itself knows more, write `ssh: program` in"
        " the inventory",
    )


def strange(hop: Hop, said: Sequence[str]) -> Exception:
    """Return the error of a server that sends no SSH version: it is too busy, lets nobody in, or is no sshd."""
    text = "\n".join(said)
    if _BUSY.search(text):
        return DroppedError(f"the server closed the connection before it said who it is: {last_lines(text)}")
    there = f"{hop.settings.hostname}:{hop.settings.port}"
    return TransportError(
        f"what answers at {there} does not speak SSH, or lets nobody in",
        node=hop.target.name,
        tail=text,
        hint=remedy(text) or f"correct its name or port in {hop.target.source}",
    )


def unknown(hop: Hop) -> TransportError:
    """Return the error that there is no address for the name of a host."""
    name, alias = hop.settings.hostname, hop.target.host
    of_alias = f" (HostName of {alias} in the SSH settings)" if name != alias else ""
    return TransportError(
        f"no address is known for {name}{of_alias}",
        node=hop.target.name,
        hint=f"correct {hop.target.source}: a name or address, or an alias of the SSH settings",
    )


def refused(hop: Hop, identities: Identities, banner: bytes) -> TransportError:
    """Return the error that the server accepts none of the keys; `banner` is what it says to those who log in."""
    settings, target = hop.settings, hop.target
    said = banner.decode(errors="replace")
    tried = [*identities.tried] or ["no key was found"]
    if settings.gssapiauthentication:
        tried.append("GSSAPI: no ticket is here (`klist -s`)")
    return TransportError(
        f"SSH login failed as {settings.user}: {'; '.join(tried)}",
        node=target.name,
        tail=said,
        hint=remedy(said)
        or f"see whether this works: {target.by_hand('true')}; where it asks for something, write `ssh: program` in the"
        " inventory",
    )


def half(hop: Hop, identities: Identities) -> MoreThanAKey:
    """Return the error that the server wants more than the key that it took."""
    return MoreThanAKey(
        f"SSH login failed as {hop.settings.user}: its SSH server wants more than {identities.tried[-1]}",
        node=hop.target.name,
        hint="write `ssh: program` in the inventory",
    )


def unopened(error: paramiko.ChannelException, hop: Hop, jump: Hop) -> TransportError:
    """Return the error that a jump host cannot connect to the next host."""
    if error.code == _PROHIBITED:
        return no_forwarding(hop, jump)
    if error.code == _CONNECT_FAILED:
        return unreached(hop, jump, error.text or "no connection")
    there = f"{hop.settings.hostname}:{hop.settings.port}"
    return TransportError(f"opens no connection to {there}: {error}", node=jump.target.name)


def no_forwarding(hop: Hop, jump: Hop) -> TransportError:
    """Return the error that a jump host forwards no connection to the next host."""
    there = f"{hop.settings.hostname}:{hop.settings.port}"
    return TransportError(
        "lets no connection through to other hosts",
        node=jump.target.name,
        hint=f"its sshd_config needs AllowTcpForwarding yes, and a PermitOpen, if any, that allows {there}",
    )


def unreached(hop: Hop, jump: Hop, why: str) -> TransportError:
    """Return the error that the next host does not answer a jump host."""
    there = f"{hop.settings.hostname}:{hop.settings.port}"
    by_hand = jump.target.by_hand(*shlex.split(f"nc -z {hop.settings.hostname} {hop.settings.port}"))
    return TransportError(
        f"cannot be reached from {jump.target.name}, at {there}: {why}", node=hop.target.name, hint=f"try: {by_hand}"
    )
