"""What this agent may do, and what a program may by itself: root, or single capabilities of it."""

from __future__ import annotations

import os
import pwd
from typing import Tuple

from ..steps import Refusal
from .children import find_program
from .guard import capabilities

CAPABILITIES = {"CAP_NET_ADMIN": 12, "CAP_NET_RAW": 13, "CAP_SYS_NICE": 23}
CAP_SYS_ADMIN, CAP_PERFMON = 21, 38
PARANOID = "/proc/sys/kernel/perf_event_paranoid"


def mask(field: str) -> int:
    """A set of capabilities of this process, as /proc tells it."""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1], 16) for line in file if line.startswith(field + ":"))


def passed_on() -> int:
    """The capabilities that what this agent starts has."""
    return mask("CapEff") if os.geteuid() == 0 else mask("CapAmb")


def who() -> str:
    uid = os.geteuid()
    try:
        return "user %d (%s)" % (uid, pwd.getpwuid(uid).pw_name)
    except KeyError:
        return "user %d" % uid


def granted(what: str) -> Tuple[bool, str]:
    """Whether what the agent starts has a right, such as "root" or "CAP_NET_RAW", and why or why not.

    "CAP_NET_RAW of tcpdump": or whether that program has it by its file.
    """
    if what == "perf events":
        return may_count()
    right, _, program = what.partition(" of ")
    if right == "root":
        return os.geteuid() == 0, "the agent is " + who()
    bit = 1 << CAPABILITIES[right]
    if passed_on() & bit:
        return True, "the agent is %s, with it" % who()
    if program:
        try:
            path = find_program(program)
        except Refusal:
            path = ""
        if path and capabilities(path) & bit:
            return True, "%s has it of its own" % path
    return False, "the agent is %s, without it" % who()


def may_count() -> Tuple[bool, str]:
    """Whether what the agent starts may count performance events of its processes, at least in user space."""
    try:
        with open(PARANOID) as file:
            level = int(file.read())
    except (OSError, ValueError):
        return False, "this kernel counts no performance events"
    enough = level <= 2 or bool(passed_on() & (1 << CAP_PERFMON | 1 << CAP_SYS_ADMIN))
    return enough, "kernel.perf_event_paranoid is %d, and the agent is %s" % (level, who())
