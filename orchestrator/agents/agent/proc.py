"""Reads /proc: the processes of this node, their tags, its listening ports and its identity."""

from __future__ import annotations

import os
import socket
from typing import Dict, List, NamedTuple

from .steps import JsonObject


class Row(NamedTuple):
    """One line of the process table."""

    pid: int
    parent: int
    group: int
    session: int
    state: str


def process_table() -> Dict[int, Row]:
    """Return every process that is not a zombie, by pid."""
    table = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open("/proc/%s/stat" % entry, "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
        except OSError:
            continue
        row = Row(int(entry), int(fields[1]), int(fields[2]), int(fields[3]), fields[0].decode())
        if row.state not in "ZX":
            table[row.pid] = row
    return table


def descendants(table: Dict[int, Row], root: int) -> List[int]:
    children: Dict[int, List[int]] = {}
    for row in table.values():
        children.setdefault(row.parent, []).append(row.pid)
    found: List[int] = []
    todo = [root]
    while todo:
        below = children.get(todo.pop(), [])
        found += below
        todo += below
    return found


def tags(pid: int) -> Dict[str, str]:
    """Return the environment variables of ours that a process carries; none where we may not look."""
    try:
        with open("/proc/%d/environ" % pid, "rb") as file:
            entries = file.read().decode(errors="replace").split("\0")
    except OSError:
        return {}
    return dict(entry.split("=", 1) for entry in entries if entry.startswith("ORCH_") and "=" in entry)


def command_line(pid: int) -> List[str]:
    try:
        with open("/proc/%d/cmdline" % pid, "rb") as file:
            return file.read().decode(errors="replace").rstrip("\0").split("\0")
    except OSError:
        return []


def listening(port: int) -> bool:
    """Return whether any TCP socket of this network namespace listens on the port."""
    return bool(listeners(port))


def listeners(port: int) -> List[str]:
    """Return the inodes of the TCP sockets of this network namespace that listen on the port."""
    found: List[str] = []
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(table) as file:
                rows = [line.split() for line in file.readlines()[1:]]
        except OSError:
            continue
        found += [row[9] for row in rows if row[3] == "0A" and int(row[1].rpartition(":")[2], 16) == port]
    return found


def holding(inodes: List[str]) -> List[int]:
    """Return the processes that hold one of these sockets, of those whose descriptors we may see."""
    links = {"socket:[%s]" % inode for inode in inodes}
    found = []
    for pid in sorted(int(name) for name in os.listdir("/proc") if name.isdigit()):
        folder = "/proc/%d/fd" % pid
        try:
            if any(os.readlink(os.path.join(folder, name)) in links for name in os.listdir(folder)):
                found.append(pid)
        except OSError:
            continue  # ended meanwhile, or another user's
    return found


def identity() -> Dict[str, str]:
    """Return the identity of the kernel state: it differs after a reboot, and in another network namespace."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        return {"boot": file.read().strip(), "netns": os.readlink("/proc/self/ns/net"), "machine": machine()}


def machine() -> str:
    """Return the machine's name and id, which tell it from others that share the work folder; either may repeat."""
    try:
        with open("/etc/machine-id") as file:
            number = file.read().strip()
    except OSError:
        number = ""
    return "%s %s" % (socket.gethostname(), number)


def of_this_boot(about: JsonObject) -> bool:
    """Return whether an agent's record of itself is of this boot and network namespace."""
    return all(about.get(key) == value for key, value in identity().items() if key != "machine")


def elsewhere(about: JsonObject) -> bool:
    """Return whether an agent's record of itself is of another machine, so that no reboot of this one ended it."""
    return not of_this_boot(about) and about.get("machine", machine()) != machine()
