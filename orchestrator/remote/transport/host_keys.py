"""Verifies an SSH server's host key or certificate against the known_hosts files."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import paramiko

from orchestrator.core.errors import TransportError
from orchestrator.remote.transport import known_hosts, ssh_config
from orchestrator.remote.transport.known_hosts import Entry, KnownHost, Verdict
from orchestrator.remote.transport.ssh_config import Hop

_SIGNATURES = {"ssh-rsa": ("rsa-sha2-512", "rsa-sha2-256")}


_CURVE25519 = ("curve25519-sha256", "curve25519-sha256@libssh.org")  # one method: RFC 8731, section 1
_MOST_SAID = 10  # lines that are kept of what a server says before its version
# What `kex_algo_list` and the like are called in sshd_config, and which of ours they are held against.
_NEGOTIATED = (
    ("kex_algo_list", "KexAlgorithms", "preferred_kex"),
    ("server_key_algo_list", "HostKeyAlgorithms", "preferred_keys"),
    ("client_encrypt_algo_list", "Ciphers", "preferred_ciphers"),
    ("server_encrypt_algo_list", "Ciphers", "preferred_ciphers"),
    ("client_mac_algo_list", "MACs", "preferred_macs"),
    ("server_mac_algo_list", "MACs", "preferred_macs"),
)
_PARAMIKO: Any = paramiko.Transport  # of which type stubs tell no more than others may use
_NO_ALGORITHM = ("ext-info-", "kex-strict-")


class Transport(paramiko.Transport):
    """A paramiko transport with a given order of host key algorithms, which keeps the server's banner.

    `said` are the lines that it sends before its version (RFC 4253, 4.2): why it lets nobody in, or that it is another
    service.
    """

    wanted: tuple[str, ...] = ()
    _kex_info = {_CURVE25519[0]: _PARAMIKO._kex_info[_CURVE25519[1]], **_PARAMIKO._kex_info}  # noqa: RUF012, SLF001
    _preferred_kex = tuple(
        name
        for one in _PARAMIKO._preferred_kex  # noqa: SLF001
        for name in (_CURVE25519 if one == _CURVE25519[1] else (one,))
    )

    def __init__(self, sock: Any, **options: Any) -> None:
        super().__init__(sock, **options)
        self.said: list[str] = []
        self._offered: dict[str, list[str]] = {}

    @property
    def preferred_keys(self) -> Sequence[str]:
        return self.wanted

    def unlike(self) -> tuple[str, list[str], list[str]] | None:
        """Return the option of sshd_config without a common algorithm, with the server's algorithms and ours."""
        for offered, option, preferred in _NEGOTIATED:
            theirs, ours = self._offered.get(offered, []), list(getattr(self, preferred))
            if theirs and not set(theirs) & set(ours):
                return option, theirs, ours
        return None

    def _check_banner(self) -> None:
        packetizer: Any = self.packetizer
        readline = packetizer.readline

        def kept(timeout: float) -> str:
            line: str = readline(timeout)
            if not line.startswith("SSH-"):
                self.said = [*self.said, line][-_MOST_SAID:]
            return line

        packetizer.readline = kept
        try:
            _PARAMIKO._check_banner(self)  # noqa: SLF001
        finally:
            packetizer.readline = readline

    def _really_parse_kex_init(self, message: paramiko.Message, ignore_first_byte: bool = False) -> dict[str, Any]:
        parsed: dict[str, Any] = _PARAMIKO._really_parse_kex_init(self, message, ignore_first_byte)  # noqa: SLF001
        if not ignore_first_byte:  # the server's own, not ours read again
            self._offered = {
                name: [one for one in parsed[name] if not one.startswith(_NO_ALGORITHM)] for name, _, _ in _NEGOTIATED
            }
        return parsed


@dataclass(frozen=True, slots=True)
class _Files:
    """The known_hosts files: the user's files, whose first takes new keys, and the system's."""

    user: tuple[Path, ...]
    system: tuple[Path, ...]

    @classmethod
    def of(cls, hop: Hop) -> _Files:
        settings = hop.settings
        user, system = settings.userknownhostsfile, settings.globalknownhostsfile
        return cls(*(tuple(ssh_config.expanded_path(text, hop) for text in texts) for texts in (user, system)))

    def lookup(self, name: str) -> KnownHost:
        return known_hosts.lookup(name, (*self.user, *self.system))


