"""By whom and for whom an agent works, and whom it trusts with a folder or a file."""

from __future__ import annotations

import grp
import os
import stat
from typing import NamedTuple

from .steps import Refusal


class Whose(NamedTuple):
    """By whom and for whom files are made: two users where the agent runs under sudo."""

    agent: int
    uid: int
    gid: int

    def mine(self, status: os.stat_result) -> bool:
        return status.st_uid in (self.agent, self.uid)

    def take(self, status: os.stat_result) -> bool:
        """Whether a file in a folder of ours is what it seems: the user may have linked one of root's there."""
        if not stat.S_ISREG(status.st_mode):
            return False
        if self.uid in (self.agent, status.st_uid):
            return True
        return status.st_uid == self.agent and status.st_nlink == 1

    def shared(self, status: os.stat_result) -> bool:
        """Whether others than its owner may add and remove entries of a folder."""
        if status.st_mode & stat.S_IWOTH:
            return True
        return bool(status.st_mode & stat.S_IWGRP) and not self.alone_in(status.st_gid)

    def alone_in(self, gid: int) -> bool:
        """Whether a group is the private one of root or of the user, as many systems give each user one."""
        try:
            group = grp.getgrgid(gid)
        except KeyError:
            return False
        return gid in (0, self.gid) and not [name for name in group.gr_mem if name not in (group.gr_name, "root")]


def vouch(path: str, status: os.stat_result, whose: Whose) -> None:
    """Refuse a folder on the way that others own, or where they may exchange what is not theirs."""
    advice = "; name in `work:` a folder whose path belongs to root or to you, such as /var/tmp/orch-{uid}"
    if status.st_uid not in (0, whose.agent, whose.uid):
        raise Refusal(
            "folder", "%s belongs to user %d, who could exchange what lies below%s" % (path, status.st_uid, advice)
        )
    if whose.shared(status) and not status.st_mode & stat.S_ISVTX:
        raise Refusal(
            "folder",
            "%s (of user %d, mode %04o) lets others exchange what lies in it: sudo chmod +t %s%s"
            % (path, status.st_uid, stat.S_IMODE(status.st_mode), path, advice),
        )
