"""Reads known_hosts files, as sshd(8) describes them, and host certificates of OpenSSH.

The files say whose keys are known, which are revoked, and which sign for others; a certificate is good for a host or
not, and bears a signature.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import enum
import errno
import fcntl
import hashlib
import hmac
import os
import re
import time
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    SSHCertificate,
    SSHCertificateType,
    SSHCertPublicKeyTypes,
    SSHPublicKeyTypes,
    load_ssh_public_identity,
    load_ssh_public_key,
)
from paramiko import Message

LOCK_S = 3.0  # for whoever has the file locked

_KINDS = ("ssh-ed25519", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521", "ssh-rsa")
# OpenSSH takes a marker's end to be a space, and a tab only where the line has no space at all.
_LINE = re.compile(
    r"[ \t]*(?:(?P<marker>@\S+)(?: |\t(?!.* ))[ \t]*)?"
    r"(?P<hosts>[^#@\s]\S*)[ \t]+(?P<kind>\S+)[ \t]+(?P<key>\S+)"
)
_AUTHORITY = "@cert-authority"
_REVOKED = "@revoked"
CERTIFICATE_SUFFIX = "-cert-v01@openssh.com"


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a known_hosts file that names a host."""

    path: Path
    line: int
    marker: str | None
    hosts: str
    kind: str
    blob: bytes


class Verdict(enum.Enum):
    """The files' verdict on a key: known, unknown, changed or revoked."""

    KNOWN = "known"
    NEW = "new"
    CHANGED = "changed"
    REVOKED = "revoked"


@dataclass(frozen=True, slots=True)
class KnownHost:
    """The lines that name one host, in the order of the files."""

    name: str
    entries: tuple[Entry, ...] = ()

    @property
    def kinds(self) -> tuple[str, ...]:
        """Types of the keys that are known for this host itself, each once."""
        return tuple(dict.fromkeys(entry.kind for entry in self.entries if entry.marker is None))

    @property
    def has_authority(self) -> bool:
        return any(entry.marker == _AUTHORITY for entry in self.entries)

    def authority(self, blob: bytes) -> bool:
        """Return whether a key may sign certificates of this host."""
        return any(entry.marker == _AUTHORITY and entry.blob == blob for entry in self.entries)

    def judged(self, blob: bytes) -> tuple[Verdict, Entry | None]:
        """Return the verdict on a plain key, with the line that decides."""
        for entry in self.entries:
            if entry.marker == _REVOKED and entry.blob == blob:
                return Verdict.REVOKED, entry
        own = [entry for entry in self.entries if entry.marker is None]
        for entry in own:
            if entry.blob == blob:
                return Verdict.KNOWN, entry
        alike = [entry for entry in own if entry.kind == kind_of(blob)]
        return (Verdict.CHANGED, (alike or own)[0]) if own else (Verdict.NEW, None)


def lookup(name: str, paths: Iterable[Path]) -> KnownHost:
    """Return the lines of the files about a host; a missing file has none."""
    return KnownHost(name, tuple(entry for path in paths for entry in _naming(name, path)))


def _naming(name: str, path: Path) -> Iterator[Entry]:
    try:
        text = path.read_text(encoding="utf-8", errors="surrogateescape")
    except (FileNotFoundError, NotADirectoryError):
        return
    for number, line in enumerate(text.split("\n"), start=1):
        found = _LINE.match(line)
        if found is None or found["marker"] not in (None, _AUTHORITY, _REVOKED) or not matches(name, found["hosts"]):
            continue
        if (blob := key(found["kind"], found["key"])) is not None:
            yield Entry(path, number, found["marker"], found["hosts"], found["kind"], blob)


def key(kind: str, text: str) -> bytes | None:
    """Return the key in its wire format.

    Return None where OpenSSH would pass the line over, or its type cannot be verified here.
    """
    if kind not in _KINDS:
        return None
    try:
        blob = base64.b64decode(text, validate=True)
        load_ssh_public_key(f"{kind} {text}".encode())
    except (binascii.Error, ValueError, UnsupportedAlgorithm, NotImplementedError):
        return None
    return blob


def matches(name: str, hosts: str) -> bool:
    """Return whether the first field of a line means `name`: a hash, or patterns, of which one with `!` excludes."""
    if hosts.startswith("|"):
        return _hash_matches(name, hosts)
    found = False
    for pattern in hosts.lower().split(","):
        if _like(name.lower(), pattern.removeprefix("!")):
            if pattern.startswith("!"):
                return False
            found = True
    return found


def _hash_matches(name: str, hosts: str) -> bool:
    words = hosts.split("|")
    if len(words) != 4 or words[1] != "1":
        return False
    try:
        salt, said = (base64.b64decode(word, validate=True) for word in words[2:])
    except (binascii.Error, ValueError):
        return False
    return hmac.compare_digest(_hashed(name, salt), said)


