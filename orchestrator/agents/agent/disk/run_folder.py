"""The run's folder on this node: where it is, and whose."""

from __future__ import annotations

import os
import pwd
from typing import FrozenSet, Optional, Tuple

from ..steps import Refusal
from ..whose import Whose
from .folders import Folder, drop, reach

MARKER = ".orch-run.json"  # lies in every run's folder: who made it; the living agent holds a lock on it
STAYED = ".orch-stayed.json"  # lies in a run's folder that is left with captures in it: of which run, and since when
JOURNAL = "undo.jsonl"
CONTAINERS = ".containers"  # in the run's folder: ids and first processes of the containers that there are
TRIES = 5  # at a work folder that another agent removes, empty, each time it was made


class RunFolder:
    """What this agent works for: a run, a node, a user, and their folder; without names until the greeting."""

    def __init__(self) -> None:
        self.run = self.node = self.name = ""
        self.work: Optional[Folder] = None
        self.open: Optional[Folder] = None
        self.storage = ""  # podman's storage.conf on a host of a local testbed, which shares the machine's images
        self.user: Optional[pwd.struct_passwd] = None
        if os.geteuid() == 0 and int(os.environ.get("SUDO_UID", "0")) > 0:
            self.user = pwd.getpwuid(int(os.environ["SUDO_UID"]))
        own = Whose(os.geteuid(), os.geteuid(), os.getegid())
        self.agents = own  # for what only the agent, or what runs with its rights, may write
        self.whose = Whose(own.agent, self.user.pw_uid, self.user.pw_gid) if self.user else own

    def place(self, path: str) -> str:
        """A path as it is meant on this node: `{uid}` is the user for whom the agent works."""
        if not path.startswith("/"):
            raise ValueError("not an absolute path: %r" % path)
        return os.path.normpath(path.replace("{uid}", str(self.whose.uid)))

    @property
    def folder(self) -> Folder:
        if self.open is None:
            raise Refusal("bad-request", "no hello was said")
        return self.open

    def settle(self, path: str) -> Folder:
        """Make the run's folder; it is ours, and so is the way to it, or this is refused."""
        above, self.name = os.path.split(self.place(path))
        for left in reversed(range(TRIES)):
            work = reach(above, self.whose, make=True)
            try:
                folder = work.make(self.name, self.whose)
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
        drop(self.work.path, self.whose)

    def inside(self, path: str) -> Tuple[str, str]:
        """The folders below the run's, and the name, of a path in it."""
        names = path.split("/")
        if not path or path.startswith("/") or any(name in ("", ".", "..") for name in names):
            raise ValueError("%r is not in the run's folder" % path)
        return "/".join(names[:-1]), names[-1]

    def below(self, folders: str, make: Optional[Whose] = None) -> Folder:
        """A folder in the run's; with `make` what is missing is made, and belongs to its user."""
        here = self.folder.again()
        mode = 0o700 if make == self.whose else 0o755  # what the agent alone may write its user may read
        for name in folders.split("/") if folders else ():
            with here:
                here = here.make(name, make, mode) if make else here.enter(name)
        return here
