"""Offers SSH keys to a server in OpenSSH's order: those of the SSH agent that settings name, its others, files."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import paramiko
from cryptography.exceptions import UnsupportedAlgorithm
from paramiko.agent import AgentSSH
from paramiko.auth_strategy import AuthSource, AuthStrategy, InMemoryPrivateKey
from paramiko.pkey import PublicBlob, UnknownKeyType

from orchestrator.core.deadline import Deadline
from orchestrator.remote.transport import known_hosts, ssh_config
from orchestrator.remote.transport.ssh_config import Hop

_CERTIFICATE = "-cert.pub"
_UNUSABLE = (OSError, ValueError, UnsupportedAlgorithm, paramiko.SSHException, UnknownKeyType)


class _Agent(AgentSSH):
    """The SSH agent at a socket."""

    def __init__(self, path: Path, deadline: Deadline) -> None:
        super().__init__()
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.settimeout(max(deadline.remaining, 0.001))
            connection.connect(str(path))
            self._connect(connection)  # type: ignore[attr-defined]
        except BaseException:
            connection.close()
            raise

    def close(self) -> None:
        self._close()  # type: ignore[attr-defined]


class Identities(AuthStrategy):
    """Offers one key after the other; `tried` has the outcome of each, `close` closes the SSH agent's connection."""

    def __init__(self, hop: Hop, deadline: Deadline) -> None:
        super().__init__(paramiko.SSHConfig())
        self._hop = hop
        self._deadline = deadline
        self._agent: _Agent | None = None
        self.tried: list[str] = []

    def get_sources(self) -> Iterator[AuthSource]:
        settings, only = self._hop.settings, self._hop.target.key
        if only is not None:
            path = only.expanduser()
            path.stat()  # one that is missing is an error, not one key less
            yield from self._from_files([path], _certificates([Path(f"{path}{_CERTIFICATE}")]), set())
            return
        if not settings.pubkeyauthentication:
            self.tried.append("PubkeyAuthentication is no")
            return
        files = [ssh_config.expanded_path(text, self._hop) for text in settings.identityfile]
        shown = [ssh_config.expanded_path(text, self._hop) for text in settings.certificatefile]
        shown += [Path(f"{file}{_CERTIFICATE}") for file in files]
        held = list(self._agent_keys())
        signed = [*_certificates(shown), *(key.blob for key in held if known_hosts.is_certificate(key.blob))]
        named = {blob for file in files if (blob := _public(file)) is not None}
        yield from self._from_agent(held, signed, named)
        yield from self._from_files(files, signed, {key.blob for key in held})

    def _from_agent(
        self, held: list[paramiko.AgentKey], signed: list[bytes], named: set[bytes]
    ) -> Iterator[AuthSource]:
        """Yield the SSH agent's keys, those first that the settings name.

        A certificate comes alone where the agent does not hold its key.
        """
        owners = {key.blob: known_hosts.certificate_holder(key.blob) or key.blob for key in held}
        plain = set(owners)
        for key in sorted(held, key=lambda key: owners[key.blob] not in named):
            name = f"agent key {key.comment}"
            if self._hop.settings.identitiesonly and owners[key.blob] not in named:
                self.tried.append(f"{name}: left out, as IdentitiesOnly says")
            elif owners[key.blob] == key.blob:
                yield from self._offered(key, key.blob, name, signed)
            elif owners[key.blob] not in plain:
                yield self._source(key, name)

    def _from_files(self, files: list[Path], signed: list[bytes], offered: set[bytes]) -> Iterator[AuthSource]:
        for file in files:
            if (own := self._loaded(file)) is not None and own.asbytes() not in offered:
                yield from self._offered(own, own.asbytes(), str(file), signed)

    def _offered(self, key: paramiko.PKey, blob: bytes, name: str, signed: list[bytes]) -> Iterator[AuthSource]:
        """Yield a key with each certificate that is for it, and then without."""
        for certificate in dict.fromkeys(signed):
            if known_hosts.certificate_holder(certificate) == blob:
                key.load_certificate(paramiko.Message(certificate))
                yield self._source(key, f"{name} with its certificate")
        key.public_blob = None
        yield self._source(key, name)

    def _source(self, key: paramiko.PKey, name: str) -> AuthSource:
        self.tried.append(f"{name}: refused")
        return InMemoryPrivateKey(self._hop.settings.user, key)

    def _loaded(self, path: Path) -> paramiko.PKey | None:
        """Load a private key; None where the file is missing or cannot be used."""
        try:
            return paramiko.PKey.from_path(path)
        except FileNotFoundError:
            return None
        except TypeError:  # what cryptography raises where a passphrase is wanted
            self.tried.append(f"{path}: has a passphrase and no agent holds it")
        except _UNUSABLE as error:
            self.tried.append(f"{path}: {error}")
        return None

    def _agent_keys(self) -> Iterator[paramiko.AgentKey]:
        where = self._agent_socket()
        if where is None:
            return
        try:
            self._agent = _Agent(where, self._deadline)
        except (OSError, paramiko.SSHException) as error:
            self.tried.append(f"the agent at {where}: {error}")
            return
        yield from self._agent.get_keys()

    def _agent_socket(self) -> Path | None:
        name = self._hop.settings.identityagent
        if name is None:
            return None
        if name == "SSH_AUTH_SOCK" or (name.startswith("$") and not name.startswith("${")):
            value = os.environ.get(name.removeprefix("$"))
            return Path(value) if value else None
        return ssh_config.expanded_path(name, self._hop)

    def close(self) -> None:
        if self._agent is not None:
            self._agent.close()


def _public(path: Path) -> bytes | None:
    """Return the public half of an identity: the file beside it, the file itself if it is public, or a part of it."""
    for file in (Path(f"{path}.pub"), path):
        with contextlib.suppress(OSError, ValueError):
            return PublicBlob.from_file(str(file)).key_blob
    with contextlib.suppress(
        OSError, ValueError, TypeError, UnsupportedAlgorithm, paramiko.SSHException, UnknownKeyType
    ):
        return paramiko.PKey.from_path(path).asbytes()
    return None


def _certificates(paths: list[Path]) -> list[bytes]:
    """Return the certificates in those of the files that have one."""
    found = []
    for path in paths:
        with contextlib.suppress(OSError, ValueError):
            found.append(PublicBlob.from_file(str(path)).key_blob)
    return found
