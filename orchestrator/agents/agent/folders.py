"""Opens folders by descriptor, below the run's folder: no planted link is followed, no other user's file is opened.

An agent may be root and work for a user who owns the run's folder, below folders where everybody may write. So a path
is walked name by name, each folder on it has to belong to somebody trusted, and what lies below the run's folder is
reached from its descriptor alone.
"""

from __future__ import annotations

import contextlib
import errno
import grp
import os
import pwd
import stat
import time
from typing import AbstractSet, FrozenSet, Iterator, List, NamedTuple, Optional, Tuple

from .steps import Refusal


class Owner(NamedTuple):
    """The users for whom files are made, and whom it trusts: two users where the agent runs under sudo."""

    agent: int
    uid: int
    gid: int

    def owns(self, status: os.stat_result) -> bool:
        return status.st_uid in (self.agent, self.uid)

    def accepts(self, status: os.stat_result) -> bool:
        """Return whether a file in a folder of ours may be used: the user may have linked one of root's there."""
        if not stat.S_ISREG(status.st_mode):
            return False
        if self.uid in (self.agent, status.st_uid):
            return True
        return status.st_uid == self.agent and status.st_nlink == 1

    def is_shared(self, status: os.stat_result) -> bool:
        """Return whether others than its owner may add and remove entries of a folder."""
        if status.st_mode & stat.S_IWOTH:
            return True
        return bool(status.st_mode & stat.S_IWGRP) and not self.alone_in(status.st_gid)

    def alone_in(self, gid: int) -> bool:
        """Return whether a group is the private one of root or of the user, as many systems give each user one."""
        try:
            group = grp.getgrgid(gid)
        except KeyError:
            return False
        return gid in (0, self.gid) and not [name for name in group.gr_mem if name not in (group.gr_name, "root")]


def vouch(path: str, status: os.stat_result, owner: Owner) -> None:
    """Raise for a folder on a path that others own, or in which they may replace entries."""
    advice = "; name in `work:` a folder whose path belongs to root or to you, such as /var/tmp/orch-{uid}"
    if status.st_uid not in (0, owner.agent, owner.uid):
        raise Refusal(
            "folder", "%s belongs to user %d, who could exchange what lies below%s" % (path, status.st_uid, advice)
        )
    if owner.is_shared(status) and not status.st_mode & stat.S_ISVTX:
        raise Refusal(
            "folder",
            "%s (of user %d, mode %04o) lets others exchange what lies in it: sudo chmod +t %s%s"
            % (path, status.st_uid, stat.S_IMODE(status.st_mode), path, advice),
        )


OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
O_PATH = getattr(os, "O_PATH", 0o10000000)  # PyPy does not name it
PASS = O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC  # for a folder whose entries may be a secret
SAFE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # opening a FIFO in a file's place does not block
MOST_DEEP = 100  # folders in each other below a run's
MOST_HOLES = 1 << 30  # bytes of holes in a file: a sparser one would be hours of zeros to read
LINKS = 40  # on one path, as the kernel counts
GIVEN_S = 5.0  # between the making of a folder and its gift to the user for whom it is


