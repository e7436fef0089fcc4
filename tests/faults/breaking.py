"""Ways to break things that several rows share."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.faults.running import Controller

PIDS = Path("/sys/fs/cgroup/pids")


def kill(pids: Collection[int], number: int = signal.SIGKILL) -> None:
    for pid in pids:
        os.kill(pid, number)


def kill_all(pids: Collection[int]) -> None:
    """Kill processes of which some may be ending."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def die_together(run: Controller) -> None:
    """Kill a controller and all its agents at once: nobody takes anything back."""
    agents = {run.agent(f"tcpdump.{host}") for host in run.scene.rack.names}
    kill({run.process.pid}, signal.SIGSTOP)
    kill(agents)
    run.process.kill()
    run.process.wait()


def journal(run: Controller, host: str) -> Path:
    """The undo commands of a run on a host."""
    return run.scene.rack.work_of(host) / f"{run.id}.{host}" / "undo.jsonl"


def by_hand(run: Controller, host: str) -> None:
    """Take back what a run has changed on a host, as an administrator would."""
    entries = [json.loads(line) for line in journal(run, host).read_text().splitlines()]
    for argv in [argv for entry in reversed(entries) for argv in entry.get("undo", ())]:
        run.scene.rack.inside(host, *argv)


class Disk:
    """A small disk while it is mounted."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def grow(self, size: str) -> None:
        """Make room."""
        tool("mount", "-o", f"remount,size={size}", self.folder)


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Disk]:
    """A disk of its own for a folder of this machine."""
    folder.mkdir()
    tool("mount", "-t", "tmpfs", "-o", f"size={size}", "none", folder)
    try:
        yield Disk(folder)
    finally:
        tool("umount", "--lazy", folder)


@contextmanager
def no_more_processes(pid: int) -> Iterator[None]:
    """A process that can start no other, and no thread: EAGAIN."""
    group = PIDS / f"orch-faults-{os.getpid()}"
    group.mkdir()
    try:
        (group / "cgroup.procs").write_text(str(pid))
        (group / "pids.max").write_text("1")
        yield
    finally:
        with suppress(ProcessLookupError):
            (PIDS / "cgroup.procs").write_text(str(pid))
        group.rmdir()


def tool(*argv: object) -> None:
    subprocess.run([*map(str, argv)], check=True, capture_output=True, timeout=60)
