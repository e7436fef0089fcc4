"""What is left to read when a run ends, where its hosts read captures as they close, and where they do not."""

from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from orchestrator.execution.actions import host_reduction
from orchestrator.parts.shared import capture_files
from orchestrator.parts.shared.capture_files import CapturePoint
from tests.bench import packets
from tests.bench.commands import call
from tests.bench.figure import Figure, Settings

FLOWS = (50, 200_000)
FILES = 10
POINT = CapturePoint(launch="tcpdump.h1", port="eth0", addresses=("198.18.0.1",))
POINTS = "points.json"


def measure(settings: Settings) -> Iterator[Figure]:
    """Seconds from the end of a capture of ten files until its tables and hashes are there, by the program of hosts.

    Busy processors keep what reads as captures close from reading; it waits for that.
    """
    count = settings.times(1_000_000, 30_000)
    for flows in FLOWS:
        run = settings.scratch / f"{flows}-flows"
        folder = run / POINT.launch
        folder.mkdir(parents=True)
        (folder / "stderr").write_text(f"tcpdump: listening on {POINT.port}, link-type EN10MB\n")
        for number in range(FILES):
            path = folder / f"{capture_files.FILE}{number or ''}"
            packets.write(path, count, flows=flows, first=number * count)
        at_end, closed = [], []
        for _ in range(settings.times(5, 1)):
            at_end.append(_reduced(run))
            with _read_as_they_close(run):
                closed.append(_reduced(run))
        yield Figure(
            what=f"{FILES} files of {count / 1e6:g} million packets, {flows:,} flows",
            unit="s",
            values=tuple(closed),
            against="at-end",
            reference=tuple(at_end),
        )
        shutil.rmtree(run)


def _program(folder: Path) -> list[str]:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / host_reduction.ARCHIVE).write_bytes(host_reduction.packed_code())
    (folder / POINTS).write_text(json.dumps([dataclasses.asdict(POINT)]))
    return [sys.executable, "-B", host_reduction.ARCHIVE, POINTS]


def _reduced(run: Path) -> float:
    folder = run / capture_files.REDUCED
    return call(_program(folder), cwd=folder, within_s=600).seconds


@contextmanager
def _read_as_they_close(run: Path) -> Iterator[None]:
    """All files but the last are read."""
    folder = run / capture_files.CLOSING
    argv = [*_program(folder), capture_files.AS_THEY_CLOSE]
    with subprocess.Popen(argv, cwd=folder, stdout=subprocess.PIPE, text=True) as process:
        try:
            if process.stdout is None or [bool(process.stdout.readline()) for _ in range(FILES)].count(False):
                raise AssertionError("captures were not read as they closed")
            yield
        finally:
            process.kill()
