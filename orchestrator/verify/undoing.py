"""Kill the controller of a run, and look at what is left of the run on its hosts, and at its results."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from orchestrator.agents.agent.proc import process_table, tags
from orchestrator.agents.agent.sweep import Swept
from orchestrator.core import fanout
from orchestrator.core.deadline import Deadline
from orchestrator.core.errors import LaunchError, OrchError, last_lines
from orchestrator.core.opendata import JsonObject
from orchestrator.execution import recovery
from orchestrator.execution.nodes import facts
from orchestrator.execution.session import opening_s
from orchestrator.experiment import loading, plan, testbeds
from orchestrator.experiment.experiment import Experiment
from orchestrator.experiment.testbeds import Named
from orchestrator.hosts.greeting import greeted
from orchestrator.parts.protocols import Testbed
from orchestrator.parts.topology import Topology
from orchestrator.remote.agent_client import ENDING_S, SILENCE_S, AgentClient
from orchestrator.store import rundir
from orchestrator.store.rundir import Entry
from orchestrator.verify.claims import Undone

ORCH = (sys.executable, "-m", "orchestrator.cli.main")
WINDOW_WITHIN_S = 300.0
LOOK_S = 0.1
CALL_S = 60.0
OF_DEVICES = ("qdiscs", "routes", "routes6")  # facts that are lists
CHANGING = frozenset({"expires", "refcnt"})
BACK_S = SILENCE_S + ENDING_S + 10.0  # within which agents that lost their controller have put everything back


def killed(
    experiment: Experiment, results: Path, before: Mapping[str, JsonObject], *, wait_s: float, file: str
) -> Undone:
    """Carry out the experiment as `orch run` does, kill that in its window, and return what is left of it.

    `before` has the facts of hosts from before the run, `file` names the testbed to its owner. LaunchError where the
    run does not come to its window, StoreError where its results are damaged.
    """
    entry = _killed_in_its_window(experiment, results, wait_s)
    began = time.monotonic()
    place = testbeds.place(experiment.testbed)
    changed: list[str] = []
    if place.topology.kind == "local":  # its hosts, and what was changed on them, end with their processes
        left = _left_here(entry.run, Deadline.after(BACK_S))
    else:
        left, changed = _left_there(place.made("verify"), place.topology, entry.run, before)
    back_s = time.monotonic() - began
    try:
        recovery.seal(entry, [Named(experiment.testbed, file)])
        recovered = True
    except OrchError as error:
        left.append(f"its results: {error.message}")
        recovered = False
    changes = len(plan.single(experiment, 1).changes)
    return Undone(back_s=back_s, changes=changes, left=tuple(left), changed=tuple(changed), recovered=recovered)


def _killed_in_its_window(experiment: Experiment, results: Path, wait_s: float) -> Entry:
    """Return the run that was killed."""
    known = {entry.run for entry in rundir.entries(results)}
    with tempfile.TemporaryDirectory(prefix="orch-verify-") as folder:
        file, said = Path(folder) / "experiment.yaml", Path(folder) / "said"
        file.write_text(loading.resolved_text(experiment), encoding="utf-8")
        options = ("--results", str(results), "--no-report", "--wait", f"{wait_s + LOOK_S:g}s")
        with said.open("w") as output:
            process = subprocess.Popen([*ORCH, "run", str(file), *options], stdout=output, stderr=output)
        try:
            deadline = Deadline.after(WINDOW_WITHIN_S + wait_s)
            while process.poll() is None and not deadline.expired:
                for entry in _begun(results, experiment.name, known):
                    process.kill()
                    return entry
                time.sleep(LOOK_S)
            tail = last_lines(said.read_text(encoding="utf-8", errors="replace"))
            raise LaunchError("the run that was to be killed did not come to its window", tail=tail)
        finally:
            if process.returncode is None:
                process.terminate()
            process.wait()


def _begun(results: Path, experiment: str, known: set[str]) -> Iterator[Entry]:
    """Yield new runs of an experiment that are in their window."""
    for entry in rundir.entries(results):
        new = entry.manifest.experiment == experiment and entry.run not in known
        if new and not entry.sealed and entry.manifest.stage == "window":
            yield entry


def _left_here(run: str, deadline: Deadline) -> list[str]:
    """Wait for the end of a run's processes on this machine; return those that are left."""
    while (pids := _processes(run)) and not deadline.expired:
        time.sleep(LOOK_S)
    return [f"process {pid} is still there" for pid in pids]


def _processes(run: str) -> list[int]:
    return [pid for pid in process_table() if tags(pid).get("ORCH_RUN") == run]


def _left_there(
    testbed: Testbed, topology: Topology, run: str, before: Mapping[str, JsonObject]
) -> tuple[list[str], list[str]]:
    """Wait until no agent of the run is left on its hosts; return what they had left, and settings that differ."""
    hosts = [host.name for host in topology.hosts if host.name in before]

    def look(host: str) -> tuple[list[str], list[str]]:
        deadline = Deadline.after(BACK_S + opening_s(len(hosts)))
        while True:
            with greeted(testbed, topology, host, run=f"verify-{time.time_ns()}", deadline=deadline) as client:
                swept = client.sweep(deadline, keep_data=True)
                if run in swept.alive and not deadline.expired:
                    time.sleep(LOOK_S)
                    continue
                return list(_left(swept, host, run)), list(_differing(client, before[host], deadline))

    try:
        longest = Deadline.after(BACK_S + opening_s(len(hosts)) + CALL_S)
        found = fanout.each(hosts, look, deadline=longest, what="looking at what is left")
    finally:
        testbed.close()
    return [line for left, _ in found.values() for line in left], [line for _, diff in found.values() for line in diff]


def _left(swept: Swept, host: str, run: str) -> Iterator[str]:
    """Yield what a sweep had to do about a run, which is what its agent should have done itself."""
    if run in swept.alive:
        yield f"{host}: its agent is still there"
    yield from (f"{host}: process {one.pid} was still there" for one in swept.killed if one.run == run)
    yield from (f"{host}: a change was still there: {change}" for change in swept.undone if run in change)
    yield from (f"{host}: could not be undone: {one.text}" for one in swept.failed if run in one.text)


def _differing(client: AgentClient, before: JsonObject, deadline: Deadline) -> Iterator[str]:
    """Yield the settings of a host that are not as they were: of the kernel's network, offloads, queues and routes."""
    now = facts.gather(client, client.node, deadline)
    for name in before:
        if not (name in OF_DEVICES or name.startswith(("/proc/sys/net/", "offloads"))):
            continue
        if settings(before[name], client.node.devices) != settings(now.get(name), client.node.devices):
            yield f"{client.node.name}: {name} is not as it was"


def settings(fact: object, devices: Collection[str]) -> object:
    """Return what of a fact somebody sets: of a list that of these devices alone, without what counts or runs off."""
    if not isinstance(fact, list):
        return fact
    rows = [row for row in fact if isinstance(row, dict) and row.get("dev") in devices]
    return [{key: value for key, value in row.items() if key not in CHANGING} for row in rows]
