"""What this machine lacks for the runs of an experiment on containers of it, told before any of them starts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from orchestrator import packages
from orchestrator.agents.agent.checks import FIND_MODULES
from orchestrator.launch import Requirement
from orchestrator.testbed import netns_needs

PROBE_S = 30.0  # for an interpreter to say which modules it has


@dataclass(frozen=True, slots=True, kw_only=True)
class Lack:
    """Something that is not there: `what` with the cause, and the `remedy`."""

    what: str
    remedy: str


def here(requirements: Iterable[Requirement]) -> list[Lack]:
    """What of these, and of what every local testbed needs, this machine lacks: each thing once, whatever the host.

    Only what all containers share with this machine is looked at: programs, and modules of Python interpreters.
    """
    wanted = list(requirements)
    modules, os_release = _modules(wanted), packages.here()
    found = [Lack(what=what, remedy=remedy) for what, remedy in netns_needs.missing_programs()]
    for need in wanted:
        why = None
        if need.kind == "program" and netns_needs.find_program(need.what) is None:
            why = f"no program {need.what} on this machine"
        elif need.kind == "module":
            why = modules[need.python or sys.executable][need.what]
        if why is not None:
            what = f"{need.needed_by} needs {need.kind} {need.what}: {why}"
            found.append(Lack(what=what, remedy=packages.own_remedy(need.what, need.remedy, os_release)))
    return list(dict.fromkeys(found))


def _modules(wanted: Iterable[Requirement]) -> dict[str, dict[str, str | None]]:
    """For each interpreter and module why it cannot be imported, None where it can."""
    names: dict[str, list[str]] = {}
    for need in wanted:
        if need.kind == "module":
            names.setdefault(need.python or sys.executable, []).append(need.what)
    return {python: dict(_without(python, of)) for python, of in names.items()}


def _without(python: str, names: list[str]) -> Mapping[str, str | None]:
    try:
        done = subprocess.run(
            [python, "-c", FIND_MODULES, *dict.fromkeys(names)],
            env={"PATH": netns_needs.search_path(), "LANG": "C.UTF-8", "HOME": os.path.expanduser("~")},  # noqa: PTH111
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PROBE_S, check=False, cwd="/",
        )  # fmt: skip
    except FileNotFoundError:
        return dict.fromkeys(names, f"no interpreter {python}")
    except PermissionError:
        return dict.fromkeys(names, f"this user may not run {python}")
    except (OSError, subprocess.TimeoutExpired) as error:
        return dict.fromkeys(names, f"{python}: {error}")
    if done.returncode != 0:
        said = done.stderr.strip().splitlines() or [f"it ended with status {done.returncode}"]
        return dict.fromkeys(names, f"{python}: {said[-1]}")
    told = json.loads(done.stdout.splitlines()[-1])
    return {name: None if told[name][0] else f"{python}: {told[name][1]}" for name in names}