def _hashed(name: str, salt: bytes) -> bytes:
    return hmac.digest(salt, name.encode(errors="surrogateescape"), "sha1")


def _like(text: str, pattern: str) -> bool:
    """Return whether a pattern of `*` and `?` matches, in time that is bounded by both lengths multiplied."""
    at = star = -1
    where = 0
    pattern_at = 0
    while where < len(text):
        if pattern_at < len(pattern) and pattern[pattern_at] == "*":
            star, at = pattern_at, where
            pattern_at += 1
        elif pattern_at < len(pattern) and pattern[pattern_at] in ("?", text[where]):
            pattern_at += 1
            where += 1
        elif star >= 0:
            at += 1
            pattern_at, where = star + 1, at
        else:
            return False
    return not pattern[pattern_at:].strip("*")


def fingerprint(blob: bytes) -> str:
    """Return a key's fingerprint: its type and `SHA256:...`."""
    digest = base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")
    return f"{kind_of(blob)} SHA256:{digest}"


def kind_of(blob: bytes) -> str:
    """Return the type with which a key in its wire format begins."""
    size = int.from_bytes(blob[:4], "big")
    return blob[4 : 4 + size].decode(errors="replace")


def remember(name: str, blob: bytes, path: Path, *, hashed: bool) -> Verdict:
    """Append a new host's key, unless another process or thread was first; return the key that is known then.

    Raises OSError where that cannot be done.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _lock(descriptor)  # until it is closed
        verdict, _ = lookup(name, [path]).judged(blob)
        if verdict is Verdict.NEW:
            line = f"{_hidden(name) if hashed else name} {kind_of(blob)} {base64.b64encode(blob).decode()}\n".encode()
            os.write(descriptor, line if _ends_a_line(descriptor) else b"\n" + line)
            return Verdict.KNOWN
        return verdict
    finally:
        os.close(descriptor)


def _lock(descriptor: int) -> None:
    """Lock a file for this process; OSError where another one, which may be of whoever can read it, keeps it."""
    end = time.monotonic() + LOCK_S
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= end:
                raise OSError(errno.EWOULDBLOCK, "another process has it locked") from None
        time.sleep(0.01)


def _hidden(name: str) -> str:
    salt = os.urandom(20)
    return "|1|" + "|".join(base64.b64encode(part).decode() for part in (salt, _hashed(name, salt)))


def _ends_a_line(descriptor: int) -> bool:
    """Return whether appended text begins a line; for a device it always does."""
    with contextlib.suppress(OSError):
        size = os.fstat(descriptor).st_size
        return size == 0 or os.pread(descriptor, 1, size - 1) == b"\n"
    return True


@dataclass(frozen=True, slots=True)
class HostCertificate:
    """A certificate that a server showed, whose signature holds."""

    certificate: SSHCertificate
    authority: bytes
    """Key that signed it, in the wire format."""

    algorithm: str
    """Algorithm of that signature."""

    def refusal(self, name: str, algorithms: Collection[str]) -> str | None:
        """Return why it is not valid for a host of this name now, under these signature algorithms; None when it is."""
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


def read_certificate(blob: bytes) -> HostCertificate:
    """Read a certificate in its wire format; ValueError where it is none, or its signature does not verify."""
    try:
        certificate = _parsed_identity(blob)
        if not isinstance(certificate, SSHCertificate):
            raise ValueError("it is no certificate")  # noqa: TRY004 - what the bytes hold, not what was passed
        certificate.verify_cert_signature()
    except (InvalidSignature, UnsupportedAlgorithm) as error:
        raise ValueError("its signature does not hold") from error
    return HostCertificate(certificate, _wire(certificate.signature_key()), _algorithm(blob))


def is_certificate(blob: bytes) -> bool:
    """Return whether this begins as a certificate does, not as a plain key."""
    return kind_of(blob).endswith(CERTIFICATE_SUFFIX)


def certificate_holder(blob: bytes) -> bytes | None:
    """Return the key, in the wire format, that a certificate is for.

    Return None where it is no certificate that can be read.
    """
    with contextlib.suppress(ValueError, UnsupportedAlgorithm):
        if isinstance(identity := _parsed_identity(blob), SSHCertificate):
            return _wire(identity.public_key())
    return None


def _parsed_identity(blob: bytes) -> SSHCertificate | SSHPublicKeyTypes:
    try:
        return load_ssh_public_identity(f"{kind_of(blob)} {base64.b64encode(blob).decode()}".encode())
    except NotImplementedError as error:  # such as a point of a curve in its short form
        raise ValueError(str(error)) from None


def _wire(key: SSHCertPublicKeyTypes) -> bytes:
    return base64.b64decode(key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).split()[1])


def _algorithm(blob: bytes) -> str:
    """Return a certificate's signature algorithm, which alone tells SHA-1 from SHA-2."""
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
