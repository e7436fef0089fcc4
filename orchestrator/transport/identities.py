"""Which keys are offered to a server, in OpenSSH's order: those of the agent that settings name, its others, files."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import paramiko
from paramiko.agent import AgentSSH
from paramiko.auth_strategy import AuthSource, AuthStrategy, InMemoryPrivateKey
from paramiko.pkey import PublicBlob, UnknownKeyType

from orchestrator.deadline import Deadline
from orchestrator.transport import certificates, tokens
from orchestrator.transport.settings import Hop

_CERTIFICATE = "-cert.pub"


class _Agent(AgentSSH):
    """The agent that answers at a socket."""

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
    """Offers one key after the other; `tried` says of each how it went, `close` lets go of the agent."""

    def __init__(self, hop: Hop, deadline: Deadline) -> None:
        super().__init__(paramiko.SSHConfig())
        self._hop = hop
        self._deadline = deadline
        self._agent: _Agent | None = None
        self.tried: list[str] = []

    def get_sources(self) -> Iterator[AuthSource]:
        settings = self._hop.settings
        if self._hop.target.key is not None:  # only it is tried
            path = self._hop.target.key.expanduser()
            path.stat()  # one that is missing is an error, not one key less
            if (only := self._loaded(path)) is not None:
                yield self._source(only, str(path))
            return
        if not settings.pubkeyauthentication:
            self.tried.append("PubkeyAuthentication is no")
            return
        files = [tokens.path(text, self._hop) for text in settings.identityfile]
        beside = [tokens.path(text, self._hop) for text in settings.certificatefile]
        held = list(self._agent_keys())
        named = {blob for file in files if (blob := _public(file)) is not None}
        ordered = sorted(held, key=lambda key: key.asbytes() not in named)
        for key in ordered:
            if settings.identitiesonly and key.asbytes() not in named:
                self.tried.append(f"agent key {key.comment}: left out, as IdentitiesOnly says")
            else:
                yield from self._offered(key, f"agent key {key.comment}", beside)
        offered = {key.asbytes() for key in held}
        for file in files:
            if (own := self._loaded(file)) is not None and own.asbytes() not in offered:
                yield from self._offered(own, str(file), beside)

    def _offered(self, key: paramiko.PKey, name: str, beside: list[Path]) -> Iterator[AuthSource]:
        """A key with each certificate that is for it, and without."""
        for path in beside:
            with contextlib.suppress(OSError, ValueError):
                if certificates.holder(path.read_bytes()) == key.asbytes():
                    key.load_certificate(str(path))
                    yield self._source(key, f"{name} with {path}")
        yield self._source(key, name)

    def _source(self, key: paramiko.PKey, name: str) -> AuthSource:
        self.tried.append(f"{name}: refused")
        return InMemoryPrivateKey(self._hop.settings.user, key)

    def _loaded(self, path: Path) -> paramiko.PKey | None:
        """A private key and the certificate beside it; None where the file is missing or cannot be used."""
        try:
            return _private(path)
        except FileNotFoundError:
            return None
        except paramiko.PasswordRequiredException:
            self.tried.append(f"{path}: has a passphrase and no agent holds it")
        except (OSError, ValueError, paramiko.SSHException, UnknownKeyType) as error:
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
        return tokens.path(name, self._hop)

    def close(self) -> None:
        if self._agent is not None:
            self._agent.close()


def _private(path: Path) -> paramiko.PKey:
    for kind in (paramiko.Ed25519Key, paramiko.ECDSAKey, paramiko.RSAKey):
        try:
            key = kind.from_private_key_file(str(path))
        except paramiko.PasswordRequiredException:
            raise
        except paramiko.SSHException as error:
            refused = error
            continue
        certificate = Path(f"{path}{_CERTIFICATE}")
        if certificate.is_file():
            key.load_certificate(str(certificate))
        return key
    raise refused


def _public(path: Path) -> bytes | None:
    """The public half of an identity: from the file beside it, or the file itself where it is public."""
    for file in (Path(f"{path}.pub"), path):
        with contextlib.suppress(OSError, ValueError):
            return PublicBlob.from_string(file.read_text()).key_blob
    with contextlib.suppress(OSError, ValueError, paramiko.SSHException):
        return _private(path).asbytes()
    return None
