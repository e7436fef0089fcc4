"""Lock folders by a file that the kernel unlocks when its holder dies, also over NFS.

A folder itself cannot be locked over NFS, and no file that is open for reading alone: such a lock holds on one client.
So it is a file that is written, in the folder and only while it is held. Some mounts keep locks to themselves all the
same, which `kept_here` tells.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from orchestrator.core.errors import StoreError
from orchestrator.core.screen import console

FILE = ".lock"
MOUNTS = Path("/proc/self/mountinfo")
_NFS = ("nfs", "nfs4")
_SHARED = (
    "9p",
    "afs",
    "beegfs",
    "ceph",
    "cifs",
    "gpfs",
    "lustre",
    "smb3",
    "fuse.",
)  # it depends on how they are set up
_HERE = ("nolock", "local_lock=all", "local_lock=flock")


@contextmanager
def held(folder: Path, taken: str) -> Iterator[None]:
    """Hold the lock of a folder; StoreError where locking fails or another process does (`taken` says what it does)."""
    path = folder / FILE
    try:
        descriptor = _locked(path)
    except BlockingIOError:
        raise StoreError(taken, hint="wait until it is done") from None
    except OSError as error:
        raise StoreError(f"{folder}: cannot be locked: {error.strerror}") from None
    if (kind := kept_here(folder)) is not None:
        console.note(
            f"{folder} lies on {kind}, where another machine may not see that it is locked",
            hint="let one machine alone compact, push and prune it",
        )
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(descriptor)


def _locked(path: Path) -> int:
    """Return the lock's file, open and locked; BlockingIOError where another process holds it."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(descriptor), os.lstat(path)):
                return descriptor
        except FileNotFoundError:
            pass  # its holder has just removed it: that was another file
        except OSError:
            os.close(descriptor)
            raise
        os.close(descriptor)


def kept_here(folder: Path) -> str | None:
    """Return the kind of file system that a folder lies on, where locks may hold on this machine alone.

    None elsewhere.
    """
    real, found = os.path.realpath(folder), ("", "", "")
    try:
        lines = MOUNTS.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return None
    for line in lines:
        before, _, after = line.partition(" - ")
        if len(before.split()) < 5 or len(after.split()) < 3:
            continue
        place, (kind, _, options) = _plain(before.split()[4]), after.split()[:3]
        if (real == place or real.startswith(place.rstrip("/") + "/")) and len(place) >= len(found[0]):
            found = (place, kind, options)
    _, kind, options = found
    if kind in _NFS:
        return kind if any(one in _HERE for one in options.split(",")) else None
    return kind if kind.startswith(_SHARED) else None


def _plain(place: str) -> str:
    """Return a mount point with the octal numbers that stand for blanks and the like replaced."""
    for character in " \t\n\\":
        place = place.replace(f"\\{ord(character):03o}", character)
    return place
