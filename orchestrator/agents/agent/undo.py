"""Changes to the node and their undo, by a journal on its disk that is written before each change is made."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import subprocess
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Set, Tuple

from .commands import COMMAND_S, Commands, argvs
from .folders import JOURNAL, Folder, Owner
from .proc import elsewhere, identity, of_this_boot
from .steps import Failure, JsonObject, Refusal, Steps

FORGOTTEN = "undo.forgotten.jsonl"  # the name of a journal whose entries were given up


class PresenceCheck(NamedTuple):
    """How it shows that a change stands: a pattern that is found in a command's output for as long as it does."""

    read: List[str]
    pattern: str


class Pending(NamedTuple):
    """A change that may stand, and how to take it back."""

    undo: List[List[str]]
    presence: Optional[PresenceCheck]


class FailedChange(NamedTuple):
    """A change that could not be taken back, and the command that failed; without a status where it was not run."""

    id: str
    argv: Sequence[str]
    status: Optional[int]
    tail: str

    @property
    def text(self) -> str:
        """A sentence for a message."""
        return ": ".join(filter(None, (self.id, " ".join(self.argv), self.tail)))


class ForgottenChange(NamedTuple):
    """A change that is given up: `what` would have undone it."""

    id: str
    what: str


def presence_of(value: Any) -> Optional[PresenceCheck]:
    """Return a check from its JSON, as it was sent or as `sign` of a journal; those of older agents have none."""
    if value is None:
        return None
    read, pattern = value
    re.compile(pattern)
    return PresenceCheck(argvs([read])[0], pattern)


def about_of(text: bytes) -> JsonObject:
    """Return what an agent wrote into its folder's marker about itself; nothing where that cannot be read."""
    try:
        found = json.loads(text.partition(b"\n")[0].decode())
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


class Journal:
    """Commands that take changes back, on disk before the change is made.

    A change is in doubt while it is made and while it is taken back: who finds it so knows not what is there to undo.
    Where it was made says each entry, and `about`, which is what the folder's marker says: what a reboot has taken back
    is not pending. `troubles` tells of lines that cannot be followed.
    """

    def __init__(self, folder: Folder, agents: Owner, about: JsonObject) -> None:
        self.folder = folder
        self.agents = agents
        self.pending: Dict[str, Pending] = {}
        self.doubtful: Set[str] = set()
        self.troubles: List[str] = []
        unclear: Dict[str, str] = {}
        try:
            with open(self.opened(os.O_RDWR), "rb+") as file:
                data = file.read()
                whole = data[: data.rfind(b"\n") + 1]
                if whole != data:  # a crash while it was written: then the change had not begun
                    file.truncate(len(whole))
        except FileNotFoundError:
            return
        for number, line in enumerate(whole.split(b"\n")[:-1], 1):
            try:
                self.follow(json.loads(line), about, unclear)
            except (ValueError, TypeError, LookupError, RecursionError, re.error):
                self.troubles.append("line %d cannot be read: %s" % (number, line[:80].decode(errors="replace")))
        self.troubles += ["%s: %s" % trouble for trouble in unclear.items()]

    def follow(self, entry: JsonObject, about: JsonObject, unclear: Dict[str, str]) -> None:
        """Apply an entry read from the journal.

        Of a change that nobody has taken back `unclear` says why it cannot be done here.
        """
        key = entry["id"]
        if not isinstance(key, str):
            raise TypeError("an id that is no text")
        if entry.get("done"):
            self.pending.pop(key, None)
            unclear.pop(key, None)
        elif "undo" in entry:
            change = Pending(argvs(entry["undo"]), presence_of(entry.get("sign")))
            words = [word for word in (about, entry.get("at")) if word]
            if not words:
                unclear[key] = "it is unknown whether it was made before a reboot"
            elif any(map(elsewhere, words)):
                unclear[key] = "it was made on another machine"
            elif all(map(of_this_boot, words)):
                self.pending[key] = change
        if entry.get("whole", True):  # an older agent wrote none of it
            self.doubtful.discard(key)
        else:
            self.doubtful.add(key)

    def opened(self, flags: int) -> int:
        """Open the journal and return its descriptor.

        What it holds is run with this agent's rights, so that nobody else may have written it. Its user can put a file
        there that others with the agent's rights once wrote: one with a single name is new.
        """
        fd = self.folder.open(JOURNAL, flags, self.agents)
        status = os.fstat(fd)
        if status.st_uid != self.agents.uid or status.st_nlink != 1:
            os.close(fd)
            path = self.folder.path_of(JOURNAL)
            raise Refusal("folder", "%s belongs to user %d: what it holds is not run" % (path, status.st_uid))
        return fd

    def append(self, entry: JsonObject) -> None:
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
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.folder.path_of(JOURNAL))
            os.fsync(fd)
        finally:
            os.close(fd)
        os.fsync(self.folder.fd)

    def add(self, key: str, change: Pending) -> None:
        self.append({"id": key, "undo": change.undo, "sign": change.presence, "whole": False, "at": identity()})
        self.pending[key] = change
        self.doubtful.add(key)

    def mark(self, key: str, *, whole: bool) -> None:
        """Write whether the change stands as it was asked for, or is in doubt from now on."""
        (self.doubtful.discard if whole else self.doubtful.add)(key)
        with contextlib.suppress(OSError):  # on a full disk it is in doubt for longer than it has to be
            self.append({"id": key, "whole": whole})

    def done(self, key: str) -> None:
        self.pending.pop(key, None)
        self.append({"id": key, "done": True})

    def unreadable(self) -> List[FailedChange]:
        """Return the entries that cannot be followed, as failed changes."""
        path = self.folder.path_of(JOURNAL)
        return [FailedChange(path, (), None, trouble) for trouble in self.troubles]

    def forget(self) -> List[ForgottenChange]:
        """Discard all entries; return what would have been done for each change, by its name."""
        os.rename(JOURNAL, FORGOTTEN, src_dir_fd=self.folder.fd, dst_dir_fd=self.folder.fd)
        forgotten = [
            ForgottenChange(key, "; ".join(" ".join(argv) for argv in change.undo))
            for key, change in self.pending.items()
        ]
        forgotten += [ForgottenChange(self.folder.path_of(FORGOTTEN), trouble) for trouble in self.troubles]
        self.pending.clear()
        self.troubles.clear()
        return forgotten