class HostKeys(paramiko.MissingHostKeyPolicy):
    """The policy for one server's key; paramiko knows no keys of its own, so that it asks for each.

    `trusted` is the only key that the server may have, in the wire format; else the known_hosts files decide.
    """

    def __init__(self, hop: Hop, trusted: bytes | None = None) -> None:
        self._hop = hop
        self._trusted = trusted
        self._files = _Files.of(hop)
        self._name = hop.settings.known_as
        self._known = self._files.lookup(self._name)

    def transport(self, sock: Any, **options: Any) -> Transport:
        """Return a transport that prefers verifiable key types, with the algorithms that the settings allow."""
        transport = Transport(sock, **options)
        security = transport.get_security_options()
        settings, node = self._hop.settings, self._hop.target.name
        security.ciphers = _allowed(security.ciphers, settings.ciphers, "Ciphers", node)
        security.digests = _allowed(security.digests, settings.macs, "MACs", node)
        security.kex = _allowed(security.kex, settings.kexalgorithms, "KexAlgorithms", node)
        able = (*security.key_types, *(name + known_hosts.CERTIFICATE_SUFFIX for name in security.key_types))
        transport.wanted = self._ordered(_allowed(able, settings.hostkeyalgorithms, "HostKeyAlgorithms", node))
        return transport

    def _ordered(self, algorithms: Sequence[str]) -> tuple[str, ...]:
        """Return key algorithms in ssh's order: certificates where an authority is known, then types of known keys."""
        kinds = self._known.kinds if self._trusted is None else (known_hosts.kind_of(self._trusted),)
        known = [name for kind in kinds for name in _SIGNATURES.get(kind, (kind,))]
        authority = self._trusted is None and self._known.has_authority

        def place(name: str) -> int:
            if name.endswith(known_hosts.CERTIFICATE_SUFFIX):
                return 0 if authority else 3
            return 1 if name in known else 2

        return tuple(sorted(algorithms, key=place))

    def missing_host_key(self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey) -> None:  # noqa: ARG002
        blob = key.asbytes()
        if self._trusted is not None:
            if blob != self._trusted:
                raise self._changed(blob, None)
            return
        doubt = self._uncertified(key)
        if doubt is not None:
            self._check_plain(blob, doubt)

    def _uncertified(self, key: paramiko.PKey) -> str | None:
        """Return None where a certificate verifies the server; else why none does, empty where it shows none."""
        if key.public_blob is None:
            return ""
        try:
            shown = known_hosts.read_certificate(key.public_blob.key_blob)
        except ValueError as error:
            return str(error)
        verdict, entry = self._known.judged(shown.authority)
        if verdict is Verdict.REVOKED:
            raise self._revoked(f"the key that signed the certificate of {self._name}", shown.authority, entry)
        verdict, entry = self._known.judged(key.asbytes())
        if verdict is Verdict.REVOKED:
            raise self._revoked(f"the host key of {self._name}", key.asbytes(), entry)
        if not self._known.authority(shown.authority):
            return f"no @cert-authority line has the key that signed it, {known_hosts.fingerprint(shown.authority)}"
        return shown.refusal(self._hop.settings.principal, self._hop.settings.casignaturealgorithms)

    def _check_plain(self, blob: bytes, doubt: str) -> None:
        verdict, entry = self._known.judged(blob)
        if verdict is Verdict.NEW and self._known_without_port(blob):
            return
        if verdict is Verdict.NEW and self._hop.settings.accepts_new:
            verdict = self._remembered(blob)
        if verdict is Verdict.REVOKED:
            raise self._revoked(f"the host key of {self._name}", blob, entry)
        if verdict is Verdict.CHANGED:
            raise self._changed(blob, entry)
        if verdict is Verdict.NEW:
            raise self._unknown(blob, doubt)

    def _known_without_port(self, blob: bytes) -> bool:
        """Return whether the key is known for the host without its port, which OpenSSH accepts too."""
        settings = self._hop.settings
        if self._name == settings.principal:
            return False
        return self._files.lookup(settings.principal).judged(blob)[0] is Verdict.KNOWN

    def _remembered(self, blob: bytes) -> Verdict:
        if not self._files.user:
            return Verdict.KNOWN
        path = self._files.user[0]
        try:
            return known_hosts.remember(self._name, blob, path, hashed=self._hop.settings.hashknownhosts)
        except OSError as error:
            raise self._error(
                f"the new host key of {self._name} cannot be kept in {path}: {error.strerror}",
                f"make it writable, or accept the key by hand: {self._hop.target.by_hand('true')}",
            ) from error

    def _unknown(self, blob: bytes, doubt: str) -> TransportError:
        of_certificate = f"; of its certificate: {doubt}" if doubt else ""
        return self._error(
            f"the host key of {self._name} is not known ({known_hosts.fingerprint(blob)}{of_certificate})",
            f"compare it, then accept it with: {self._hop.target.by_hand('true')}",
        )

    def _changed(self, blob: bytes, entry: Entry | None) -> TransportError:
        message = f"the host key of {self._name} has changed: now {known_hosts.fingerprint(blob)}"
        if entry is None:
            return self._error(message, "somebody may be in between")
        remedy = f"ssh-keygen -f {shlex.quote(str(entry.path))} -R {shlex.quote(self._name)}"
        was = known_hosts.fingerprint(entry.blob)
        return self._error(
            f"{message}, while {entry.path}:{entry.line} has {was}",
            f"somebody may be in between; if it was set up anew: {remedy}",
        )

    def _revoked(self, what: str, blob: bytes, entry: Entry | None) -> TransportError:
        where = f" by {entry.path}:{entry.line}" if entry else ""
        return self._error(
            f"{what} ({known_hosts.fingerprint(blob)}) is revoked{where}",
            "do not connect: give the host a new key, or ask whoever revoked this one",
        )

    def _error(self, message: str, hint: str) -> TransportError:
        return TransportError(message, node=self._hop.target.name, hint=hint)


def _allowed(able: Sequence[str], names: Sequence[str], option: str, node: str) -> tuple[str, ...]:
    """Return those of `names` that paramiko supports, in their order."""
    found = tuple(name for name in names if name in able)
    if not found:
        raise TransportError(
            f"{option} in the SSH settings allows no algorithm that paramiko has",
            node=node,
            hint=f"add one of: {', '.join(able)}",
        )
    return found
