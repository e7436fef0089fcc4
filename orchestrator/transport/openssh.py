"""The files that OpenSSH would read: its configuration, with what that includes, and known hosts."""

from __future__ import annotations

import shlex
from pathlib import Path

_INCLUDE_DEPTH = 16  # OpenSSH's own limit
_SYSTEM_CONFIG = Path("/etc/ssh/ssh_config")
_SYSTEM_KNOWN_HOSTS = Path("/etc/ssh/ssh_known_hosts")
_KNOWN_HOSTS = "~/.ssh/known_hosts ~/.ssh/known_hosts2"


def configuration(named: Path | None) -> str:
    """The text of the file named, or else of the user's and the system's, as far as they exist."""
    files = [named.expanduser()] if named else [Path("~/.ssh/config").expanduser(), _SYSTEM_CONFIG]
    return "".join(_config_text(path, 0) for path in files if named or path.is_file())


def _config_text(path: Path, depth: int) -> str:
    """An SSH configuration with its `Include` lines replaced by what they name, which paramiko would ignore."""
    if depth > _INCLUDE_DEPTH:
        raise ValueError(f"{path}: too many levels of Include")
    lines = []
    for line in path.read_text().splitlines():
        words = line.replace("=", " ", 1).split()
        if not words or words[0].lower() != "include":
            lines.append(line)
            continue
        home = path.parent if path.parent == _SYSTEM_CONFIG.parent else Path("~/.ssh").expanduser()
        for pattern in shlex.split(line)[1:]:
            where = Path(pattern).expanduser()
            full = where if where.is_absolute() else home / where
            lines += [_config_text(found, depth + 1) for found in sorted(full.parent.glob(full.name))]
    return "\n".join(lines) + "\n"


def known_hosts(setting: str | None) -> list[Path]:
    """The known_hosts files that OpenSSH would look into, with `setting` for UserKnownHostsFile."""
    paths = [Path(word).expanduser() for word in shlex.split(_KNOWN_HOSTS if setting is None else setting)]
    return [path for path in (*paths, _SYSTEM_KNOWN_HOSTS) if path.is_file()]
