"""Processor time of each launch, of the node and of the machine, and time waiting for a processor, for the sampler.

Threads that waited for a processor between two samples are listed with the one that they were on, and so is what each
processor did, for the run and in all: whoever else worked there kept them waiting.

Arguments: seconds between samples, the folders where procfs and the control groups are mounted, and the one in which
the agent lists the first process of each launch that runs in a container: NAME.pid. The processes of the run are those
below the agent, which is the sampler's parent, and below these; each belongs to the launch that it descends from.
"""

# ruff: noqa: PTH208 - importing pathlib would take as long as starting the interpreter

from __future__ import annotations

import os

MYPY = False
if MYPY:
    from typing import Iterator
if MYPY or __package__:
    from orchestrator.agents.run_processes import launch_name, leaders, listed, processes, read
else:  # on a host, where it lies beside this file
    from run_processes import launch_name, leaders, listed, processes, read

TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")
NOT_COUNTED = [b"0", b"0", b"0"]  # what a kernel prints that could count waiting, and was told not to
LEAST_NS = 1_000_000  # a sample, below which it is not looked up where a thread was


class Tasks:
    """The processor time that the threads of each launch have used and have waited for, in nanoseconds.

    What a thread does between the last sample and its end is not seen.
    """

    name = "tasks"
    columns = ("process", "threads", "run_ns", "wait_ns")

    def __init__(self, proc: str, every_s: float, agent: int, containers: str) -> None:
        self.proc, self.every_s, self.agent, self.containers = proc, every_s, agent, containers
        self.counted = read(proc + "/self/schedstat").split() not in ([], NOT_COUNTED)
        self.names: dict[int, str] = {}  # of the processes right below the agent
        self.seen: dict[tuple[int, int], tuple[int, int]] = {}  # of each process and thread: used, waited for
        self.totals: dict[str, list[int]] = {}
        self.own_ticks = 0  # of all processes of the run together, also those that have ended
        self.own_ns: dict[int, int] = {}  # of their threads on each processor
        self.waits: list[tuple[object, ...]] = []  # since `Waits` took them

    def rows(self) -> list[tuple[object, ...]]:
        table = processes(self.proc)
        first = listed(self.containers)
        below = leaders(table, self.agent, list(first))
        self.own_ticks = sum(table[pid][1] for pid in (self.agent, *below) if pid in table)
        known = {**self.names, **first}
        self.names = {pid: known.get(pid) or launch_name(self.proc, pid) for pid in set(below.values())}
        before, self.seen = self.seen, {}
        threads = dict.fromkeys(self.totals, 0)
        for pid, leader in below.items():
            total = self.totals.setdefault(self.names[leader], [0, 0])
            for thread, spent in times(self.proc, pid):
                self.seen[pid, thread] = spent
                old = before.get((pid, thread), (0, 0))
                if spent[0] < old[0] or spent[1] < old[1]:
                    old = (0, 0)  # another thread of the same number
                total[0] += spent[0] - old[0]
                total[1] += spent[1] - old[1]
                self.place(self.names[leader], pid, thread, spent[0] - old[0], spent[1] - old[1])
                threads[self.names[leader]] = threads.get(self.names[leader], 0) + 1
        return [
            (name, threads[name], run_ns, wait_ns if self.counted else "")
            for name, (run_ns, wait_ns) in sorted(self.totals.items())
            if name in threads
        ]

    def place(self, launch: str, pid: int, thread: int, run_ns: int, wait_ns: int) -> None:
        """Note on which processor a thread was last, for what it has used and waited for since the last sample."""
        if max(run_ns, wait_ns) < LEAST_NS:
            return
        fields = read("%s/%d/task/%d/stat" % (self.proc, pid, thread)).rpartition(b")")[2].split()
        if len(fields) > 36 and fields[36].isdigit():
            processor = int(fields[36])
            self.own_ns[processor] = self.own_ns.get(processor, 0) + run_ns
            if self.counted and wait_ns >= LEAST_NS:
                self.waits.append((launch, thread, processor, run_ns, wait_ns))


class Waits:
    """Threads that waited for a processor since the last sample of `tasks`, which is taken before."""

    name = "waits"
    columns = ("process", "thread", "processor", "run_ns", "wait_ns")

    def __init__(self, tasks: Tasks) -> None:
        self.every_s, self.tasks = tasks.every_s, tasks

    def rows(self) -> list[tuple[object, ...]]:
        found, self.tasks.waits = self.tasks.waits, []
        return found


class Processors:
    """The work of each processor in seconds since boot, stolen time, and what threads of this node's run used of it."""

    name = "processors"

    def __init__(self, tasks: Tasks) -> None:
        self.every_s, self.tasks = tasks.every_s, tasks
        self.numbers = sorted(times_of_processors(read_whole(tasks.proc + "/stat")))
        kinds = ("busy_s", "steal_s", "own_s")
        self.columns = ["|processor.cpu%d.%s" % (number, kind) for number in self.numbers for kind in kinds]

    def rows(self) -> list[list[object]]:
        known = times_of_processors(read_whole(self.tasks.proc + "/stat"))
        row: list[object] = []
        for number in self.numbers:
            own = "%.6f" % (self.tasks.own_ns.get(number, 0) / 1e9)
            row += [*("%.2f" % (TICK_S * ticks) for ticks in known[number]), own] if number in known else ["", "", own]
        return [row]


