"""Host certificates of OpenSSH: whether one is good for a host, and whose signature it bears."""

from __future__ import annotations

import base64
import contextlib
import time
from collections.abc import Collection
from dataclasses import dataclass

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    SSHCertificate,
    SSHCertificateType,
    SSHCertPublicKeyTypes,
    SSHPublicKeyTypes,
    load_ssh_public_identity,
)
from paramiko import Message

from orchestrator.remote.transport.openssh import known_hosts

SUFFIX = "-cert-v01@openssh.com"


@dataclass(frozen=True, slots=True)
class HostCertificate:
    """A certificate that a server showed, whose signature holds."""

    certificate: SSHCertificate
    authority: bytes
    """Key that signed it, in the wire format."""

    algorithm: str
    """Algorithm of that signature."""

    def refusal(self, name: str, algorithms: Collection[str]) -> str | None:
        """Why it is not good for a host of this name now, under these algorithms of signatures; None when it is."""
        certificate, now = self.certificate, time.time()
        if certificate.type is not SSHCertificateType.HOST:
            return "it is no host certificate"
        if certificate.critical_options:
            return "it has critical options"
        if not certificate.valid_after <= now < certificate.valid_before:
            return "it is not valid yet" if now < certificate.valid_after else "it has expired"
        principals = [principal.decode(errors="replace") for principal in certificate.valid_principals]
        if principals and name not in principals:  # OpenSSH takes no patterns here, and none at all for any host
            return f"it is for {', '.join(principals)}, not for {name}"
        if self.algorithm not in algorithms:
            return f"it is signed by {self.algorithm}, which CASignatureAlgorithms leaves out"
        return None


def read(blob: bytes) -> HostCertificate:
    """The certificate in its wire format; raises ValueError where it is none, or its signature does not hold."""
    try:
        certificate = _parsed(blob)
        if not isinstance(certificate, SSHCertificate):
            raise ValueError("it is no certificate")  # noqa: TRY004 - what the bytes hold, not what was passed
        certificate.verify_cert_signature()
    except (InvalidSignature, UnsupportedAlgorithm) as error:
        raise ValueError("its signature does not hold") from error
    return HostCertificate(certificate, _wire(certificate.signature_key()), _algorithm(blob))


def is_one(blob: bytes) -> bool:
    """Whether this begins as a certificate does, not as a plain key."""
    return known_hosts.kind_of(blob).endswith(SUFFIX)


def holder(blob: bytes) -> bytes | None:
    """The key, in the wire format, that a certificate is for; None where it is no certificate that can be read."""
    with contextlib.suppress(ValueError, UnsupportedAlgorithm):
        if isinstance(identity := _parsed(blob), SSHCertificate):
            return _wire(identity.public_key())
    return None


def _parsed(blob: bytes) -> SSHCertificate | SSHPublicKeyTypes:
    try:
        return load_ssh_public_identity(f"{known_hosts.kind_of(blob)} {base64.b64encode(blob).decode()}".encode())
    except NotImplementedError as error:  # such as a point of a curve in its short form
        raise ValueError(str(error)) from None


def _wire(key: SSHCertPublicKeyTypes) -> bytes:
    return base64.b64decode(key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).split()[1])


def _algorithm(blob: bytes) -> str:
    """By which algorithm a certificate is signed: SHA-1 and SHA-2 differ in nothing else."""
    message = Message(blob)
    numbers = 1 if message.get_text().startswith("ssh-ed25519") else 2
    for _ in range(1 + numbers):  # a nonce, and the numbers of the key
        message.get_binary()
    message.get_int64()
    message.get_int()
    for _ in range(2):  # its name, principals
        message.get_binary()
    message.get_int64()
    message.get_int64()
    for _ in range(4):  # critical options, extensions, nothing, key of the authority
        message.get_binary()
    return Message(message.get_binary()).get_text()
