"""What dead agents left on this node: processes, changes and folders, found and put down."""

from __future__ import annotations

import fcntl
import glob
import json
import os
import shutil
import signal
import stat
from typing import Any, Dict, List, Optional, Tuple

from .changes import Journal, take_back
from .children import ladder
from .commands import Commands
from .home import JOURNAL, MARKER, Home
from .proc import command_line, descendants, identity, process_table, tags
from .steps import Steps


class Sweep:
    """One sweep of a work folder: whose agents live, what it holds meanwhile, and what it has done."""

    def __init__(self, home: Home, commands: Commands, *, work: str, keep_data: bool) -> None:
        self.home = home
        self.commands = commands
        self.work = work
        self.keep_data = keep_data
        self.alive: List[Tuple[str, str]] = []
        self.held: List[int] = []
        self.report: Dict[str, List[Any]] = {"undone": [], "failed": [], "removed": [], "kept": []}

    def carry_out(self) -> Steps[Dict[str, Any]]:
        """End what dead agents left: processes by their tag, changes by their journals, and folders if asked."""
        try:
            abouts = self.look()
            named = [
                {"pid": pid, "argv": command_line(pid), "run": tags(pid).get("ORCH_RUN", "")} for pid in self.strays()
            ]
            _, left = yield from ladder(self.strays, [(signal.SIGTERM, 1.0)])
            for folder, about in abouts:
                yield from self.sweep_folder(folder, about)
                if not self.keep_data:
                    self.prune(os.path.dirname(folder))
        finally:
            for fd in self.held:
                os.close(fd)
        return dict(self.report, killed=named, left=left, alive=sorted({run for run, _ in self.alive}))

    def look(self) -> List[Tuple[str, Dict[str, Any]]]:
        """The folders of dead agents, locked, with what each says of itself."""
        markers: List[str] = []
        for depth in ("*", "*/*", "*/*/*"):
            markers += glob.glob(os.path.join(glob.escape(self.work), depth, MARKER))
        abouts = []
        for path in sorted(markers):
            about, fd = self.open_marker(path)
            if fd is None:
                self.alive.append((str(about.get("run")), str(about.get("node"))))
            else:
                self.held.append(fd)
                abouts.append((os.path.dirname(path), about))
        return abouts

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
            if (run, node) == (self.home.run, self.home.node):
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

    def open_marker(self, path: str) -> Tuple[Dict[str, Any], Optional[int]]:
        """What a run's folder says of itself, and its lock; None for the lock where its agent lives, or is not ours."""
        try:
            fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
        except OSError:
            return {}, None
        held = True
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            held = False
        held = held and self.home.ours(os.fstat(fd)) and self.home.ours(os.lstat(os.path.dirname(path)))
        try:
            about = json.loads(os.read(fd, 1 << 16).decode())
        except ValueError:
            about = {}  # its agent died while it said hello: nothing was started
        if held:
            return about, fd
        os.close(fd)
        return about, None

    def sweep_folder(self, folder: str, about: Dict[str, Any]) -> Steps[None]:
        path = os.path.join(folder, JOURNAL)
        safe = True
        if os.path.lexists(path):
            status = os.lstat(path)
            if stat.S_ISREG(status.st_mode) and self.home.ours(status):
                safe = yield from self.sweep_journal(Journal(path), about)
        if self.keep_data or not safe:
            self.report["kept"].append(folder)
            return
        try:
            shutil.rmtree(folder)
        except OSError as error:
            self.report["failed"].append({"id": folder, "argv": [], "status": None, "tail": str(error)})
        else:
            self.report["removed"].append(folder)

    def sweep_journal(self, journal: Journal, about: Dict[str, Any]) -> Steps[bool]:
        if any(about.get(key) != value for key, value in identity().items()):
            return True  # a reboot or the end of its network namespace has undone it
        undone, failed = yield from take_back(journal, self.commands)
        self.report["undone"] += undone
        self.report["failed"] += failed
        return not failed

    def prune(self, folder: str) -> None:
        """Remove folders that became empty, up to the work folder, which stays."""
        while folder.startswith(self.work.rstrip("/") + "/"):
            try:
                os.rmdir(folder)
            except OSError:
                return
            folder = os.path.dirname(folder)
