"""`orch doctor`: what a testbed lacks, host by host, and what would mend it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from orchestrator import fanout, loading, plan
from orchestrator.answers import Finding
from orchestrator.deadline import Deadline
from orchestrator.errors import OrchError
from orchestrator.experiment import Experiment, for_dry_run
from orchestrator.launch import Requirement
from orchestrator.leash import Leash
from orchestrator.protocols import Testbed
from orchestrator.remedies import RIGHTS
from orchestrator.session import holder
from orchestrator.testbed import netns_needs
from orchestrator.testbed.inventory import Inventory, InventoryTestbed
from orchestrator.testbed.inventory import requirements as inventory_requirements
from orchestrator.testbed.inventory import topology as inventory_topology
from orchestrator.topology import Topology

CALL_S = 30.0
DOCTOR = "doctor"

# What every experiment can make use of; an experiment file says more exactly what it needs.
USUAL_PROGRAMS = {
    "tcpdump": "sudo apt-get install tcpdump",
    "iperf3": "sudo apt-get install iperf3",
    "ethtool": "sudo apt-get install ethtool",
    "tc": "sudo apt-get install iproute2",
}
USUAL_MODULES = {"torch": "pip install torch==2.13.0"}


def examine(target: str | None, *, dry_run: bool) -> int:
    """Print what is there and what is missing; 0 when nothing is."""
    if target is None:
        return _this_machine()
    found = loading.inventory_or_experiment(Path(target))
    if isinstance(found, Inventory):
        topology = inventory_topology(found)
        return _hosts(InventoryTestbed(found), topology, usual(topology))
    return _experiment(for_dry_run(found) if dry_run else found)


def _this_machine() -> int:
    missing = netns_needs.requirements_problems()
    for what, remedy in missing:
        print(f"missing  {what}\n         remedy: {remedy}")
    if missing:
        return 1
    print("ok       this machine can carry a local testbed")
    return 0


def _experiment(experiment: Experiment) -> int:
    topology = plan.topology_of(experiment)
    if topology.kind == "local" and _this_machine() != 0:
        return 1
    requirements = plan.build(experiment)[0].requirements
    return _hosts(loading.testbed_of(experiment.testbed, DOCTOR), topology, requirements)


def usual(topology: Topology) -> tuple[Requirement, ...]:
    """What a host is usually asked for."""
    wanted: list[Requirement] = []
    for host in topology.hosts:
        wanted += [
            Requirement(node=host.name, kind="program", what=what, remedy=remedy, needed_by="most experiments")
            for what, remedy in USUAL_PROGRAMS.items()
        ]
        wanted += [
            Requirement(
                node=host.name, kind="module", what=what, python=host.python, remedy=remedy, needed_by="training"
            )
            for what, remedy in USUAL_MODULES.items()
        ]
        wanted += [
            Requirement(node=host.name, kind="privilege", what=what, remedy=RIGHTS, needed_by=by)
            for what, by in (("CAP_NET_RAW of tcpdump", "captures"), ("CAP_NET_ADMIN", "conditions"))
        ]
        wanted.append(
            Requirement(
                node=host.name, kind="device", what=host.device, needed_by="the data plane",
                remedy="correct `data.device` in the inventory",
            )
        )  # fmt: skip
    return (*wanted, *inventory_requirements(topology, [host.name for host in topology.hosts]))


def _hosts(testbed: Testbed, topology: Topology, requirements: tuple[Requirement, ...]) -> int:
    import tempfile

    bad = 0
    with tempfile.TemporaryDirectory(prefix="orch-doctor-") as folder:
        testbed.open(Path(folder), Deadline.after(CALL_S))
        try:
            results = fanout.each(
                [host.name for host in topology.hosts],
                _asker(testbed, topology, requirements),
                deadline=Deadline.after(2 * CALL_S),
                what="examining",
            )
        finally:
            testbed.close()
    for host, (findings, trouble) in results.items():
        lacking = [finding for finding in findings if not finding.found]
        bad += bool(trouble) + len(lacking)
        if trouble:
            print(f"{host}: cannot be used: {trouble}")
        elif not lacking:
            print(f"{host}: ok, {len(findings)} things looked for")
        for finding in lacking:
            need = finding.requirement
            print(f"{host}: missing {need.kind} {need.what}, needed by {need.needed_by}"
                  + (f" ({finding.detail})" if finding.detail else ""))  # fmt: skip
            print(f"    remedy: {need.remedy}")
    return 1 if bad else 0


def _asker(
    testbed: Testbed, topology: Topology, requirements: tuple[Requirement, ...]
) -> Callable[[str], tuple[list[Finding], str]]:
    run = f"doctor-{time.time_ns()}"

    def ask(host: str) -> tuple[list[Finding], str]:
        deadline = Deadline.after(CALL_S)
        try:
            leash = Leash(
                topology.node(host),
                testbed.connect(host, deadline),
                run=run,
                holder=holder(run),
                on_event=lambda _: None,
            )
            try:
                leash.hello(deadline)
                own = [requirement for requirement in requirements if requirement.node == host]
                findings = leash.check(own, deadline)
                leash.remove(deadline)
            finally:
                leash.close(deadline)
        except OrchError as error:
            return [], error.render()
        return findings, ""

    return ask
