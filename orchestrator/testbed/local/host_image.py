"""Our own image of a host: an almost empty tree, whose programs are this machine's, mounted read-only when it starts.

Nothing is downloaded: it is made of what lies here, in a second. What it holds itself are folders to mount at, and what
everybody may read of /etc (no keys, no passwords), so that programs find their settings.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path

from orchestrator.testbed.local.tree import OPEN_FOLDER, Tree

# What of this machine every host sees, read-only; programs and their libraries lie there on any distribution.
PROGRAMS = ("/usr", "/opt", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_EMPTY = ("/dev", "/home", "/proc", "/root", "/run", "/run/lock", "/srv", "/sys", "/var", "/var/lib", "/var/log")
_OPEN = ("/tmp", "/var/tmp")
_NOT_OF_ETC = (
    *("fstab", "mtab", "machine-id", "hostname", "hosts", "resolv.conf", "passwd-", "group-", "subuid-", "subgid-"),
    *("apt", "containers", "cron.d", "cron.daily", "cron.weekly", "docker", "init.d", "ssh", "systemd"),
)


def tree(*, etc: bool = True) -> Tree:
    """The tree of a host without this machine's programs; with what may be read of its /etc, or an empty one."""
    made = Tree()
    for path in _EMPTY:
        made.folder(path)
    for path in _OPEN:
        made.folder(path, mode=OPEN_FOLDER)
    for place in map(Path, PROGRAMS):
        if place.is_symlink():
            made.link(str(place), str(place.readlink()))
        elif place.is_dir():
            made.folder(str(place))
    made.folder("/etc")
    if etc:
        made.copy(Path("/etc"), without=_NOT_OF_ETC)
    return made


def programs() -> tuple[str, ...]:
    """The folders of this machine that a host of our image gets its programs and libraries from."""
    return tuple(path for path in PROGRAMS if Path(path).is_dir() and not Path(path).is_symlink())


def environments(pythons: Iterable[str]) -> tuple[str, ...]:
    """The folders outside of `programs` that interpreters need: their environments, and what these are made of."""
    found: dict[str, None] = {}
    for prefix in (sys.prefix, sys.base_prefix, *(str(Path(python).parents[1]) for python in pythons)):
        for folder in (prefix, *_made_of(Path(prefix))):
            for place in dict.fromkeys((folder, os.path.realpath(folder))):
                if Path(place).is_dir() and not f"{place}/".startswith(tuple(f"{path}/" for path in programs())):
                    found[place] = None
    return tuple(found)


def _made_of(prefix: Path) -> list[str]:
    """The installation that a virtual environment was made with, as its pyvenv.cfg says."""
    config = prefix / "pyvenv.cfg"
    if not config.is_file():
        return []
    said = dict(line.split(" = ", 1) for line in config.read_text().splitlines() if " = " in line)
    return [os.path.dirname(said["home"])] if "home" in said else []  # noqa: PTH120 - as it is written there
