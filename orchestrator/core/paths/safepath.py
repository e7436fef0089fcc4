"""Check names that a host, a bucket or a file gave: relative paths below a folder, opened without following links."""

from __future__ import annotations

import errno
import os
import re
import stat
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from orchestrator.core.errors import ConfigError, UnsafePath

MOST_SEGMENT_BYTES = 255  # what a file system takes
MOST_BYTES = 4096
MOST_HOLES = 1 << 30  # bytes of a file that are nowhere on the disk; who reads a sparser one reads zeros for hours
# Most names: no more than sixteen short segments of letters, none that begins with a point.
_PLAIN = re.compile(r"(?:[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}/){0,15}[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
_SHOWN = 80  # characters of a refused name that an error shows
_IN_THE_WAY = frozenset({errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG})


def relative(name: object) -> str:
    """Return the name, if it is a relative path that leads down and nowhere else; UnsafePath otherwise."""
    if not isinstance(name, str):
        raise UnsafePath(f"a name is a {type(name).__name__}, not text")
    if _PLAIN.fullmatch(name):
        return name
    trouble = _trouble(name) or next(filter(None, map(_segment_trouble, name.split("/"))), None)
    if trouble is not None:
        raise UnsafePath(f"the name {_shown(name)} is refused: it {trouble}")
    return name


def segment(name: object) -> str:
    """Return the name, if it is that of one folder or file; UnsafePath otherwise."""
    checked = relative(name)
    if "/" in checked:
        raise UnsafePath(f"the name {_shown(checked)} is refused: it is more than one name")
    return checked


def is_text(path: str | Path) -> bool:
    """Return whether a path from the root is text in UTF-8: what reads and writes tables takes no other."""
    try:
        os.path.abspath(path).encode()  # noqa: PTH100 - as it is named, whatever it links to
    except UnicodeEncodeError:
        return False
    return True


def utf8(path: str | Path) -> str:
    """Return the path, if it is text in UTF-8; ConfigError otherwise."""
    if not is_text(path):
        raise ConfigError(
            f"{path}: the path to it is not text in UTF-8, which tables and manifests need", hint="rename it"
        )
    return str(path)


def is_there(path: Path) -> bool:
    """Return whether a name in a file is that of an existing file; False for one that no file can have."""
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name that is too long, a folder that may not be looked into
        return False


def is_folder(path: Path) -> bool:
    """Return whether a name in a file is that of an existing folder."""
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False


def is_file_or_folder(path: Path) -> bool:
    """Return whether a name in a file is that of an existing file or folder."""
    return is_there(path) or is_folder(path)


def _trouble(name: str) -> str | None:
    if not name:
        return "is empty"
    if name.startswith("/"):
        return "is absolute"
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        return "is not text in UTF-8"
    return f"has {size} bytes, more than {MOST_BYTES}" if size > MOST_BYTES else None


def _segment_trouble(one: str) -> str | None:
    if one in ("", ".", ".."):
        return f"has the segment {one!r}"
    if "\\" in one:
        return "has a backslash"
    plain = one.isascii() and one.isprintable()
    if not plain and any(unicodedata.category(character) in ("Cc", "Zl", "Zp") for character in one):
        return "has a control character"
    size = len(one.encode())
    return f"has a segment of {size} bytes, more than {MOST_SEGMENT_BYTES}" if size > MOST_SEGMENT_BYTES else None


def _shown(name: str) -> str:
    return repr(name if len(name) <= _SHOWN else name[:_SHOWN] + "...")


@contextmanager
def passable(name: object) -> Iterator[None]:
    """Raise UnsafePath where existing folders and files leave no way for a name."""
    try:
        yield
    except OSError as error:
        if error.errno not in _IN_THE_WAY:
            raise
        raise UnsafePath(f"the name {_shown(str(name))} is refused: {error.strerror} on its way") from None


def under(folder: Path, name: object) -> Path:
    """Return where a name lies below a folder; UnsafePath when a symbolic link is on the way, or there."""
    path = folder
    with passable(name):
        for step in relative(name).split("/"):
            path /= step
            if path.is_symlink():
                raise UnsafePath(f"the name {_shown(str(name))} is refused: a symbolic link is on its way")
    return path


def regular(folder: Path, name: object) -> Path | None:
    """Return the plain file of this name below a folder; None where there is none."""
    path = under(folder, name)
    try:
        return path if stat.S_ISREG(path.lstat().st_mode) else None
    except (FileNotFoundError, NotADirectoryError):
        return None


def opened(path: Path) -> BinaryIO:
    """Open a file that a host or one of its processes may have left, to read it.

    Nothing but a plain file is opened: no link is followed, and no pipe or device holds anybody up. UnsafePath names
    what has the name instead, or a sparse file with more than MOST_HOLES; FileNotFoundError where nothing has it.
    """
    try:
        if not stat.S_ISREG(path.lstat().st_mode):  # to open a device may do something
            raise UnsafePath(f"{_shown(path.name)} is refused: {kind_of(path.lstat().st_mode)} has this name")
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno not in _IN_THE_WAY | {errno.ENXIO}:
            raise
        raise UnsafePath(f"{_shown(path.name)} is refused: {error.strerror}") from None
    about = os.fstat(descriptor)
    if not stat.S_ISREG(about.st_mode) or is_sparse(descriptor):
        os.close(descriptor)
        what = f"more than {MOST_HOLES} bytes of it are holes" if stat.S_ISREG(about.st_mode) else "it is no file"
        raise UnsafePath(f"{_shown(path.name)} is refused: {what}")
    return os.fdopen(descriptor, "rb")


def content(path: Path) -> bytes | None:
    """Return all of a file that `opened` opens; None where nothing has its name."""
    try:
        with opened(path) as file:
            return file.read()
    except FileNotFoundError:
        return None


def text(path: Path) -> str:
    """Return the content of a file as text, with a mark for what is no UTF-8; empty where nothing has its name."""
    return (content(path) or b"").decode("utf-8", "replace")


def kind_of(mode: int) -> str:
    """Return the kind of a path by its mode, in words."""
    kinds = {
        stat.S_IFREG: "a file",
        stat.S_IFDIR: "a folder",
        stat.S_IFLNK: "a link",
        stat.S_IFIFO: "a pipe",
        stat.S_IFSOCK: "a socket",
    }
    return kinds.get(stat.S_IFMT(mode), "a device")


def is_sparse(descriptor: int) -> bool:
    """Return whether more than MOST_HOLES of an open file are nowhere on the disk.

    Blocks alone do not tell: a file system that compresses has fewer of them, too.
    """
    about = os.fstat(descriptor)
    if about.st_size - about.st_blocks * 512 <= MOST_HOLES:
        return False
    holes = at = 0
    try:
        while at < about.st_size and holes <= MOST_HOLES:
            data = os.lseek(descriptor, at, os.SEEK_DATA)
            holes += data - at
            at = os.lseek(descriptor, data, os.SEEK_HOLE)
    except OSError:  # ENXIO: there is no data from here on
        holes += about.st_size - at
    finally:
        os.lseek(descriptor, 0, os.SEEK_SET)
    return holes > MOST_HOLES


def appendable(folder: Path, name: object) -> BinaryIO:
    """Return a plain file below a folder, made with the folders above it if need be, to read and to append to.

    No symbolic link below the folder is followed, also when somebody puts one there meanwhile.
    """
    *above, last = relative(name).split("/")
    folder.mkdir(parents=True, exist_ok=True)
    place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with passable(name):
            for step in above:
                with suppress(FileExistsError):
                    os.mkdir(step, dir_fd=place)
                inner = os.open(step, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=place)
                os.close(place)
                place = inner
            flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
            descriptor = os.open(last, flags, 0o666, dir_fd=place)
    finally:
        os.close(place)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise UnsafePath(f"the name {_shown(str(name))} is refused: something that is no file has it")
    return os.fdopen(descriptor, "ab+")


def fresh(path: Path) -> BinaryIO:
    """Return a new file to write; what lay there before, a link too, is removed and not followed."""
    path.unlink(missing_ok=True)
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666), "wb")
