"""What this machine, or an image, lacks for the runs of an experiment on hosts of it, told before they start."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from orchestrator.agents.agent.checks import FIND_MODULES, complaint, modules_told
from orchestrator.core.deadline import Deadline
from orchestrator.core.machines.remedies import BROKEN_PYTHON
from orchestrator.parts.launch import Requirement
from orchestrator.parts.topology import Topology
from orchestrator.testbed.local import containers, netns_needs, runtimes
from orchestrator.testbed.local.host_programs import InImage, ProgramSource, ThisMachine

_ROOT = "run with sudo, or give the testbed itself `runtime: podman` and the image"
PROBE_S = 30.0  # for an interpreter to say which modules it has


@dataclass(frozen=True, slots=True, kw_only=True)
class Lack:
    """Something that is not there: `what` with the cause, and the `remedy`."""

    what: str
    remedy: str


def on(topology: Topology, requirements: Iterable[Requirement]) -> list[Lack]:
    """What of these, and of what its testbed needs of this machine, the hosts of a local testbed will lack: once each.

    Only what all of them share is looked at: programs, and modules of Python interpreters.
    """
    wanted = list(requirements)
    in_images = [need for need in wanted if need.container is not None]
    requirements = [need for need in wanted if need.container is None]
    problems = runtimes.problems(topology.runtime) if topology.runtime else []
    lacking = [Lack(what=what, remedy=remedy) for what, remedy in problems]
    lacking += _images(in_images)
    if lacking or not topology.image:
        return [*lacking, *on_this_machine(requirements)]
    runtime = runtimes.detected(topology.runtime)
    problem = containers.no_image(runtime, topology.image, Deadline.after(PROBE_S))
    if problem is not None:
        return [Lack(what=problem[0], remedy=problem[1])]
    hosts = {host.name for host in topology.hosts}
    wanted = requirements
    inside = _lacking(InImage(runtime, topology.image), [need for need in wanted if need.node in hosts])
    return list(dict.fromkeys([*on_this_machine(need for need in wanted if need.node not in hosts), *inside]))


def _images(requirements: Iterable[Requirement]) -> list[Lack]:
    """What keeps launches from containers of images that are here; what is in them their hosts will say."""
    names = dict.fromkeys((one.runtime, one.image) for need in requirements if (one := need.container) is not None)
    if names and os.geteuid() != 0:
        return [Lack(what="a container on a host of this machine takes root", remedy=_ROOT)]
    found = []
    for name, image in names:
        problems = runtimes.problems(name)
        if not problems and (problem := containers.no_image(runtimes.detected(name), image, Deadline.after(PROBE_S))):
            problems = [problem]
        found += [Lack(what=what, remedy=remedy) for what, remedy in problems]
    return found


def on_this_machine(requirements: Iterable[Requirement]) -> list[Lack]:
    """What of these, and of what every local testbed needs, this machine lacks: each thing once, whatever the host."""
    found = [Lack(what=what, remedy=remedy) for what, remedy in netns_needs.missing_programs()]
    return list(dict.fromkeys([*found, *_lacking(ThisMachine(), list(requirements))]))


def _lacking(place: ProgramSource, wanted: list[Requirement]) -> list[Lack]:
    modules = _modules(place, wanted)
    programs = place.without(list(dict.fromkeys(need.what for need in wanted if need.kind == "program")))
    found = []
    for need in wanted:
        why, remedy = None, place.remedy(need.what, need.remedy)
        if need.kind == "program" and need.what in programs:
            why = f"no program {need.what} on {place.name}"
        elif need.kind == "module":
            answer = modules[need.python or sys.executable]
            if isinstance(answer, str):
                why, remedy = answer, BROKEN_PYTHON
            else:
                why = answer[need.what]
        if why is not None:
            what = f"{need.needed_by} needs {need.kind} {need.what}: {why}"
            found.append(Lack(what=what, remedy=remedy))
    return list(dict.fromkeys(found))


def _modules(place: ProgramSource, wanted: Iterable[Requirement]) -> dict[str, Mapping[str, str | None] | str]:
    """For each interpreter why a module cannot be imported, None where it can; or why it does not run."""
    names: dict[str, list[str]] = {}
    for need in wanted:
        if need.kind == "module":
            names.setdefault(need.python or sys.executable, []).append(need.what)
    return {python: _without(place, python, of) for python, of in names.items()}


def _without(place: ProgramSource, python: str, names: list[str]) -> Mapping[str, str | None] | str:
    try:
        done = place.run([python, "-c", FIND_MODULES, *dict.fromkeys(names)], within_s=PROBE_S)
    except FileNotFoundError:
        return dict.fromkeys(names, f"no interpreter {python}")
    except PermissionError:
        return dict.fromkeys(names, f"this user may not run {python}")
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{python} does not run: {error}"
    imported = modules_told(done.stdout)
    if done.returncode != 0 or imported is None:
        return complaint(python, done.returncode, done.stderr, os.environ)
    return {name: None if imported[name][0] else f"{python}: {imported[name][1]}" for name in names}