class UndoReport(NamedTuple):
    """Keys of changes that were undone, those that somebody else had undone already, and those that could not be."""

    undone: List[str]
    already: List[str]
    failed: List[FailedChange]


def stands(commands: Commands, presence: Optional[PresenceCheck]) -> Steps[Optional[bool]]:
    """Return whether a change is still there; None where that cannot be told."""
    if presence is None:
        return None
    try:
        done = yield from commands.run(presence.read, COMMAND_S)
    except (OSError, Refusal, subprocess.SubprocessError):
        return None
    if done.status or done.timed_out:
        return None
    return re.search(presence.pattern, done.stdout, re.MULTILINE) is not None


def undo_change(journal: Journal, commands: Commands, key: str) -> Steps[Optional[Failure]]:
    """Carry out the undo commands of a change; return what went wrong, or None.

    Of one in doubt each command is tried, and none has to find anything to undo; but each has to run to its end. So is
    each of one that has a check, which then tells whether anything of the change is left. One that hangs ends that.
    """
    change = journal.pending[key]
    doubtful = key in journal.doubtful
    if not doubtful:
        journal.mark(key, whole=False)
    first = None
    for argv in change.undo:
        wrong = yield from commands.run_until_failure([argv])
        hung = wrong and (wrong.status or 0) < 0
        if wrong and (hung or wrong.status is None or not doubtful):
            first = first or wrong
        if hung or (first and not change.presence and not doubtful):
            break
    if first and (yield from stands(commands, change.presence)) is False:
        return None
    if first and not doubtful:
        journal.mark(key, whole=True)  # as whole as it can be told from
    return first


def undo_changes(journal: Journal, commands: Commands, keys: Optional[Set[str]] = None) -> Steps[UndoReport]:
    """Undo what a journal holds, or some keys of it, the last change first.

    What somebody else has taken back, or changed since, is left as it is.
    """
    report = UndoReport([], [], [])
    for key in [key for key in reversed(list(journal.pending)) if keys is None or key in keys]:
        if (yield from stands(commands, journal.pending[key].presence)) is False:
            report.already.append(key)
        else:
            wrong = yield from undo_change(journal, commands, key)
            if wrong:
                report.failed.append(FailedChange(key, *wrong))
                continue
            report.undone.append(key)
        try:
            journal.done(key)
        except OSError:
            continue  # a full disk: it is undone once more later, which is safer than never
    return report


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

    def change(
        self,
        *,
        key: str,
        undo: List[List[str]],
        apply: List[List[str]],
        presence: Optional[Tuple[List[str], str]] = None,
    ) -> Steps[None]:
        journal = self.book()
        argvs(apply)
        if key in journal.pending:
            raise Refusal("bad-request", "%s is changed already" % key)
        journal.add(key, Pending(argvs(undo), presence_of(presence)))
        self.busy.add(key)
        try:
            wrong = yield from self.commands.run_until_failure(apply)
            if wrong:
                also = yield from undo_change(journal, self.commands, key)
                if not also:
                    journal.done(key)
                raise Refusal("failed", "cannot apply %s" % key, undo_failed=also, **wrong._asdict())
            journal.mark(key, whole=True)
        finally:
            self.busy.discard(key)

    def undo(self, *, key: str) -> Steps[None]:
        journal = self.book()
        while key in self.busy:  # a request that was given up is still making it
            yield 0.01
        if key not in journal.pending:
            return  # it could not be made, and was taken back at once
        self.busy.add(key)
        try:
            report = yield from undo_changes(journal, self.commands, {key})
        finally:
            self.busy.discard(key)
        for wrong in report.failed:
            raise Refusal("failed", "cannot undo %s" % wrong.id, argv=wrong.argv, status=wrong.status, tail=wrong.tail)
