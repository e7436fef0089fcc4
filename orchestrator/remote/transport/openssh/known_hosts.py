"""known_hosts files as sshd(8) describes them: whose keys are known, which are revoked, which sign for others."""

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
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import load_ssh_public_key

LOCK_S = 3.0  # for whoever has the file locked

_KINDS = ("ssh-ed25519", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521", "ssh-rsa")
# OpenSSH takes a marker's end to be a space, and a tab only where the line has no space at all.
_LINE = re.compile(
    r"[ \t]*(?:(?P<marker>@\S+)(?: |\t(?!.* ))[ \t]*)?"
    r"(?P<hosts>[^#@\s]\S*)[ \t]+(?P<kind>\S+)[ \t]+(?P<key>\S+)"
)
_AUTHORITY = "@cert-authority"
_REVOKED = "@revoked"


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
    """What the files say about a key."""

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
        """Whether a key may sign certificates of this host."""
        return any(entry.marker == _AUTHORITY and entry.blob == blob for entry in self.entries)

    def judged(self, blob: bytes) -> tuple[Verdict, Entry | None]:
        """The verdict on a plain key, with the line that decides."""
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
    """What the files have about a host; a file that does not exist says nothing."""
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
    """The key in its wire format; None where OpenSSH would pass the line over, or its type cannot be verified here."""
    if kind not in _KINDS:
        return None
    try:
        blob = base64.b64decode(text, validate=True)
        load_ssh_public_key(f"{kind} {text}".encode())
    except (binascii.Error, ValueError, UnsupportedAlgorithm, NotImplementedError):
        return None
    return blob


def matches(name: str, hosts: str) -> bool:
    """Whether the first field of a line means `name`: a hash of it, or patterns, of which one with `!` excludes."""
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
    """Match `*` and `?`, and nothing else, in time that is bounded by both lengths multiplied."""
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
    """A key as people compare it: its type and `SHA256:...`."""
    digest = base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")
    return f"{kind_of(blob)} SHA256:{digest}"


def kind_of(blob: bytes) -> str:
    """The type with which a key in its wire format begins."""
    size = int.from_bytes(blob[:4], "big")
    return blob[4 : 4 + size].decode(errors="replace")


def remember(name: str, blob: bytes, path: Path, *, hashed: bool) -> Verdict:
    """Append a new host's key, unless another process or thread was first; gives what holds then.

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
    """Whether what is appended begins a line; a device has none."""
    with contextlib.suppress(OSError):
        size = os.fstat(descriptor).st_size
        return size == 0 or os.pread(descriptor, 1, size - 1) == b"\n"
    return True
