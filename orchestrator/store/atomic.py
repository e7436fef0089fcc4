"""Files that a reader, or a crash, finds as they were or as they are to be, never half written."""

from __future__ import annotations

import ctypes
import errno
import json
import os
from pathlib import Path
from typing import Any

from orchestrator.core.paths import safepath

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2  # Linux, renameat2


def write(path: Path, content: bytes) -> None:
    """Put a file in place of what is there, once it is on the disk; OSError where that cannot be done."""
    temporary = path.with_name(f".{path.name}.new")
    with safepath.fresh(temporary) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def write_json(path: Path, data: Any) -> None:
    """The same with data as JSON that people can read too."""
    write(path, json.dumps(data, indent=1).encode() + b"\n")


def exchange(one: Path, other: Path) -> bool:
    """Let two folders of a file system change places, in one instant; False where it cannot do that (NFS)."""
    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if renameat2 is None:
        return False
    if renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
        return False
    raise OSError(number, os.strerror(number), str(other))
