"""Read the processors and memory that a machine has for a run, as far as its cgroups let them be used."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

Read = Callable[[Sequence[str]], Mapping[str, str | None]]  # paths -> texts, None for what cannot be read

STATUS, MEMORY, GROUPS = "/proc/self/status", "/proc/meminfo", "/proc/self/cgroup"
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
MOUNT = PurePosixPath("/sys/fs/cgroup")

# (file of a cgroup, below the mount of its controller) by what it says; version 2 first, then version 1.
_LIMIT = ("memory.max", "memory.limit_in_bytes")
_USED = ("memory.current", "memory.usage_in_bytes")
_CACHED = (("inactive_file", "active_file"), ("total_inactive_file", "total_active_file"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What processes may use: whole or parts of processors, and bytes of memory that are free or can be made free.

    What could not be read is infinite: nobody is refused for it.
    """

    processors: float
    memory: float


def local() -> Machine:
    """Return this machine, as this process may use it."""
    return look(_read_here)


def own_kernel() -> str:
    """Return what tells the kernel that this process runs on, since it booted, from every other one."""
    return BOOT_ID.read_text(encoding="ascii").strip()


def look(read: Read) -> Machine:
    """Return a machine, as a process may use it whose files `read` gives."""
    try:
        return _look(read)
    except (ValueError, IndexError):  # files that are not as Linux writes them
        return Machine(processors=math.inf, memory=math.inf)


def _look(read: Read) -> Machine:
    own = read([STATUS, MEMORY, GROUPS])
    groups = _groups(own[GROUPS] or "")
    texts = read([str(group / name) for group, names in groups.items() for name in names])
    limits = [_group_limits(group, texts) for group in groups]
    return Machine(
        processors=min([_affinity(own[STATUS] or ""), *(processors for processors, _ in limits)]),
        memory=min([_available(own[MEMORY] or ""), *(memory for _, memory in limits)]),
    )


def _read_here(paths: Sequence[str]) -> dict[str, str | None]:
    texts: dict[str, str | None] = {}
    for path in paths:
        try:
            texts[path] = Path(path).read_text()
        except OSError:
            texts[path] = None
    return texts


def _affinity(status: str) -> float:
    """How many processors the scheduler may give this process, from "Cpus_allowed_list: 0-3,8"."""
    for line in status.splitlines():
        key, _, value = line.partition(":")
        if key == "Cpus_allowed_list":
            spans = [part.partition("-") for part in value.strip().split(",")]
            return float(sum(int(last or first) - int(first) + 1 for first, _, last in spans))
    return math.inf


def _available(meminfo: str) -> float:
    for line in meminfo.splitlines():
        key, _, value = line.partition(":")
        if key == "MemAvailable":
            return float(value.split()[0]) * 1024
    return math.inf


def _groups(text: str) -> dict[PurePosixPath, tuple[str, ...]]:
    """Every cgroup that this process is in, down from the root of its mount, and the files of it that limit.

    In a container the path may be the host's: then only the mount's own root is there.
    """
    found: dict[PurePosixPath, tuple[str, ...]] = {}
    for line in text.splitlines():
        number, controllers, path = line.split(":", 2)
        if number == "0":
            mounts, names = [MOUNT], ("cpu.max", *_names(0))
        elif "memory" in controllers.split(","):
            mounts, names = [MOUNT / "memory"], _names(1)
        elif "cpu" in controllers.split(","):
            mounts, names = [MOUNT / "cpu", MOUNT / controllers], ("cpu.cfs_quota_us", "cpu.cfs_period_us")
        else:
            continue
        below = PurePosixPath(os.path.normpath(path.lstrip("/") or "."))
        for mount in mounts:
            for folder in (below, *below.parents):
                found[mount / folder] = names
    return found


def _names(version: int) -> tuple[str, ...]:
    return _LIMIT[version], _USED[version], "memory.stat"


def _group_limits(group: PurePosixPath, texts: Mapping[str, str | None]) -> tuple[float, float]:
    """Processors, and bytes of memory, that a cgroup leaves."""

    def text(name: str) -> str:
        return (texts.get(str(group / name)) or "").strip()

    quota, period = (text("cpu.max").split() or [text("cpu.cfs_quota_us"), text("cpu.cfs_period_us")])[:2]
    processors = int(quota) / int(period) if quota.isdigit() and period.isdigit() and int(period) else math.inf
    memory = math.inf
    for limit, used, cached in zip(_LIMIT, _USED, _CACHED, strict=True):
        if text(limit).isdigit() and text(used).isdigit():
            stat = dict(line.split(maxsplit=1) for line in text("memory.stat").splitlines())
            memory = float(text(limit)) - float(text(used)) + sum(float(stat.get(key, 0)) for key in cached)
    return processors, memory
