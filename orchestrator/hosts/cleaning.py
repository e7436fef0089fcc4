"""`orch clean`: ends processes of dead runs on hosts, and undoes their changes."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.agents.agent.sweep import Swept
from orchestrator.core import fanout
from orchestrator.core.deadline import Deadline
from orchestrator.core.errors import ConfigError, OrchError
from orchestrator.core.exitcodes import Exit
from orchestrator.core.units import bytes_text
from orchestrator.execution.session import holder, opening_s
from orchestrator.experiment import opening, testbeds
from orchestrator.experiment.experiment import Experiment
from orchestrator.parts.protocols import Channel, Testbed
from orchestrator.parts.shared import named_hosts
from orchestrator.parts.topology import Node
from orchestrator.remote.agent_client import AgentClient
from orchestrator.remote.transport import local
from orchestrator.testbed.inventory import Inventory, InventoryTestbed
from orchestrator.testbed.local import containers

REACH_S = 60.0
HERE = "localhost"
CLEAN = "clean"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What to clean: with `data` folders too; changes of the run `forget` that cannot be undone are given up.

    Captures that stay are removed once they have stayed for `stayed_s` seconds; None leaves all.
    """

    data: bool = False
    stayed_s: float | None = None
    forget: str = ""
    host: str | None = None  # only this one


def clean(target: str | None, wanted: Wanted) -> int:
    """End processes and take back changes of dead runs on the hosts of a testbed, or on this machine."""
    found = None if target is None else opening.inventory_or_experiment(Path(target))
    testbed = _elsewhere(found)
    if testbed is None:  # a local testbed ends with its controller; what is left would be here
        _chosen([HERE], wanted.host)
        done, failed = containers.remove_left_behind(images=wanted.data)
        return _report({HERE: _sweep(Node(name=HERE), local.connect(), wanted)}, wanted, done=done, failed=failed)
    hosts = _chosen([host.name for host in testbed.topology.hosts], wanted.host)
    reached = Deadline.after(max(REACH_S, opening_s(len(hosts))))

    def ask(name: str) -> Swept | OrchError:
        try:
            return _sweep(testbed.topology.node(name), testbed.connect(name, reached), wanted)
        except OrchError as error:
            return error  # printed beside what the other hosts say

    try:
        answers = fanout.each(hosts, ask, deadline=Deadline.after(reached.remaining + REACH_S), what="cleaning")
    finally:
        testbed.close()
    return _report(answers, wanted)


def _elsewhere(found: Inventory | Experiment | None) -> Testbed | None:
    """Return a file's testbed if its hosts outlive runs, as those of an inventory or an allocation; else None."""
    if found is None:
        return None
    if isinstance(found, Inventory):
        return InventoryTestbed(found)
    return None if found.testbed.local is not None else testbeds.place(found.testbed).made(CLEAN)


def _chosen(hosts: list[str], only: str | None) -> list[str]:
    if only is None:
        return hosts
    if only not in hosts:
        raise ConfigError(f"--host {only}: {named_hosts.absent(only)}; accepted: {named_hosts.one_of(hosts)}")
    return [only]


def _sweep(node: Node, channel: Channel, wanted: Wanted) -> Swept:
    deadline = Deadline.after(REACH_S)
    run = f"clean-{time.time_ns()}"
    client = AgentClient(node, channel, run=run, holder=holder(run), on_event=lambda _: None)
    try:
        client.hello(deadline)
        swept = client.sweep(deadline, keep_data=not wanted.data, forget=wanted.forget, stayed_s=wanted.stayed_s)
        client.remove(deadline)
    finally:
        client.close(deadline)
    return swept


def _report(
    answers: Mapping[str, Swept | OrchError], wanted: Wanted, *, done: Sequence[str] = (), failed: Sequence[str] = ()
) -> int:
    """Print the result of each node, and what else was done, or failed, on this machine."""
    trouble = 0
    for node, answer in answers.items():
        if isinstance(answer, OrchError):
            trouble += 1
            print(f"{node}: {answer.message}" + (f"\n  remedy: {answer.hint}" if answer.hint else ""))
            continue
        bad = [*_bad(answer), *failed]
        trouble += len(bad)
        for line in [*done, *_good(answer), *bad] or ["nothing to clean"]:
            print(f"{node}: {line}")
    swept = [answer for answer in answers.values() if isinstance(answer, Swept)]
    if any(answer.failed for answer in swept):
        print("  remedy: undo these changes by hand; then `orch clean ... --forget RUN` drops them")
    if wanted.forget and not any(answer.forgotten for answer in swept):
        print(f"run {wanted.forget} has no changes to forget")
    return Exit.FAILED if trouble else Exit.OK


def _good(swept: Swept) -> Iterator[str]:
    for process in swept.killed:
        yield f"ended process {process.pid} of run {process.run}: {' '.join(process.argv)}"
    yield from (f"undid {change}" for change in swept.undone)
    yield from (f"{change} is no longer in force: left alone" for change in swept.already)
    yield from (f"forgot {change.id}: {change.what}" for change in swept.forgotten)
    yield from (f"removed {folder}" for folder in swept.removed)
    yield from (f"kept {folder} (--data removes it)" for folder in swept.kept)
    for one in swept.stayed:
        files = f"{one.files} files" if one.files != 1 else "1 file"
        days = f"{one.age_s / 86400:.1f} days"
        what = f"captures of run {one.run} that stayed for {days}: {files}, {bytes_text(one.bytes)}, in {one.folder}"
        others = "(`orch prune --drop-after` removes them; --stayed AGE does where their results are lost)"
        yield f"removed {what}" if one.removed else f"left {what} {others}"
    yield from (f"left run {run} alone: it is still running" for run in swept.alive if not run.startswith("clean-"))


def _bad(swept: Swept) -> Iterator[str]:
    yield from (f"process {pid} would not end" for pid in swept.left)
    yield from (f"could not undo {change.text}" for change in swept.failed)
