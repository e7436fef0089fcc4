"""Makes our own image of a host: an almost empty tree, with this machine's programs mounted read-only.

Nothing is downloaded: it is made of what lies here, in a second. What it holds itself are folders to mount at, and what
everybody may read of /etc (no keys, no passwords), so that programs find their settings. The same content makes the
same archive, byte for byte.
"""

from __future__ import annotations

import hashlib
import io
import os
import stat
import sys
import tarfile
from collections.abc import Iterable
from pathlib import Path

FOLDER, OPEN_FOLDER, FILE = 0o755, 0o1777, 0o644
# What of this machine every host sees, read-only; programs and their libraries lie there on any distribution.
PROGRAMS = ("/usr", "/opt", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_EMPTY = ("/dev", "/home", "/proc", "/root", "/run", "/run/lock", "/srv", "/sys", "/var", "/var/lib", "/var/log")
_OPEN = ("/tmp", "/var/tmp")
_NOT_OF_ETC = (
    *("fstab", "mtab", "machine-id", "hostname", "hosts", "resolv.conf", "passwd-", "group-", "subuid-", "subgid-"),
    *("apt", "containers", "cron.d", "cron.daily", "cron.weekly", "docker", "init.d", "ssh", "systemd"),
)


class Tree:
    """Folders, files and links by their absolute paths; all belong to root unless they are given an owner."""

    def __init__(self) -> None:
        self._entries: dict[str, tuple[tarfile.TarInfo, bytes]] = {}

    def folder(self, path: str, *, mode: int = FOLDER, owner: int = 0) -> None:
        """Add an empty folder, and those above it that are missing."""
        parent = os.path.dirname(path)  # noqa: PTH120 - a path of the tree, none of this machine
        if parent not in ("/", "") and parent not in self._entries:
            self.folder(parent)
        self._put(path, tarfile.DIRTYPE, mode=mode, owner=owner)

    def file(self, path: str, text: str | bytes, *, mode: int = FILE, owner: int = 0) -> None:
        """Add a file with this content; the folders above it are made."""
        self._above(path)
        content = text.encode() if isinstance(text, str) else text
        self._put(path, tarfile.REGTYPE, mode=mode, owner=owner, content=content)

    def link(self, path: str, target: str) -> None:
        """Add a symbolic link."""
        self._above(path)
        self._put(path, tarfile.SYMTYPE, mode=0o777, target=target)

    def drop(self, *paths: str) -> None:
        """Remove entries, with all below them."""
        gone = tuple(f"{path}/" for path in paths)
        self._entries = {
            path: entry for path, entry in self._entries.items() if path not in paths and not path.startswith(gone)
        }

    def copy(self, source: Path, *, without: Iterable[str] = ()) -> None:
        """Copy the world-readable files of a folder of this machine, to the same path: no key, no password.

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
        """Return the tree as a tar archive, sorted and without times."""
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
    """Return the digest that names an archive's content."""
    return hashlib.sha256(archive).hexdigest()[:16]


def host_tree(*, etc: bool = True) -> Tree:
    """Return the tree of a host without this machine's programs; with what may be read of its /etc, or an empty one."""
    made = Tree()
    for path in _EMPTY:
        made.folder(path)
    for path in _OPEN:
        made.folder(path, mode=OPEN_FOLDER)
    for place in map(Path, PROGRAMS):
        if place.is_symlink():
            made.link(str(place), str(place.readlink()))
        elif place.is_dir():
            made.folder(str(place))
    made.folder("/etc")
    if etc:
        made.copy(Path("/etc"), without=_NOT_OF_ETC)
    return made


def programs() -> tuple[str, ...]:
    """Return the folders of this machine with the programs and libraries for a host of our image."""
    return tuple(path for path in PROGRAMS if Path(path).is_dir() and not Path(path).is_symlink())


def environments(pythons: Iterable[str]) -> tuple[str, ...]:
    """Return folders outside of `programs` that interpreters need: virtual environments and their installations."""
    found: dict[str, None] = {}
    for prefix in (sys.prefix, sys.base_prefix, *(str(Path(python).parents[1]) for python in pythons)):
        for folder in (prefix, *_made_of(Path(prefix))):
            for place in dict.fromkeys((folder, os.path.realpath(folder))):
                if Path(place).is_dir() and not f"{place}/".startswith(tuple(f"{path}/" for path in programs())):
                    found[place] = None
    return tuple(found)


def _made_of(prefix: Path) -> list[str]:
    """Return the installation that a virtual environment was made with, as its pyvenv.cfg says."""
    config = prefix / "pyvenv.cfg"
    if not config.is_file():
        return []
    said = dict(line.split(" = ", 1) for line in config.read_text().splitlines() if " = " in line)
    return [os.path.dirname(said["home"])] if "home" in said else []  # noqa: PTH120 - as it is written there
