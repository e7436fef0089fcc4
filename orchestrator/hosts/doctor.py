"""`orch doctor`: checks host by host what a testbed lacks, with a remedy for each."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.core import fanout
from orchestrator.core.deadline import Deadline
from orchestrator.core.errors import OrchError, TestbedError
from orchestrator.core.exitcodes import Exit
from orchestrator.core.machines import machine, packages
from orchestrator.core.machines.machine import Machine
from orchestrator.core.machines.remedies import RIGHTS
from orchestrator.core.opendata import JsonObject
from orchestrator.execution.nodes import facts, images, routes
from orchestrator.execution.session import machine_of, opening_s
from orchestrator.experiment import feasibility, opening, plan, testbeds
from orchestrator.experiment.experiment import Experiment, TestbedChoice
from orchestrator.experiment.plan import RunPlan
from orchestrator.hosts import device_counting
from orchestrator.hosts.greeting import greeted
from orchestrator.parts import registry
from orchestrator.parts.launch import Requirement
from orchestrator.parts.protocols import Testbed
from orchestrator.parts.topology import Topology
from orchestrator.remote.agent_client import AgentClient, Finding
from orchestrator.testbed.inventory import Inventory, InventoryTestbed
from orchestrator.testbed.inventory import requirements as inventory_requirements
from orchestrator.testbed.inventory import topology as inventory_topology
from orchestrator.testbed.local import netns_needs, runtimes
from orchestrator.validity import registry as registry_of_gates

CALL_S = 30.0
DOCTOR = "doctor"

# What every experiment can make use of; an experiment file says more exactly what it needs.
USUAL_PROGRAMS = ("tcpdump", "iperf3", "ethtool", "tc")
USUAL_MODULES = {"torch": "pip install torch==2.13.0"}
CAPTURE = "CAP_NET_RAW of tcpdump"
PROC_STAT = "/proc/stat"
LOAD_LOOK_S = 1.0  # between the two looks; the kernel counts in steps of 10 ms
MUCH_LOAD = 0.1  # of the processors' time, from which a run is warned of


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A host's answers; `trouble` alone where it cannot be used."""

    findings: tuple[Finding, ...] = ()
    astray: tuple[TestbedError, ...] = ()  # traffic that would not take the data plane
    machine: Machine | None = None
    facts: JsonObject | None = None  # of a host that can capture
    warning: str = ""
    trouble: str = ""


def examine(target: str | None, overrides: Sequence[str] = (), *, local: bool) -> int:
    """Print what hosts have and lack, with warnings of parts that cannot be used; return 0 when nothing is missing.

    `target` is an inventory, or what `orch plan` takes; mistakes of the file are those that `orch plan` tells.
    """
    for broken in (*registry.unusable(), *registry_of_gates.unusable()):
        print(f"warning  the {broken}\n         remedy: install another version of that package, or uninstall it")
    if target is None:
        return _this_machine()
    found = opening.open_file(Path(target), overrides, local=local)
    if isinstance(found, Inventory):
        topology = inventory_topology(found)
        return _hosts(InventoryTestbed(found), topology, usual(topology))
    return _experiments(opening.experiments(found))


def _this_machine(runtime: str = "") -> int:
    missing = netns_needs.requirements_problems() + (runtimes.problems(runtime) if runtime else [])
    for what, remedy in missing:
        print(f"missing  {what}\n         remedy: {remedy}")
    if missing:
        return Exit.FAILED
    kind = f"a local testbed of {runtime}'s containers" if runtime else "a local testbed"
    print(f"ok       this machine can run {kind}; {_figures(machine.local())}")
    before = Path(PROC_STAT).read_text()
    time.sleep(LOAD_LOOK_S)
    if warning := load_warning(busy_share(before, Path(PROC_STAT).read_text())):
        print(f"warning  {warning}")
    return Exit.OK


