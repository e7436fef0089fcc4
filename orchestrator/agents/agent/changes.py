"""Changes to the node: how to take each back is on its disk before it is made."""

from __future__ import annotations

import contextlib
import json
import os
from typing import Any, Dict, List, Optional, Set, Tuple

from .commands import Commands, argvs
from .folders import Folder
from .home import JOURNAL
from .steps import Refusal, Steps
from .whose import Whose


class Journal:
    """Commands that take changes back, on disk before the change is made.

    A change is in doubt while it is made and while it is taken back: who finds it so knows not what is there to undo.
    """

    def __init__(self, folder: Folder, agents: Whose) -> None:
        self.folder = folder
        self.agents = agents
        self.pending: Dict[str, List[List[str]]] = {}
        self.doubtful: Set[str] = set()
        try:
            with open(self.opened(os.O_RDWR), "rb+") as file:
                data = file.read()
                whole = data[: data.rfind(b"\n") + 1]
                if whole != data:  # a crash while it was written: then the change had not begun
                    file.truncate(len(whole))
        except FileNotFoundError:
            return
        for number, line in enumerate(whole.split(b"\n")[:-1], start=1):
            try:
                self.take(json.loads(line.decode()))
            except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
                raise Refusal(
                    "folder",
                    "%s: line %d tells no change (%.100s): none of its changes is taken back before it is mended"
                    % (folder.path_of(JOURNAL), number, error),
                ) from None

    def take(self, entry: Any) -> None:
        """What an entry says of a change."""
        key = entry["id"]
        if not isinstance(key, str):
            raise TypeError("an id that is no text")
        if entry.get("done"):
            self.pending.pop(key, None)
        elif "undo" in entry:
            self.pending[key] = argvs(entry["undo"])
        if entry.get("whole", True):  # an older agent wrote none of it
            self.doubtful.discard(key)
        else:
            self.doubtful.add(key)

    def opened(self, flags: int) -> int:
        """A descriptor of it; what it holds is run with this agent's rights, so that nobody else may have written it.

        Its user can put a file there that others with the agent's rights once wrote: one with a single name is new.
        """
        fd = self.folder.open(JOURNAL, flags, self.agents)
        status = os.fstat(fd)
        if status.st_uid != self.agents.uid or status.st_nlink != 1:
            os.close(fd)
            path = self.folder.path_of(JOURNAL)
            raise Refusal("folder", "%s belongs to user %d: what it holds is not run" % (path, status.st_uid))
        return fd

    def append(self, entry: Dict[str, Any]) -> None:
        record = json.dumps(entry).encode() + b"\n"
        flags = os.O_WRONLY | os.O_APPEND
        try:
            fd = self.opened(flags)
        except FileNotFoundError:
            fd = self.folder.create(JOURNAL, flags, 0o600, self.agents)
        try:
            before = os.fstat(fd).st_size
            if os.write(fd, record) != len(record):
                os.ftruncate(fd, before)
                raise OSError("the disk is full: %s cannot be written" % self.folder.path_of(JOURNAL))
            os.fsync(fd)
        finally:
            os.close(fd)
        os.fsync(self.folder.fd)

    def add(self, key: str, undo: List[List[str]]) -> None:
        self.append({"id": key, "undo": undo, "whole": False})
        self.pending[key] = undo
        self.doubtful.add(key)

    def mark(self, key: str, *, whole: bool) -> None:
        """Whether the change is there as it was asked for, or in doubt from now on."""
        (self.doubtful.discard if whole else self.doubtful.add)(key)
        with contextlib.suppress(OSError):  # on a full disk it is in doubt for longer than it has to be
            self.append({"id": key, "whole": whole})

    def done(self, key: str) -> None:
        self.pending.pop(key, None)
        self.append({"id": key, "done": True})


def put_back(journal: Journal, commands: Commands, key: str) -> Steps[Optional[Dict[str, Any]]]:
    """Carry out the undo commands of a change; what went wrong with it, or None.

    Of one in doubt each command is tried, and none has to find anything to undo; but each has to run to its end.
    """
    undo = journal.pending[key]
    if key in journal.doubtful:
        first = None
        for argv in undo:
            wrong = yield from commands.each([argv])
            if wrong and (wrong["status"] is None or wrong["status"] < 0):
                first = first or wrong
        return first
    journal.mark(key, whole=False)
    wrong = yield from commands.each(undo)
    if wrong:
        journal.mark(key, whole=True)  # as whole as it can be told from
    return wrong


def take_back(
    journal: Journal, commands: Commands, keys: Optional[Set[str]] = None
) -> Steps[Tuple[List[str], List[Dict[str, Any]]]]:
    """Undo what a journal holds, or some keys of it, the last change first; what went well, and what did not."""
    undone, failed = [], []
    for key in [key for key in reversed(list(journal.pending)) if keys is None or key in keys]:
        wrong = yield from put_back(journal, commands, key)
        if wrong:
            failed.append(dict(wrong, id=key))
            continue
        undone.append(key)
        try:
            journal.done(key)
        except OSError:
            continue  # a full disk: it is undone once more later, which is safer than never
    return undone, failed


class Changes:
    """The run's own changes, from its greeting on."""

    def __init__(self, commands: Commands) -> None:
        self.commands = commands
        self.journal: Optional[Journal] = None
        self.inherited: Set[str] = set()  # of an agent of this run that is gone
        self.busy: Set[str] = set()  # with what is being changed or undone

    def book(self) -> Journal:
        if self.journal is None:
            raise Refusal("bad-request", "no hello was said")
        return self.journal

    def change(self, *, key: str, undo: List[List[str]], apply: List[List[str]]) -> Steps[Dict[str, Any]]:
        journal = self.book()
        argvs(apply)
        if key in journal.pending:
            raise Refusal("bad-request", "%s is changed already" % key)
        journal.add(key, argvs(undo))
        self.busy.add(key)
        try:
            wrong = yield from self.commands.each(apply)
            if wrong:
                also = yield from put_back(journal, self.commands, key)
                if not also:
                    journal.done(key)
                raise Refusal("failed", "cannot apply %s" % key, undo_failed=also, **wrong)
            journal.mark(key, whole=True)
        finally:
            self.busy.discard(key)
        return {}

    def undo(self, *, key: str) -> Steps[Dict[str, Any]]:
        journal = self.book()
        while key in self.busy:  # whoever asked for it went away before it was answered
            yield 0.01
        if key not in journal.pending:
            return {}  # it could not be made, and was taken back at once
        self.busy.add(key)
        try:
            wrong = yield from put_back(journal, self.commands, key)
        finally:
            self.busy.discard(key)
        if wrong:
            raise Refusal("failed", "cannot undo %s" % key, **wrong)
        journal.done(key)
        return {}