class Folder:
    """An open folder; `path` is for messages."""

    def __init__(self, fd: int, path: str) -> None:
        self.fd = fd
        self.path = path

    def close(self) -> None:
        os.close(self.fd)

    def __enter__(self) -> Folder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def again(self) -> Folder:
        """Duplicate the folder's descriptor for another owner."""
        return Folder(os.dup(self.fd), self.path)

    def path_of(self, name: str) -> str:
        return os.path.join(self.path, name)

    def status(self) -> os.stat_result:
        return os.fstat(self.fd)

    def names(self) -> List[str]:
        fd = os.open(".", OPEN, dir_fd=self.fd)
        try:
            return sorted(os.listdir(fd))
        finally:
            os.close(fd)

    def enter(self, name: str, flags: int = OPEN) -> Folder:
        """Open a folder in this one; a link in its place is an error."""
        try:
            return Folder(os.open(name, flags, dir_fd=self.fd), self.path_of(name))
        except OSError as error:
            if error.errno == errno.EACCES and self.unlock(name):
                return self.enter(name, flags)
            if error.errno in (errno.ELOOP, errno.ENOTDIR):
                raise Refusal("folder", "%s is a link or no folder" % self.path_of(name)) from None
            raise OSError(error.errno, error.strerror, self.path_of(name)) from None

    def unlock(self, name: str) -> bool:
        """Give the owner, as whom this runs, access to a folder that a process made inaccessible.

        Return whether it was.
        """
        fd = os.open(name, PASS, dir_fd=self.fd)
        try:
            about = os.fstat(fd)
            closed = about.st_uid == os.geteuid() and about.st_mode & stat.S_IRWXU != stat.S_IRWXU
            if closed:
                os.chmod("/proc/self/fd/%d" % fd, stat.S_IMODE(about.st_mode) | stat.S_IRWXU)
            return closed
        finally:
            os.close(fd)

    def make(self, name: str, owner: Owner, mode: int = 0o700) -> Folder:
        """Open a folder in this one, made for the user for whom the agent works if it is missing."""
        try:
            os.mkdir(name, 0o700, dir_fd=self.fd)
        except FileExistsError:
            folder = self.enter(name)
            folder.await_owner(owner)
        except OSError as error:
            raise OSError(error.errno, error.strerror, self.path_of(name)) from None
        else:
            folder = self.enter(name)
            if folder.status().st_uid == owner.agent and not folder.names():  # it is the one just made
                os.fchown(folder.fd, owner.uid, owner.gid)
                os.fchmod(folder.fd, mode)
        uid = folder.status().st_uid
        if uid != owner.uid:
            folder.close()
            raise Refusal("folder", "%s belongs to user %d, not to %d" % (folder.path, uid, owner.uid))
        return folder

    def await_owner(self, owner: Owner) -> None:
        """Give another agent, which may just have made this empty folder of root's, time to give it to its user."""
        end = time.monotonic() + GIVEN_S
        while self.status().st_uid == owner.agent != owner.uid and not self.names() and time.monotonic() < end:
            time.sleep(0.01)

    def open(self, name: str, flags: int, owner: Owner) -> int:
        """Open a file for reading and return its descriptor, if it is a file of ours and no link."""
        try:
            fd = os.open(name, flags | SAFE, dir_fd=self.fd)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENXIO):
                raise Refusal("folder", "%s is no file of this run" % self.path_of(name)) from None
            raise OSError(error.errno, error.strerror, self.path_of(name)) from None
        if not owner.accepts(os.fstat(fd)):
            os.close(fd)
            raise Refusal("folder", "%s is no file of this run" % self.path_of(name))
        return fd

    def create(self, name: str, flags: int, mode: int, owner: Owner) -> int:
        """Create a file that belongs to the user and return its descriptor.

        Raise FileExistsError where anything has the name.
        """
        try:
            fd = os.open(name, flags | os.O_CREAT | os.O_EXCL | SAFE, mode, dir_fd=self.fd)
        except OSError as error:
            raise OSError(error.errno, error.strerror, self.path_of(name)) from None
        os.fchown(fd, owner.uid, owner.gid)
        os.fchmod(fd, mode)
        return fd

    def append(self, name: str, mode: int, owner: Owner) -> int:
        """Open a file to append to it, made if it is missing, and return its descriptor."""
        try:
            return self.create(name, os.O_WRONLY | os.O_APPEND, mode, owner)
        except FileExistsError:
            return self.open(name, os.O_WRONLY | os.O_APPEND, owner)

    def replace(self, name: str, mode: int, owner: Owner) -> int:
        """Create a file in the place of whatever had its name, and return its descriptor."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self.fd)
        return self.create(name, os.O_WRONLY, mode, owner)

    def entries(self, below: str = "") -> Iterator[Tuple[str, os.stat_result, Folder]]:
        """Yield each entry below this folder that is no folder: its path from `below` on, its status and its folder.

        What vanishes meanwhile is left out. A folder comes too where it lies deeper than MOST_DEEP, and is not entered.
        """
        for name in self.names():
            try:
                status = os.stat(name, dir_fd=self.fd, follow_symlinks=False)
                if stat.S_ISDIR(status.st_mode) and below.count("/") < MOST_DEEP:
                    with self.enter(name) as folder:
                        yield from folder.entries("%s%s/" % (below, name))
                else:
                    yield below + name, status, self
            except FileNotFoundError:
                continue

    def clear(self, keep: AbstractSet[str] = frozenset(), below: str = "") -> None:
        """Remove all that is in this folder but files to `keep`, by their paths from `below` on.

        Links are not followed.
        """
        for name in self.names():
            path = below + name
            if not stat.S_ISDIR(os.stat(name, dir_fd=self.fd, follow_symlinks=False).st_mode):
                if path not in keep:
                    os.unlink(name, dir_fd=self.fd)
                continue
            with self.enter(name) as folder:
                folder.clear(keep, path + "/")
                left = folder.names()
            if not left:
                os.rmdir(name, dir_fd=self.fd)

    def remove(self, name: str) -> None:
        """Remove a folder in this one, with all that is in it."""
        with self.enter(name) as folder:
            folder.clear()
        os.rmdir(name, dir_fd=self.fd)


def kind_of(mode: int) -> str:
    """Return the type of a file in words, by its mode."""
    kinds = {stat.S_IFLNK: "a link", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}
    deep = "a folder in more than %d others" % MOST_DEEP
    return deep if stat.S_ISDIR(mode) else kinds.get(stat.S_IFMT(mode), "a device")


def holes(folder: Folder, name: str, status: os.stat_result) -> int:
    """Return how many bytes of a file are holes, with nothing on the disk, as far as that matters.

    Blocks alone do not tell: a file system that compresses has fewer of them, too.
    """
    if status.st_size - status.st_blocks * 512 <= MOST_HOLES:
        return 0
    found = at = 0
    try:
        fd = os.open(name, os.O_RDONLY | SAFE, dir_fd=folder.fd)
    except OSError:
        return 0  # `fetch` reports why it cannot be read
    try:
        while at < status.st_size and found <= MOST_HOLES:
            data = os.lseek(fd, at, os.SEEK_DATA)
            found += data - at
            at = os.lseek(fd, data, os.SEEK_HOLE)
    except OSError:  # ENXIO: there is no data from here on
        found += status.st_size - at
    finally:
        os.close(fd)
    return found


def names_of(path: str) -> List[str]:
    return [name for name in path.split("/") if name not in ("", ".")]


def reach(path: str, owner: Owner, *, make: bool = False) -> Folder:
    """Open a folder by its absolute path if no other user could have replaced a part of it.

    Missing folders may be made. Links of root, and of the agent's own user, are followed as the kernel would.
    """
    stack = [Folder(os.open("/", PASS), "/")]
    todo = names_of(path)[::-1]
    links = 0
    try:
        while todo:
            name = todo.pop()
            if name == "..":
                if len(stack) > 1:
                    stack.pop().close()
                continue
            target = link_in(stack[-1], name, owner)
            if target is not None:
                links += 1
                if links > LINKS:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
                while target.startswith("/") and len(stack) > 1:
                    stack.pop().close()
                todo += names_of(target)[::-1]
                continue
            stack.append(step(stack[-1], name, owner, make=make))
            vouch(stack[-1].path, stack[-1].status(), owner)
        return stack.pop()
    finally:
        for folder in stack:
            folder.close()


def step(folder: Folder, name: str, owner: Owner, *, make: bool) -> Folder:
    try:
        return folder.enter(name, PASS)
    except FileNotFoundError:
        if not make:
            raise
    return folder.make(name, owner)


def link_in(folder: Folder, name: str, owner: Owner) -> Optional[str]:
    """Return the target of a link; None for anything else."""
    try:
        status = os.stat(name, dir_fd=folder.fd, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if not stat.S_ISLNK(status.st_mode):
        return None
    if status.st_uid not in (0, owner.agent):
        raise Refusal(
            "folder",
            "%s is a link of user %d, which may lead anywhere; name in `work:` where it leads"
            % (folder.path_of(name), status.st_uid),
        )
    return os.readlink(name, dir_fd=folder.fd)


def drop(path: str, owner: Owner) -> None:
    """Remove an empty private folder of ours that its owner can make again."""
    with contextlib.suppress(OSError, Refusal), reach(os.path.dirname(path), owner) as parent:
        name = os.path.basename(path)
        above, status = parent.status(), os.stat(name, dir_fd=parent.fd, follow_symlinks=False)
        again = above.st_uid == status.st_uid or above.st_mode & (stat.S_IWOTH | stat.S_ISVTX) == 0o1002
        if owner.owns(status) and stat.S_IMODE(status.st_mode) == 0o700 and again:
            os.rmdir(name, dir_fd=parent.fd)


MARKER = ".orch-run.json"  # a file in every run's folder about the agent that made it, which locks it while it lives
STAYED = ".orch-stayed.json"  # lies in a run's folder that is left with captures in it: of which run, and since when
JOURNAL = "undo.jsonl"
CONTAINERS = ".containers"  # in the run's folder: ids and first processes of the containers that there are
TRIES = 5  # at a work folder that another agent removes, empty, each time it was made


class RunFolder:
    """The run, node and user for which this agent works, and the run's folder; without names until the greeting."""

    def __init__(self) -> None:
        self.run = self.node = self.name = ""
        self.work: Optional[Folder] = None
        self.open: Optional[Folder] = None
        self.storage = ""  # podman's storage.conf on a host of a local testbed, which shares the machine's images
        self.user: Optional[pwd.struct_passwd] = None
        if os.geteuid() == 0 and int(os.environ.get("SUDO_UID", "0")) > 0:
            self.user = pwd.getpwuid(int(os.environ["SUDO_UID"]))
        own = Owner(os.geteuid(), os.geteuid(), os.getegid())
        self.agents = own  # for what only the agent, or what runs with its rights, may write
        self.owner = Owner(own.agent, self.user.pw_uid, self.user.pw_gid) if self.user else own

    def place(self, path: str) -> str:
        """Return a path with its fields filled in for this node: `{uid}` is the user for whom the agent works."""
        if not path.startswith("/"):
            raise ValueError("not an absolute path: %r" % path)
        return os.path.normpath(path.replace("{uid}", str(self.owner.uid)))

    @property
    def folder(self) -> Folder:
        if self.open is None:
            raise Refusal("bad-request", "no hello was said")
        return self.open

    def settle(self, path: str) -> Folder:
        """Make the run's folder; Refusal where it, or a folder on its path, may be another user's."""
        above, self.name = os.path.split(self.place(path))
        for left in reversed(range(TRIES)):
            work = reach(above, self.owner, make=True)
            try:
                folder = work.make(self.name, self.owner)
            except FileNotFoundError:
                work.close()
                if not left:
                    raise
                continue
            self.work = work
            return folder
        raise AssertionError

    def leave(self, keep: FrozenSet[str] = frozenset(), about: bytes = b"") -> None:
        """Remove the run's folder, and the work folder if nothing else is in it.

        Files to `keep`, by their paths in the run's folder, stay in it, with another marker that says what they are
        `about`: sweeps tell of them, and remove them only where they are asked for.
        """
        if self.work is None:
            raise Refusal("bad-request", "no hello was said")
        if keep:
            with open(self.folder.replace(STAYED, 0o600, self.agents), "wb") as file:
                file.write(about)
                file.flush()
                os.fsync(file.fileno())
        self.folder.clear(keep | {STAYED} if keep else keep)
        if keep and self.folder.names() != [STAYED]:
            return
        self.work.remove(self.name)
        drop(self.work.path, self.owner)

    def inside(self, path: str) -> Tuple[str, str]:
        """Return the folders below the run's, and the name, of a path in it."""
        names = path.split("/")
        if not path or path.startswith("/") or any(name in ("", ".", "..") for name in names):
            raise ValueError("%r is not in the run's folder" % path)
        return "/".join(names[:-1]), names[-1]

    def below(self, folders: str, make: Optional[Owner] = None) -> Folder:
        """Open a folder below the run's; with `make` missing ones are made, and belong to its user."""
        here = self.folder.again()
        mode = 0o700 if make == self.owner else 0o755  # what the agent alone may write its user may read
        for name in folders.split("/") if folders else ():
            with here:
                here = here.make(name, make, mode) if make else here.enter(name)
        return here
