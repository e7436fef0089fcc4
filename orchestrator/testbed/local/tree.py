"""A file system's tree as a tar archive that is the same, byte for byte, for the same content."""

from __future__ import annotations

import hashlib
import io
import os
import stat
import tarfile
from collections.abc import Iterable
from pathlib import Path

FOLDER, OPEN_FOLDER, FILE = 0o755, 0o1777, 0o644


class Tree:
    """Folders, files and links by their absolute paths; all belong to root unless they are given an owner."""

    def __init__(self) -> None:
        self._entries: dict[str, tuple[tarfile.TarInfo, bytes]] = {}

    def folder(self, path: str, *, mode: int = FOLDER, owner: int = 0) -> None:
        """An empty folder, and those above it that are missing."""
        parent = os.path.dirname(path)  # noqa: PTH120 - a path of the tree, none of this machine
        if parent not in ("/", "") and parent not in self._entries:
            self.folder(parent)
        self._put(path, tarfile.DIRTYPE, mode=mode, owner=owner)

    def file(self, path: str, text: str | bytes, *, mode: int = FILE, owner: int = 0) -> None:
        """A file with this content; the folders above it are made."""
        self._above(path)
        content = text.encode() if isinstance(text, str) else text
        self._put(path, tarfile.REGTYPE, mode=mode, owner=owner, content=content)

    def link(self, path: str, target: str) -> None:
        """A symbolic link."""
        self._above(path)
        self._put(path, tarfile.SYMTYPE, mode=0o777, target=target)

    def drop(self, *paths: str) -> None:
        """Take entries out again, with all below them."""
        gone = tuple(f"{path}/" for path in paths)
        self._entries = {
            path: entry for path, entry in self._entries.items() if path not in paths and not path.startswith(gone)
        }

    def copy(self, source: Path, *, without: Iterable[str] = ()) -> None:
        """What everybody may read of a folder of this machine, at the same path: no key, no password.

        `without` names entries of the folder that are left out.
        """
        left_out = {source / name for name in without}
        for folder, folders, files in os.walk(source):
            here = Path(folder)
            folders[:] = [name for name in folders if here / name not in left_out]
            self.folder(str(here))
            for path in (here / name for name in (*files, *folders)):
                if path not in left_out:
                    self._copy_one(path)

    def _copy_one(self, path: Path) -> None:
        found = path.lstat()
        if stat.S_ISLNK(found.st_mode):
            self.link(str(path), str(path.readlink()))
        elif stat.S_ISREG(found.st_mode) and found.st_mode & stat.S_IROTH:
            self.file(str(path), path.read_bytes(), mode=stat.S_IMODE(found.st_mode))

    def archive(self) -> bytes:
        """The tree as a tar archive, sorted and without times."""
        stream = io.BytesIO()
        with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as archive:
            for path in sorted(self._entries):
                about, content = self._entries[path]
                archive.addfile(about, io.BytesIO(content))
        return stream.getvalue()

    def _above(self, path: str) -> None:
        parent = os.path.dirname(path)  # noqa: PTH120
        if parent != "/" and parent not in self._entries:
            self.folder(parent)

    def _put(
        self, path: str, kind: bytes, *, mode: int, owner: int = 0, content: bytes = b"", target: str = ""
    ) -> None:
        about = tarfile.TarInfo(path.lstrip("/"))
        about.type, about.mode, about.uid, about.gid = kind, mode, owner, owner
        about.size, about.linkname = len(content), target
        self._entries[path] = (about, content)


def digest(archive: bytes) -> str:
    """What names an archive's content."""
    return hashlib.sha256(archive).hexdigest()[:16]
