"""Cleans up after dead agents on this node: processes, changes and folders."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import stat
import time
from typing import TYPE_CHECKING, List, NamedTuple, Optional, Sequence, Tuple

from .children import ladder
from .commands import Commands
from .folders import MARKER, STAYED, Folder, RunFolder, drop, reach
from .proc import command_line, descendants, elsewhere, process_table, tags
from .steps import JsonObject, Refusal, Steps
from .undo import FailedChange, ForgottenChange, Journal, about_of, undo_changes

if TYPE_CHECKING:
    from .bounds import Count, Pid

AGES_S = 1e10  # longer than that nothing stays


class Stray(NamedTuple):
    """A process of a run whose agent is dead."""

    pid: Pid
    argv: Sequence[str]
    run: str


class StayedFolder(NamedTuple):
    """A folder of a run with captures that stay on the node: they have stayed for `age_s` s, or were `removed`."""

    folder: str
    run: str
    files: Count
    bytes: Count
    age_s: float
    removed: bool


class Swept(NamedTuple):
    """The answer to `sweep`: its findings and actions, with folders by absolute path, and changes by key.

    Those in `already` did not stand any more. `left` are processes that would not end, `alive` runs with an agent.
    """

    killed: Sequence[Stray]
    left: Sequence[int]
    undone: Sequence[str]
    already: Sequence[str]
    failed: Sequence[FailedChange]
    forgotten: Sequence[ForgottenChange]
    removed: Sequence[str]
    kept: Sequence[str]
    stayed: Sequence[StayedFolder]
    alive: Sequence[str]


class DeadFolder:
    """The folder of a dead agent: its name in the work folder, its marker, and its lock."""

    def __init__(self, folder: Folder, name: str, about: JsonObject, lock: int) -> None:
        self.folder = folder
        self.name = name
        self.about = about
        self.lock = lock

    def close(self) -> None:
        self.folder.close()
        os.close(self.lock)


class Sweep:
    """One sweep of a work folder: the living agents, the folders of dead ones, and what was done.

    What a journal of the run `forget` still says once that was tried is forgotten. Captures that stay are removed where
    they have stayed for longer than `stayed_s` seconds, and otherwise told; None removes none.
    """

    def __init__(
        self,
        run_folder: RunFolder,
        commands: Commands,
        *,
        work: str,
        keep_data: bool,
        forget: str,
        stayed_s: Optional[float] = None,
    ) -> None:
        self.run_folder = run_folder
        self.commands = commands
        self.work = work
        self.keep_data = keep_data
        self.forget = forget
        self.stayed_s = stayed_s
        self.alive: List[Tuple[str, str]] = []
        self.folders: List[DeadFolder] = []
        self.undone: List[str] = []
        self.already: List[str] = []
        self.failed: List[FailedChange] = []
        self.forgotten: List[ForgottenChange] = []
        self.removed: List[str] = []
        self.kept: List[str] = []
        self.stayed: List[StayedFolder] = []

    def carry_out(self) -> Steps[Swept]:
        """End dead agents' processes by their tag, take back changes by their journals, and remove folders if asked."""
        try:
            work = self.look()
            named = [Stray(pid, command_line(pid), tags(pid).get("ORCH_RUN", "")) for pid in self.strays()]
            _, left = yield from ladder(self.strays, [(signal.SIGTERM, 1.0)])
            if work:
                with work:
                    for one in self.folders:
                        yield from self.sweep_folder(work, one)
                    for name in work.names():
                        self.sweep_stayed(work, name)
                drop(work.path, self.run_folder.owner)
        finally:
            for one in self.folders:
                one.close()
        return Swept(
            killed=named,
            left=left,
            undone=self.undone,
            already=self.already,
            failed=self.failed,
            forgotten=self.forgotten,
            removed=self.removed,
            kept=self.kept,
            stayed=self.stayed,
            alive=sorted({run for run, _ in self.alive}),
        )

    def look(self) -> Optional[Folder]:
        """Open the work folder, if there is one, and lock the folders of dead agents in it."""
        try:
            work = reach(self.work, self.run_folder.owner)
        except FileNotFoundError:
            return None
        for name in work.names():
            try:
                folder = work.enter(name)
            except (OSError, Refusal):
                continue  # no folder, or not ours to look into
            if not self.run_folder.owner.owns(folder.status()) or not self.take(folder, name):
                folder.close()
        return work

    def strays(self) -> List[int]:
        """Return the processes with the tag of a run whose agent on this node is gone."""
        table = process_table()
        mine = {os.getpid(), *descendants(table, os.getpid())}
        found = []
        for pid in table:
            tag = tags(pid) if pid not in mine else {}
            if "ORCH_RUN" not in tag or "ORCH_NODE" not in tag:
                continue
            run, node = tag["ORCH_RUN"], tag["ORCH_NODE"]
            if (run, node) == (self.run_folder.run, self.run_folder.node):
                found.append(pid)
            elif (run, node) not in self.alive:
                try:  # as seen from the process's own network namespace, where its agent would be
                    with open("/proc/%d/net/unix" % pid) as file:
                        held = any(line.endswith(" @orch-run-%s/%s\n" % (run, node)) for line in file)
                except OSError:
                    continue
                if not held:
                    found.append(pid)
        return found

    def take(self, folder: Folder, name: str) -> bool:
        """Lock a run's folder whose agent is gone, and note it; return False for any other, and note the living."""
        try:
            fd = folder.open(MARKER, os.O_RDWR, self.run_folder.owner)
        except (OSError, Refusal):
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            gone = True
        except BlockingIOError:
            gone = False
        about = about_of(os.read(fd, 1 << 16))
        if not gone:
            self.alive.append((str(about.get("run")), str(about.get("node"))))
        if not gone or elsewhere(about):
            os.close(fd)
            return False
        self.folders.append(DeadFolder(folder, name, about, fd))
        return True

    def sweep_folder(self, work: Folder, dead: DeadFolder) -> Steps[None]:
        """Sweep one folder, and note what went wrong with it: the next one is swept all the same."""
        path = dead.folder.path
        try:
            safe = yield from self.sweep_journal(dead, Journal(dead.folder, self.run_folder.agents, dead.about))
            if safe and STAYED in dead.folder.names():  # its agent was leaving it, or died as it dropped its captures
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(MARKER, dir_fd=dead.folder.fd)
                return
            if safe and not self.keep_data:
                work.remove(dead.name)
        except (OSError, Refusal) as error:
            self.failed.append(FailedChange(path, (), None, str(error)))
            return
        (self.kept if self.keep_data or not safe else self.removed).append(path)

    def sweep_stayed(self, work: Folder, name: str) -> None:
        """Note the captures that stay in a folder; remove them where that is asked for, and they are old enough."""
        path = work.path_of(name)
        try:
            with work.enter(name) as folder:
                if not self.run_folder.owner.owns(folder.status()) or MARKER in folder.names():
                    return
                with open(folder.open(STAYED, os.O_RDONLY, self.run_folder.owner), "rb") as file:
                    about = about_of(file.read(1 << 16))
                if elsewhere(about):
                    return
                there = [(one, status) for one, status, _ in folder.entries() if stat.S_ISREG(status.st_mode)]
                sizes = [status.st_size for one, status in there if one != STAYED]
        except (OSError, Refusal):
            return  # no folder, not ours, or without captures that stay
        since = about.get("since")
        age_s = time.time() - since if isinstance(since, (int, float)) else 0.0
        age_s = age_s if 0.0 <= age_s < AGES_S else 0.0  # the user may have written anything there
        removed = self.stayed_s is not None and age_s >= self.stayed_s
        if removed:
            try:
                work.remove(name)
            except (OSError, Refusal) as error:
                self.failed.append(FailedChange(path, (), None, str(error)))
                return
        run = str(about.get("run", ""))[:200]
        self.stayed.append(StayedFolder(path, run, len(sizes), sum(sizes), age_s, removed))

    def sweep_journal(self, dead: DeadFolder, journal: Journal) -> Steps[bool]:
        """Take back what a journal holds; return whether nothing of it is left."""
        taken = yield from undo_changes(journal, self.commands)
        self.undone += taken.undone
        self.already += taken.already
        if self.forget and dead.name.startswith(self.forget + "."):
            if taken.failed or journal.troubles:
                self.forgotten += journal.forget()
            return True
        self.failed += taken.failed + journal.unreadable()
        return not taken.failed and not journal.troubles
