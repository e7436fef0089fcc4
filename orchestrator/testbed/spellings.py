"""How names, addresses and programs are written in the file that lists real machines."""

from __future__ import annotations

import ipaddress
import re
from pathlib import PurePosixPath
from typing import Annotated

from pydantic import AfterValidator

from orchestrator.core.units import Mistake

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}\Z")  # longer ones would find no room in names of sockets
_RDMA = re.compile(r"[A-Za-z0-9_.-]{1,63}(:[0-9]{1,3})?\Z")
_DEVICE = re.compile(r"[^\s/]{1,15}\Z")
# What a shell gives a meaning to has no place in them: a ProxyCommand is a line for a shell with host and user in it.
_HOST = re.compile(r"[\w:\[][\w.:%\[\]-]*\Z")
_USER = re.compile(r"\w[\w.@+-]*\Z")
_JUMP = re.compile(r"(?:\w[\w.@+-]*@)?[\w:\[][\w.:%\[\]-]*(?:,(?:\w[\w.@+-]*@)?[\w:\[][\w.:%\[\]-]*)*\Z")


def _matching(pattern: re.Pattern[str], what: str, accepted: str) -> AfterValidator:
    def check(value: str) -> str:
        if not pattern.match(value):
            raise Mistake(f"not {what}", accepted=accepted)
        return value

    return AfterValidator(check)


def interface(value: str) -> str:
    try:
        interface = ipaddress.ip_interface(value)
    except ValueError:
        raise Mistake("not an IP address", accepted="one with its prefix, such as 10.0.0.1/24 or fd00::1/64") from None
    if "/" not in value:
        raise Mistake(f"{value!r} needs its prefix", accepted=f"such as {value}/{24 if interface.version == 4 else 64}")
    if interface.version == 6 and interface.ip.is_link_local:
        raise Mistake(
            f"{value!r} is of one link alone", accepted="an address that other hosts can name, such as fd00::1/64"
        )
    return str(interface)


def absolute(value: str) -> str:
    if not PurePosixPath(value).is_absolute() or len(PurePosixPath(value).parts) < 3:
        raise Mistake("not a folder of its own", accepted="an absolute path such as /var/tmp/orch-{uid}")
    return value


def program(value: str) -> str:
    if not PurePosixPath(value).is_absolute():
        raise Mistake("not a program's path", accepted="true, false, or a path such as /usr/local/sbin/orch-agent")
    return value


Absolute = Annotated[str, AfterValidator(absolute)]
Name = Annotated[str, _matching(_NAME, "a name", "at most 63 letters, digits, '.', '-' and '_'")]
Device = Annotated[str, _matching(_DEVICE, "a network device's name", "one such as ens1f0")]
SshHost = Annotated[
    str,
    _matching(
        _HOST,
        "a host name",
        "a name, an address or an alias of the SSH configuration, of letters, digits and . - _ : % [ ]",
    ),
]
SshUser = Annotated[
    str, _matching(_USER, "a user's name", "letters, digits, '.', '-', '_', '+' and '@', not '-' at its beginning")
]
Jump = Annotated[
    str, _matching(_JUMP, "hosts to jump through", "[USER@]HOST[:PORT], several with commas between, as for ssh -J")
]


RdmaDevice = Annotated[str, _matching(_RDMA, "an RDMA device", "its name and port, such as mlx5_0:1")]