def read_whole(path: str) -> bytes:
    """Return the text of a file of any length; empty where it cannot be read."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - importing pathlib would take as long as starting the interpreter
            return file.read()
    except OSError:
        return b""


def times_of_processors(stat: bytes) -> dict[int, tuple[int, int]]:
    """Return the ticks that each processor worked for processes and that were stolen from it, by /proc/stat."""
    found = {}
    for line in stat.split(b"\n"):
        words = line.split()
        if line.startswith(b"cpu") and line[3:4].isdigit() and all(word.isdigit() for word in words[1:]):
            ticks = [int(word) for word in words[1:9]] + [0] * 8
            found[int(words[0][3:])] = (sum(ticks[:3]), ticks[7])
    return found


def times(proc: str, pid: int) -> Iterator[tuple[int, tuple[int, int]]]:
    """Yield each thread of a process, with the nanoseconds that it has run and has waited for a processor."""
    folder = "%s/%d/task" % (proc, pid)
    try:
        threads = os.listdir(folder)
    except OSError:
        return
    for thread in threads:
        fields = read("%s/%s/schedstat" % (folder, thread)).split()
        if len(fields) >= 2:
            yield int(thread), (int(fields[0]), int(fields[1]))


class Machine:
    """Processor time of the whole kernel, in seconds since it booted, and the part of this node's processes."""

    name = "machine"
    columns = tuple(
        "|processor." + name
        for name in ("count", "busy_s", "interrupt_s", "steal_s", "own_s", "pressure_s", "throttled_s")
    )

    def __init__(self, proc: str, groups: str, tasks: Tasks) -> None:
        self.every_s = tasks.every_s
        self.proc, self.tasks = proc, tasks
        self.limits = limits(read(proc + "/self/cgroup").decode(errors="surrogateescape"), groups)

    def rows(self) -> list[list[object]]:
        stat = read(self.proc + "/stat")
        words = stat.split(b"\n", 1)[0].split()[1:9]
        if len(words) < 4 or not all(word.isdigit() for word in words):
            shown = ["", "", "", ""]
        else:  # older kernels have fewer columns
            user, nice, system, _, _, irq, softirq, steal = [int(word) for word in words] + [0] * (8 - len(words))
            ticks = (user + nice + system, irq + softirq, steal, self.tasks.own_ticks)
            shown = ["%.2f" % (TICK_S * count) for count in ticks]
        return [[processors(stat) or "", *shown, pressure_s(self.proc), throttled_s(self.limits)]]


def processors(stat: bytes) -> int:
    """Return how many processors are online, by the lines of /proc/stat."""
    return sum(line.startswith(b"cpu") and line[3:4].isdigit() for line in stat.split(b"\n"))


def pressure_s(proc: str) -> str:
    """Return the time during which some process waited for a processor (PSI).

    Empty where the kernel does not count it.
    """
    for word in read(proc + "/pressure/cpu").split(b"\n", 1)[0].split():
        if word.startswith(b"total=") and word[6:].isdigit():
            return "%.6f" % (int(word[6:]) / 1e6)
    return ""


def limits(group: str, mounted: str) -> list[str]:
    """Return the files that count throttling by CPU limits of this process' control groups and of those above.

    Version 1 of the groups counts nanoseconds ("throttled_time"), version 2 microseconds ("throttled_usec").
    """
    found = []
    for line in group.splitlines():
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        if controllers and "cpu" not in controllers.split(","):
            continue
        at = path.rstrip("/")
        while True:
            file = "%s%s%s/cpu.stat" % (mounted, "/" + controllers if controllers else "", at)
            if b"throttled_" in read(file):
                found.append(file)
            if not at:
                break
            at = at.rpartition("/")[0]
    return found


def throttled_s(files: list[str]) -> str:
    """Return how long the limit that throttled most was in force, summed over processors; empty where there is none."""
    held = [0.0] if files else []
    for file in files:
        for line in read(file).split(b"\n"):
            name, _, count = line.partition(b" ")
            unit = {b"throttled_usec": 1e6, b"throttled_time": 1e9}.get(name)
            if unit and count.strip().isdigit():
                held.append(int(count) / unit)
    return "%.6f" % max(held) if held else ""


def open_streams(arguments: list[str]) -> list[object]:
    tasks = Tasks(arguments[1], float(arguments[0]), os.getppid(), arguments[3])
    each = Processors(tasks)
    return [tasks, Waits(tasks), Machine(arguments[1], arguments[2], tasks), *([each] if each.numbers else [])]
