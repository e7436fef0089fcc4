"""Find which other programs of this machine use its processors while something is measured on it."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

MOST_NAMED = 3
LEAST_NAMED = 0.05  # processors that a program uses
LEAST_NOTED = 0.05  # share of all processors that they use together
TICK_S = 1 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Process:
    """A process as /proc/PID/stat has it; `ticks` of processor time are its own and those of children that ended."""

    name: str
    parent: int
    began: str
    ticks: int


class Bystanders:
    """Counts from now on what each process of this machine uses."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = proc
        self._began = time.monotonic()
        self._before = _processes(proc)

    def text(self, *, ours: int, contained: bool) -> str:
        """Name the programs that have used most processor time; empty where all together used little.

        Processes below `ours` are none of them, nor, where hosts of the testbed are `contained`, those in PID
        namespaces below this one.
        """
        seconds, after = time.monotonic() - self._began, _processes(self._proc)
        used: dict[str, float] = defaultdict(float)
        busiest: dict[str, tuple[float, int]] = {}
        mine = _below(ours, after)
        for pid, process in after.items():
            if pid not in mine and not (contained and _in_lower_namespace(self._proc / str(pid))):
                mean = self._grown(pid, after) * TICK_S / seconds
                used[process.name] += mean
                busiest[process.name] = max(busiest.get(process.name, (0.0, pid)), (mean, pid))
        together, processors = sum(used.values()), os.cpu_count() or 1
        if together < LEAST_NOTED * processors:
            return ""
        most = sorted((name for name in used if used[name] >= LEAST_NAMED), key=lambda name: -used[name])[:MOST_NAMED]
        named = ", ".join(f"{name} (process {busiest[name][1]}) {used[name]:.2f}" for name in most)
        return (
            f"other programs of this machine used {together:.2f} of its {processors} processors while it was measured"
            + (f": {named}" if named else "")
        )

    def _grown(self, pid: int, after: Mapping[int, Process]) -> int:
        """Ticks since the beginning."""
        known = self._known(pid, after)
        before = self._before.get(pid)
        reused = before is not None and before.began != after[pid].began
        return max(0, after[pid].ticks - (0 if reused else known))

    def _known(self, pid: int, after: Mapping[int, Process]) -> int:
        """Ticks of a process at the beginning, with those of children that ended since: it has them by now."""
        ended = [number for number, one in self._before.items() if one.parent == pid and number not in after]
        own = self._before[pid].ticks if pid in self._before else 0
        return own + sum(self._known(number, after) for number in ended)


def _processes(proc: Path) -> dict[int, Process]:
    found = {}
    for entry in proc.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            text = (entry / "stat").read_text(errors="replace")
        except OSError:
            continue  # it has ended
        head, _, rest = text.rpartition(")")
        fields = rest.split()
        if len(fields) > 19:
            name = head.partition("(")[2]
            found[int(entry.name)] = Process(name, int(fields[1]), fields[19], sum(map(int, fields[11:15])))
    return found


def _below(top: int, processes: Mapping[int, Process]) -> set[int]:
    children: dict[int, list[int]] = defaultdict(list)
    for pid, process in processes.items():
        children[process.parent].append(pid)
    found, todo = set(), [top]
    while todo:
        pid = todo.pop()
        if pid not in found:
            found.add(pid)
            todo += children[pid]
    return found


def _in_lower_namespace(process: Path) -> bool:
    try:
        lines = (process / "status").read_text(errors="replace").splitlines()
    except OSError:
        return False
    return any(line.startswith("NSpid:") and len(line.split()) > 2 for line in lines)
