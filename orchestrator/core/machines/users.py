"""Name users of this machine."""

from __future__ import annotations

import os
import pwd


def name(uid: int | None = None) -> str:
    """Return the name of a user, by default this process's; its number where the machine does not list it.

    Containers that run as any user (`--user 12345`, OpenShift) have no entry for it.
    """
    number = os.geteuid() if uid is None else uid
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)
