"""Checks a run's requirements on this node: programs, modules, rights, devices and ports."""

from __future__ import annotations

import json
import os
import pwd
import re
import sys
from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple, TypedDict

from . import bpf
from .children import capabilities, find_program
from .commands import Commands
from .proc import command_line, holding, listeners
from .steps import Refusal, Steps

NET = "/sys/class/net"
PYTHON_VARIABLES = ("PYTHONHOME", "PYTHONPATH")  # that may keep an interpreter from running
FIND_MODULES = """
import importlib.util, json, sys
sys.path = [entry for entry in sys.path if entry]
found = {}
for name in sys.argv[1:]:
    if name.startswith("python>="):
        mine = sys.version_info[:2]
        found[name] = [mine >= tuple(map(int, name[8:].split("."))), "it is %d.%d" % mine]
        continue
    try:
        spec = importlib.util.find_spec(name.partition(".")[0])
    except (ImportError, ValueError) as error:
        found[name] = [False, str(error)]
    else:
        where = spec and (spec.origin or ", ".join(spec.submodule_search_locations or ()))
        found[name] = [spec is not None, where or "no such module"]
print(json.dumps(found))
"""


class Need(TypedDict):
    """A requirement to `check`; `python` is the interpreter that has to find a module."""

    kind: str
    what: str
    python: str


class Finding(NamedTuple):
    """The outcome for one requirement: whether it is met, and what was seen; `broken`: the interpreter does not run."""

    found: bool
    detail: str
    broken: bool


class Findings(NamedTuple):
    """The answer to `check`, in the order asked."""

    findings: Sequence[Finding]


def check(commands: Commands, *, requirements: List[Need]) -> Steps[Findings]:
    """Return a finding for each requirement, in the order asked."""
    modules: Dict[str, List[str]] = {}
    for need in requirements:
        if need["kind"] == "module":
            modules.setdefault(need.get("python") or sys.executable, []).append(need["what"])
    known: Dict[str, Dict[str, Tuple[bool, str]]] = {}
    broken: Dict[str, str] = {}  # why an interpreter tells nothing
    for python, names in modules.items():
        known[python], broken[python] = yield from find_modules(commands, python, names)
    findings: List[Finding] = []
    for need in requirements:
        kind, what = need["kind"], need["what"]
        if kind == "module":
            python = need.get("python") or sys.executable
            found, detail = known[python].get(what, (False, broken[python]))
        else:
            found, detail = check_here(kind, what)
        findings.append(Finding(bool(found), detail, broken=kind == "module" and bool(broken[python])))
    return Findings(findings)


def check_here(kind: str, what: str) -> Tuple[bool, str]:
    """Return whether this node meets a requirement that no other interpreter has to be asked about."""
    if kind == "program":
        try:
            return True, find_program(what)
        except Refusal as refusal:
            return False, str(refusal)
    if kind == "privilege":
        return granted(what)
    if kind == "port":
        return check_port(int(what))
    if kind in ("device", "link", "mtu", "speed"):
        return check_device(kind, what)
    raise ValueError("no requirement of kind %r" % kind)


def check_device(kind: str, what: str) -> Tuple[bool, str]:
    """Return whether a network device exists, has a link, or has the MTU or speed that the first word names."""
    if kind == "device":
        return os.path.exists(os.path.join(NET, what)), "devices: " + ", ".join(sorted(os.listdir(NET)))
    if kind == "link":
        return check_link(what)
    words = what.split()
    wanted, device = int(words[0]), words[-1]
    try:
        with open(os.path.join(NET, device, kind)) as file:
            number = int(file.read())
    except (OSError, ValueError) as error:
        number = -1
        detail = str(error)
    else:
        detail = "it is %d" % number
    if kind == "speed" and (number <= 0 or nominal(device)):  # without a link, which shows elsewhere, or virtual
        return True, "not told"
    return (number == wanted if kind == "mtu" else number >= wanted), detail


def check_port(port: int) -> Tuple[bool, str]:
    """Return whether a TCP port of this node is free, else which process listens on it, as far as we may see."""
    inodes = listeners(port)
    if not inodes:
        return True, "nobody listens there"
    owners = ["%s (pid %d)" % (" ".join(command_line(pid))[:100], pid) for pid in holding(inodes)]
    return False, "%s listens there" % (", ".join(owners) or "somebody else's process")


