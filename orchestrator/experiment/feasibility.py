"""Check before runs start whether this machine has the programs, memory and processors that they need."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from orchestrator.agents.agent.checks import FIND_MODULES, complaint, modules_told
from orchestrator.core.deadline import Deadline
from orchestrator.core.errors import MissingRequirement, TestbedError
from orchestrator.core.exitcodes import Exit
from orchestrator.core.machines import machine
from orchestrator.core.machines.machine import Machine
from orchestrator.core.machines.remedies import BROKEN_PYTHON
from orchestrator.core.unwind import add_note
from orchestrator.experiment.plan import RunPlan
from orchestrator.parts import secret_env
from orchestrator.parts.launch import Launch, Requirement
from orchestrator.parts.topology import Topology
from orchestrator.testbed.local import containers, netns_needs, runtimes
from orchestrator.testbed.local.host_programs import InImage, ProgramSource, ThisMachine

# What machines lack

_ROOT = "run with sudo, or give the testbed itself `runtime: podman` and the image"
PROBE_S = 30.0  # for an interpreter to say which modules it has


@dataclass(frozen=True, slots=True, kw_only=True)
class Lack:
    """Something missing: `what` with the cause, and the `remedy`."""

    what: str
    remedy: str


def lacking_on(topology: Topology, requirements: Iterable[Requirement]) -> list[Lack]:
    """Find which of these requirements, and of those of the testbed, the hosts of a local testbed will lack.

    Only what all hosts share is checked: programs, and modules of Python interpreters.
    """
    wanted = list(requirements)
    in_images = [need for need in wanted if need.container is not None]
    requirements = [need for need in wanted if need.container is None]
    problems = runtimes.problems(topology.runtime) if topology.runtime else []
    lacking = [Lack(what=what, remedy=remedy) for what, remedy in problems]
    lacking += _images(in_images)
    if lacking or not topology.image:
        return [*lacking, *lacking_here(requirements)]
    runtime = runtimes.detected(topology.runtime)
    problem = containers.no_image(runtime, topology.image, Deadline.after(PROBE_S))
    if problem is not None:
        return [Lack(what=problem[0], remedy=problem[1])]
    hosts = {host.name for host in topology.hosts}
    wanted = requirements
    inside = _lacking(InImage(runtime, topology.image), [need for need in wanted if need.node in hosts])
    return list(dict.fromkeys([*lacking_here(need for need in wanted if need.node not in hosts), *inside]))


def _images(requirements: Iterable[Requirement]) -> list[Lack]:
    """Return why launches cannot use images on this machine; the hosts check later what is in the images."""
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


def lacking_here(requirements: Iterable[Requirement]) -> list[Lack]:
    """Find which of these requirements, and of those of every local testbed, this machine lacks, each once."""
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
    """Return for each interpreter why each module cannot be imported, None where it can; or why it does not run."""
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


# Whether they are large enough, by footprints that were measured

NODE_BYTES = 20e6  # an agent, and where the node is a container its sshd
NODE_START_S = 0.3  # of a processor
CONTROLLER_BYTES = 300e6  # on the machine of a local testbed: this process, and the one that makes the tables
START_SHARE = 0.8  # of the time that ranks have to get ready, which starting all of them may take
TIGHT_SHARE = 0.8  # of the memory that is free

ANYWAY = "--force starts all the same"


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """The resources of one machine that a run needs.

    `memory` in bytes; `start_s` seconds of a processor until every rank is ready, for which they have `within_s`;
    `busy` processors while it is measured.
    """

    ranks: int
    memory: float
    start_s: float
    within_s: float
    busy: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Messages with figures and remedies: `refused` ones keep a run from starting, `warnings` do not."""

    refused: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def need(plan: RunPlan, nodes: Collection[str], *, controller: bool) -> Need:
    """Add up the resources that a run needs of a machine with these nodes, and with the `controller` if it is the same.

    Of several windows, whose traffic comes one after the other, the one that needs most counts.
    """
    standing = [launch for launch in _standing(plan) if launch.node in nodes]
    ranks = [launch for launch in standing if launch.rank is not None]
    windows = [[launch for source in window.sources for launch in source.launches] for window in plan.windows]
    traffic = max(sum(one.footprint.memory for one in window if one.node in nodes) for window in windows)
    own = NODE_BYTES * len(nodes) + (CONTROLLER_BYTES if controller else 0.0)
    return Need(
        ranks=len(ranks),
        memory=own + traffic + sum(launch.footprint.memory for launch in standing),
        start_s=sum(launch.footprint.start_s for launch in ranks),
        within_s=min((launch.ready_within_s for launch in ranks), default=math.inf),
        busy=sum(launch.footprint.busy for launch in standing),
    )


def judge(wanted: Need, machine: Machine, *, scales: bool) -> Verdict:
    """Compare needed with available resources; `scales` is whether a larger scale lowers the memory of ranks."""
    refused = [*_memory(wanted, machine, scales=scales), *_start(wanted, machine)]
    return Verdict(
        refused=tuple(refused), warnings=() if refused else (*_tight(wanted, machine), *_busy(wanted, machine))
    )


def _memory(wanted: Need, machine: Machine, *, scales: bool) -> list[str]:
    if wanted.memory <= machine.memory:
        return []
    larger = ", a larger scale" if scales else ""
    return [
        f"{_ranks(wanted)} and what runs beside them take about {gib(wanted.memory)} of memory, and "
        f"{gib(machine.memory)} is free; remedy: fewer ranks{larger}, or a machine with more; {ANYWAY}"
    ]


