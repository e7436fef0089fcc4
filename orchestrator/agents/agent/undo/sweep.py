"""What dead agents left on this node: processes, changes and folders, found and put down."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import stat
import time
from typing import TYPE_CHECKING, List, Optional, Tuple

from ..disk.folders import Folder, drop, reach
from ..disk.run_folder import MARKER, STAYED, RunFolder
from ..processes.children import ladder
from ..processes.commands import Commands
from ..processes.proc import command_line, descendants, elsewhere, process_table, tags
from ..steps import JsonObject, Refusal, Steps
from .changes import take_back
from .journal import Journal, about_of

if TYPE_CHECKING:
    from ..messages.answers import Stray, Swept, SweptFolders


AGES_S = 1e10  # longer than that nothing stays


class Left:
    """The folder that a dead agent left: its name in the work folder, what it says of itself, and its lock."""

    def __init__(self, folder: Folder, name: str, about: JsonObject, lock: int) -> None:
        self.folder = folder
        self.name = name
        self.about = about
        self.lock = lock

    def close(self) -> None:
        self.folder.close()
        os.close(self.lock)


class Sweep:
    """One sweep of a work folder: whose agents live, what it holds meanwhile, and what it has done.

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
        self.left: List[Left] = []
        self.report: SweptFolders = {
            "undone": [],
            "already": [],
            "failed": [],
            "forgotten": [],
            "removed": [],
            "kept": [],
            "stayed": [],
        }

    def carry_out(self) -> Steps[Swept]:
        """End what dead agents left: processes by their tag, changes by their journals, and folders if asked."""
        try:
            work = self.look()
            named: List[Stray] = [
                {"pid": pid, "argv": command_line(pid), "run": tags(pid).get("ORCH_RUN", "")} for pid in self.strays()
            ]
            _, left = yield from ladder(self.strays, [(signal.SIGTERM, 1.0)])
            if work:
                with work:
                    for one in self.left:
                        yield from self.sweep_folder(work, one)
                    for name in work.names():
                        self.sweep_stayed(work, name)
                drop(work.path, self.run_folder.whose)
        finally:
            for one in self.left:
                one.close()
        return {**self.report, "killed": named, "left": left, "alive": sorted({run for run, _ in self.alive})}

    def look(self) -> Optional[Folder]:
        """The work folder, if there is one; the folders of dead agents in it are then known, and locked."""
        try:
            work = reach(self.work, self.run_folder.whose)
        except FileNotFoundError:
            return None
        for name in work.names():
            try:
                folder = work.enter(name)
            except (OSError, Refusal):
                continue  # no folder, or not ours to look into
            if not self.run_folder.whose.mine(folder.status()) or not self.take(folder, name):
                folder.close()
        return work

    def strays(self) -> List[int]:
        """Processes with the tag of a run whose agent on this node is gone."""
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
        """Lock a run's folder whose agent is gone, and note it; False for any other, of which the living are noted."""
        try:
            fd = folder.open(MARKER, os.O_RDWR, self.run_folder.whose)
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
        self.left.append(Left(folder, name, about, fd))
        return True

    def sweep_folder(self, work: Folder, left: Left) -> Steps[None]:
        """Sweep one folder, and tell what went wrong with it: that keeps nobody from the next one."""
        path = left.folder.path
        try:
            safe = yield from self.sweep_journal(left, Journal(left.folder, self.run_folder.agents, left.about))
            if safe and STAYED in left.folder.names():  # its agent was leaving it, or died as it dropped its captures
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(MARKER, dir_fd=left.folder.fd)
                return
            if safe and not self.keep_data:
                work.remove(left.name)
        except (OSError, Refusal) as error:
            self.report["failed"].append({"id": path, "argv": [], "status": None, "tail": str(error)})
            return
        self.report["kept" if self.keep_data or not safe else "removed"].append(path)

    def sweep_stayed(self, work: Folder, name: str) -> None:
        """Tell of the captures that stay in a folder; remove them where that is asked for, and they are old enough."""
        path = work.path_of(name)
        try:
            with work.enter(name) as folder:
                if not self.run_folder.whose.mine(folder.status()) or MARKER in folder.names():
                    return
                with open(folder.open(STAYED, os.O_RDONLY, self.run_folder.whose), "rb") as file:
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
                self.report["failed"].append({"id": path, "argv": [], "status": None, "tail": str(error)})
                return
        self.report["stayed"].append(
            {
                "folder": path,
                "run": str(about.get("run", ""))[:200],
                "files": len(sizes),
                "bytes": sum(sizes),
                "age_s": age_s,
                "removed": removed,
            }
        )

    def sweep_journal(self, left: Left, journal: Journal) -> Steps[bool]:
        """Take back what a journal holds; whether nothing of it is left to be done."""
        taken = yield from take_back(journal, self.commands)
        self.report["undone"] += taken.undone
        self.report["already"] += taken.already
        if self.forget and left.name.startswith(self.forget + "."):
            if taken.failed or journal.troubles:
                self.report["forgotten"] += [{"id": key, "what": what} for key, what in journal.forget()]
            return True
        self.report["failed"] += taken.failed + journal.unreadable()
        return not taken.failed and not journal.troubles
