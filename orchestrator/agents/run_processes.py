"""The processes of a run on this node, and the launch that each belongs to, for sources of the sampler.

They are those below the agent and below the first process of each launch that runs in a container, which the agent
lists in a folder: NAME.pid. Each belongs to the launch that it descends from.
"""

# ruff: noqa: PTH208 - importing pathlib would take as long as starting the interpreter

from __future__ import annotations

import os

TAG = b"ORCH_LAUNCH="


def read(path: str) -> bytes:
    """Return the text of a small file; empty where it cannot be read, as of a process that has ended."""
    try:
        fd = os.open(path, os.O_RDONLY)
    except OSError:
        return b""
    try:
        return os.read(fd, 65536)
    except OSError:
        return b""
    finally:
        os.close(fd)


def processes(proc: str) -> dict[int, tuple[int, int]]:
    """Return each process's parent, and the ticks that it and the children that it has waited for have used."""
    table = {}
    for entry in os.listdir(proc):
        if entry.isdigit():
            fields = read(proc + "/" + entry + "/stat").rpartition(b")")[2].split()
            if fields:
                table[int(entry)] = (int(fields[1]), sum(int(field) for field in fields[11:15]))
    return table


def listed(folder: str) -> dict[int, str]:
    """Return the launches whose first processes are listed in a folder, which may not be there."""
    try:
        names = [name for name in os.listdir(folder) if name.endswith(".pid")]
    except OSError:
        return {}
    found = {name[: -len(".pid")]: read(folder + "/" + name).strip() for name in names}
    return {int(pid): name for name, pid in found.items() if pid.isdigit()}


def leaders(table: dict[int, tuple[int, int]], agent: int, first: list[int]) -> dict[int, int]:
    """Return every process below the agent, with its ancestor right below the agent, or the nearest of `first`.

    Those of `first` count wherever they are: a daemon may have started them.
    """
    children: dict[int, list[int]] = {}
    for pid, (parent, _) in table.items():
        children.setdefault(parent, []).append(pid)
    found: dict[int, int] = {}
    todo = [(pid, pid) for pid in children.get(agent, [])] + [(pid, pid) for pid in first if pid in table]
    while todo:
        pid, leader = todo.pop()
        if leader == pid or pid not in first:
            found[pid] = leader
            todo += [(child, leader) for child in children.get(pid, [])]
    return found


def launch_name(proc: str, pid: int) -> str:
    """Return the launch that a process is tagged with; empty where it has none, or may not be looked at."""
    for entry in read("%s/%d/environ" % (proc, pid)).split(b"\0"):
        if entry.startswith(TAG):
            return entry[len(TAG) :].decode(errors="replace").replace(",", ";")
    return ""
