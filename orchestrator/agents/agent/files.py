"""Reads and writes files for the controller: of the run's folder, small ones of the node, and output of processes."""

from __future__ import annotations

import glob
import os
import stat
import time
import zlib
from typing import TYPE_CHECKING, Dict, List, Mapping, NamedTuple, Optional, Sequence

from .folders import CONTAINERS, MARKER, MOST_HOLES, STAYED, Folder, Owner, RunFolder, holes, kind_of
from .frames import Wire
from .steps import Refusal, Steps

if TYPE_CHECKING:
    from .bounds import Count, RawText

READ_LIMIT = 1 << 18  # of a file asked for by `read`
READ_TOTAL = 1 << 22  # as JSON up to six times as much, which must fit into a frame that the controller takes
MOST_FILES = 100_000  # likewise
MOST_LEFT = 1000  # of what is no file of the run so many are named
CHUNK = 1 << 18


class Texts(NamedTuple):
    """The answer to `read`: small files as they were at `wall_ns` of the node's clock; null for what cannot be read."""

    wall_ns: int
    texts: Mapping[str, Optional[str]]


class RunFile(NamedTuple):
    """A file of the run's folder, by its path in it."""

    path: RawText
    bytes: Count


class SkippedFile(NamedTuple):
    """A path in the run's folder that is not fetched, and why; one that is `kept` holds data, and stays on the node."""

    path: RawText
    why: str
    kept: bool


class Listing(NamedTuple):
    """The answer to `files`; of what is `left` the first ones."""

    files: Sequence[RunFile]
    left: Sequence[SkippedFile]


class Fetched(NamedTuple):
    """The answer to `fetch`, after the file."""

    sha256: str
    size: int


class Disk(NamedTuple):
    """The answer to `disk`: the space on the file system of a path, or of the run's folder."""

    free_bytes: Count
    total_bytes: Count


class Files:
    """The requests that read and write files."""

    def __init__(self, run_folder: RunFolder, wire: Wire) -> None:
        self.run_folder = run_folder
        self.wire = wire

    def read(self, *, paths: List[str], globs: List[str]) -> Texts:
        names = list(paths)
        for pattern in globs:
            names += sorted(glob.glob(pattern))
        texts: Dict[str, Optional[str]] = {}
        total = 0
        wall_ns = time.time_ns()
        for name in names:
            try:
                with open(self.opened(name), "rb") as file:
                    limit = min(READ_LIMIT, READ_TOTAL - total)
                    size = os.fstat(file.fileno()).st_size  # 0 for what the kernel makes up
                    if size > limit:
                        file.seek(size - limit)
                    data = file.read(limit)
            except (OSError, Refusal):
                texts[name] = None
                continue
            total += len(data)
            texts[name] = data.decode(errors="replace")
        return Texts(wall_ns, texts)

    def opened(self, path: str) -> int:
        """Open a file of the node, or of the run's folder when its path is relative."""
        if path.startswith("/"):
            return os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        folders, name = self.run_folder.inside(path)
        with self.run_folder.below(folders) as folder:
            return folder.open(name, os.O_RDONLY, self.run_folder.owner)

    def put(self, *, path: str, mode: int, payload: bytes, append: bool = False, privileged: bool = False) -> None:
        """Write a file for what runs as the user, or with the agent's rights: then the user cannot change it.

        What comes is compressed: many nodes get the same programs over one network, which may be slow.
        """
        try:
            content = zlib.decompress(payload)
        except zlib.error as error:
            raise ValueError("what is to be written is not compressed: %s" % error) from None
        owner = self.run_folder.agents if privileged else self.run_folder.owner
        folders, name = self.run_folder.inside(path)
        with self.run_folder.below(folders, owner) as folder:
            fd = folder.open(name, os.O_WRONLY | os.O_APPEND, owner) if append else folder.replace(name, mode, owner)
        with open(fd, "wb") as file:
            file.write(content)

    def listing(self) -> Listing:
        """List the files of the run's folder, and entries that cannot be fetched, such as links and pipes."""
        files: List[RunFile] = []
        skipped: List[SkippedFile] = []
        for path, status, folder in self.run_folder.folder.entries():
            if path in (MARKER, STAYED, CONTAINERS) or path.startswith(CONTAINERS + "/"):
                continue
            name = path.rpartition("/")[2]
            why, kept = kind_of(status.st_mode), False
            if stat.S_ISREG(status.st_mode):
                if not self.run_folder.owner.accepts(status):
                    why = "a file of another user"
                elif holes(folder, name, status) > MOST_HOLES:
                    why, kept = "a file of %d bytes that are nearly all holes" % status.st_size, True
                elif len(files) >= MOST_FILES:
                    why, kept = "one more than %d files" % MOST_FILES, True
                else:
                    files.append(RunFile(path, status.st_size))
                    continue
            if len(skipped) < MOST_LEFT:
                skipped.append(SkippedFile(path, why, kept))
        return Listing(sorted(files), skipped)

    def fetch(self, *, path: str, offset: int, most: int, request: object) -> Steps[Fetched]:
        """Send a file from `offset` on in its own frames; the reply has the SHA-256 of its first `most` bytes."""
        import hashlib  # here, because it is slow to import and an agent starts without it

        digest = hashlib.sha256()
        self.run_folder.inside(path)  # an absolute one is for `read` alone
        with open(self.opened(path), "rb") as file:
            size = min(most, os.fstat(file.fileno()).st_size)
            at = 0
            while at < size:
                data = file.read(min(CHUNK, size - at))
                if not data:
                    raise Refusal("changed", "%s became shorter while it was read" % path)
                digest.update(data)
                fresh = data[max(0, offset - at) :]
                at += len(data)
                if fresh:
                    self.wire.send({"id": request, "more": True}, fresh)
                yield None
        return Fetched(digest.hexdigest(), size)

    def disk(self, *, path: Optional[str] = None) -> Disk:
        free = os.statvfs(path or self.run_folder.folder.fd)
        return Disk(free.f_bavail * free.f_frsize, free.f_blocks * free.f_frsize)


LONGEST_LINE = 1 << 16  # of one that does not end, what comes after is left out
AT_ONCE = 1 << 18


def last_words(folder: Folder, owner: Owner) -> str:
    """Return the end of what a process printed, errors first."""
    for name in ("stderr", "stdout"):
        try:
            with open(folder.open(name, os.O_RDONLY, owner), "rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - 4096))
                text = file.read(4096).decode(errors="replace").strip()
        except (OSError, Refusal):
            continue
        if text:
            return text
    return ""


class Lines:
    """Reads whole lines of a file that is being written, from its start."""

    def __init__(self, folder: Folder, name: str, owner: Owner) -> None:
        self.folder = folder
        self.name = name
        self.owner = owner
        self.offset = 0
        self.behind = False  # more of the file is there than was read
        self.rest = b""

    def new(self) -> List[str]:
        try:
            with open(self.folder.open(self.name, os.O_RDONLY, self.owner), "rb") as file:
                file.seek(self.offset)
                data = file.read(AT_ONCE)
        except (FileNotFoundError, Refusal):
            self.behind = False
            return []
        self.behind = len(data) == AT_ONCE
        self.offset += len(data)
        whole, newline, rest = (self.rest + data).rpartition(b"\n")
        self.rest = rest[:LONGEST_LINE]
        return whole.decode(errors="replace").split("\n") if newline else []