def check_link(device: str) -> Tuple[bool, str]:
    """Return whether a device is up and has a carrier."""
    try:
        with open(os.path.join(NET, device, "carrier")) as file:
            carrier = file.read().strip() == "1"
    except FileNotFoundError:
        return False, "there is no such device"
    except OSError:  # EINVAL: it is down
        return False, "it is down"
    return carrier, "it has a carrier" if carrier else "it is up, but has no carrier"


def nominal(device: str) -> bool:
    """Return whether a device's reported speed is a constant that its driver made up, as virtual devices report."""
    path = os.path.join(NET, device)
    driver = os.path.basename(os.path.realpath(os.path.join(path, "device/driver")))
    return "/devices/virtual/" in os.path.realpath(path) or driver in ("vmxnet3", "virtio_net", "xen_netfront")


def find_modules(commands: Commands, python: str, names: List[str]) -> Steps[Tuple[Dict[str, Tuple[bool, str]], str]]:
    """Return for each module whether an interpreter finds it and where, or why that interpreter cannot tell."""
    try:
        done = yield from commands.run([python, "-c", FIND_MODULES, *sorted(set(names))], 30.0, privileged=False)
    except (Refusal, OSError) as error:
        return {name: (False, str(error)) for name in names}, ""  # there is none: the module's own remedy helps
    known = modules_told(done.stdout)
    if done.status or known is None:
        return {}, complaint(python, done.status, done.stderr, os.environ)
    return known, ""


def modules_told(printed: str) -> Optional[Dict[str, Tuple[bool, str]]]:
    """Return what FIND_MODULES printed, parsed, among whatever else is printed there; None where it is not."""
    for line in reversed(printed.splitlines()):
        if line.startswith("{"):
            try:
                told: Dict[str, Tuple[bool, str]] = json.loads(line)
            except ValueError:
                continue
            return told
    return None


def complaint(python: str, status: int, said: str, environ: Mapping[str, str]) -> str:
    """Return why an interpreter does not run, from what it printed, and environment variables that may be the cause."""
    lines = [line.strip() for line in said.splitlines() if line.strip() and "<no Python frame>" not in line]
    errors = [line for line in lines if re.match(r"Fatal Python error|\w*(Error|Exception)\b", line)]
    why = (errors or lines or ["it ended with status %d" % status])[-1]
    given = ["%s=%s" % (name, environ[name]) for name in PYTHON_VARIABLES if environ.get(name)]
    return "%s does not run: %s" % (python, why) + ("; set there: " + ", ".join(given) if given else "")


CAPABILITIES = {"CAP_NET_ADMIN": 12, "CAP_NET_RAW": 13, "CAP_SYS_NICE": 23}
CAP_SYS_ADMIN, CAP_PERFMON = 21, 38
PARANOID = "/proc/sys/kernel/perf_event_paranoid"


def mask(field: str) -> int:
    """Return a capability set of this process as a bit mask, from /proc/self/status."""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1], 16) for line in file if line.startswith(field + ":"))


def passed_on() -> int:
    """Return the capabilities, as a bit mask, that processes started by this agent have."""
    return mask("CapEff") if os.geteuid() == 0 else mask("CapAmb")


def who() -> str:
    uid = os.geteuid()
    try:
        return "user %d (%s)" % (uid, pwd.getpwuid(uid).pw_name)
    except KeyError:
        return "user %d" % uid


def granted(what: str) -> Tuple[bool, str]:
    """Return whether processes that the agent starts have a right, such as "root" or "CAP_NET_RAW", and why or why not.

    "CAP_NET_RAW of tcpdump": or whether that program has it by its file.
    """
    if what == "perf events":
        return may_count()
    if what == "programs in the kernel":
        usable, why = bpf.usable()
        return usable, "%s, and the agent is %s" % (why, who())
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
    """Return whether processes that the agent starts may count their performance events, at least in user space."""
    try:
        with open(PARANOID) as file:
            level = int(file.read())
    except (OSError, ValueError):
        return False, "this kernel counts no performance events"
    enough = level <= 2 or bool(passed_on() & (1 << CAP_PERFMON | 1 << CAP_SYS_ADMIN))
    return enough, "kernel.perf_event_paranoid is %d, and the agent is %s" % (level, who())
