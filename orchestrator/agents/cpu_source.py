"""How busy a machine is, for the sampler: processor time, memory, swapping and thermal throttling.

Arguments: seconds between samples, then the folders where procfs and sysfs are mounted.
"""

# ruff: noqa: PTH110, PTH112, PTH208 - importing pathlib would take as long as starting the interpreter

from __future__ import annotations

import os

THROTTLE_EVERY_S = 1.0  # two files a core, and it only matters whether it happened

MEMORY = {"MemAvailable:": "memory.available_kib", "SwapFree:": "swap.free_kib"}
PAGES = {"pswpin ": "swap.in_pages", "pswpout ": "swap.out_pages"}


class Load:
    """Ticks of all processors together, free memory and pages swapped."""

    name = "cpu"
    columns = ("|cpu.busy_ticks", "|cpu.steal_ticks", "|cpu.total_ticks",
               *("|" + name for name in (*MEMORY.values(), *PAGES.values())))  # fmt: skip

    def __init__(self, proc: str, every_s: float) -> None:
        self.every_s = every_s
        self.stat, self.meminfo, self.vmstat = (
            os.open(proc + "/" + f, os.O_RDONLY) for f in ("stat", "meminfo", "vmstat")
        )

    def rows(self) -> list[list[object]]:
        row: list[object] = list(ticks(os.pread(self.stat, 4096, 0)))
        row.extend(picked(os.pread(self.meminfo, 16384, 0), MEMORY))
        row.extend(picked(os.pread(self.vmstat, 65536, 0), PAGES))
        return [row]


def ticks(stat: bytes) -> tuple[int, int, int]:
    """Busy, stolen and all ticks in the first line of /proc/stat; guests' time is already in that of their users."""
    user, nice, system, idle, waiting, irq, softirq, steal = (
        int(word) for word in stat.split(b"\n", 1)[0].split()[1:9]
    )
    busy = user + nice + system + irq + softirq
    return busy, steal, busy + steal + idle + waiting


def picked(text: bytes, wanted: dict[str, str]) -> list[object]:
    """The number after each wanted beginning of a line; empty where there is none."""
    values: list[object] = []
    for word in wanted:
        at = (b"\n" + text).find(b"\n" + word.encode())
        values.append(int(text[at:].split(b"\n", 1)[0].split()[1]) if at >= 0 else "")
    return values


class Throttling:
    """Times that processors were slowed down because they were hot, summed over all."""

    name = "throttle"
    every_s = THROTTLE_EVERY_S

    def __init__(self, sys: str) -> None:
        self.groups: dict[str, list[int]] = {}
        folder = sys + "/devices/system/cpu"
        for cpu in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
            for name in ("core", "package"):
                path = "%s/%s/thermal_throttle/%s_throttle_count" % (folder, cpu, name)
                if os.path.exists(path):
                    self.groups.setdefault("|cpu.%s_throttles" % name, []).append(os.open(path, os.O_RDONLY))
        self.columns = list(self.groups)

    def rows(self) -> list[list[int]]:
        return [[sum(int(os.pread(fd, 32, 0)) for fd in fds) for fds in self.groups.values()]]


def open_streams(arguments: list[str]) -> list[object]:
    streams: list[object] = [Load(arguments[1], float(arguments[0]))]
    throttling = Throttling(arguments[2])
    return streams + ([throttling] if throttling.columns else [])
