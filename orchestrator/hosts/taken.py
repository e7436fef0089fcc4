"""How much of a machine's processors other work takes just now, from two looks at its /proc/stat; pure."""

from __future__ import annotations

STAT = "/proc/stat"
LOOK_S = 1.0  # between the two looks; the kernel counts in steps of 10 ms
MUCH = 0.1  # of the processors' time, from which a run is warned of


def share(before: str, after: str) -> float:
    """What was used between two contents of /proc/stat, also by the hypervisor; of 1, NaN when they are the same."""
    first, second = _used_and_all(before), _used_and_all(after)
    return (second[0] - first[0]) / (second[1] - first[1]) if second[1] > first[1] else float("nan")


def _used_and_all(stat: str) -> tuple[int, int]:
    user, nice, system, idle, waiting, irq, softirq, steal = (int(word) for word in stat.split("\n", 1)[0].split()[1:9])
    used = user + nice + system + irq + softirq + steal
    return used, used + idle + waiting


def warning(taken: float) -> str:
    """What to tell of a machine before anything of a run is on it; empty where it is free enough."""
    if not taken >= MUCH:
        return ""
    return f"other work takes {taken:.0%} of the processors' time now: a window measured beside it may not be valid"