def _experiments(experiments: Sequence[Experiment]) -> int:
    """Examine this machine and every testbed that these are to run on."""
    runs = [plan.single(experiment, 1) for experiment in experiments]
    runtimes = dict.fromkeys(run.topology.runtime for run in runs if run.topology.kind == "local")
    if not all([_this_machine(runtime) == Exit.OK for runtime in runtimes]):  # noqa: C419 - each of them is told
        return Exit.FAILED
    findings = feasibility.look(runs)
    for line in findings.lines:
        print(line)
    if runtimes and findings.lacking:
        return Exit.FAILED
    bad = bool(findings.lacking or findings.room.refused)
    for testbed, alike in _by_testbed(experiments, runs):
        largest = max(alike, key=lambda run: len(run.topology.nodes)).topology
        requirements = tuple(dict.fromkeys(need for run in alike for need in run.requirements))
        bad |= _hosts(testbeds.place(testbed).made(DOCTOR), largest, requirements, alike) != Exit.OK
    return Exit.FAILED if bad else Exit.OK


def _by_testbed(
    experiments: Sequence[Experiment], runs: Sequence[RunPlan]
) -> Iterator[tuple[TestbedChoice, list[RunPlan]]]:
    """Yield the testbeds to examine with the runs on each.

    Local hosts that differ only in size or rate count as one.
    """
    found: dict[str, tuple[TestbedChoice, list[RunPlan]]] = {}
    for experiment, run in zip(experiments, runs, strict=True):
        topology = run.topology
        key = f"{topology.runtime} {topology.image}" if topology.kind == "local" else repr(experiment.testbed)
        known, alike = found.get(key, (experiment.testbed, []))
        larger = all(len(topology.nodes) > len(other.topology.nodes) for other in alike)
        found[key] = (experiment.testbed if larger else known, [*alike, run])
    yield from found.values()


def usual(topology: Topology) -> tuple[Requirement, ...]:
    """Return the requirements of a host for usual runs."""
    wanted: list[Requirement] = []
    for host in topology.hosts:
        wanted += [
            Requirement(
                node=host.name, kind="program", what=what, remedy=packages.remedy(what), needed_by="most experiments"
            )
            for what in USUAL_PROGRAMS
        ]
        wanted += [
            Requirement(
                node=host.name, kind="module", what=what, python=host.python, remedy=remedy, needed_by="training"
            )
            for what, remedy in USUAL_MODULES.items()
        ]
        wanted += [
            Requirement(node=host.name, kind="privilege", what=what, remedy=RIGHTS, needed_by=by)
            for what, by in ((CAPTURE, "captures"), ("CAP_NET_ADMIN", "conditions"))
        ]
        wanted += [
            Requirement(
                node=host.name,
                kind="device",
                what=device,
                needed_by="the data plane",
                remedy="correct `data.device` in the inventory",
            )
            for device in host.devices
        ]
    return (*wanted, *inventory_requirements(topology, [host.name for host in topology.hosts]))


def _hosts(
    testbed: Testbed, topology: Topology, requirements: tuple[Requirement, ...], runs: Sequence[RunPlan] = ()
) -> int:
    import tempfile

    bad = 0
    talks = routes.peers(runs) if runs else routes.everybody(topology)
    with tempfile.TemporaryDirectory(prefix="orch-doctor-") as folder:
        testbed.open(Path(folder), Deadline.after(CALL_S))
        try:
            results = fanout.each(
                [host.name for host in topology.hosts],
                _asker(testbed, topology, requirements, talks),
                deadline=Deadline.after(2 * (opening_s(len(topology.hosts)) + CALL_S)),
                what="examining",
            )
            capturing = {host: answer.facts for host, answer in results.items() if answer.facts}
            counting = list(device_counting.lines(testbed, topology, capturing))
        finally:
            testbed.close()
    for host, answer in results.items():
        lacking = [finding for finding in answer.findings if not finding.found]
        bad += bool(answer.trouble) + len(lacking) + len(answer.astray)
        if answer.machine is None:
            print(f"{host}: cannot be used: {answer.trouble}")
        elif not lacking and not answer.astray:
            print(f"{host}: ok, {len(answer.findings)} requirements met; {_figures(answer.machine)}")
        for finding in lacking:
            need = finding.requirement
            print(
                f"{host}: missing {need.kind} {need.what}, needed by {need.needed_by}"
                + (f" ({finding.detail})" if finding.detail else "")
            )
            print(f"    remedy: {images.remedy(finding)}")
        for error in answer.astray:
            print(f"{host}: {error.message}\n    remedy: {error.hint}")
        if answer.warning:
            print(f"{host}: warning: {answer.warning}")
    for line in counting:
        print(line)
    if topology.kind != "local":
        bad += _room(runs, {host: answer.machine for host, answer in results.items() if answer.machine is not None})
    return Exit.FAILED if bad else Exit.OK


