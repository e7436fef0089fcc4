"""Replace files atomically: a reader, or a crash, finds the old content or the new."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from orchestrator.core.paths import safepath

_NEW = re.compile(r"\..+\.[0-9]+\.[0-9a-f]{12}\.new")
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2  # Linux, renameat2


@contextmanager
def beside(path: Path) -> Iterator[Path]:
    """Give a temporary path, of a unique name, for a file or folder that replaces `path` on success.

    It is removed on failure. The caller flushes it to the disk.
    """
    new = path.with_name(f".{path.name[:200]}.{os.getpid()}.{os.urandom(6).hex()}.new")
    try:
        yield new
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)


@contextmanager
def replacing(path: Path, *, durable: bool = True) -> Iterator[BinaryIO]:
    """Open a file that takes the place of `path` on success, on the disk by then if it is to be `durable`.

    OSError where that cannot be done; `path` is then as it was.
    """
    with beside(path) as new, safepath.fresh(new) as file:
        yield file
        file.flush()
        if durable:
            os.fsync(file.fileno())


def write(path: Path, content: bytes, *, durable: bool = True) -> None:
    """Write a file in place of `path`, flushed to the disk; OSError where that cannot be done."""
    with replacing(path, durable=durable) as file:
        file.write(content)


def write_json(path: Path, data: Any) -> None:
    """Write data as indented JSON in place of `path`; OSError where that cannot be done."""
    write(path, json.dumps(data, indent=1).encode() + b"\n")


def clear(folder: Path, *, older_s: float = 0.0) -> None:
    """Remove temporary files that killed writers left in a folder.

    Where others may be writing meanwhile, only what is older than so many seconds.
    """
    for path in folder.glob(".*.new"):
        with suppress(OSError):
            if _NEW.fullmatch(path.name) and time.time() - path.lstat().st_mtime >= older_s:
                path.unlink()


def exchange(one: Path, other: Path) -> bool:
    """Exchange two folders of a file system atomically; False where it cannot do that (NFS)."""
    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if renameat2 is None:
        return False
    if renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
        return False
    raise OSError(number, os.strerror(number), str(other))
