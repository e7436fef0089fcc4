"""The run's folder on this node: where it is, and whose."""

from __future__ import annotations

import os
import pwd
from typing import Optional

MARKER = ".orch-run.json"  # lies in every run's folder: who made it; the living agent holds a lock on it
JOURNAL = "undo.jsonl"


class Home:
    """What this agent works for: a run, a node, a user, and their folder; without names until the greeting."""

    def __init__(self) -> None:
        self.run = self.node = self.folder = ""
        self.user: Optional[pwd.struct_passwd] = None
        if os.geteuid() == 0 and int(os.environ.get("SUDO_UID", "0")) > 0:
            self.user = pwd.getpwuid(int(os.environ["SUDO_UID"]))

    def ours(self, status: os.stat_result) -> bool:
        """Whether a file's owner is one whom this agent works for."""
        return status.st_uid in (os.geteuid(), self.user.pw_uid if self.user else os.geteuid())

    def own(self, path: str) -> None:
        if self.user:
            os.chown(path, self.user.pw_uid, self.user.pw_gid)

    def make_folder(self, path: str) -> None:
        """A private folder; what is missing above it is made for everybody, as other users' runs may lie beside it."""
        parent = os.path.dirname(path)
        if not os.path.isdir(parent):
            self.make_folder(parent)
            os.chmod(parent, 0o1777)  # noqa: S103 - as /tmp is: everybody may add, nobody may remove another's
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:
            return
        self.own(path)

    def inside(self, path: str) -> str:
        """The absolute path of something in the run's folder."""
        full = os.path.realpath(os.path.join(self.folder, path))
        if not path or not full.startswith(self.folder + "/"):
            raise ValueError("%r is not in the run's folder" % path)
        return full