def _start(wanted: Need, machine: Machine) -> list[str]:
    lasts_s = wanted.start_s / machine.processors
    if lasts_s <= START_SHARE * wanted.within_s:
        return []
    most = math.floor(wanted.ranks * START_SHARE * wanted.within_s / lasts_s)
    return [
        f"{_ranks(wanted)} take about {wanted.start_s:.0f} s of processor time to start and meet, {lasts_s:.0f} s on "
        f"{processors(machine)}, and have {wanted.within_s:.0f} s to be ready; remedy: at most {most} ranks here, or "
        f"more processors; {ANYWAY}"
    ]


def _tight(wanted: Need, machine: Machine) -> list[str]:
    if wanted.memory <= TIGHT_SHARE * machine.memory:
        return []
    return [f"{_ranks(wanted)} take about {gib(wanted.memory)} of the {gib(machine.memory)} of memory that is free"]


def _busy(wanted: Need, machine: Machine) -> list[str]:
    if wanted.busy <= machine.processors:
        return []
    return [
        f"{_ranks(wanted)} keep about {wanted.busy:.1f} processors busy, and there are {machine.processors:g}: the "
        "processors, not the network, will set their times; remedy: fewer ranks, or longer or emulated compute"
    ]


def gib(size: float) -> str:
    """Write bytes in GiB, for people."""
    return f"{size / 2**30:.1f} GiB"


def processors(machine: Machine) -> str:
    """Write how many processors there are, for people."""
    return f"{machine.processors:g} processor{'s' if machine.processors != 1 else ''}"


def _ranks(wanted: Need) -> str:
    return f"{wanted.ranks} rank{'s' if wanted.ranks != 1 else ''}"


def _standing(plan: RunPlan) -> list[Launch]:
    return [*plan.helper_processes(), *plan.collectors, *(launch for job in plan.jobs for launch in job.launches)]


# Both, for runs that are about to start


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """Findings on this machine: what it lacks, where it is too small, and what will merely be slow."""

    lacking: tuple[Lack, ...] = ()
    room: Verdict = field(default_factory=Verdict)

    @property
    def lines(self) -> list[str]:
        """Return a line for each thing, for people."""
        lines = [f"missing: {lack.what}; remedy: {lack.remedy}" for lack in self.lacking]
        lines += [f"too small: {line}" for line in self.room.refused]
        return lines + [f"warning: {line}" for line in self.room.warnings]

    def refuse(self, *, force: bool) -> None:
        """Raise one error with all that keeps runs from starting; with `force` a machine that is too small does not."""
        errors: list[TestbedError] = [MissingRequirement(lack.what, hint=lack.remedy) for lack in self.lacking]
        errors += [TestbedError(line) for line in (() if force else self.room.refused)]
        if errors:
            for other in errors[1:]:
                add_note(errors[0], other.message + (f"; remedy: {other.hint}" if other.hint else ""))
            raise errors[0]


def look(plans: Iterable[RunPlan]) -> Findings:
    """Check this machine for runs on local hosts; hosts elsewhere are checked when they are asked."""
    runs = list(plans)
    found = secret_env.lacking(launch for plan in runs for launch in plan.launches())
    lacking = [Lack(what=what, remedy=remedy) for what, remedy in found]
    local = [plan for plan in runs if plan.topology.kind == "local"]
    if not local:
        return Findings(lacking=tuple(lacking))
    hosts = dict.fromkeys((plan.topology.runtime, plan.topology.image) for plan in local)
    missed = [lack for runtime, image in hosts for lack in _missing(local, runtime, image)]
    return Findings(lacking=(*dict.fromkeys(missed), *lacking), room=_room(local, machine.local()))


def _missing(plans: Sequence[RunPlan], runtime: str, image: str) -> list[Lack]:
    """Return what this machine lacks for those plans whose hosts this runtime makes of this image."""
    alike = [plan for plan in plans if (plan.topology.runtime, plan.topology.image) == (runtime, image)]
    return lacking_on(alike[0].topology, dict.fromkeys(need for plan in alike for need in plan.requirements))


def settle(plans: Iterable[RunPlan], *, force: bool, say: Callable[[str], None]) -> tuple[str, ...]:
    """Raise an error for what keeps runs from starting, and print what will be slow; return what is forced.

    It returns nothing unless `force` starts them on a machine that is too small.
    """
    findings = look(plans)
    findings.refuse(force=force)
    for line in (*findings.room.refused, *findings.room.warnings):
        say(f"  warning: {line}")
    return findings.room.refused


def tell(plans: Iterable[RunPlan]) -> int:
    """Print on standard error what `settle` would raise or print; return 1 where this machine is too small, else 0."""
    findings = look(plans)
    for line in findings.lines:
        print(line, file=sys.stderr)
    return Exit.FAILED if findings.room.refused else Exit.OK


def of_hosts(plan: RunPlan, machines: Mapping[str, Machine]) -> Verdict:
    """Check each host of an inventory for a run."""
    verdicts = {node: judge(need(plan, [node], controller=False), one, scales=False) for node, one in machines.items()}
    return Verdict(
        refused=tuple(f"{node}: {line}" for node, verdict in verdicts.items() for line in verdict.refused),
        warnings=tuple(f"{node}: {line}" for node, verdict in verdicts.items() for line in verdict.warnings),
    )


def _room(plans: Sequence[RunPlan], found: Machine) -> Verdict:
    verdicts = [
        judge(need(plan, [node.name for node in plan.topology.nodes], controller=True), found, scales=True)
        for plan in plans
    ]
    return Verdict(
        refused=tuple(dict.fromkeys(line for verdict in verdicts for line in verdict.refused)),
        warnings=tuple(dict.fromkeys(line for verdict in verdicts for line in verdict.warnings)),
    )
