"""Private folders of this user, removed with the process that made them, or when the next such folder is made."""

from __future__ import annotations

import fcntl
import itertools
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from orchestrator.core.errors import TestbedError

_LOCK = "lock"
_ATTEMPTS = 1000  # the end of another process removes an empty parent, no more often than processes end


class PrivateFolder:
    """A folder that nobody else may enter; `close` removes it.

    The kernel frees the lock on it when this process ends in any way; the next such folder's maker then removes it.
    """

    def __init__(self, prefix: str) -> None:
        with _locked(_made) as base:
            _sweep(base)
            self.path = Path(tempfile.mkdtemp(prefix=prefix, dir=base))
            self._lock = (self.path / _LOCK).open("w")
            fcntl.flock(self._lock, fcntl.LOCK_EX)

    def write(self, name: str, text: str) -> None:
        """Write a file that this user alone may read."""
        path = self.path / name
        path.touch(mode=0o600)
        path.write_text(text)

    @property
    def closed(self) -> bool:
        return self._lock.closed

    def close(self) -> None:
        """Remove the folder; a second call does nothing."""
        if self.closed:
            return
        with self._lock, suppress(FileNotFoundError), _locked(lambda: self.path.parent) as base:
            shutil.rmtree(self.path, ignore_errors=True)
            if [entry.name for entry in base.iterdir()] == [_LOCK]:
                (base / _LOCK).unlink()
                with suppress(OSError):  # somebody may want it at this very moment
                    base.rmdir()


def owned(path: Path) -> bool:
    """Return whether the process that made a private folder is still there."""
    try:
        with (path / _LOCK).open() as stream:
            fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _parent() -> Path:
    """Return where private folders may lie: XDG_RUNTIME_DIR where it is this user's (`su` keeps another's), or /tmp."""
    runtime = Path(os.environ.get("XDG_RUNTIME_DIR") or "/nowhere")
    with suppress(OSError):
        if runtime.is_dir() and runtime.stat().st_uid == os.geteuid() and os.access(runtime, os.W_OK | os.X_OK):
            return runtime
    return Path(tempfile.gettempdir())


def _made() -> Path:
    """Return the parent of this user's private folders: a folder of the user's own, made if need be."""
    folder = _parent() / f"orch-{os.geteuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        hint = "set TMPDIR to a folder of yours"
        raise TestbedError(f"{folder} cannot be made: {error.strerror}", hint=hint) from error
    found = folder.lstat()
    if found.st_uid != os.geteuid() or found.st_mode & 0o077 or folder.is_symlink():
        raise TestbedError(f"{folder} is not a private folder of this user", hint=f"remove {folder}")
    return folder


@contextmanager
def _locked(find: Callable[[], Path]) -> Iterator[Path]:
    """Lock the parent of this user's private folders, so that nobody else adds or removes one.

    Raises FileNotFoundError where the parent that `find` returns is not there for long.
    """
    for attempt in itertools.count():
        try:
            base = find()
            stream = (base / _LOCK).open("w")
        except FileNotFoundError:
            if attempt == _ATTEMPTS:
                raise
            continue  # the end of the last one has just removed it
        with stream:
            fcntl.flock(stream, fcntl.LOCK_EX)
            try:
                current = (base / _LOCK).stat().st_ino == os.fstat(stream.fileno()).st_ino
            except FileNotFoundError:
                current = False
            if current:
                yield base
                return


def _sweep(base: Path) -> None:
    """Remove the folders whose process is gone; the caller holds the base's lock."""
    for folder in base.iterdir():
        if not folder.is_dir():
            continue
        try:
            with (folder / _LOCK).open("w") as stream:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder)
        except BlockingIOError:
            continue
