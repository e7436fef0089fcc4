"""Say where machine code is kept that this package compiles, and let one process at a time compile it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

_WAIT_S = 120.0  # for another process that compiles the same; one that is stopped must not stop this one
_LOOK_S = 0.1  # how often it is looked whether that process is done
_KEPT = 4  # versions of one kind of code: checkouts that share a cache take turns


def folders(beside: Path) -> tuple[Path, ...]:
    """Return where the code of a package in this folder may be kept, the best first.

    That is beside its bytecode, or in the user's cache; only there where no bytecode is to be written.
    """
    base = os.environ.get("XDG_CACHE_HOME")
    cache = (Path(base) if base else Path.home() / ".cache") / "orch" / "compiled"
    return (cache,) if sys.dont_write_bytecode else (beside / "__pycache__", cache)


def superseded(folder: Path, pattern: str) -> list[Path]:
    """Return what matches a pattern in a folder, without the newest few: code of sources that nobody uses any more."""
    dated = []
    for path in folder.glob(pattern):
        with contextlib.suppress(OSError):  # another process took it away
            dated.append((path.stat().st_mtime_ns, path))
    return [path for _, path in sorted(dated)[:-_KEPT]]


@contextlib.contextmanager
def compiling_alone(places: Sequence[Path], kind: str) -> Iterator[None]:
    """Hold the lock of those that compile this kind of code, in the first folder that may be written.

    Hold none where no folder takes a lock, or where its holder takes too long.
    """
    descriptor = None
    for folder in places:
        with contextlib.suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            descriptor = os.open(folder / f".compiling-{kind}lock", flags, 0o600)
            break
    try:
        if descriptor is not None:
            _lock(descriptor)
        yield
    finally:
        if descriptor is not None:
            os.close(descriptor)  # the lock goes with it, and the file stays: others may wait for it


def _lock(descriptor: int) -> None:
    """Wait for a file's lock, at most _WAIT_S."""
    latest = time.monotonic() + _WAIT_S
    while time.monotonic() < latest:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_LOOK_S)
        except OSError:  # a file system without locks
            return
        else:
            return
