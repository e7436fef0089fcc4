"""Checks what a machine must have for a local testbed, with a remedy for what is missing."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path

from orchestrator.core.machines import packages, users

SBIN = ("/usr/local/sbin", "/usr/sbin", "/sbin")
UNSHARE = (
    *("unshare", "--net", "--mount", "--pid", "--uts", "--ipc"),
    *("--fork", "--kill-child", "--mount-proc", "--propagation", "private"),
)
USER_FLAGS = ("--user", "--map-root-user", "--map-auto")
PROBE_LIMIT_S = 10.0

_PROGRAMS = ("unshare", "ip", "tc", "sshd", "ssh", "newuidmap", "newgidmap")
# (file under /proc/sys, value that forbids it, what that means)
_SWITCHES = (
    ("user/max_user_namespaces", "0", "user namespaces are switched off", "1000"),
    ("kernel/unprivileged_userns_clone", "0", "user namespaces are for root alone", "1"),
    ("kernel/apparmor_restrict_unprivileged_userns", "1", "AppArmor keeps user namespaces from ordinary users", "0"),
)


def search_path() -> str:
    """Return the user's PATH and the sbin folders, which an ordinary user's PATH often lacks."""
    return os.pathsep.join([os.environ.get("PATH", os.defpath), *SBIN])


def find_program(name: str) -> str | None:
    """Return the path of a program, in the sbin folders too."""
    return shutil.which(name, path=search_path())


def user_flags() -> tuple[str, ...]:
    """Return further options of unshare, for a user other than root: a user namespace in which this user is root."""
    return () if os.geteuid() == 0 else USER_FLAGS


def requirements_problems() -> list[tuple[str, str]]:
    """Return what keeps a local testbed from running here, each as (what, remedy); none when it can run."""
    missing = missing_programs()
    if missing:
        return missing
    refused = _refused()
    if not refused or os.geteuid() == 0:
        return refused
    return [*_forbidden(), *_missing_ranges()] or refused


def missing_programs() -> list[tuple[str, str]]:
    """Return programs that are not installed, each as (what, remedy)."""
    names = [name for name in _PROGRAMS if os.geteuid() != 0 or not name.startswith("new")]
    return [
        (
            f"the program {name} is not installed",
            packages.own_remedy(name, packages.remedy(name), packages.local_family()),
        )
        for name in names
        if find_program(name) is None
    ]


def _forbidden() -> list[tuple[str, str]]:
    found = []
    for name, bad, meaning, good in _SWITCHES:
        path = Path("/proc/sys", name)
        if path.exists() and path.read_text().strip() == bad:
            setting = f"{name.replace('/', '.')}={good}"
            found.append(
                (f"{meaning} (sysctl {setting[: -len(good)]}{bad})", f"sudo sysctl {setting}, or run with sudo")
            )
    return found


def _missing_ranges() -> list[tuple[str, str]]:
    """Return files without a range of subordinate ids for this user.

    Ranges from elsewhere (nsswitch) show in the probe.
    """
    who = {users.name(), str(os.geteuid())}
    found = []
    for name in ("subuid", "subgid"):
        path = Path("/etc", name)
        lines = path.read_text().splitlines() if path.exists() else []
        if not any(line.split(":")[0] in who for line in lines):
            user = users.name()
            remedy = f"sudo usermod --add-subuids 100000-165535 --add-subgids 100000-165535 {user}, or run with sudo"
            found.append((f"the user {user} has no range in /etc/{name}", remedy))
    return found


def end_group(process: subprocess.Popen[bytes]) -> None:
    """End what a process with a session of its own, or one that has ended, has left running.

    Where the kernel refuses namespaces unshare ends, but its child that was to map users would wait for ever.
    """
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _refused() -> list[tuple[str, str]]:
    """Try to make the namespaces and a bridge in them; return what the kernel refuses."""
    argv = [*UNSHARE, *user_flags(), "ip", "link", "add", "br0", "type", "bridge"]
    with tempfile.TemporaryFile() as output:  # no pipe: what unshare may leave behind would keep it open
        try:
            process = subprocess.Popen(
                argv,
                env={"PATH": search_path(), "LANG": "C"},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        except OSError as error:
            return [(f"namespaces cannot be made: {error}", "run with sudo")]
        try:
            status = process.wait(PROBE_LIMIT_S)
        except subprocess.TimeoutExpired as error:
            return [(f"namespaces cannot be made: {error}", "run with sudo")]
        finally:
            end_group(process)
        output.seek(0)
        lines = output.read().decode(errors="replace").strip().splitlines()
    if status == 0:
        return []
    if any("unrecognized option" in line for line in lines):
        return [("unshare is older than util-linux 2.38 and cannot map users", "run with sudo")]
    said = lines[-1] if lines else f"unshare ended with status {status}"
    outside = os.geteuid() == 0
    return [(f"namespaces cannot be made: {said}", "run outside of a container" if outside else "run with sudo")]
