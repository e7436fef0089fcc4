"""Changes to the node: how to take each back is on its disk before it is made."""

from __future__ import annotations

import json
import os
from typing import Any, Dict, List, Optional, Tuple

from .commands import Commands, argvs
from .steps import Refusal, Steps


class Journal:
    """Commands that take changes back, on disk before the change is made."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.pending: Dict[str, List[List[str]]] = {}
        try:
            with open(path, "rb+") as file:
                data = file.read()
                whole = data[: data.rfind(b"\n") + 1]
                if whole != data:  # a crash while it was written: then the change had not begun
                    file.truncate(len(whole))
        except FileNotFoundError:
            return
        for line in whole.splitlines():
            entry = json.loads(line)
            if entry.get("done"):
                self.pending.pop(entry["id"], None)
            else:
                self.pending[entry["id"]] = argvs(entry["undo"])

    def append(self, entry: Dict[str, Any]) -> None:
        record = json.dumps(entry).encode() + b"\n"
        fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            before = os.fstat(fd).st_size
            if os.write(fd, record) != len(record):
                os.ftruncate(fd, before)
                raise OSError("the disk is full: %s cannot be written" % self.path)
            os.fsync(fd)
        finally:
            os.close(fd)
        folder = os.open(os.path.dirname(self.path), os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def add(self, key: str, undo: List[List[str]]) -> None:
        self.append({"id": key, "undo": undo})
        self.pending[key] = undo

    def done(self, key: str) -> None:
        self.pending.pop(key, None)
        self.append({"id": key, "done": True})


def take_back(journal: Journal, commands: Commands) -> Steps[Tuple[List[str], List[Dict[str, Any]]]]:
    """Carry out the undo commands of a journal, last change first; which went well, and what did not."""
    undone, failed = [], []
    for key, undo in reversed(list(journal.pending.items())):
        wrong = yield from commands.each(undo)
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
        wrong = yield from self.commands.each(apply)
        if wrong:
            also = yield from self.commands.each(undo)
            if not also:
                journal.done(key)
            raise Refusal("failed", "cannot apply %s" % key, undo_failed=also, **wrong)
        return {}

    def undo(self, *, key: str) -> Steps[Dict[str, Any]]:
        journal = self.book()
        if key not in journal.pending:
            raise Refusal("bad-request", "nothing to undo for %s" % key)
        wrong = yield from self.commands.each(journal.pending[key])
        if wrong:
            raise Refusal("failed", "cannot undo %s" % key, **wrong)
        journal.done(key)
        return {}
