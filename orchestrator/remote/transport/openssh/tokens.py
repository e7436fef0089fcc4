"""What stands for something else in settings: `%h` and its like, `${VARIABLE}` and `~`, as ssh_config(5) has them."""

from __future__ import annotations

import getpass
import hashlib
import os
import pwd
import re
import socket
from collections.abc import Callable, Mapping
from pathlib import Path

from orchestrator.core.errors import TransportError
from orchestrator.remote.transport.openssh.settings import Hop

_TOKEN = re.compile(r"%(.?)")
_VARIABLE = re.compile(r"\$\{(\w*)}")


def expanded(text: str, hop: Hop) -> str:
    """`text` with its %-tokens replaced."""
    values = _values(hop)

    def value(found: re.Match[str]) -> str:
        if found[1] not in values:
            raise TransportError(
                f"the SSH settings have {found[0]!r} in {text!r}, which is no token of ssh_config(5)",
                node=hop.target.name,
            )
        return values[found[1]]()

    return _TOKEN.sub(value, text)


def path(text: str, hop: Hop) -> Path:
    """The file that `text` names."""

    def variable(found: re.Match[str]) -> str:
        if found[1] not in os.environ:
            raise TransportError(
                f"the SSH settings want the variable {found[1]}, which is not set", node=hop.target.name
            )
        return os.environ[found[1]]

    found = _VARIABLE.sub(variable, expanded(text, hop))
    try:
        return Path(_home(found))
    except KeyError:
        raise TransportError(
            f"the SSH settings name {text!r}, and there is no such user here", node=hop.target.name
        ) from None


def _home(text: str) -> str:
    """OpenSSH takes home folders from the user database; HOME may say another one. KeyError without such a user."""
    if not text.startswith("~"):
        return text
    user, slash, rest = text[1:].partition("/")
    return (pwd.getpwnam(user) if user else pwd.getpwuid(os.getuid())).pw_dir + slash + rest


def _values(hop: Hop) -> Mapping[str, Callable[[], str]]:
    settings = hop.settings
    jump = settings.proxyjump or ""

    def connection() -> str:
        text = socket.getfqdn() + settings.hostname + str(settings.port) + settings.user + jump
        return hashlib.sha1(text.encode(errors="surrogateescape"), usedforsecurity=False).hexdigest()

    return {
        "%": lambda: "%",
        "C": connection,
        "d": lambda: _home("~"),
        "h": lambda: settings.hostname,
        "i": lambda: str(os.getuid()),
        "j": lambda: jump,
        "k": lambda: settings.hostkeyalias or hop.target.host,
        "L": lambda: socket.gethostname().partition(".")[0],
        "l": socket.gethostname,
        "n": lambda: hop.target.host,
        "p": lambda: str(settings.port),
        "r": lambda: settings.user,
        "u": getpass.getuser,
    }
