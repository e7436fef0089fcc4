"""Load of a machine, for the sampler: processor time, memory, swapping, waiting for disks and thermal throttling.

Arguments: seconds between samples, then the folders where procfs and sysfs are mounted.
"""

# ruff: noqa: PTH110, PTH112, PTH208 - importing pathlib would take as long as starting the interpreter

from __future__ import annotations

import os
import sys

THROTTLE_EVERY_S = 1.0  # two files a core, and it only matters whether it happened

MEMORY = {"MemAvailable:": "memory.available_kib", "SwapFree:": "swap.free_kib"}
PAGES = {"pswpin ": "swap.in_pages", "pswpout ": "swap.out_pages"}


class Load:
    """Ticks of all processors together, free memory and pages swapped."""

    name = "cpu"
    columns = (
        "|cpu.busy_ticks",
        "|cpu.steal_ticks",
        "|cpu.total_ticks",
        *("|" + name for name in (*MEMORY.values(), *PAGES.values())),
        "|io.waited_us",
    )

    def __init__(self, proc: str, every_s: float) -> None:
        self.every_s = every_s
        self.stat, self.meminfo, self.vmstat = (File(proc + "/" + name) for name in ("stat", "meminfo", "vmstat"))
        pressure = proc + "/pressure/io"  # which kernels may be built without
        self.pressure = File(pressure) if os.path.exists(pressure) else None

    def rows(self) -> list[list[object]]:
        row: list[object] = list(ticks(self.stat.read(4096)))
        row.extend(picked(self.meminfo.read(16384), MEMORY))
        pages = self.vmstat.read(65536)
        row.extend(0 if value == "" and pages else value for value in picked(pages, PAGES))  # 0: it cannot swap
        row.append(waited_us(self.pressure.read(256)) if self.pressure else "")
        return [row]


class File:
    """A file that is read again and again; one that cannot be is empty, and named once."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.told = False
        self.fd = -1
        try:
            self.fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            self.tell(error.strerror)

    def read(self, most: int) -> bytes:
        if self.fd < 0:
            return b""
        try:
            return os.pread(self.fd, most, 0)
        except OSError as error:
            self.tell(error.strerror)
            return b""

    def tell(self, why: object) -> None:
        if not self.told:
            self.told = True
            print("cpu: nothing in %s: %s" % (self.path, why), file=sys.stderr, flush=True)


def ticks(stat: bytes) -> tuple[object, object, object]:
    """Return busy, stolen and all ticks in the first line of /proc/stat, empty where they are not there.

    Guests' time is already in that of their users; older kernels have fewer columns.
    """
    words = stat.split(b"\n", 1)[0].split()[1:9]
    if len(words) < 4 or not all(word.isdigit() for word in words):
        return "", "", ""
    user, nice, system, idle, waiting, irq, softirq, steal = [int(word) for word in words] + [0] * (8 - len(words))
    busy = user + nice + system + irq + softirq
    return busy, steal, busy + steal + idle + waiting


def waited_us(pressure: bytes) -> object:
    """Return the microseconds for which some task waited for a disk, since the machine began; empty where not told."""
    total = pressure.split(b"\n", 1)[0].rpartition(b"total=")[2].strip()
    return int(total) if total.isdigit() else ""


def picked(text: bytes, wanted: dict[str, str]) -> list[object]:
    """Return the number after each wanted beginning of a line; empty where there is none."""
    values: list[object] = []
    for word in wanted:
        at = (b"\n" + text).find(b"\n" + word.encode())
        words = text[at:].split(b"\n", 1)[0].split() if at >= 0 else []
        values.append(int(words[1]) if len(words) > 1 and words[1].isdigit() else "")
    return values


class Throttling:
    """Times that processors were slowed down because they were hot, summed over all."""

    name = "throttle"
    every_s = THROTTLE_EVERY_S

    def __init__(self, sys: str) -> None:
        self.groups: dict[str, list[File]] = {}
        self.counts: dict[str, int] = {}  # of each file, as it was last read: a processor that is put offline keeps its
        folder = sys + "/devices/system/cpu"
        for cpu in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
            for name in ("core", "package"):
                path = "%s/%s/thermal_throttle/%s_throttle_count" % (folder, cpu, name)
                if os.path.exists(path):
                    self.groups.setdefault("|cpu.%s_throttles" % name, []).append(File(path))
        self.columns = list(self.groups)

    def rows(self) -> list[list[object]]:
        return [[self.total(files) for files in self.groups.values()]]

    def total(self, files: list[File]) -> object:
        """Return the sum of the files' counts; empty while none of them has a number."""
        for file in files:
            text = file.read(32).strip()
            if text.isdigit():
                self.counts[file.path] = int(text)
        known = [self.counts[file.path] for file in files if file.path in self.counts]
        return sum(known) if known else ""


def open_streams(arguments: list[str]) -> list[object]:
    streams: list[object] = [Load(arguments[1], float(arguments[0]))]
    throttling = Throttling(arguments[2])
    return streams + ([throttling] if throttling.columns else [])
