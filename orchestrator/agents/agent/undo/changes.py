"""Changes to the node: made once the way back is on its disk, and taken back as far as they still stand."""

from __future__ import annotations

import re
import subprocess
from typing import List, NamedTuple, Optional, Set, Tuple

from ..processes.commands import COMMAND_S, Commands, argvs
from ..steps import Failure, Refusal, Steps
from .journal import FailedChange, Journal, Pending, Sign, sign_of


class TakenBack(NamedTuple):
    """Keys of changes that were taken back, those that somebody else had taken back, and what went wrong."""

    undone: List[str]
    already: List[str]
    failed: List[FailedChange]


def stands(commands: Commands, sign: Optional[Sign]) -> Steps[Optional[bool]]:
    """Whether a change is still there; None where that cannot be told."""
    if sign is None:
        return None
    try:
        done = yield from commands.command(sign.read, COMMAND_S)
    except (OSError, Refusal, subprocess.SubprocessError):
        return None
    if done.status or done.timed_out:
        return None
    return re.search(sign.pattern, done.stdout, re.MULTILINE) is not None


def put_back(journal: Journal, commands: Commands, key: str) -> Steps[Optional[Failure]]:
    """Carry out the undo commands of a change; what went wrong with it, or None.

    Of one in doubt each command is tried, and none has to find anything to undo; but each has to run to its end. So is
    each of one that has a sign, which then tells whether anything of the change is left. One that hangs ends that.
    """
    change = journal.pending[key]
    doubtful = key in journal.doubtful
    if not doubtful:
        journal.mark(key, whole=False)
    first = None
    for argv in change.undo:
        wrong = yield from commands.each([argv])
        hung = wrong and (wrong.status or 0) < 0
        if wrong and (hung or wrong.status is None or not doubtful):
            first = first or wrong
        if hung or (first and not change.sign and not doubtful):
            break
    if first and (yield from stands(commands, change.sign)) is False:
        return None
    if first and not doubtful:
        journal.mark(key, whole=True)  # as whole as it can be told from
    return first


def take_back(journal: Journal, commands: Commands, keys: Optional[Set[str]] = None) -> Steps[TakenBack]:
    """Undo what a journal holds, or some keys of it, the last change first.

    What somebody else has taken back, or changed since, is left as it is.
    """
    report = TakenBack([], [], [])
    for key in [key for key in reversed(list(journal.pending)) if keys is None or key in keys]:
        if (yield from stands(commands, journal.pending[key].sign)) is False:
            report.already.append(key)
        else:
            wrong = yield from put_back(journal, commands, key)
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
        self, *, key: str, undo: List[List[str]], apply: List[List[str]], sign: Optional[Tuple[List[str], str]] = None
    ) -> Steps[None]:
        journal = self.book()
        argvs(apply)
        if key in journal.pending:
            raise Refusal("bad-request", "%s is changed already" % key)
        journal.add(key, Pending(argvs(undo), sign_of(sign)))
        self.busy.add(key)
        try:
            wrong = yield from self.commands.each(apply)
            if wrong:
                also = yield from put_back(journal, self.commands, key)
                if not also:
                    journal.done(key)
                raise Refusal("failed", "cannot apply %s" % key, undo_failed=also, **wrong._asdict())
            journal.mark(key, whole=True)
        finally:
            self.busy.discard(key)

    def undo(self, *, key: str) -> Steps[None]:
        journal = self.book()
        while key in self.busy:  # whoever asked for it went away before it was answered
            yield 0.01
        if key not in journal.pending:
            return  # it could not be made, and was taken back at once
        self.busy.add(key)
        try:
            report = yield from take_back(journal, self.commands, {key})
        finally:
            self.busy.discard(key)
        for wrong in report.failed:
            raise Refusal("failed", "cannot undo %s" % wrong.id, argv=wrong.argv, status=wrong.status, tail=wrong.tail)
