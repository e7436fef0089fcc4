"""Read a host's captures while they are written, each file once tcpdump has closed it, at lowest priority.

Nothing depends on it: the captures stay, and `on_host` reads all of one from its beginning where this reader is gone,
or has read other files than it is asked for in the end.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from orchestrator.analysis.capture import captures, flowtable, pcap
from orchestrator.core.errors import CaptureError
from orchestrator.parts.shared import capture_files
from orchestrator.parts.shared.capture_files import CapturePoint, StayedFile

LOOK_EVERY_S = 0.5
_LOCK = "reading.lock"
_ASKED = "all-points.json"


@dataclass(slots=True)
class ClosingCapture:
    """A capture that is being written: what was read of it so far, and which files these were."""

    folder: Path
    point: CapturePoint
    reading: captures.Reading
    kept: dict[Path, StayedFile] = field(default_factory=dict)

    def read_next(self) -> bool:
        """Read the oldest closed file that was not read yet; return whether there was one."""
        closed = capture_files.in_order(self.folder)[:-1]  # tcpdump closes a file before it begins the next
        file = next((one for one in closed if one not in self.kept), None)
        if file is None:
            return False
        try:
            if pcap.first_stamp(file) is not None:
                self.reading.add(file)
        except CaptureError:
            pass  # whoever reads the rest says so
        self.kept[file] = capture_files.keep(file)  # while it is in memory anyway
        print(f"{time.time_ns()} {self.point.launch}/{file.name}", flush=True)
        return True


def read_until_asked(folder: Path, points: Iterable[CapturePoint]) -> tuple[Path, dict[str, ClosingCapture]]:
    """Read the captures below a run's folder, from a folder beside theirs, until `ask_for_all` wants them whole.

    Return the file with all that is known of their points by then, and what was read, by launch.
    """
    lock = os.open(_LOCK, os.O_CREAT | os.O_WRONLY, 0o600)  # held as long as this process lives
    fcntl.flock(lock, fcntl.LOCK_EX)
    flowtable.warm()
    _yield_to_all()
    chosen = list(points)
    memory = flowtable.MEMORY // max(1, len(chosen))
    closing = [
        ClosingCapture(folder / point.launch, point, captures.Reading(_begun(point, memory))) for point in chosen
    ]
    print(capture_files.READING, flush=True)
    asked = Path.cwd() / _ASKED
    while not asked.exists():
        if not sum(one.read_next() for one in closing):
            time.sleep(LOOK_EVERY_S)
    return asked, {one.point.launch: one for one in closing}


def ask_for_all(folder: Path, points: Path) -> None:
    """Ask the process that reads captures as they close, if any, to make all tables; return when it has ended."""
    there = folder / capture_files.CLOSING
    try:
        lock = os.open(there / _LOCK, os.O_WRONLY)
    except FileNotFoundError:
        return
    asked = there / _ASKED
    try:
        unfinished = asked.with_suffix(".new")
        unfinished.write_bytes(points.read_bytes())
        unfinished.replace(asked)
        fcntl.flock(lock, fcntl.LOCK_EX)
    finally:
        os.close(lock)
    for leaving in (asked, there / _LOCK):
        leaving.unlink(missing_ok=True)
    shutil.rmtree(there / "code", ignore_errors=True)  # of one that was killed


def _begun(point: CapturePoint, memory: int) -> captures.Job:
    return replace(captures.job_of(point, ()), memory=memory)


def _yield_to_all() -> None:
    try:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    except OSError:  # a container may forbid it
        os.nice(19)