def _room(runs: Sequence[RunPlan], machines: Mapping[str, Machine]) -> int:
    """Print which hosts are too small for runs, and which will be slow; return how many are too small."""
    rooms = [feasibility.of_hosts(run, machines) for run in runs]
    refused = dict.fromkeys(line for room in rooms for line in room.refused)
    for refusal in refused:
        print(f"too small: {refusal}")
    for warning in dict.fromkeys(line for room in rooms for line in room.warnings):
        print(f"warning: {warning}")
    return len(refused)


def _figures(found: Machine) -> str:
    return f"{feasibility.processors(found)}, {feasibility.gib(found.memory)} of memory free"


def _asker(
    testbed: Testbed, topology: Topology, requirements: tuple[Requirement, ...], talks: Mapping[str, Sequence[str]]
) -> Callable[[str], Answer]:
    run = f"doctor-{time.time_ns()}"

    def ask(host: str) -> Answer:
        deadline = Deadline.after(opening_s(len(topology.hosts)) + CALL_S)
        own = [requirement for requirement in requirements if requirement.node == host]
        try:
            with greeted(testbed, topology, host, run=run, deadline=deadline) as client:
                return _answer(client, topology, own, talks, deadline)
        except OrchError as error:
            return Answer(trouble=error.render())

    return ask


def _answer(
    client: AgentClient,
    topology: Topology,
    requirements: Sequence[Requirement],
    talks: Mapping[str, Sequence[str]],
    deadline: Deadline,
) -> Answer:
    warning = _warning(client, deadline) if topology.kind != "local" else ""
    storage = images.storage(topology, requirements)
    findings = tuple(client.check(requirements, deadline, storage=storage))
    able = all(finding.found for finding in findings if finding.requirement.what == "ip")
    astray = tuple(routes.wrong(client, topology, talks, deadline)) if able else ()
    captures = topology.kind != "local" and any(one.found and one.requirement.what == CAPTURE for one in findings)
    found = facts.gather(client, client.node, deadline) if captures and not astray else None
    return Answer(findings=findings, astray=astray, machine=machine_of(client), facts=found, warning=warning)


def _warning(client: AgentClient, deadline: Deadline) -> str:
    """Return a warning of a host whose processors are busy before anything of ours begins there."""
    before = client.read([PROC_STAT], deadline).texts[PROC_STAT]
    time.sleep(LOAD_LOOK_S)
    after = client.read([PROC_STAT], deadline).texts[PROC_STAT]
    return load_warning(busy_share(before, after)) if before and after else ""


def busy_share(before: str, after: str) -> float:
    """Return the busy share between two contents of /proc/stat, with steal, from 0 to 1; NaN when they are the same."""
    first, second = _used_and_all(before), _used_and_all(after)
    return (second[0] - first[0]) / (second[1] - first[1]) if second[1] > first[1] else float("nan")


def _used_and_all(stat: str) -> tuple[int, int]:
    user, nice, system, idle, waiting, irq, softirq, steal = (int(word) for word in stat.split("\n", 1)[0].split()[1:9])
    used = user + nice + system + irq + softirq + steal
    return used, used + idle + waiting


def load_warning(taken: float) -> str:
    """Return a warning of a machine that is busy before a run is on it; empty where it is free enough."""
    if not taken >= MUCH_LOAD:
        return ""
    return f"other work takes {taken:.0%} of the processors' time now: a window measured beside it may not be valid"
